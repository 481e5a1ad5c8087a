"""The model server behind the adapter in the conformance run: its operations are the tools that the official suite calls.

Owns what each `test_*` tool answers, in HTTP terms: the suite must see the adapter's translation, so nothing here knows MCP.
Tools that only make sense with features a model adapter does not offer (sampling, elicitation, logging) are here only where
the suite uses them to prove that the adapter does *not* do something.

Usage: ``python tests/conformance/model_server.py [ADDRESS:PORT]``; writes its port as its first line.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SILENCE = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")
"""A WAV file without samples."""
PIECE_SECONDS = 0.15
"""Between pieces of a streamed answer: longer than the adapter's least pause between two progress messages."""

JSON_SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/components/schemas/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
"""The schema that the suite wants, as an OpenAPI 3.1 document would hold it: the definition is a component."""


def binary(media_type: str) -> dict[int | str, dict[str, Any]]:
    """How an operation says that it answers with this media type."""
    return {200: {"content": {media_type: {}}}}


def make_app() -> FastAPI:
    """The application."""
    app = FastAPI(title="conformance", version="1")
    added: list[int] = []

    # The suite calls the first tool of the list without arguments and wants success.
    @app.post("/first")
    def first_listed() -> dict[str, bool]:
        """Answer without arguments."""
        return {"ok": True}

    @app.post("/simple-text", response_class=PlainTextResponse)
    def test_simple_text() -> str:
        """Answer with plain text."""
        return "This is a simple text response for testing."

    @app.post("/image", response_class=Response, responses=binary("image/png"))
    def test_image_content() -> Response:
        """Answer with a picture."""
        return Response(PNG, media_type="image/png")

    @app.post("/audio", response_class=Response, responses=binary("audio/wav"))
    def test_audio_content() -> Response:
        """Answer with a sound."""
        return Response(SILENCE, media_type="audio/wav")

    @app.post("/resource", response_class=Response, responses=binary("application/x-weights"))
    def test_embedded_resource() -> Response:
        """Answer with bytes of a type that is neither text nor picture nor sound."""
        return Response(b"This is an embedded resource content.", media_type="application/x-weights")

    @app.post("/error")
    def test_error_handling() -> dict[str, str]:
        """Fail as a model server does."""
        raise HTTPException(422, "This tool intentionally returns an error for testing")

    @app.post("/progress")
    async def test_tool_with_progress() -> StreamingResponse:
        """Answer in four pieces, as a model does that writes tokens."""

        async def pieces() -> AsyncIterator[str]:
            for number in range(4):
                yield f"data: piece {number}\n\n"
                await asyncio.sleep(PIECE_SECONDS)

        return StreamingResponse(pieces(), media_type="text/event-stream")

    @app.post("/logging", response_class=PlainTextResponse)
    def test_logging_tool() -> str:
        """Answer with text: the suite proves by it that no log message is sent to who did not ask for any."""
        return "done"

    @app.post("/streaming")
    async def test_streaming_elicitation() -> StreamingResponse:
        """Answer in pieces: the suite proves by it that no request travels on an answer's stream."""

        async def pieces() -> AsyncIterator[str]:
            for number in range(3):
                yield f"data: piece {number}\n\n"
                await asyncio.sleep(0)

        return StreamingResponse(pieces(), media_type="text/event-stream")

    @app.post("/trigger", response_class=PlainTextResponse)
    def test_trigger_tool_change() -> str:
        """Add an operation, so that the document and with it the list of tools changes."""
        added.append(len(added))
        number = added[-1]
        app.add_api_route(f"/added/{number}", lambda: {"number": number}, methods=["POST"], name=f"added_{number}")
        app.openapi_schema = None
        return "changed"

    @app.post(
        "/json-schema",
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": JSON_SCHEMA_2020_12}}}},
    )
    def json_schema_2020_12_tool() -> dict[str, bool]:
        """Take arguments that only JSON Schema 2020-12 describes."""
        return {"ok": True}

    describe = app.openapi

    def openapi() -> dict[str, Any]:
        """The document with the component that the schema above refers to."""
        document = describe()
        components = document.setdefault("components", {}).setdefault("schemas", {})
        components["address"] = JSON_SCHEMA_2020_12["$defs"]["address"]
        return document

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def main(address: str) -> None:
    """Serve until a signal, on a port of the kernel's choice where none is named."""
    host, _, port = address.rpartition(":")
    listener = socket.create_server((host, int(port)))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(make_app(), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "127.0.0.1:0")
