"""The official MCP SDK's server is the oracle: the same requests to it and to the adapter, answers compared.

Shapes are written by hand, and generated: headers that agree and contradict in every combination, and every member of a
message replaced by every odd value. Compared are HTTP status, JSON-RPC code and result, modulo order, ids of ours in
`_meta`, and the wording of errors. Where the adapter answers differently on purpose, `DELIBERATE` says so and why; every
row there must be met, none may be stale, and docs/explanation/conformance.md lists the reasons.
"""

import asyncio
import contextlib
import copy
import itertools
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import uvicorn
from fastapi import FastAPI, HTTPException
from mcp import MCPError
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from pydantic import BaseModel

from adapter_harness import ACCEPT, VERSION, adapter, encode, modern_body, modern_headers, modern_meta, read_reply, run
from model_apps import model_server
from modelservice_api.adapter_config import AdapterConfig, ServerConfig
from modelservice_sidecar.server import PortServer, bind

Shape = tuple[str, str, str, Any, dict[str, str]]
"""Name, HTTP method, path, body (bytes go as they are) and headers."""


def shapes() -> list[Shape]:
    """Requests well formed and not, of both eras."""
    return [*_modern_shapes(), *_legacy_shapes(), *_http_shapes(), *generated()]


def generated() -> list[Shape]:
    """Those that nobody wrote one by one."""
    return [*_headers_against_bodies(), *_odd_members()]


_PLACES = (
    ("jsonrpc",),
    ("id",),
    ("method",),
    ("params",),
    ("params", "name"),
    ("params", "arguments"),
    ("params", "_meta"),
    ("params", "_meta", "progressToken"),
    ("params", "_meta", "io.modelcontextprotocol/protocolVersion"),
    ("params", "_meta", "io.modelcontextprotocol/clientCapabilities"),
    ("params", "_meta", "io.modelcontextprotocol/clientInfo"),
)
_ODD: dict[str, Any] = {
    "absent": ...,
    "null": None,
    "true": True,
    "zero": 0,
    "negative": -1,
    "fraction": 1.5,
    "beyond 53 bits": 2**53 + 1,
    "empty string": "",
    "string": "x",
    "NUL": "\x00",
    "long string": "x" * 600,
    "empty list": [],
    "list": [1],
    "empty object": {},
    "object": {"a": 1},
}


def _headers_against_bodies() -> list[Shape]:
    """Two methods under every combination of routing headers and of what `_meta` says about the version."""
    found: list[Shape] = []
    versions: dict[str, str | None] = {"none": None, "modern": VERSION, "older": "2025-11-25", "unknown": "2031-01-01"}
    metas: dict[str, str | None] = {"none": None, "modern": VERSION, "older": "2025-11-25"}
    for method, params in (("tools/call", _call()), ("tools/list", {})):
        methods: dict[str, str | None] = {"none": None, "right": method, "wrong": "server/discover"}
        names: dict[str, str | None] = {"none": None, "add": "add", "fail": "fail", "encoded": "=?base64?YWRk?="}
        for version, said, name, meta in itertools.product(versions, methods, names, metas):
            told = {**modern_meta(), "io.modelcontextprotocol/protocolVersion": metas[meta]}
            body_params = params if metas[meta] is None else {**params, "_meta": told}
            given = {
                "mcp-protocol-version": versions[version], "mcp-method": methods[said], "mcp-name": names[name]
            }  # fmt: skip
            found.append(
                (
                    f"generated {method}: version {version}, method {said}, name {name}, _meta {meta}",
                    "POST",
                    "/mcp",
                    {"jsonrpc": "2.0", "id": 1, "method": method, "params": body_params},
                    {**ACCEPT, **{header: value for header, value in given.items() if value is not None}},
                )
            )
    return found


def _odd_members() -> list[Shape]:
    """A good call of each era with one member replaced by each odd value."""
    found: list[Shape] = []
    for era in ("modern", "legacy"):
        good = modern_body("tools/call", _call())
        if era == "legacy":
            del good["params"]["_meta"]
        headers = modern_headers("tools/call", _call()) if era == "modern" else ACCEPT
        for place, (label, value) in itertools.product(_PLACES, _ODD.items()):
            body = copy.deepcopy(good)
            holder: Any = body
            for step in place[:-1]:
                holder = holder.setdefault(step, {})
            if value is ...:
                holder.pop(place[-1], None)
            else:
                holder[place[-1]] = value
            found.append((f"generated {era} call: {'.'.join(place)} {label}", "POST", "/mcp", body, headers))
    return found


def _call(arguments: Any = None, name: str = "add", **more: Any) -> dict[str, Any]:
    return {"name": name, "arguments": {"a": 1, "b": 2} if arguments is None else arguments, **more}


def _modern(name: str, method: str, params: Any = None, *, drop: str = "", **headers: str) -> Shape:
    given = {key: value for key, value in {**modern_headers(method, params), **headers}.items() if key != drop}
    return f"modern {name}", "POST", "/mcp", modern_body(method, params), given


def _modern_raw(name: str, body: Any, method: str = "tools/list", **headers: str) -> Shape:
    return f"modern {name}", "POST", "/mcp", body, {**modern_headers(method), **headers}


def _modern_shapes() -> list[Shape]:
    good = modern_body("tools/list")
    found = [
        _modern("discover", "server/discover"),
        _modern("list", "tools/list"),
        _modern("list, null cursor", "tools/list", {"cursor": None}),
        _modern("list, numeric cursor", "tools/list", {"cursor": 3}),
        _modern("call", "tools/call", _call()),
        _modern("call, floats", "tools/call", _call({"a": 0.5, "b": -0.25})),
        _modern("call, no arguments for a tool without any", "tools/call", {"name": "nothing"}),
        _modern("call, null arguments", "tools/call", {"name": "nothing", "arguments": None}),
        _modern("call, list arguments", "tools/call", _call([1, 2])),
        _modern("call, string arguments", "tools/call", _call("x")),
        _modern("call, unknown tool", "tools/call", _call(name="subtract")),
        _modern("call, tool of another case", "tools/call", _call(name="ADD")),
        _modern("call, empty name", "tools/call", _call(name="")),
        _modern("call, numeric name", "tools/call", {"name": 5, "arguments": {}}),
        _modern("call, no name", "tools/call", {"arguments": {}}),
        _modern("call, extra member", "tools/call", _call(extra=1)),
        _modern("call, task member", "tools/call", _call(task={"ttl": 5})),
        _modern("call, requestState", "tools/call", _call(requestState="x")),
        _modern("call, mcp-name missing", "tools/call", _call(), drop="mcp-name"),
        _modern("call, mcp-name differs", "tools/call", _call(), **{"mcp-name": "other"}),
        _modern("call, mcp-name of another case", "tools/call", _call(), **{"mcp-name": "ADD"}),
        _modern("call, mcp-name in base64", "tools/call", _call(), **{"mcp-name": "=?base64?YWRk?="}),
        _modern("call, mcp-name in broken base64", "tools/call", _call(), **{"mcp-name": "=?base64?YWR!?="}),
        _modern("call, mcp-name in loose base64", "tools/call", _call(), **{"mcp-name": "=?base64?YWRl?="}),
        _modern("call, mcp-name empty", "tools/call", _call(), **{"mcp-name": ""}),
        _modern("call, mcp-name padded", "tools/call", _call(), **{"mcp-name": "  add  "}),
        _modern("call, stray mcp-param", "tools/call", _call(), **{"mcp-param-a": "1"}),
        _modern("call, mcp-method differs", "tools/call", _call(), **{"mcp-method": "tools/list"}),
        _modern("call, mcp-method of another case", "tools/call", _call(), **{"mcp-method": "TOOLS/CALL"}),
        _modern("list, mcp-method missing", "tools/list", drop="mcp-method"),
        _modern("list, mcp-name present", "tools/list", **{"mcp-name": "orphan"}),
        _modern("list, session id", "tools/list", **{"mcp-session-id": "stale"}),
        _modern("list, last-event-id", "tools/list", **{"last-event-id": "7"}),
        _modern("list, unknown future version", "tools/list", **{"mcp-protocol-version": "2027-01-01"}),
        _modern("list, garbage version", "tools/list", **{"mcp-protocol-version": "zzz"}),
        _modern("list, empty version", "tools/list", **{"mcp-protocol-version": ""}),
        _modern("ping", "ping"),
        _modern("initialize", "initialize"),
        _modern("logging/setLevel", "logging/setLevel", {"level": "info"}),
        _modern("resources/list", "resources/list"),
        _modern("resources/read", "resources/read", {"uri": "test://x"}, **{"mcp-name": "test://x"}),
        _modern("resources/read, mcp-name missing", "resources/read", {"uri": "test://x"}),
        _modern("prompts/list", "prompts/list"),
        _modern("prompts/get", "prompts/get", {"name": "x"}),
        _modern("completion/complete", "completion/complete", {"ref": {}, "argument": {}}),
        _modern("unknown method", "tools/destroy"),
        _modern("empty method", ""),
        _modern("tasks/get", "tasks/get", {"taskId": "1"}),
        _modern("listen without a filter", "subscriptions/listen", {}),
        _modern("listen, filter of wrong type", "subscriptions/listen", {"notifications": 3}),
        _modern_raw("no params", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
        _modern_raw("null params", {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": None}),
        _modern_raw("list params", {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []}),
        _modern_raw("no _meta", {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}),
        _modern_raw("string _meta", {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": "x"}}),
        _modern_raw("empty _meta", {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {}}}),
        _modern_raw("id string", {**good, "id": "abc"}),
        _modern_raw("id empty string", {**good, "id": ""}),
        _modern_raw("id zero", {**good, "id": 0}),
        _modern_raw("id negative", {**good, "id": -5}),
        _modern_raw("id null", {**good, "id": None}),
        _modern_raw("id float", {**good, "id": 1.5}),
        _modern_raw("id boolean", {**good, "id": True}),
        _modern_raw("id object", {**good, "id": {}}),
        _modern_raw("jsonrpc 1.0", {**good, "jsonrpc": "1.0"}),
        _modern_raw("jsonrpc number", {**good, "jsonrpc": 2.0}),
        _modern_raw("no jsonrpc", {key: value for key, value in good.items() if key != "jsonrpc"}),
        _modern_raw("no method", {key: value for key, value in good.items() if key != "method"}),
        _modern_raw("numeric method", {**good, "method": 3}),
        _modern_raw("extra member", {**good, "extra": 1}),
        _modern_raw("response", {"jsonrpc": "2.0", "id": 1, "result": {}}),
        _modern_raw("error response", {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}),
        _modern_raw("batch", [good]),
        _modern_raw("empty batch", []),
        _modern_raw("null", b"null"),
        _modern_raw("string", b'"x"'),
        _modern_raw("number", b"5"),
        _modern_raw("empty body", b""),
        _modern_raw("half an object", b'{"jsonrpc": "2.0"'),
        _modern_raw("two objects", b"{}{}"),
        _modern_raw("deep lists", b"[" * 100_000),
        _modern_raw("notification", {"jsonrpc": "2.0", "method": "notifications/initialized"}),
        _modern_raw("cancel notification", {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}),
        _modern_raw("unknown notification", {"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": 1}}),
        _modern_raw("notification, list params", {"jsonrpc": "2.0", "method": "notifications/x", "params": []}),
        _modern_raw("notification, no method", {"jsonrpc": "2.0"}),
        _modern_raw(
            "notification, unknown version",
            {"jsonrpc": "2.0", "method": "notifications/x"},
            **{"mcp-protocol-version": "2027-01-01"},
        ),
    ]
    meta = modern_meta()
    for label, change in {
        "version missing": {"io.modelcontextprotocol/protocolVersion": ...},
        "capabilities missing": {"io.modelcontextprotocol/clientCapabilities": ...},
        "client info missing": {"io.modelcontextprotocol/clientInfo": ...},
        "client info null": {"io.modelcontextprotocol/clientInfo": None},
        "client info empty": {"io.modelcontextprotocol/clientInfo": {}},
        "client info a string": {"io.modelcontextprotocol/clientInfo": "me"},
        "capabilities a list": {"io.modelcontextprotocol/clientCapabilities": []},
        "capabilities null": {"io.modelcontextprotocol/clientCapabilities": None},
        "version differs": {"io.modelcontextprotocol/protocolVersion": "2025-11-25"},
        "version null": {"io.modelcontextprotocol/protocolVersion": None},
        "version numeric": {"io.modelcontextprotocol/protocolVersion": 2026},
        "traceparent": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        "traceparent malformed": {"traceparent": "zzz"},
        "log level": {"io.modelcontextprotocol/logLevel": "debug"},
        "unknown key": {"example.com/x": [1]},
    }.items():
        changed = {key: value for key, value in {**meta, **change}.items() if value is not ...}
        found.append(_modern_raw(f"_meta: {label}", {**good, "params": {"_meta": changed}}))
    return found


def _legacy(name: str, method: str, params: Any = None, **headers: str) -> Shape:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": method}
    if params is not None:
        body["params"] = params
    return f"legacy {name}", "POST", "/mcp", body, {**ACCEPT, **headers}


def _hello(version: Any) -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def _legacy_shapes() -> list[Shape]:
    found = [
        _legacy("initialize, unknown version", "initialize", _hello("1999-01-01")),
        _legacy("initialize, modern version", "initialize", _hello(VERSION)),
        _legacy("initialize, numeric version", "initialize", _hello(5)),
        _legacy("initialize, no params", "initialize"),
        _legacy("initialize, no client", "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}),
        _legacy("initialize, no capabilities", "initialize", {**_hello("2025-11-25"), "capabilities": None}),
        _legacy("ping", "ping"),
        _legacy("ping, params", "ping", {}),
        _legacy("list without a version", "tools/list"),
        _legacy("call without a version", "tools/call", _call()),
        _legacy("call with a session id", "tools/call", _call(), **{"mcp-session-id": "stale"}),
        _legacy("call with modern routing headers", "tools/call", _call(), **{"mcp-method": "x", "mcp-name": "y"}),
        _legacy("call, unknown tool", "tools/call", _call(name="subtract")),
        _legacy("call, list arguments", "tools/call", _call([1])),
        _legacy("call, no name", "tools/call", {"arguments": {}}),
        _legacy("list, numeric cursor", "tools/list", {"cursor": 1}),
        _legacy("discover", "server/discover", {}),
        _legacy("unknown method", "tools/destroy", {}),
        _legacy("resources/list", "resources/list", {}),
        _legacy("prompts/get", "prompts/get", {"name": "x"}),
        _legacy("logging/setLevel", "logging/setLevel", {"level": "info"}),
        ("legacy initialized", "POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, ACCEPT),
        ("legacy cancelled", "POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/cancelled"}, ACCEPT),
        ("legacy response", "POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "result": {}}, ACCEPT),
        ("legacy garbage", "POST", "/mcp", b"{nope", ACCEPT),
        ("legacy batch", "POST", "/mcp", [{"jsonrpc": "2.0", "id": 1, "method": "ping"}], ACCEPT),
        ("legacy id null", "POST", "/mcp", {"jsonrpc": "2.0", "id": None, "method": "ping"}, ACCEPT),
        ("legacy no jsonrpc", "POST", "/mcp", {"id": 1, "method": "ping"}, ACCEPT),
    ]
    for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
        header = {"mcp-protocol-version": version}
        found += [
            _legacy(f"initialize {version}", "initialize", _hello(version)),
            _legacy(f"list {version}", "tools/list", **header),
            _legacy(f"call {version}", "tools/call", _call(), **header),
            _legacy(f"failing call {version}", "tools/call", {"name": "fail", "arguments": {}}, **header),
            _legacy(f"ping {version}", "ping", **header),
        ]
    return found


def _http_shapes() -> list[Shape]:
    body = modern_body("tools/list")
    headers = modern_headers("tools/list")
    return [
        ("http GET", "GET", "/mcp", None, {"mcp-protocol-version": VERSION, "accept": "text/event-stream"}),
        ("http GET legacy", "GET", "/mcp", None, {"accept": "text/event-stream", "mcp-protocol-version": "2025-11-25"}),
        ("http DELETE", "DELETE", "/mcp", None, {"mcp-protocol-version": VERSION}),
        ("http DELETE legacy", "DELETE", "/mcp", None, {"mcp-protocol-version": "2025-11-25"}),
        ("http PUT", "PUT", "/mcp", body, headers),
        ("http OPTIONS", "OPTIONS", "/mcp", None, {"mcp-protocol-version": VERSION}),
        ("http accept */*", "POST", "/mcp", body, {**headers, "accept": "*/*"}),
        ("http accept json only", "POST", "/mcp", body, {**headers, "accept": "application/json"}),
        ("http accept stream only", "POST", "/mcp", body, {**headers, "accept": "text/event-stream"}),
        ("http accept html", "POST", "/mcp", body, {**headers, "accept": "text/html"}),
        ("http no accept", "POST", "/mcp", body, {k: v for k, v in headers.items() if k != "accept"}),
        ("http listen, accept json only", "POST", "/mcp", modern_body("subscriptions/listen", {"notifications": {}}),
         {**modern_headers("subscriptions/listen"), "accept": "application/json"}),
        ("http text/plain", "POST", "/mcp", body, {**headers, "content-type": "text/plain"}),
        ("http json with charset", "POST", "/mcp", body, {**headers, "content-type": "application/json; charset=utf-8"}),
        ("http foreign origin", "POST", "/mcp", body, {**headers, "origin": "https://evil.example"}),
        ("http local origin", "POST", "/mcp", body, {**headers, "origin": "http://localhost:3000"}),
        ("http trailing slash", "POST", "/mcp/", body, headers),
    ]  # fmt: skip


_CONTRADICTS = "-32020: the headers contradict the message, and a gateway may have decided by them; the SDK runs it"

DELIBERATE: dict[str, str] = {
    "modern call, mcp-name padded": "OWS around a header value is no part of it (RFC 9110); the SDK under httptools keeps it",
    r"modern list, mcp-name present": "-32020: a name that the message has not; the SDK runs it (python-sdk#3269)",
    r"generated tools/list: version modern, method right, name (?!none).*, _meta modern": (
        "-32020: a name that the message has not; the SDK runs it (python-sdk#3269)"
    ),
    r"generated modern call: params\.name (absent|null)": (
        "-32020: a name that the message has not; the SDK says -32602, since the message lacks its name"
    ),
    r"legacy call with modern routing headers": _CONTRADICTS,
    r"generated tools/\w+: version (none|older), method wrong, .*": _CONTRADICTS,
    r"generated tools/call: version (none|older), .*, name fail, .*": _CONTRADICTS,
    r"generated tools/list: version (none|older), .*, name (?!none).*": _CONTRADICTS,
    r"generated tools/\w+: version none, .*, _meta (?!none).*": _CONTRADICTS,
    r"generated tools/\w+: version older, .*, _meta modern": _CONTRADICTS,
    r"generated legacy call: params\._meta\.io\.modelcontextprotocol/protocolVersion (?!absent|null).*": _CONTRADICTS,
    r"generated (modern|legacy) call: id long string": (
        "-32600: an `id` has at most 512 characters, for it is repeated in every answer and event"
    ),
    r"generated (modern|legacy) call: params\._meta\.progressToken (true|long string)": (
        "-32602: a progress token is an integer or a string of at most 512 characters; the SDK takes true for 1"
    ),
    r"legacy (batch|no jsonrpc)|generated legacy call: (jsonrpc .*"
    r"|(method|params) (true|zero|negative|fraction|beyond .*|empty list|list)"
    r"|method (absent|null|.*object)|params .*(string|NUL))": (
        "-32600 as in the modern era; the SDK says -32602 for a body that is no request at all"
    ),
    r"legacy id null|generated legacy call: id (null|true|fraction|.*list|.*object)": (
        "-32600: an `id` that is none; the SDK takes the request for a notification and says 202"
    ),
    "http GET legacy": "405: the SDK opens a stream on which nothing ever comes (python-sdk#3492)",
    "http foreign origin": "403: MCP demands the check; the SDK leaves it off unless configured",
    "modern completion/complete": "-32601 for a method that is not offered; the SDK checks its parameters first",
    "http OPTIONS": "204 with Allow: a browser's preflight must succeed before it may POST",
    "http text/plain": "415 is the status for a media type; the SDK says 400",
}
"""Names of shapes, as patterns, with the reason why they are answered otherwise."""


async def _oracle_list(ctx: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in TOOLS])


async def _oracle_call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    def answer(value: dict[str, Any]) -> types.CallToolResult:
        text = json.dumps(value, separators=(",", ":"))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=value)

    arguments = params.arguments or {}
    if params.name == "add":
        if set(arguments) != {"a", "b"}:
            said = "Invalid arguments"
            return types.CallToolResult(content=[types.TextContent(type="text", text=said)], is_error=True)
        return answer({"sum": float(arguments["a"] + arguments["b"])})
    if params.name == "nothing":
        return answer({"done": True})
    if params.name == "fail":
        said = "The model server failed (HTTP 500)."
        return types.CallToolResult(content=[types.TextContent(type="text", text=said)], is_error=True)
    raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name}")


TOOLS: list[dict[str, Any]] = []


@contextlib.asynccontextmanager
async def oracle() -> AsyncIterator[int]:
    """The SDK's server, stateless, in JSON mode, with the adapter's own tools."""
    server: Server[Any] = Server(
        "same",
        version="1",
        on_list_tools=_oracle_list,
        on_call_tool=_oracle_call,
        on_subscriptions_listen=ListenHandler(InMemorySubscriptionBus()),
        get_tool_input_schema=lambda name: next((t["inputSchema"] for t in TOOLS if t["name"] == name), None),
        cache_hints={"tools/list": CacheHint(5000, "public"), "server/discover": CacheHint(60000, "public")},
    )
    manager = StreamableHTTPSessionManager(app=server, json_response=True, stateless=True)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] not in {"/mcp", "/mcp/"}:
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await manager.handle_request(scope, receive, send)

    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", http="httptools")
    serving = PortServer(config)
    sock = bind("127.0.0.1", 0)[0]
    async with manager.run():
        task = asyncio.create_task(serving.serve(sockets=[sock]))
        await serving.up.wait()
        try:
            yield sock.getsockname()[1]
        finally:
            serving.force_exit = True
            serving.should_exit = True
            await task


def model_app() -> FastAPI:
    """The model server behind the adapter; `_oracle_call` answers the same."""
    app = FastAPI()

    class Pair(BaseModel):
        a: float
        b: float

    class Sum(BaseModel):
        sum: float

    class Done(BaseModel):
        done: bool

    @app.post("/add")
    def add(pair: Pair) -> Sum:
        return Sum(sum=pair.a + pair.b)

    @app.post("/nothing")
    def nothing() -> Done:
        return Done(done=True)

    @app.post("/fail")
    def fail() -> None:
        raise HTTPException(500)

    return app


async def _ask(port: int, shape: Shape) -> dict[str, Any]:
    """Status, code and result of one request; a stream that nothing comes on counts as its head."""
    _, method, path, body, headers = shape
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(encode(method, path, body, headers))
        head_only = method == "GET" and headers["mcp-protocol-version"] != VERSION
        reply = await read_reply(reader, head_only=head_only)
    finally:
        writer.close()
    told: dict[str, Any] = {"status": reply.status}
    if reply.status in {403, 405, 406, 415}:
        return told  # refused below JSON-RPC: the SDK sends no body, the adapter a sentence
    if reply.body and "json" in reply.headers.get("content-type", ""):
        message = reply.json
        if isinstance(message, dict) and "jsonrpc" in message:
            told["id"] = message.get("id")
            told["code"] = message.get("error", {}).get("code")
            told["data"] = message.get("error", {}).get("data") if told["code"] == -32022 else None
            told["result"] = _plain(message.get("result"))
    return told


def _plain(result: Any) -> Any:
    """The result without what differs by design: our ids in `_meta`, and fields that say what their absence says."""
    if not isinstance(result, dict):
        return result
    meta = {key: value for key, value in result.get("_meta", {}).items() if not key.startswith("modelservice.dev/")}
    plain = {key: value for key, value in result.items() if key != "_meta"}
    if plain.get("isError") is False:
        del plain["isError"]
    elif "isError" in plain:
        plain["content"] = [{**block, "text": "…"} for block in plain["content"]]
    if "capabilities" in plain:
        plain["capabilities"] = {"tools": {"listChanged": bool(plain["capabilities"]["tools"].get("listChanged"))}}
    return {**plain, **({"_meta": meta} if meta else {})}


def test_two_hundred_shapes_are_generated_and_every_exception_names_one() -> None:
    names = [shape[0] for shape in shapes()]
    assert len(names) == len(set(names))
    assert len(generated()) >= 200
    assert [pattern for pattern in DELIBERATE if not any(re.fullmatch(pattern, name) for name in names)] == []


def test_every_exception_stands_in_the_documentation_with_its_reason() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "conformance.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert [reason for reason in DELIBERATE.values() if reason not in text] == []


@pytest.mark.promise("mcp-eras")
def test_the_adapter_answers_like_the_official_server_but_for_the_listed_exceptions() -> None:
    async def test() -> None:
        config = AdapterConfig(server=ServerConfig(name="same", version="1"))
        with model_server(model_app()) as model:
            async with adapter(model, config) as ours, oracle() as theirs:
                TOOLS[:] = [tool.definition for tool in ours.adapter.catalogue.tools]
                different: dict[str, Any] = {}
                for shape in shapes():
                    mine, reference = await _ask(ours.port, shape), await _ask(theirs, shape)
                    if mine != reference:
                        different[shape[0]] = {"adapter": mine, "sdk": reference}
        accepted = {shape[0] for shape in shapes() if any(re.fullmatch(pattern, shape[0]) for pattern in DELIBERATE)}
        unexpected = [f"{name}: {pair}" for name, pair in different.items() if name not in accepted]
        assert not unexpected, "\n".join(unexpected)
        assert accepted - set(different) == set(), "these are answered alike: take them out"

    run(test)
