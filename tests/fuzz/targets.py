"""What is fuzzed: each parser of the adapter behind one function of bytes, with the words its inputs are made of.

Owns what counts as a fault: any exception but the parser's own, a `fault` in the log, an HTTP status 5xx, an answer that does
not come, an accepted value that breaks what its type promises. Knows nothing of how inputs are made.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from adapter_harness import Lines, Running, adapter
from model_apps import model_server
from modelservice_api.adapter_config import AdapterConfig, IssuerConfig, McpConfig, OpenAPIConfig, ToolsConfig
from modelservice_sidecar import json_body, msgpack_body, validation
from modelservice_sidecar.app import create_app
from modelservice_sidecar.backends import openapi_answer
from modelservice_sidecar.backends.event_stream import PieceReader, StreamKind
from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.config_file import BadDocumentError, ConfigFile
from modelservice_sidecar.core import codec, mcp, openapi, rpc, tokens, trace, v2_wire
from modelservice_sidecar.core.errors import CallError, DescribeError, InvalidArgumentsError
from modelservice_sidecar.protocol import Limits
from modelservice_sidecar.published import publish
from modelservice_sidecar.upstream import Pool
from tensor_backend import TensorBackend
from tensor_backend import adapter as tensor_adapter

CORPUS = Path(__file__).resolve().parent / "corpus"
TENSOR_LIMIT = 1 << 20
ANSWER_SECONDS = 10.0
"""How long an answer may take on a busy machine before it counts as none."""
STREAM_SECONDS = 1.0
LAST_REQUEST = b"GET /end HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
"""Behind every input, so that a connection which could be used again ends at once."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One parser. `open` gives the check; what it needs lives as long as the context."""

    name: str
    open: Callable[[], contextlib.AbstractContextManager[Callable[[bytes], None]]]
    words: tuple[bytes, ...] = ()

    @property
    def corpus(self) -> list[Path]:
        return sorted((CORPUS / self.name).iterdir())


def pure(check: Callable[[bytes], None]) -> Callable[[], contextlib.AbstractContextManager[Callable[[bytes], None]]]:
    """A check that needs nothing."""

    @contextlib.contextmanager
    def opened() -> Iterator[Callable[[bytes], None]]:
        yield check

    return opened


# --- on sockets ---


@contextlib.contextmanager
def loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    """A running loop, so that checks can be plain functions."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end_tasks() -> None:
    """Let everything of the loop end, connections too."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for _ in range(10):  # a transport closes its socket in a later turn of the loop
        await asyncio.sleep(0)


class _Model:
    """A model server of one operation."""

    DOCUMENT = orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "m", "version": "1"},
            "paths": {
                "/add": {
                    "post": {
                        "operationId": "add",
                        "requestBody": {
                            "content": {
                                "application/json": {
                                    "schema": {
                                        "type": "object",
                                        "properties": {"a": {"type": "number"}, "b": {"type": "array", "maxItems": 3}},
                                    }
                                }
                            }
                        },
                        "responses": {"200": {"description": "ok"}},
                    }
                }
            },
        }
    )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        found = self.DOCUMENT if scope["path"] == "/openapi.json" else b'{"sum":3}'
        status = 404 if scope["path"] not in {"/openapi.json", "/add"} else 200
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(found))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": found})


@contextlib.contextmanager
def served(
    make: Callable[[], contextlib.AbstractAsyncContextManager[Running]],
) -> Iterator[Callable[[bytes], None]]:
    """An adapter's port: raw bytes in, and the connection ends by an answer or by its end."""
    with loop_in_a_thread() as loop:

        def wait_for(work: Coroutine[Any, Any, Any]) -> Any:
            return asyncio.run_coroutine_threadsafe(work, loop).result(30)

        stack = contextlib.AsyncExitStack()
        running: Running = wait_for(stack.enter_async_context(make()))

        def check(data: bytes) -> None:
            running.lines.all.clear()
            with socket.create_connection(("127.0.0.1", running.port), ANSWER_SECONDS) as connection:
                with contextlib.suppress(ConnectionError):  # refused before it was all sent
                    connection.sendall(data)
                answer = _all_of(connection)
            for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer):
                assert status[:1] != b"5" or status == b"505", answer[:500]
            wrong = [
                line
                for line in list(running.lines.all)
                if line["event"] in {"fault", "log"} or line.get("outcome") == "internal" or "Traceback" in str(line)
            ]
            assert wrong == [], wrong

        try:
            yield check
        finally:
            wait_for(stack.aclose())


@contextlib.contextmanager
def http() -> Iterator[Callable[[bytes], None]]:
    """The adapter with a model server of one operation behind it."""
    limits = Limits(head_bytes=4096, headers=50, first_byte=0.2, head=0.2, body=0.3, body_grace=0.1, tick=0.05)
    config = AdapterConfig(mcp=McpConfig(binary_transfer=True))
    with model_server(_Model()) as port, served(lambda: adapter(port, config, limits=limits)) as send:
        yield lambda data: send(data + LAST_REQUEST)


@contextlib.contextmanager
def lanes() -> Iterator[Callable[[bytes], None]]:
    """The adapter with models of tensors behind it: a line that says which lane, the header's length there, and a body."""
    heads = {
        b"v2": b"POST /v2/models/%s/infer HTTP/1.1\r\ninference-header-content-length: %s\r\n",
        b"json": b"POST /v2/models/%s/infer HTTP/1.1\r\nx-length: %s\r\n",
        b"msgpack": b"POST /rpc HTTP/1.1\r\ncontent-type: application/msgpack\r\nx-model: %s\r\nx-length: %s\r\n",
        b"rpc": b"POST /rpc HTTP/1.1\r\ncontent-type: application/json\r\nx-model: %s\r\nx-length: %s\r\n",
    }
    with served(lambda: tensor_adapter(TensorBackend())) as send:

        def check(data: bytes) -> None:
            line, _, body = data.partition(b"\n")
            lane, model, length = [*line.split(b" "), b"", b"", b""][:3]
            words = (re.sub(rb"[^A-Za-z0-9_-]", b"", model), re.sub(rb"[^0-9-]", b"", length))
            head = heads.get(lane, heads[b"json"]) % words
            send(head + b"host: a\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

        yield check


def _all_of(connection: socket.socket) -> bytes:
    """All that comes until the end; a stream that only its caller ends is ended after a second."""
    parts = []
    connection.settimeout(STREAM_SECONDS)
    with contextlib.suppress(ConnectionError):
        try:
            while part := connection.recv(65536):
                parts.append(part)
        except TimeoutError:
            connection.settimeout(ANSWER_SECONDS)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def upstream() -> Iterator[Callable[[bytes], None]]:
    """A model server that answers one request with these bytes and ends. The call ends by an answer or by an error of ours."""
    request = HttpRequest(method="POST", target="/add", headers=[(b"content-type", b"application/json")], body=b"{}")
    said = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"{}")
            writer.write(said)
            await writer.drain()
        writer.close()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.1", 0)

    async def call(port: int) -> None:
        pool = Pool("127.0.0.1", port)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reply = await pool.request(request, limit=TENSOR_LIMIT)
            assert 200 <= reply.status < 1000
            assert len(reply.body) <= TENSOR_LIMIT
            openapi_answer.read(reply.status, reply.headers, reply.body, wrap=False, request_id="r")
        except CallError as error:
            assert str(error)
        finally:
            await pool.aclose()
        assert pool.connections == 0

    with loop_in_a_thread() as loop:
        server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        port = server.sockets[0].getsockname()[1]

        def check(data: bytes) -> None:
            nonlocal said
            said = data
            asyncio.run_coroutine_threadsafe(call(port), loop).result(ANSWER_SECONDS * 2)

        try:
            yield check
        finally:
            loop.call_soon_threadsafe(server.close)


# --- pure ---


def mcp_message(data: bytes) -> None:
    """Lines of headers, an empty line, a body."""
    head, _, body = data.partition(b"\n\n")
    pairs = [(name.strip().lower(), value) for name, _, value in (line.partition(b":") for line in head.split(b"\n"))]
    headers = mcp.read_headers(pairs)
    try:
        message = json_body.load(body)
    except json_body.BadJsonError:
        return
    verdict = mcp.classify(headers, message)
    if isinstance(verdict, mcp.Route):
        mcp.progress_token(verdict.params)
        trace.choose(trace.wanted_in_headers(headers.values), trace.wanted_in_meta(_meta(verdict.params)), os_hex)
    elif isinstance(verdict, mcp.Rejection):
        assert verdict.status in {200, 400, 404}
    for item in message if isinstance(message, list) else [message]:
        request = rpc.read(item)
        orjson.dumps(request.id)


def _meta(params: dict[str, Any]) -> dict[str, Any] | None:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else None


def os_hex(count: int) -> str:
    return os.urandom(count).hex()


def openapi_document(data: bytes) -> None:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return
    try:
        reading = openapi.read(document, OpenAPIConfig(), is_pattern=validation.is_pattern)
    except DescribeError as error:
        assert str(error)
        return
    published = publish(reading.tools, ToolsConfig(), reading.notes)
    for tool in published.tools.values():
        definition = tool.tool.definition
        orjson.dumps(definition)
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", definition["name"])
        assert definition["inputSchema"]["type"] == "object"
        tool.check_arguments({})


def tensor_json(data: bytes) -> None:
    """An object of `value`, `datatype`, `shape`: through every form in which a tensor can come as JSON."""
    try:
        document = json_body.load(data)
    except json_body.BadJsonError:
        return
    if not isinstance(document, dict):
        return
    datatype, shape, value = document.get("datatype"), document.get("shape"), document.get("value")
    forms: list[Callable[[], Any]] = []
    if isinstance(datatype, str):
        forms.append(lambda: codec.from_flat(value, datatype, shape, limit=TENSOR_LIMIT, nulls=len(data) % 2 == 0))
        if datatype in codec.ITEM_SIZES or datatype == "BYTES":
            forms.append(lambda: codec.from_lists(value, datatype, limit=TENSOR_LIMIT))  # type: ignore[arg-type]
    if (
        isinstance(value, dict)
        and all(isinstance(value.get(name), str) for name in ("dtype", "data"))
        and "shape" in value
    ):
        forms.append(lambda: codec.from_base64(value, limit=TENSOR_LIMIT))
    for form in forms:
        try:
            tensor = form()
        except codec.CodecError as error:
            assert str(error)
            continue
        json.loads(codec.to_json(tensor))
        again = codec.from_bytes(
            tensor.datatype, list(tensor.shape), memoryview(tensor.data).cast("B"), limit=TENSOR_LIMIT
        )
        assert bytes(again.data) == bytes(tensor.data)


def tensor_bytes(data: bytes) -> None:
    """A line with a datatype, a line with a shape, and bytes."""
    datatype, _, rest = data.partition(b"\n")
    shape_line, _, content = rest.partition(b"\n")
    try:
        shape: Any = orjson.loads(shape_line)
    except orjson.JSONDecodeError:
        shape = None
    name = datatype.decode("latin-1")
    for read in (
        lambda: codec.from_bytes(name, shape, content, limit=TENSOR_LIMIT),
        lambda: codec.from_fields({"dtype": name, "shape": shape, "bin": content}, limit=TENSOR_LIMIT),
    ):
        try:
            tensor = read()
        except codec.CodecError:
            continue
        json.loads(codec.to_json(tensor))
        json.loads(codec.to_flat_json(tensor))
        codec.non_finite_path(tensor)
        if tensor.datatype == "BYTES":
            assert codec.join_bytes(codec.split_bytes(tensor.data)) == bytes(tensor.data)


def v2_body(data: bytes) -> None:
    """A line with the header's length, and a body."""
    line, _, body = data.partition(b"\n")
    length = line.decode("latin-1") if line else None
    try:
        header, binary = v2_wire.split(body, length)
        document = json_body.load(bytes(header))
        request = v2_wire.read_request(document, binary, limit=TENSOR_LIMIT)
        v2_wire.write_request(request, binary=True)
    except (v2_wire.WireError, json_body.BadJsonError):
        pass
    try:
        answer = v2_wire.parse_response(body, length, limit=TENSOR_LIMIT)
        orjson.loads(v2_wire.write_response(answer, {}).body)
    except v2_wire.WireError as error:
        assert str(error)


def packed_message(data: bytes) -> None:
    try:
        message = msgpack_body.load(data)
    except msgpack_body.BadMessageError as error:
        assert str(error)
        return
    for item in message if isinstance(message, list) else [message]:
        request = rpc.read(item)
        if isinstance(request, rpc.Request) and isinstance(request.params.get("arguments"), dict):
            with contextlib.suppress(InvalidArgumentsError):
                msgpack_body.is_heavy(request.params["arguments"])
                msgpack_body.tensors(request.params["arguments"])
        msgpack_body.dump({"id": request.id})
    with contextlib.suppress(msgpack_body.BadMessageError):
        msgpack_body.load_answer(data)


def event_stream(data: bytes) -> None:
    """A byte that says where to cut, and a stream: its pieces are the same wherever it is cut."""
    step = (data[0] % 7 + 1) if data else 1
    kinds: tuple[StreamKind, ...] = ("events", "lines")
    for kind in kinds:
        whole, cut = PieceReader(kind), PieceReader(kind)
        expected = [*whole.feed(data), *whole.finish()]
        found = [piece for at in range(0, len(data), step) for piece in cut.feed(data[at : at + step])]
        assert [*found, *cut.finish()] == expected


ISSUER = IssuerConfig(
    name="i", issuer="https://issuer.example", audiences=("https://m.example",), jwks_uri="https://issuer.example/jwks"
)


def bearer_token(data: bytes) -> None:
    text = data.decode("latin-1")
    try:
        token = tokens.read_authorization(text.split("\n"))
        unverified = tokens.read(token)
        issuer = tokens.find_issuer(unverified, {ISSUER.issuer: ISSUER})
        identity = tokens.check_claims(unverified.claims, issuer, 1_700_000_000.0)
    except tokens.TokenError as error:
        assert str(error)
        return
    assert identity.subject.isprintable()


def trace_ids(data: bytes) -> None:
    """Lines of headers, an empty line, and `_meta`."""
    head, _, body = data.partition(b"\n\n")
    values = {
        name.strip().lower(): value.strip(" \t")
        for name, _, value in (line.partition(":") for line in head.decode("latin-1").split("\n"))
    }
    try:
        meta = orjson.loads(body)
    except orjson.JSONDecodeError:
        meta = None
    wanted = trace.wanted_in_meta(meta if isinstance(meta, dict) else None)
    ids = trace.choose(trace.wanted_in_headers(values), wanted, os_hex)
    ids = trace.decide(ids, trace.bound_of(0.5))
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", ids.traceparent)
    assert re.fullmatch(r"[A-Za-z0-9._~:/+=@-]{1,128}", ids.request_id)
    assert re.fullmatch(r"[\x20-\x7e]{0,512}", ids.state)


@contextlib.contextmanager
def config_document() -> Iterator[Callable[[bytes], None]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"

        def check(data: bytes) -> None:
            file.write_bytes(data)
            try:
                config = ConfigFile(file).read()
            except BadDocumentError as error:
                assert str(file) in str(error)
                return
            assert config is not None
            assert AdapterConfig.model_validate_json(config.to_json()).digest() == config.digest()
            create_app(config, writer=Lines())

        yield check


JSON_WORDS = (
    b"null",
    b"true",
    b"NaN",
    b"1e999",
    b"-0.0",
    b"9007199254740993",
    b"1" * 400,
    b'"\\ud800"',
    b'"\\u0000"',
    b"[]",
    b"{}",
    b"[[[[",
    b'{"a":',
    b'""',
    b',"',
    b'":',
    b"1.5",
    b"-1",
    b"2147483648",
    b"18446744073709551616",
)
HTTP_WORDS = (
    b"\r\n",
    b"\r\n\r\n",
    b"content-length: ",
    b"transfer-encoding: chunked",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"expect: 100-continue",
    b"connection: close",
    b"upgrade: h2c",
    b"host: a",
    b"0\r\n\r\n",
    b"ffffffff",
    b"\x00",
    b"\xff",
    b" ",
    b"\t",
    b";",
    b"POST ",
    b"mcp-method: tools/call",
    b"mcp-name: add",
    b"origin: null",
    b"content-encoding: gzip",
    b"/mcp",
    b"/rpc",
    b"/v2",
)
MCP_WORDS = (
    *JSON_WORDS,
    b"mcp-protocol-version: 2026-07-28",
    b"2025-11-25",
    b"tools/call",
    b"tools/list",
    b"initialize",
    b"subscriptions/listen",
    b'"_meta"',
    b'"params"',
    b'"id"',
    b"=?base64?",
    b"?=",
    b"io.modelcontextprotocol/",
)
OPENAPI_WORDS = (
    *JSON_WORDS,
    b'"$ref":"#/components/schemas/A"',
    b'"$ref":"#/"',
    b'"$ref":"http://x"',
    b'"allOf":[',
    b'"anyOf":[',
    b'"type":"object"',
    b'"type":["string","null"]',
    b'"properties":{',
    b'"required":["a"]',
    b'"pattern":"(a+)+$"',
    b'"enum":[',
    b'"in":"path"',
    b'"in":"header"',
    b'"swagger":"2.0"',
    b'"openapi":"3.0.0"',
    b'"nullable":true',
    b'"default":',
    b"{x}",
    b'"$defs":{',
    b'"$schema":',
    b'"format":"binary"',
    b'"additionalProperties":',
)
V2_WORDS = (
    *JSON_WORDS,
    b'"inputs":[',
    b'"outputs":[',
    b'"datatype":"FP32"',
    b'"BYTES"',
    b'"BF16"',
    b'"BOOL"',
    b'"shape":[',
    b'"data":[',
    b'"parameters":{"binary_data_size":4}',
    b'"shared_memory_region"',
    b"NaN",
    b"-Infinity",
)
PACK_WORDS = (
    b"\xa5dtype",
    b"\xa5shape",
    b"\xa3bin",
    b"\xa4FP32",
    b"\xa5BYTES",
    b"\x91\x01",
    b"\xc4\x04\x00\x00\x00\x00",
    b"\xc6\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xd4\x01\x00",
    b"\xd6\xff\x00\x00\x00\x00",
    b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"\xc1",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xa6params",
    b"\xa9arguments",
    b"\x81",
    b"\x91",
)
TOKEN_WORDS = (b"Bearer ", b".", b"e30", b"eyJhbGciOiJub25lIn0", b"eyJhbGciOiJFUzI1NiJ9", b"\n", b"=", b"-", b"_", b" ")
TRACE_WORDS = (
    b"traceparent: ",
    b"00-",
    b"0af7651916cd43dd8448eb211c80319c",
    b"b7ad6b7169203331",
    b"-01",
    b"ff-",
    b"b3: ",
    b"x-request-id: ",
    b"tracestate: ",
    b"Trace-ID: ",
    b"\n",
    b"\n\n",
    b'{"traceparent":"',
    b'"TRACE_ID":"',
    b"-",
    b"0" * 32,
    b"x" * 200,
)
STREAM_WORDS = (
    b"data: ",
    b"data:",
    b"\n\n",
    b"\r\n\r\n",
    b"\r",
    b"\n",
    b"event: x",
    b": ping",
    b"\xef\xbb\xbf",
    b"[DONE]",
    b"\xe2\x82",
    b"id: 1",
)

TARGETS = {
    target.name: target
    for target in (
        Target(name="http", open=http, words=(*HTTP_WORDS, *MCP_WORDS)),
        Target(name="lanes", open=lanes, words=(*V2_WORDS, *PACK_WORDS)),
        Target(name="mcp", open=pure(mcp_message), words=MCP_WORDS),
        Target(name="openapi", open=pure(openapi_document), words=OPENAPI_WORDS),
        Target(name="tensor-json", open=pure(tensor_json), words=V2_WORDS),
        Target(
            name="tensor-bytes",
            open=pure(tensor_bytes),
            words=(b"FP32\n", b"BYTES\n", b"BOOL\n", b"[1]", b"[2,2]", b"[-1]", b"\x01\0\0\0"),
        ),
        Target(name="v2", open=pure(v2_body), words=V2_WORDS),
        Target(name="messagepack", open=pure(packed_message), words=PACK_WORDS),
        Target(name="event-stream", open=pure(event_stream), words=STREAM_WORDS),
        Target(name="upstream", open=upstream, words=(*HTTP_WORDS, *JSON_WORDS, *STREAM_WORDS)),
        Target(name="token", open=pure(bearer_token), words=TOKEN_WORDS),
        Target(name="trace", open=pure(trace_ids), words=TRACE_WORDS),
        Target(
            name="config",
            open=config_document,
            words=(*JSON_WORDS, b'"backend":{', b'"limits":{', b'"tools":{', b'"auth":{'),
        ),
    )
}
