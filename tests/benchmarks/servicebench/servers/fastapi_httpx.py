"""The adapter as one would write it in an afternoon: FastAPI, pydantic in and out, an HTTP client library.

Does only what a `tools/call` of MCP needs; it has no limits, metrics, logs or checks. It is here to show what those cost less
than.

Usage: ``python fastapi_httpx.py BACKEND_PORT``; writes its port as the first line.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

import httpx2
from fastapi import FastAPI
from pydantic import BaseModel
from serving import serve

app = FastAPI()
client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{sys.argv[1]}", limits=httpx2.Limits(max_connections=64))


class Arguments(BaseModel):
    """The tool's arguments."""

    features: list[float]


class Params(BaseModel):
    """Parameters of `tools/call`."""

    name: Literal["predict"]
    arguments: Arguments


class Call(BaseModel):
    """One request."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: Literal["tools/call"]
    params: Params


class Result(BaseModel):
    """What a call gives."""

    content: list[dict[str, Any]]
    structuredContent: dict[str, Any]  # noqa: N815 - MCP's spelling
    isError: bool = False  # noqa: N815
    resultType: str = "complete"  # noqa: N815


class Reply(BaseModel):
    """One response."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: int | str
    result: Result


@app.post("/mcp")
async def mcp(call: Call) -> Reply:
    """Forward and wrap."""
    reply = await client.post("/predict", json=call.params.arguments.model_dump())
    reply.raise_for_status()
    content = [{"type": "text", "text": reply.text}]
    return Reply(id=call.id, result=Result(content=content, structuredContent=reply.json()))


if __name__ == "__main__":
    serve(app)
