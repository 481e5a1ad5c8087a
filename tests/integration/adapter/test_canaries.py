"""Strings that must not travel, planted wherever a caller or a model server can put one, and looked for everywhere else.

Sources are a caller's headers and arguments and all that a model server sends. Places are what reaches the model server, the
log, the admin port and other answers. Tokens of the auth layer have their own test in `test_auth`.
"""

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import orjson
import pytest

from adapter_harness import ACCEPT, Reply, Running, adapter, modern_body, modern_headers, request, run
from model_apps import model_server
from modelservice_api.adapter_config import AdapterConfig, McpConfig
from tensor_backend import TensorBackend
from tensor_backend import adapter as tensor_adapter

pytestmark = pytest.mark.promise("hostile")

HEADERS = {
    "authorization": "Bearer canary-authorization",
    "proxy-authorization": "Basic canary-proxy-authorization",
    "cookie": "session=canary-cookie",
    "x-api-key": "canary-api-key",
    "x-forwarded-for": "canary-forwarded-for",
    "forwarded": "for=canary-forwarded",
    "x-real-ip": "canary-real-ip",
    "mcp-session-id": "canary-session-id",
    "mcp-param-q": "canary-mcp-param",
    "last-event-id": "canary-event-id",
    "referer": "https://canary-referer/",
    "user-agent": "canary-user-agent",
    "x-anything": "canary-anything",
    "modelservice-secret": "canary-own-prefix",
}
ARGUMENT = "canary-argument"
ANSWER = "canary-answer"
FAILURE = "canary-failure"
INTERNAL = "canary-internal.svc.cluster.local"

ANSWER_HEADERS = {
    "server": "canary-server",
    "set-cookie": "id=canary-set-cookie",
    "x-internal": "canary-internal-header",
    "www-authenticate": 'Basic realm="canary-realm"',
    "location": f"http://{INTERNAL}:9000/x?key=canary-location",
}
JSON_TYPE = {"content-type": "application/json"}
LONG = "canary-long " * 100
FAILURES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "server_error": (500, JSON_TYPE, json.dumps({"detail": f"Traceback: {FAILURE}"}).encode()),
    "server_error_page": (500, {"content-type": "text/html"}, f"<h1>{FAILURE}</h1>".encode() * 10_000),
    "unavailable": (503, JSON_TYPE, json.dumps({"detail": FAILURE}).encode()),
    "unauthorised": (401, JSON_TYPE, json.dumps({"detail": FAILURE}).encode()),
    "forbidden": (403, JSON_TYPE, json.dumps({"detail": FAILURE}).encode()),
    "redirect": (302, {}, FAILURE.encode()),
    "redirect_with_body": (307, JSON_TYPE, json.dumps({"detail": FAILURE}).encode()),
    "broken_json": (200, JSON_TYPE, f'{{"said": "{FAILURE}'.encode()),
    "validation": (
        422,
        JSON_TYPE,
        json.dumps({"detail": [{"loc": ["body", "q"], "msg": "too long", "input": FAILURE, "ctx": FAILURE}]}).encode(),
    ),
}
"""Answers of the model server that must not be shown. Its own sentence about a 4xx is, cleaned and cut: see `refused`."""


class Model:
    """Keeps what it received; answers what its path says."""

    def __init__(self) -> None:
        self.received: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        name = scope["path"].removeprefix("/")
        head = repr((scope["raw_path"], scope["query_string"], scope["headers"]))
        if name == "openapi.json":
            status, headers, answer = 200, JSON_TYPE, orjson.dumps(self.document())
        elif scope["method"] != "POST":  # discovery asks what kind of server this is
            status, headers, answer = 404, JSON_TYPE, b"{}"
        else:
            self.received.append(head + repr(body))
            status, headers, answer = self.answer(name)
        raw = [(key.encode(), value.encode()) for key, value in {**ANSWER_HEADERS, **headers}.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": answer})

    @staticmethod
    def answer(name: str) -> tuple[int, dict[str, str], bytes]:
        if name == "refused":
            return 400, JSON_TYPE, json.dumps({"detail": "no such row. " + LONG, "debug": FAILURE}).encode()
        return FAILURES.get(name) or (200, JSON_TYPE, json.dumps({"said": ANSWER}).encode())

    @staticmethod
    def document() -> dict[str, Any]:
        schema = {"type": "object", "properties": {"q": {"type": "string", "maxLength": 40}}, "required": ["q"]}
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        operation = {"requestBody": body, "responses": {"200": {"description": "an answer"}}}
        return {
            "openapi": "3.1.0",
            "info": {"title": "m", "version": "1"},
            "servers": [{"url": f"http://{INTERNAL}:9000/"}],
            "paths": {
                f"/{name}": {"post": {"operationId": name, **operation}} for name in ("echo", "refused", *FAILURES)
            },
        }


Ask = Callable[[Running, str, dict[str, Any]], Awaitable[Reply]]


async def by_modern_mcp(running: Running, tool: str, arguments: dict[str, Any]) -> Reply:
    name = "=?base64?" + base64.b64encode(tool.encode()).decode() + "?="
    return await running.modern(
        "tools/call", {"name": tool, "arguments": arguments}, **{**HEADERS, "mcp-name": name}
    )  # fmt: skip


async def by_older_mcp(running: Running, tool: str, arguments: dict[str, Any]) -> Reply:
    headers = {"mcp-protocol-version": "2025-11-25", "mcp-method": "tools/call", "mcp-name": tool, **HEADERS}
    return await running.legacy("tools/call", {"name": tool, "arguments": arguments}, **headers)


async def by_stream(running: Running, tool: str, arguments: dict[str, Any]) -> Reply:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "canary-progress-token"}}
    return await running.modern("tools/call", params, **HEADERS)


async def by_json_rpc(running: Running, tool: str, arguments: dict[str, Any]) -> Reply:
    return await running.rpc("call_tool", {"name": tool, "arguments": arguments}, **HEADERS)


async def by_messagepack(running: Running, tool: str, arguments: dict[str, Any]) -> Reply:
    message = {"jsonrpc": "2.0", "id": 1, "method": "call_tool", "params": {"name": tool, "arguments": arguments}}
    headers = {**HEADERS, "content-type": "application/msgpack"}
    reply = await request(running.port, "POST", "/rpc", msgspec.msgpack.encode(message), headers)
    reply.body = orjson.dumps(msgspec.msgpack.decode(reply.body))
    return reply


LANES: dict[str, Ask] = {
    "mcp-2026-07-28": by_modern_mcp,
    "mcp-2025-11-25": by_older_mcp,
    "stream": by_stream,
    "json-rpc": by_json_rpc,
    "messagepack": by_messagepack,
}
CONFIG = AdapterConfig(mcp=McpConfig(binary_transfer=True))


async def told_by_itself(running: Running) -> str:
    """All that the adapter says to others than the caller: its log and its admin port."""
    pages = [await request(running.admin_port, "GET", path) for path in ("/metrics", "/tools", "/readyz", "/livez")]
    return json.dumps(running.lines.all) + "".join(repr((page.raw_headers, page.body)) for page in pages)


@pytest.mark.parametrize("lane", LANES)
def test_nothing_of_a_caller_but_its_arguments_reaches_the_model_server_and_nothing_the_log(lane: str) -> None:
    async def test() -> None:
        model = Model()
        with model_server(model) as port:
            async with adapter(port, CONFIG) as running:
                reply = await LANES[lane](running, "echo", {"q": ARGUMENT})
                said = await told_by_itself(running)
        assert ANSWER in reply.body.decode()
        [received] = model.received
        assert ARGUMENT in received
        assert [value for value in (*HEADERS.values(), "canary-progress-token", "mcp-") if value in received] == []
        assert received.count("canary") == 1
        assert "canary" not in said
        assert "canary" not in repr(reply.raw_headers)

    run(test)


@pytest.mark.parametrize("lane", LANES)
def test_what_a_failing_model_server_says_stays_with_the_adapter(lane: str) -> None:
    async def test() -> None:
        model = Model()
        with model_server(model) as port:
            async with adapter(port, CONFIG) as running:
                for tool in FAILURES:
                    reply = await LANES[lane](running, tool, {"q": "x"})
                    assert "canary" not in repr((reply.raw_headers, reply.body)), tool
                refused = await LANES[lane](running, "refused", {"q": "x"})
                said = await told_by_itself(running)
        assert len(model.received) == len(FAILURES) + 1
        assert "no such row" in refused.body.decode()
        assert refused.body.count(b"canary-long ") < 100
        assert FAILURE not in refused.body.decode()
        assert "canary" not in said

    run(test)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    "arguments", [{"q": ARGUMENT * 10}, {"q": [ARGUMENT]}, {"q": "x", "more": ARGUMENT}], ids=["long", "list", "extra"]
)
def test_arguments_that_are_refused_are_not_repeated(lane: str, arguments: dict[str, Any]) -> None:
    async def test() -> None:
        model = Model()
        with model_server(model) as port:
            async with adapter(port, CONFIG) as running:
                reply = await LANES[lane](running, "echo", arguments)
                said = await told_by_itself(running)
        assert "Invalid arguments" in reply.body.decode()
        assert "canary" not in reply.body.decode()
        assert "canary" not in said
        assert model.received == []

    run(test)


def test_a_tensor_s_strings_and_what_is_wrong_with_a_request_below_v2_stay_out_of_the_log() -> None:
    async def test() -> None:
        backend = TensorBackend()
        async with tensor_adapter(backend) as running:
            tensor = {"name": "x", "datatype": "BYTES", "shape": [1, 1], "data": [ARGUMENT]}
            bad = [
                {"inputs": [tensor], "id": "canary-id"},
                {"inputs": [{**tensor, "shape": [2, 1]}]},
                {"inputs": [tensor], "parameters": {"p": "canary-parameter"}},
                {"inputs": [{**tensor, "datatype": "FP32"}]},
            ]
            for document in bad:
                body = orjson.dumps(document)
                reply = await request(running.port, "POST", "/v2/models/echo_bytes/infer", body, HEADERS)
                assert (document, "canary" in repr(reply.raw_headers)) == (document, False)
                if reply.status != 200:
                    assert "canary" not in reply.body.decode()
            assert len(backend.calls) == 1
            assert "canary" not in await told_by_itself(running)

    run(test)


def test_nothing_that_is_refused_before_a_call_is_repeated_anywhere() -> None:
    async def test() -> None:
        model = Model()
        with model_server(model) as port:
            async with adapter(port, CONFIG) as running:
                replies = [
                    await request(running.port, "POST", "/mcp?access_token=canary-query", {}, {**ACCEPT, **HEADERS}),
                    await request(running.port, "POST", "/canary-path", {}, {**ACCEPT, **HEADERS}),
                    await request(running.port, "POST", "/mcp", b'{"canary-body', {**ACCEPT, **HEADERS}),
                    await running.legacy("ping", origin="https://canary-origin.example", **HEADERS),
                    await running.legacy("ping", **{**HEADERS, "mcp-method": "canary-mcp-method"}),
                    await running.modern("canary-method", **HEADERS),
                    await request(
                        running.port,
                        "POST",
                        "/mcp",
                        modern_body("tools/list", {"cursor": "canary-cursor"}),
                        {**modern_headers("tools/list"), **HEADERS},
                    ),
                    await request(running.port, "POST", "/mcp", {}, {**HEADERS, "content-type": "text/canary-type"}),
                    await request(running.port, "GET", "/v2/models/canary.model", None, HEADERS),
                ]
                said = await told_by_itself(running)
        assert [reply.status for reply in replies if reply.status < 400] == []
        assert [reply.body for reply in replies if b"canary" in reply.body] == []
        assert "canary" not in said
        assert model.received == []

    run(test)
