"""Raw sockets against the adapter's port: what is malformed, oversized or slow is refused and costs bounded memory and time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from adapter_harness import ACCEPT, Running, adapter, encode, modern_body, modern_headers, read_reply, request, run
from modelservice_api.adapter_config import AdapterConfig, LimitsConfig, McpConfig
from modelservice_sidecar import server
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


HEAD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-type: application/json\r\n"
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
GOOD = HEAD + b"content-length: 40\r\n\r\n" + PING
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
CHUNKS = b"28\r\n" + PING + b"\r\n0\r\n\r\n"


def changed(before: bytes, after: bytes) -> bytes:
    """A good request but for one thing."""
    assert before in GOOD
    return GOOD.replace(before, after)


def with_header(line: bytes) -> bytes:
    return changed(b"accept", line + b"\r\naccept")


PROBES: list[tuple[str, bytes, set[int]]] = [
    # Where a request ends, said in two ways or in none.
    ("two-content-lengths", changed(b"content-length: 40", b"content-length: 40\r\ncontent-length: 41"), {400}),
    ("length-and-chunks", HEAD + b"content-length: 40\r\ntransfer-encoding: chunked\r\n\r\n" + CHUNKS, {400}),
    ("list-of-lengths", changed(b": 40", b": 40, 40"), {400}),
    ("length-beyond-64-bits", changed(b": 40", b": 18446744073709551656"), {400}),
    ("negative-length", changed(b": 40", b": -1"), {400}),
    ("length-with-sign", changed(b": 40", b": +40"), {400}),
    ("length-in-hexadecimal", changed(b": 40", b": 0x28"), {400}),
    ("transfer-encoding-xchunked", HEAD + b"transfer-encoding: xchunked\r\n\r\n" + CHUNKS, {400}),
    ("transfer-encoding-then-identity", HEAD + b"transfer-encoding: chunked, identity\r\n\r\n" + CHUNKS, {400}),
    ("transfer-encoding-gzip", HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n" + CHUNKS, {400}),
    ("transfer-encoding-behind-a-control", HEAD + b"transfer-encoding: \x0bchunked\r\n\r\n" + CHUNKS, {400}),
    ("transfer-encoding-in-http-1.0", CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + CHUNKS, {400}),
    ("chunk-size-overflow", CHUNKED + b"fffffffffffffffff\r\n", {400}),
    ("negative-chunk-size", CHUNKED + b"-5\r\n", {400}),
    ("chunk-longer-than-it-says", CHUNKED + CHUNKS.replace(b"28", b"27"), {400}),
    ("chunk-ended-by-a-line-feed", CHUNKED + CHUNKS.replace(b"\r\n", b"\n"), {400}),
    ("large-chunk-extension", CHUNKED + b"28;" + b"x" * 1_000_000 + CHUNKS[2:], {400}),
    # What is no header line to everybody.
    ("blank-before-colon", with_header(b"x : 1"), {400}),
    ("nul-in-a-header", with_header(b"x: a\x00b"), {400}),
    ("bare-carriage-return", with_header(b"x: a\rb"), {400}),
    ("bare-line-feed", with_header(b"x: a\ny: b"), {400}),
    ("line-feeds-alone", GOOD.replace(b"\r\n", b"\n"), {400}),
    ("folded-header", with_header(b"x: a\r\n b"), {400}),
    ("folded-first-header", changed(b"host:", b" host:"), {400}),
    ("header-without-a-name", with_header(b": x"), {400}),
    ("header-without-a-colon", with_header(b"abc"), {400}),
    ("header-name-with-a-parenthesis", with_header(b"a(b: x"), {400}),
    # Where a request goes, said in two ways or in none.
    ("no-host", changed(b"host: localhost\r\n", b""), {400}),
    ("two-hosts", changed(b"host:", b"host: a\r\nhost:"), {400}),
    ("empty-host", changed(b"localhost", b""), {400}),
    ("host-with-a-path", changed(b"localhost", b"a/evil?x#"), {400}),
    ("host-with-a-user", changed(b"localhost", b"localhost@evil.example"), {400}),
    ("list-of-hosts", changed(b"localhost", b"localhost, evil.example"), {400}),
    ("absolute-target", changed(b"/mcp", b"http://evil.example/mcp"), {400}),
    ("target-with-a-fragment", changed(b"/mcp", b"/mcp#x"), {400}),
    ("target-with-a-nul", changed(b"/mcp", b"/mcp\x00"), {400}),
    ("target-beyond-ascii", changed(b"/mcp", b"/mcp\xff"), {400}),
    ("target-without-a-slash", changed(b"/mcp", b"mcp"), {400}),
    # What is not HTTP/1.1.
    ("http-0.9", b"GET /mcp\r\n\r\n", {400, 505}),
    ("http-0.9-unfinished", b"GET /mcp\r\n", {408}),
    ("http-1.2", changed(b"HTTP/1.1", b"HTTP/1.2"), {400, 505}),
    ("http-2.0", changed(b"HTTP/1.1", b"HTTP/2.0"), {400, 505}),
    ("http-2-preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}),
    ("tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {400}),
    ("method-in-lower-case", changed(b"POST", b"post"), {400}),
    ("method-that-is-none", changed(b"POST", b"P(ST"), {400}),
    ("tunnel", changed(b"POST /mcp", b"CONNECT evil.example:443"), {400}),
    # What is too much.
    ("large-header", with_header(b"x: " + b"a" * 5000), {431}),
    ("header-of-20-mb", with_header(b"x: " + b"a" * 20_000_000), {431, 0}),
    ("header-without-an-end", HEAD + b"x: " + b"a" * 300_000, {431, 0}),
    ("ten-thousand-headers", with_header(b"\r\n".join(b"x-%d: 1" % number for number in range(10_000))), {431, 0}),
    ("path-of-1-mb", changed(b"/mcp", b"/" + b"a" * 1_000_000), {431, 0}),
    ("compressed-body", with_header(b"content-encoding: gzip"), {415}),
    ("declared-body-of-200-mb", changed(b": 40", b": 200000000"), {413}),
    # What does not come.
    ("silence", b"", {0}),
    ("half-a-head", HEAD[:30], {408}),
    ("half-a-body", HEAD + b"content-length: 5000\r\n\r\n{", {408}),
]
"""Name, bytes and the statuses that are an answer; 0 is a connection closed without one. A few statuses depend on how much
the kernel had taken when the answer was written."""


@pytest.mark.parametrize(("sent", "expected"), [probe[1:] for probe in PROBES], ids=[probe[0] for probe in PROBES])
def test_bytes_that_are_no_request_are_refused_and_the_adapter_goes_on(sent: bytes, expected: set[int]) -> None:
    async def test() -> None:
        async with adapter(UNREACHED, wait=False, limits=SMALL) as running:
            assert await status_of(running, sent) in expected
            assert await status_of(running, GOOD) == 200
            assert running.lines.of("fault") == []

    run(test)


def test_a_connection_that_asks_nothing_more_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(server, "KEEP_ALIVE", 1)
        async with adapter(UNREACHED, wait=False) as running, connected(running) as (reader, writer):
            writer.write(GOOD)
            assert (await read_reply(reader)).status == 200
            assert await reader.read() == b""  # ends because the adapter closes

    run(test)


def test_a_trailer_is_no_header() -> None:
    """What stands in front of us decides by headers, and has not seen what comes behind the body."""

    async def test() -> None:
        async with adapter(UNREACHED, wait=False) as running:
            trailers = (
                b"origin: https://evil.example\r\nmcp-protocol-version: 2026-07-28\r\nx-request-id: taken\r\n\r\n"
            )
            async with connected(running) as (reader, writer):
                writer.write(CHUNKED + CHUNKS[:-2] + trailers)
                reply = await read_reply(reader)
            assert reply.status == 200
            assert reply.headers["x-request-id"] != "taken"

    run(test)


def test_a_chunked_body_beyond_the_limit_is_refused_while_it_comes() -> None:
    async def test() -> None:
        config = AdapterConfig(limits=LimitsConfig(max_body_bytes=1024))
        async with adapter(UNREACHED, config, wait=False) as running, connected(running) as (reader, writer):
            writer.write(CHUNKED + b"400\r\n" + b"a" * 1024 + b"\r\n")
            writer.write(b"10\r\n" + b"a" * 16 + b"\r\n")
            reply = await read_reply(reader)
            assert (reply.status, reply.json["error"]["code"]) == (413, -32600)
            assert reply.headers["connection"] == "close"
            assert await reader.read() == b""

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
