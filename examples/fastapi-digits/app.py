"""An ordinary FastAPI service around an ordinary scikit-learn model: it reads handwritten digits.

Owns the service's HTTP interface. It stands for the services that teams already run: it knows nothing of modelservice
and nothing of MCP, and it needs neither.
"""

import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field

MODEL = Path(__file__).with_name("model.pickle")

Pixel = Annotated[float, Field(ge=0, le=16)]
Row = Annotated[list[Pixel], Field(min_length=8, max_length=8)]


class Image(BaseModel):
    """A scanned digit."""

    pixels: Annotated[list[Row], Field(min_length=8, max_length=8)] = Field(
        description="Eight rows of eight pixels, top row first; 0 is paper, 16 is ink."
    )


class Prediction(BaseModel):
    """What the model reads."""

    digit: Annotated[int, Field(ge=0, le=9)] = Field(description="The digit that the model reads.")
    confidence: Annotated[float, Field(ge=0, le=1)] = Field(description="The probability the model gives that digit.")


class ModelInfo(BaseModel):
    """Which model is loaded."""

    name: str
    version: str
    accuracy: float = Field(description="Share of held-out digits that the model read correctly when it was trained.")


def create_app(model: dict[str, Any] | None = None) -> FastAPI:
    """The service around ``model`` as `train.py` writes it; None loads `model.pickle` beside this file at start-up."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.model = pickle.loads(MODEL.read_bytes()) if model is None else model
        yield

    app = FastAPI(title="digits", version="1.0.0", lifespan=lifespan)

    @app.post("/predict")
    def predict(image: Image, request: Request) -> Prediction:
        """Reads a handwritten digit from its 8x8 pixels."""
        pixels = [pixel for row in image.pixels for pixel in row]
        [probabilities] = request.app.state.model["classifier"].predict_proba([pixels])
        digit = max(range(len(probabilities)), key=lambda candidate: probabilities[candidate])
        return Prediction(digit=digit, confidence=float(probabilities[digit]))

    @app.get("/model")
    def describe(request: Request) -> ModelInfo:
        """Tells which model is loaded and how good it was when it was trained."""
        model = request.app.state.model
        return ModelInfo(name=model["name"], version=model["version"], accuracy=model["accuracy"])

    @app.get("/healthz", include_in_schema=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    return app


app = create_app()
