"""The official SDK's own server: the low-level `Server`, stateless, JSON answers, forwarding through the adapter's own pool.

That is the quickest that the SDK can be set up, so the difference to the adapter is the SDK and not the HTTP client.

Usage: ``python sdk_server.py BACKEND_PORT``; writes its port as the first line.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import mcp.types as types
import orjson
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from serving import serve
from starlette.applications import Starlette
from starlette.routing import Route

from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.upstream import Pool

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"features": {"type": "array", "items": {"type": "number"}}},
    "required": ["features"],
}
HEADERS = [(b"content-type", b"application/json")]


def make_app(backend_port: int) -> Starlette:
    """The application, with one tool."""
    pool: Pool | None = None

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="predict", description="Score.", input_schema=SCHEMA)])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        assert pool is not None
        body = orjson.dumps(params.arguments)
        reply = await pool.request(HttpRequest(method="POST", target="/predict", headers=list(HEADERS), body=body))
        text = types.TextContent(type="text", text=reply.body.decode())
        return types.CallToolResult(content=[text], structured_content=orjson.loads(reply.body))

    server = Server(
        "bench",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=lambda _name: SCHEMA,
    )
    manager = StreamableHTTPSessionManager(app=server, json_response=True, stateless=True)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        nonlocal pool
        pool = Pool("127.0.0.1", backend_port, max_connections=66)
        async with manager.run():
            yield
        await pool.aclose()

    return Starlette(routes=[Route("/mcp", endpoint=StreamableHTTPASGIApp(manager))], lifespan=lifespan)


if __name__ == "__main__":
    serve(make_app(int(sys.argv[1])))
