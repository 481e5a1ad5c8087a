"""A running adapter inside a test's own loop, and a small HTTP client that sends exactly what it is told."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import orjson

from modelservice_api.adapter_config import AdapterConfig
from modelservice_sidecar.app import Adapter, Options, create_app
from modelservice_sidecar.clock import Clock
from modelservice_sidecar.discovery import Pace
from modelservice_sidecar.exchange import Timing
from modelservice_sidecar.log import LineWriter
from modelservice_sidecar.protocol import Limits
from modelservice_sidecar.server import bind, make_server

VERSION = "2026-07-28"
FAST = Pace(first=0.02, slowest=0.1, steady=0.05)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an async test; one that hangs fails within half a minute instead of the suite's ten."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(bounded())


class Lines(LineWriter):
    """The adapter's log, kept, and awaitable."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[dict[str, Any]] = []
        self._news = asyncio.Event()

    def event(self, event: str, **fields: object) -> None:
        self.line({"event": event, **fields})

    def line(self, fields: dict[str, object]) -> None:
        self.all.append(orjson.loads(orjson.dumps(fields)))
        self._news.set()

    def flush(self, *, patience: float = 0.0) -> None:
        pass

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.all if line["event"] == event]

    async def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        """The first line of that event with those fields, now or later."""
        while True:
            for line in self.of(event):
                if all(line.get(key) == value for key, value in fields.items()):
                    return line
            self._news.clear()
            await self._news.wait()


@dataclass(kw_only=True)
class Running:
    """An adapter that serves."""

    adapter: Adapter
    lines: Lines
    port: int
    admin_port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def ready(self) -> None:
        await self.lines.wait_for("backend", state="Ready")

    async def report(self) -> dict[str, Any]:
        reply = await request(self.admin_port, "GET", "/tools")
        return dict(json.loads(reply.body))

    async def modern(self, method: str, params: dict[str, Any] | None = None, **headers: str) -> "Reply":
        """One request of the modern era, well formed unless the headers say otherwise."""
        body = modern_body(method, params)
        return await request(self.port, "POST", "/mcp", body, {**modern_headers(method, params), **headers})

    async def legacy(self, method: str, params: dict[str, Any] | None = None, **headers: str) -> "Reply":
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method}
        if params is not None:
            body["params"] = params
        return await request(self.port, "POST", "/mcp", body, {**ACCEPT, **headers})

    async def call(self, name: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of a modern `tools/call`."""
        reply = await self.modern("tools/call", {"name": name, "arguments": arguments or {}})
        assert reply.status == 200, reply
        return dict(reply.json["result"])

    async def rpc(self, method: str, params: Any = None, **headers: str) -> "Reply":
        body = {"jsonrpc": "2.0", "id": 1, "method": method}
        if params is not None:
            body["params"] = params
        return await request(self.port, "POST", "/rpc", body, {"content-type": "application/json", **headers})


@contextlib.asynccontextmanager
async def adapter(
    backend_port: int,
    config: AdapterConfig | None = None,
    *,
    wait: bool = True,
    limits: Limits | None = None,
    pace: Pace = FAST,
    clock: Clock | None = None,
    **options: Any,
) -> AsyncIterator[Running]:
    """The real adapter on real sockets, in this loop."""
    lines = Lines()
    options.setdefault("timing", Timing())
    app = create_app(
        config or AdapterConfig(), clock, options=Options(backend_port=backend_port, pace=pace, **options), writer=lines
    )
    sockets, admin_sockets = bind("127.0.0.1", 0), bind("127.0.0.1", 0)
    servers = [make_server(app, limits or Limits()), make_server(app.admin, limits or Limits())]
    tasks = [
        asyncio.create_task(server.serve(sockets=socks))
        for server, socks in zip(servers, (sockets, admin_sockets), strict=True)
    ]
    for server in servers:
        await server.up.wait()
    await app.start()
    running = Running(
        adapter=app,
        lines=lines,
        port=sockets[0].getsockname()[1],
        admin_port=admin_sockets[0].getsockname()[1],
    )
    try:
        if wait:
            await running.ready()
        yield running
    finally:
        app.subscriptions.close()
        for server in servers:
            server.force_exit = True
            server.should_exit = True
        await asyncio.gather(*tasks)
        await app.aclose()


ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def modern_headers(method: str, params: dict[str, Any] | None = None) -> dict[str, str]:
    headers = {**ACCEPT, "mcp-protocol-version": VERSION, "mcp-method": method}
    if params and isinstance(params.get("name"), str):
        headers["mcp-name"] = params["name"]
    return headers


def modern_meta(**more: Any) -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        **more,
    }


def modern_body(method: str, params: dict[str, Any] | None = None, message_id: Any = 1) -> dict[str, Any]:
    given = dict(params or {})
    given["_meta"] = {**modern_meta(), **given.get("_meta", {})}
    return {"jsonrpc": "2.0", "id": message_id, "method": method, "params": given}


@dataclass(kw_only=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    raw_headers: list[tuple[str, str]] = field(default_factory=list)

    @property
    def json(self) -> Any:
        """The body, or the last message of a stream: the answer."""
        return self.events[-1] if "event-stream" in self.headers.get("content-type", "") else json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The JSON-RPC messages of an event stream."""
        frames = self.body.decode().split("\r\n\r\n")
        return [json.loads(frame.split("data: ", 1)[1]) for frame in frames if "data: " in frame]


async def request(port: int, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
    """One request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(encode(method, path, body, headers))
        return await read_reply(reader, head_only=method == "HEAD")
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def encode(method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> bytes:
    content = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
    given = {"host": "127.0.0.1", **(headers or {})}
    if body is not None:
        given.setdefault("content-length", str(len(content)))
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return head.encode("latin-1") + b"\r\n" + content


async def read_reply(reader: asyncio.StreamReader, *, head_only: bool = False) -> Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = head.split("\r\n")
    raw = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:] if line)]
    headers = dict(raw)
    status = int(lines[0].split()[1])
    if head_only or status in {204, 304}:
        body = b""
    elif headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Reply(status=status, headers=headers, body=body, raw_headers=raw)


async def next_event(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next JSON-RPC message of a chunked event stream; chunk sizes and comments are passed over."""
    while True:
        line = await reader.readline()
        if line.startswith(b"data: "):
            return dict(json.loads(line[6:]))
        if line in {b"", b"0\r\n"}:
            raise EOFError
