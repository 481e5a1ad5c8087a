"""Bare FastAPI: the model itself as an endpoint with a pydantic body, no proxy and no MCP. What many models are today.

Usage: ``python bare_fastapi.py``; writes its port as the first line.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from serving import serve

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from servicebench.wire import answer

app = FastAPI()


class Input(BaseModel):
    """The row to score."""

    features: list[float]


@app.post("/predict")
async def predict(body: Input) -> dict[str, Any]:
    """The same answer as the model server's."""
    return answer(round(sum(body.features), 6))


if __name__ == "__main__":
    serve(app)
