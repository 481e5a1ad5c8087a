"""The tools that an MCP server lists, over HTTP, in either era of the protocol.

Owns that one conversation. Bounded in pages and bytes; nothing is called.
"""

import asyncio
from typing import Any, Final

import orjson

from modelservice_cli.place import UsageError
from modelservice_sidecar.backends.event_stream import PieceReader, stream_kind
from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.core import mcp, revisions
from modelservice_sidecar.upstream import Pool, Reply

TIMEOUT: Final = 10.0
MAX_PAGES: Final = 50
_CLIENT: Final = {"name": "modelservice-lint", "version": "1"}


async def tools(host: str, port: int, path: str) -> list[dict[str, Any]]:
    """Every page of `tools/list`.

    Raises:
        UsageError: it is no MCP server, or it refuses; the text says what it answered.
        BackendError: it cannot be reached.
    """
    pool = Pool(host, port, max_connections=1)
    try:
        async with asyncio.timeout(TIMEOUT):
            return await _Conversation(pool, path).tools()
    except TimeoutError as error:
        raise UsageError(f"{path} on {pool.address} did not answer within {TIMEOUT:.0f} s.") from error
    finally:
        await pool.aclose()


class _Conversation:
    """One client. `_headers` is what the server wants with every request once it is known which era it speaks."""

    def __init__(self, pool: Pool, path: str) -> None:
        self._pool = pool
        self._path = path
        self._modern = True
        self._headers: list[tuple[bytes, bytes]] = []

    async def tools(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        first = await self._list(None)
        if first is None:
            self._modern = False
            await self._initialize()
        for _ in range(MAX_PAGES):
            page = first if first is not None else await self._list(cursor)
            first = None
            if page is None or not isinstance(page.get("tools"), list):
                raise UsageError(f"{self._path} on {self._pool.address} answers no tools/list of MCP.")
            found += [tool for tool in page["tools"] if isinstance(tool, dict)]
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                break
        return found

    async def _list(self, cursor: str | None) -> dict[str, Any] | None:
        params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        headers: list[tuple[bytes, bytes]] = []
        if self._modern:
            revision = revisions.MODERN[-1]
            params["_meta"] = {
                mcp.PROTOCOL_VERSION_KEY: revision,
                mcp.CAPABILITIES_KEY: {},
                mcp.CLIENT_INFO_KEY: _CLIENT,
            }
            headers = [(b"mcp-protocol-version", revision.encode()), (b"mcp-method", b"tools/list")]
        _, result = await self._ask("tools/list", params, headers)
        return result

    async def _initialize(self) -> None:
        params = {"protocolVersion": revisions.HANDSHAKE[-1], "capabilities": {}, "clientInfo": _CLIENT}
        reply, result = await self._ask("initialize", params, [])
        if result is None:
            said = f"answers HTTP {reply.status}" if reply.status != 200 else "does not answer as one"
            raise UsageError(f"{self._path} on {self._pool.address} is no MCP endpoint: it {said}.")
        self._headers.append(
            (b"mcp-protocol-version", str(result.get("protocolVersion", "")).encode("ascii", "ignore"))
        )
        if session := reply.headers.get("mcp-session-id"):
            self._headers.append((b"mcp-session-id", session.encode("ascii", "ignore")))
        await self._ask("notifications/initialized", None, [])

    async def _ask(
        self, method: str, params: dict[str, Any] | None, headers: list[tuple[bytes, bytes]]
    ) -> tuple[Reply, dict[str, Any] | None]:
        """Send one message; the reply and its result, if it has one."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message |= {"id": 1, "params": params}
        sent = [
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
            *self._headers,
            *headers,
        ]
        request = HttpRequest(method="POST", target=self._path, headers=sent, body=orjson.dumps(message))
        reply = await self._pool.request(request)
        return reply, _result(reply)


def _result(reply: Reply) -> dict[str, Any] | None:
    kind = stream_kind(reply.headers.get("content-type", ""))
    bodies: list[str | bytes] = [reply.body]
    if kind is not None:
        reader = PieceReader(kind)
        bodies = [*reader.feed(reply.body), *reader.finish()]
    for body in reversed(bodies):
        try:
            message = orjson.loads(body)
        except orjson.JSONDecodeError:
            continue
        result = message.get("result") if isinstance(message, dict) else None
        if isinstance(result, dict):
            return result
    return None
