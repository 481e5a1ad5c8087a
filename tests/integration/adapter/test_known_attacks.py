"""Attacks that other MCP servers and gateways were open to, tried on ours; docs/reference/security.md lists them all."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from adapter_harness import (
    ACCEPT,
    adapter,
    encode,
    modern_body,
    modern_headers,
    modern_meta,
    read_reply,
    request,
    run,
)
from faulty_model import faulty_model, until
from model_apps import model_server, named_app
from tensor_backend import TensorBackend
from tensor_backend import adapter as tensor_adapter

pytestmark = pytest.mark.promise("hostile")

CALL = {"name": "act"}
WHOLE = encode("POST", "/mcp", modern_body("tools/call", CALL), modern_headers("tools/call", CALL))
STREAMED = encode(
    "POST",
    "/mcp",
    modern_body("tools/call", {**CALL, "_meta": {"progressToken": 1}}),
    modern_headers("tools/call", CALL),
)


@pytest.mark.parametrize("request_bytes", [WHOLE, STREAMED], ids=["whole", "streamed"])
def test_a_caller_may_leave_at_any_byte_and_nothing_stays_behind(request_bytes: bytes) -> None:
    """Given requests cut off at every tenth byte, and whole ones whose callers leave during the call, then nothing stays."""

    async def test() -> None:
        async with faulty_model() as model, adapter(model.port) as running:
            model.fault = "hang"
            for cut in range(0, len(request_bytes), 10):
                _, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(request_bytes[:cut])
                await writer.drain()
                writer.transport.abort()
            for calls in (1, 2, 3):  # several are one behind the other on one connection
                before = model.calls["/act"]
                _, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(request_bytes * calls)
                await until(lambda before=before: model.calls["/act"] > before)
                writer.transport.abort()
                await until(lambda: model.hanging == 0 and running.adapter.calls.in_flight == 0)
            model.fault = "none"
            assert (await running.call("act"))["isError"] is False
            assert running.lines.of("fault") == []

    run(test)


def test_requests_that_wait_behind_one_another_are_bounded_and_counted_rightly() -> None:
    """Given a call that hangs and ten thousand tiny requests behind it, many times over, then each such connection is cut,
    its call ends, and two hundred requests in one piece are answered in order."""

    async def test() -> None:
        async with faulty_model() as model, adapter(model.port) as running:
            model.fault = "hang"
            for _ in range(30):
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(WHOLE + b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n" * 10_000)
                with contextlib.suppress(ConnectionError):
                    await reader.read()  # ends because the adapter closes
                writer.close()
            await until(lambda: model.hanging == 0 and running.adapter.calls.in_flight == 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            bodies = [modern_body("tools/list", message_id=number) for number in range(200)]
            writer.write(b"".join(encode("POST", "/mcp", body, modern_headers("tools/list")) for body in bodies))
            assert [(await read_reply(reader)).json["id"] for _ in bodies] == list(range(200))
            writer.close()

    run(test)


@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "id": 1, "Method": "tools/list", "params": {"_meta": modern_meta()}},
        {"JSONRPC": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": modern_meta()}},
        {"jsonrpc": "2.0", "ID": 1, "method": "tools/list", "Params": {"_meta": modern_meta()}, "id": 1},
        {"jsonrpc": "2.0", "id": 1, "method\x00": "tools/list", "params": {"_meta": modern_meta()}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_META": modern_meta()}},
    ],
    ids=["Method", "JSONRPC", "Params", "method-NUL", "_META"],
)
def test_keys_are_what_they_are_and_nothing_like_them(body: dict[str, Any]) -> None:
    async def test() -> None:
        with model_server(named_app("ok")) as port:
            async with adapter(port) as running:
                reply = await request(running.port, "POST", "/mcp", body, modern_headers("tools/list"))
                assert (reply.status, reply.json["error"]["code"]) in {(400, -32600), (400, -32602)}

    run(test)


def test_a_key_that_comes_twice_is_one_key_to_every_check_and_to_the_model_server() -> None:
    """The last one counts, as in most parsers: for the header's comparison, for the check of arguments and for what is sent."""

    async def test() -> None:
        with model_server(named_app("first", "second")) as port:
            async with adapter(port) as running:
                meta = json.dumps(modern_meta())
                params = f'{{"name":"first","name":"second","_meta":{meta}}}'
                body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'
                for said, status in (("first", 400), ("second", 200)):
                    headers = modern_headers("tools/call", {"name": said})
                    reply = await request(running.port, "POST", "/mcp", body.encode(), headers)
                    assert (said, reply.status) == (said, status)
                assert [line["tool"] for line in running.lines.of("call")] == ["second"]

    run(test)


def test_an_argument_with_a_nul_or_another_case_is_another_argument() -> None:
    async def test() -> None:
        backend = TensorBackend()
        async with tensor_adapter(backend) as running:
            for name in ("x\x00", "X", "x ", "\u0445", "__proto__", "constructor"):
                result = await running.call("echo_fp32", {"x": [[1]], name: [[2]]})
                assert (name, result["isError"]) == (name, True)
            assert backend.calls == []

    run(test)


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None]
)
def test_what_a_web_page_can_send_without_asking_first_runs_nothing(content_type: str | None) -> None:
    """A browser sends these across origins without a preflight, some of them even without an Origin."""

    async def test() -> None:
        with model_server(named_app("ok")) as port:
            async with adapter(port) as running:
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ok"}}
                headers = {"accept": "*/*"} if content_type is None else {"accept": "*/*", "content-type": content_type}
                for path in ("/mcp", "/rpc"):
                    reply = await request(running.port, "POST", path, body, headers)
                    assert (path, reply.status) == (path, 415)
                assert running.lines.of("call") == []

    run(test)


def test_a_session_id_is_neither_given_nor_asked_for_nor_worth_anything() -> None:
    async def test() -> None:
        with model_server(named_app("ok")) as port:
            async with adapter(port) as running:
                hello = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "c", "version": "1"},
                }
                for headers in ({}, {"mcp-session-id": "of-somebody-else"}):
                    for method, params in (("initialize", hello), ("tools/call", {"name": "ok"})):
                        reply = await running.legacy(method, params, **headers)
                        assert (reply.status, "mcp-session-id" in reply.headers) == (200, False)
                deleted = await request(running.port, "DELETE", "/mcp", None, {**ACCEPT, "mcp-session-id": "x"})
                assert deleted.status == 405

    run(test)


def test_a_header_never_names_the_tool_that_runs() -> None:
    """Whatever the routing headers say, the tool of the body runs or none."""

    async def test() -> None:
        with model_server(named_app("mine", "yours")) as port:
            async with adapter(port) as running:
                params = {"name": "mine"}
                for said in ("yours", "MINE", "mine ", "=?base64?eW91cnM=?=", "=?base64?bWluZQ?=", "mine,yours", ""):
                    for headers in (modern_headers("tools/call", params), {**ACCEPT, "mcp-method": "tools/call"}):
                        message = modern_body("tools/call", params)
                        if "mcp-protocol-version" not in headers:
                            del message["params"]["_meta"]
                        reply = await request(running.port, "POST", "/mcp", message, {**headers, "mcp-name": said})
                        taken = said.strip() == "mine"  # blanks around a header's value are no part of it
                        assert (said, reply.status) == (said, 200 if taken else 400)
                assert {line["tool"] for line in running.lines.of("call")} == {"mine"}

    run(test)


def test_a_redirect_of_the_model_server_is_not_followed() -> None:
    async def redirecting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            if b"/openapi.json" in head:
                operation = {"operationId": "go", "responses": {"200": {"description": "ok"}}}
                document = {
                    "openapi": "3.1.0",
                    "info": {"title": "m", "version": "1"},
                    "paths": {"/go": {"get": operation}},
                }
                body = json.dumps(document).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")
                writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
            else:
                writer.write(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:%d/inside\r\n" % inside_port)
                writer.write(b"content-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    asked: list[bytes] = []

    async def inside(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.close()

    inside_port = 0

    async def test() -> None:
        nonlocal inside_port
        private = await asyncio.start_server(inside, "127.0.0.1", 0)
        inside_port = private.sockets[0].getsockname()[1]
        model = await asyncio.start_server(redirecting, "127.0.0.1", 0)
        async with private, model, adapter(model.sockets[0].getsockname()[1]) as running:
            result = await running.call("go")
            assert "redirect (HTTP 302), which is not followed" in result["content"][0]["text"]
        assert asked == []

    run(test)


def test_an_answer_to_another_call_cannot_be_slipped_in() -> None:
    """Two answers at once from the model server: the second is for nobody."""

    serving: list[asyncio.Task[Any]] = []

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.append(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                operation = {"operationId": "go", "responses": {"200": {"description": "ok"}}}
                document = {
                    "openapi": "3.1.0",
                    "info": {"title": "m", "version": "1"},
                    "paths": {"/go": {"get": operation}},
                }
                body = json.dumps(document if b"/openapi.json" in head else {"mine": True}).encode()
                answer = (
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
                    + body
                )
                writer.write(answer if b"/go" not in head else answer + answer.replace(b"mine", b"evil"))
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def test() -> None:
        model = await asyncio.start_server(answering, "127.0.0.1", 0)
        async with model:
            async with adapter(model.sockets[0].getsockname()[1]) as running:
                for _ in range(20):
                    assert "evil" not in str(await running.call("go"))
            await asyncio.gather(*serving)

    run(test)
