"""Raw sockets against the adapter's port: what is malformed, oversized or slow is refused and costs bounded memory and time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from adapter_harness import ACCEPT, Running, adapter, encode, modern_body, modern_headers, read_reply, request, run
from modelservice_api.adapter_config import AdapterConfig, LimitsConfig, McpConfig
from modelservice_sidecar.protocol import Limits

pytestmark = pytest.mark.promise("hostile")

SMALL = Limits(
    head_bytes=2048,
    headers=20,
    first_byte=0.1,
    head=0.1,
    body=0.3,
    body_grace=0.1,
    tick=0.02,
    connections=8,
    stalled=0.1,
)
UNREACHED = 1
"""A backend port that nothing listens on: none of these requests gets that far."""


@contextlib.asynccontextmanager
async def connected(running: Running) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def status_of(running: Running, data: bytes) -> int:
    """The status of the first answer to these bytes; 0 where the connection is closed without one."""
    async with connected(running) as (reader, writer):
        writer.write(data)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            return (await read_reply(reader)).status
    return 0


HEAD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"

BYTES: list[tuple[str, bytes, set[int]]] = [
    ("two content lengths", HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", {400}),
    ("length and chunks", HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    ("odd transfer encoding", HEAD + b"transfer-encoding: xchunked\r\n\r\n", {400}),
    ("blank before a colon", b"POST /mcp HTTP/1.1\r\nhost : x\r\n\r\n", {400}),
    ("a NUL in a header", b"POST /mcp HTTP/1.1\r\nhost: a\x00b\r\n\r\n", {400}),
    ("a bare carriage return", b"POST /mcp HTTP/1.1\r\nhost: a\rb\r\n\r\n", {400}),
    ("no host", b"POST /mcp HTTP/1.1\r\ncontent-length: 0\r\n\r\n", {400}),
    ("two hosts", b"POST /mcp HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", {400}),
    ("a list of lengths", HEAD + b"content-length: 5, 5\r\n\r\nhello", {400}),
    ("a length beyond 64 bits", HEAD + b"content-length: 18446744073709551621\r\n\r\n", {400}),
    ("a negative length", HEAD + b"content-length: -1\r\n\r\n", {400}),
    ("a chunk size that overflows", HEAD + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n", {400}),
    ("HTTP/0.9", b"GET /mcp\r\n\r\n", {400, 505}),
    ("HTTP/2.0", b"POST /mcp HTTP/2.0\r\nhost: a\r\n\r\n", {400, 505}),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {400}),
    ("one large header", HEAD + b"x: " + b"a" * 5000 + b"\r\n\r\n", {431}),
    ("an endless header", HEAD + b"x: " + b"a" * 300_000, {431, 0}),
    ("too many headers", HEAD + b"".join(b"x-%d: 1\r\n" % number for number in range(40)) + b"\r\n", {431}),
    ("a long path", b"POST /" + b"a" * 5000 + b" HTTP/1.1\r\nhost: a\r\n\r\n", {431}),
    ("a compressed body", HEAD + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}", {415}),
    ("a declared body that is too large", HEAD + b"content-length: 99999999\r\n\r\n", {413}),
]


def test_malformed_and_oversized_requests_are_refused_and_the_adapter_goes_on() -> None:
    async def test() -> None:
        async with adapter(UNREACHED, wait=False, limits=SMALL) as running:
            seen = {name: (await status_of(running, data), expected) for name, data, expected in BYTES}
            wrong = {name: pair for name, pair in seen.items() if pair[0] not in pair[1]}
            assert not wrong
            assert (await running.legacy("ping")).status == 200

    run(test)


def test_a_chunked_body_beyond_the_limit_is_refused_while_it_comes() -> None:
    async def test() -> None:
        config = AdapterConfig(limits=LimitsConfig(max_body_bytes=1024))
        async with adapter(UNREACHED, config, wait=False) as running, connected(running) as (reader, writer):
            writer.write(
                HEAD + b"accept: */*\r\ntransfer-encoding: chunked\r\n\r\n" + b"400\r\n" + b"a" * 1024 + b"\r\n"
            )
            writer.write(b"10\r\n" + b"a" * 16 + b"\r\n")
            reply = await read_reply(reader)
            assert (reply.status, reply.json["error"]["code"]) == (413, -32600)
            assert reply.headers["connection"] == "close"
            assert await reader.read() == b""

    run(test)


def test_chunk_framing_that_outweighs_the_body_is_refused() -> None:
    async def test() -> None:
        async with adapter(UNREACHED, wait=False) as running:
            data = HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1;" + b"x" * 200_000
            assert await status_of(running, data) in {400, 0}

    run(test)


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"", 0), (HEAD[:30], 408), (HEAD + b"content-length: 5000\r\n\r\n{", 408)],
    ids=["silence", "half a head", "half a body"],
)
def test_a_slow_sender_is_shown_the_door(sent: bytes, status: int) -> None:
    async def test() -> None:
        async with adapter(UNREACHED, wait=False, limits=SMALL) as running, connected(running) as (reader, writer):
            writer.write(sent)
            answer = await reader.read()  # ends because the adapter closes
            assert (int(answer.split()[1]) if answer else 0) == status

    run(test)


def test_connections_beyond_the_cap_are_told_to_come_back() -> None:
    async def test() -> None:
        limits = Limits(connections=2)
        async with (
            adapter(UNREACHED, wait=False, limits=limits) as running,
            connected(running) as first,
            connected(running) as second,
        ):
            for reader, writer in (first, second):
                writer.write(encode("GET", "/mcp"))
                assert (await read_reply(reader)).status == 405
            async with connected(running) as (reader, _):
                reply = await read_reply(reader)
                assert (reply.status, reply.headers["retry-after"]) == (503, "1")

    run(test)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def test() -> None:
        async with adapter(UNREACHED, wait=False) as running, connected(running) as (reader, writer):
            bodies = [modern_body("tools/list", message_id=number) for number in range(50)]
            writer.write(b"".join(encode("POST", "/mcp", body, modern_headers("tools/list")) for body in bodies))
            assert [(await read_reply(reader)).json["id"] for _ in bodies] == list(range(50))

    run(test)


def test_expect_continue_is_honoured_and_an_upgrade_is_not() -> None:
    async def test() -> None:
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        async with adapter(UNREACHED, wait=False) as running:
            async with connected(running) as (reader, writer):
                writer.write(encode("POST", "/mcp", None, {**ACCEPT, "content-length": "40", "expect": "100-continue"}))
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
                writer.write(body)
                assert (await read_reply(reader)).status == 200
            async with connected(running) as (reader, writer):
                upgrade = {
                    **ACCEPT,
                    "connection": "Upgrade, HTTP2-Settings",
                    "upgrade": "h2c",
                    "http2-settings": "AAMA",
                }
                writer.write(encode("POST", "/mcp", body, upgrade))
                reply = await read_reply(reader)
                assert (reply.status, reply.headers["connection"]) == (200, "close")

    run(test)


@pytest.mark.parametrize("path", ["//mcp", "/mcp/../mcp", "/%6dcp", "/MCP", "/mcp;x", "/mcp/x", "/", "/rpc/x"])
def test_only_the_exact_paths_are_served(path: str) -> None:
    async def test() -> None:
        async with adapter(UNREACHED, wait=False) as running:
            reply = await request(running.port, "POST", path, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, ACCEPT)
            assert reply.status == 404

    run(test)


def test_other_methods_are_refused_with_the_one_that_is_allowed() -> None:
    async def test() -> None:
        async with adapter(UNREACHED, wait=False) as running:
            for path in ("/mcp", "/mcp/", "/rpc"):
                for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH"):
                    reply = await request(running.port, method, path)
                    assert (method, reply.status, reply.headers["allow"]) == (method, 405, "POST")
                reply = await request(running.port, "OPTIONS", path)
                assert (reply.status, reply.headers["allow"]) == (204, "POST, OPTIONS")

    run(test)


@pytest.mark.promise("origin-checked")
def test_a_foreign_origin_is_refused_and_a_known_one_gets_its_cors_headers() -> None:
    async def test() -> None:
        config = AdapterConfig(mcp=McpConfig(allowed_origins=("https://app.example",)))
        async with adapter(UNREACHED, config, wait=False) as running:
            for origin in ("https://evil.example", "null", "http://localhost.evil.example", "https://app.example:444"):
                reply = await running.legacy("ping", origin=origin)
                assert (origin, reply.status) == (origin, 403)
            for origin in ("http://localhost:6274", "http://127.0.0.1", "http://[::1]:80", "https://app.example"):
                reply = await running.legacy("ping", origin=origin)
                assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, origin)
            asked = {"origin": "https://app.example", "access-control-request-method": "POST"}
            preflight = await request(running.port, "OPTIONS", "/mcp", None, asked)
            assert preflight.status == 204
            assert "mcp-method" in preflight.headers["access-control-allow-headers"]

    run(test)


@pytest.mark.promise("origin-checked")
def test_a_host_that_is_not_listed_is_misdirected_once_there_is_a_list() -> None:
    async def test() -> None:
        config = AdapterConfig(mcp=McpConfig(allowed_hosts=("model.ml.svc",)))
        async with adapter(UNREACHED, config, wait=False) as running:
            statuses = {
                host: (await running.legacy("ping", host=host)).status
                for host in ("model.ml.svc", "MODEL.ml.svc:8931", "localhost:1", "evil.example", "model.ml.svc.evil")
            }
            assert statuses == {
                "model.ml.svc": 200,
                "MODEL.ml.svc:8931": 200,
                "localhost:1": 200,
                "evil.example": 421,
                "model.ml.svc.evil": 421,
            }

    run(test)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b'{"id": NaN}',
        b'{"id": "\\ud800"}',
        b"\xff\xfe{\x00}\x00",
        b"[" + b"[]," * 300_000 + b"[]]",
    ],
    ids=["deep lists", "deep objects", "NaN", "lone surrogate", "utf-16", "many lists"],
)
def test_what_is_not_json_in_utf_8_is_a_parse_error(body: bytes) -> None:
    async def test() -> None:
        async with adapter(UNREACHED, wait=False) as running:
            for path in ("/mcp", "/rpc"):
                reply = await request(running.port, "POST", path, body, ACCEPT)
                assert (reply.status, reply.json["error"]["code"]) == (400, -32700)

    run(test)


def test_a_routing_header_that_comes_twice_is_refused() -> None:
    async def test() -> None:
        async with adapter(UNREACHED, wait=False) as running:
            data = encode("POST", "/mcp", modern_body("tools/list"), modern_headers("tools/list"))
            twice = data.replace(b"mcp-method: tools/list", b"mcp-method: tools/list\r\nMCP-Method: tools/list")
            async with connected(running) as (reader, writer):
                writer.write(twice)
                reply = await read_reply(reader)
            assert (reply.status, reply.json["error"]["code"]) == (400, -32020)

    run(test)
