"""The adapter's process under floods, slow senders and bombs: what they cost is bounded, and others are served meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from adapter_harness import ACCEPT, Reply, encode, modern_body, modern_headers, read_reply, request, run
from adapter_program import Process, process
from model_apps import model_server, named_app
from modelservice_api.adapter_config import AdapterConfig, McpConfig

pytestmark = pytest.mark.promise("hostile")

MB = 1024 * 1024
BODY_LIMIT = 4 * MB
HEAD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-type: application/json\r\n"
CALL = encode("POST", "/mcp", modern_body("tools/call", {"name": "ok"}), modern_headers("tools/call", {"name": "ok"}))


@contextlib.asynccontextmanager
async def guarded(tmp_path: Path, **mcp: Any) -> AsyncIterator[Process]:
    """A process in front of a model server with the tool `ok`, both lanes open; at its end its log holds no fault."""
    config = tmp_path / "config.json"
    config.write_text(AdapterConfig(mcp=McpConfig(binary_transfer=True, **mcp)).model_dump_json())
    with model_server(named_app("ok")) as backend:
        async with process("--config", str(config), backend=backend) as running:
            await running.line("backend", state="Ready")
            log = asyncio.ensure_future(running.rest())
            yield running
            assert await answered(running, CALL) == 200
            running.signal()
            lines = await log
        assert [line for line in lines if line["event"] in {"fault", "log"} or "Traceback" in str(line)] == []


async def answered(running: Process, data: bytes) -> int:
    """The status of one answer; 0 where there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    try:
        writer.write(data)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            return (await read_reply(reader)).status
        return 0
    finally:
        writer.close()


async def poured(running: Process, head: bytes, piece: bytes, most: int) -> int:
    """How many bytes the adapter and the kernel took before the connection was closed, of `most` that were offered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    sent = 0
    try:
        writer.write(head)
        while sent < most and not reader.at_eof():
            writer.write(piece)
            sent += len(piece)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
    return sent


async def growth(running: Process, flood: Callable[[], Coroutine[Any, Any, None]], *, first: int = 1) -> int:
    """By how many bytes one more flood makes the process grow. The `first` ones fill what is kept for any traffic: of large
    blocks the C library learns that they come and go, and keeps the place of some."""
    for _ in range(first):
        await flood()
    before = running.resident
    await flood()
    return running.resident - before


def test_heads_and_bodies_without_end_are_cut_and_leave_nothing(tmp_path: Path) -> None:
    endless = {
        "header": (HEAD + b"x: ", b"a" * 65536),
        "headers": (HEAD, b"".join(b"x-%d: 1\r\n" % number for number in range(5000))),
        "target": (b"POST /", b"a" * 65536),
        "body": (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n"),
        "chunk extension": (HEAD + b"transfer-encoding: chunked\r\n\r\n1;", b"x" * 65536),
        "trailers": (HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"x: 1\r\n" * 10_000),
        "declared body": (HEAD + b"content-length: 200000000\r\n\r\n", b" " * 65536),
    }

    async def test() -> None:
        async with guarded(tmp_path) as running:

            async def flood() -> None:
                for name, (head, piece) in endless.items():
                    taken = await poured(running, head, piece, 100 * MB)
                    assert taken < 24 * MB, name  # what the limit lets through, and the kernel's buffers

            assert await growth(running, flood, first=4) <= 2 * MB

    run(test)


def test_refused_requests_leave_nothing(tmp_path: Path) -> None:
    """Nothing is kept for who is refused: no session, no name, no label of a metric."""

    async def test() -> None:
        async with guarded(tmp_path, allowed_hosts=("model.ml.svc",)) as running:
            number = 0

            def refused() -> list[tuple[bytes, int]]:
                nonlocal number
                number += 1
                host = f"h{number}.evil.example"
                ping = {"jsonrpc": "2.0", "id": number, "method": f"ping{number}"}
                call = {"name": f"tool{number}"}
                return [
                    (encode("POST", "/mcp", ping, {**ACCEPT, "host": host}), 421),
                    (encode("POST", "/mcp", ping, {**ACCEPT, "origin": f"https://{host}"}), 403),
                    (encode("POST", f"/{host}", ping, ACCEPT), 404),
                    (encode("POST", "/mcp", ping, {**ACCEPT, "mcp-session-id": host}), 200),
                    (encode("POST", "/mcp", modern_body("tools/call", call), modern_headers("tools/call", call)), 400),
                ]

            async def flood() -> None:
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
                for _ in range(400):
                    asked = refused()
                    writer.write(b"".join(data for data, _ in asked))
                    assert [(await read_reply(reader)).status for _ in asked] == [status for _, status in asked]
                writer.close()

            assert await growth(running, flood) <= MB
            metrics = await request(running.admin_port, "GET", "/metrics")
            assert b"evil.example" not in metrics.body
            assert b"tool1" not in metrics.body

    run(test)


def test_slow_senders_are_all_cut_and_others_are_served_meanwhile(tmp_path: Path) -> None:
    """Given 400 silent, 200 half-headed and 100 trickling connections, when others call, then each of them is answered."""

    async def test() -> None:
        async with guarded(tmp_path) as running:
            before = running.descriptors
            attackers = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(700)]
            for _, writer in attackers[400:600]:
                writer.write(HEAD)

            async def trickle(writer: asyncio.StreamWriter) -> None:
                with contextlib.suppress(ConnectionError):
                    writer.write(HEAD + b"content-length: 100000\r\n\r\n")
                    while not writer.is_closing():
                        writer.write(b" ")
                        await asyncio.sleep(0.2)

            trickling = [asyncio.create_task(trickle(writer)) for _, writer in attackers[600:]]
            statuses = [await answered(running, CALL) for _ in range(300)]
            assert statuses == [200] * 300
            for reader, _ in attackers:
                with contextlib.suppress(ConnectionError):
                    await reader.read()  # ends because the adapter closes
            for task in trickling:
                task.cancel()
            for _, writer in attackers:
                writer.close()
            assert await answered(running, CALL) == 200
            assert running.descriptors <= before + 4

    run(test)


def test_many_large_bodies_at_once_do_not_take_the_container_s_memory(tmp_path: Path) -> None:
    """Given 60 bodies within the limit that stop before their end, then most are refused, and others are served."""

    async def test() -> None:
        async with guarded(tmp_path) as running:
            assert await answered(running, encode("POST", "/mcp", filled(b"1,"), ACCEPT)) == 400
            before = running.resident
            held = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(60)]
            for _, writer in held:
                writer.write(HEAD + b"content-length: %d\r\n\r\n" % BODY_LIMIT + b" " * (BODY_LIMIT - 1))
            told = [asyncio.ensure_future(read_reply(reader)) for reader, _ in held]
            await asyncio.wait(told, return_when=asyncio.FIRST_COMPLETED)
            statuses = [await answered(running, CALL) for _ in range(50)]
            assert statuses == [200] * 50
            assert running.resident - before < 96 * MB
            for _, writer in held:
                writer.transport.abort()
            answers = await asyncio.gather(*told, return_exceptions=True)
            refused = [answer for answer in answers if isinstance(answer, Reply)]
            assert {(answer.status, answer.headers["retry-after"]) for answer in refused} == {(503, "1")}
            assert await answered(running, encode("POST", "/mcp", filled(b"1,"), ACCEPT)) == 400

    run(test)


def packed(*parts: bytes) -> bytes:
    """Bytes that MessagePack reads as a list of that many items of one byte."""
    items = b"".join(parts)
    return b"\xdd" + len(items).to_bytes(4, "big") + items


def call_packed(arguments: Any) -> bytes:
    params = {"name": "ok", "arguments": arguments}
    return msgspec.msgpack.encode({"jsonrpc": "2.0", "id": 1, "method": "call_tool", "params": params})


def filled(unit: bytes, before: bytes = b"[", after: bytes = b"0]") -> bytes:
    """JSON of as many units as go into the largest body."""
    return before + unit * ((BODY_LIMIT - len(before) - len(after)) // len(unit)) + after


TENSOR = {"dtype": "FP32", "shape": [1], "bin": b"\0\0\0\0"}
JSON_BOMBS = {
    "100,000 nested lists": b"[" * 100_000,
    "100,000 nested objects": b'{"a":' * 100_000,
    "4 MB of lists": filled(b"[],"),
    "4 MB of objects": filled(b"{},"),
    "4 MB of members": b"{" + b",".join(b'"%d":1' % number for number in range(380_000)) + b"}",
    "an integer of 2 million digits": b"[" + b"1" * (2 * MB) + b"]",
    "900 integers of 4,300 digits": b"[" + b",".join([b"9" * 4300] * 900) + b"]",
    "NaN": b'{"jsonrpc":"2.0","id":NaN}',
    "Infinity": b'{"jsonrpc":"2.0","id":-Infinity}',
    "1e999": b'{"jsonrpc":"2.0","id":1e999}',
    "a lone surrogate": b'{"jsonrpc":"2.0","id":"\\udfff"}',
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    "UTF-8 cut off": b'{"jsonrpc":"2.0","id":"\xe2\x82"}',
    "UTF-8 overlong": b'{"jsonrpc":"2.0","id":"\xc0\xaf"}',
    "4 MB of blanks": b" " * (BODY_LIMIT - 1),
    "4 MB of strings": filled(b'"ab",'),
    "4 MB of numbers": filled(b"1.5,"),
}
PACKED_BOMBS = {
    "4 MB of empty lists": packed(b"\x90" * (BODY_LIMIT - 5)),
    "4 MB of empty maps": packed(b"\x80" * (BODY_LIMIT - 5)),
    "4 MB of nothing": packed(b"\xc0" * (BODY_LIMIT - 5)),
    "a list that says 2^32-1": b"\xdd\xff\xff\xff\xff",
    "a map that says 2^32-1": b"\xdf\xff\xff\xff\xff",
    "bytes that say 2^32-1": b"\xc6\xff\xff\xff\xff",
    "100,000 nested lists": b"\x91" * 100_000,
    "100,000 nested maps": b"\x81\xa1a" * 100_000,
    "an extension type": call_packed({"a": msgspec.msgpack.Ext(5, b"x" * 1000)}),
    "nested arguments": call_packed({"a": msgspec.Raw(b"\x91" * 5000 + b"\xc0")}),
    "4 MB of arguments": call_packed({str(number): 0 for number in range(400_000)})[:BODY_LIMIT],
    "bytes outside of a tensor": call_packed({"a": b"x" * MB}),
    "a shape that overflows": call_packed({"a": {**TENSOR, "shape": [2**62, 2**62, 16]}}),
    "a negative shape": call_packed({"a": {**TENSOR, "shape": [-1]}}),
    "65 dimensions": call_packed({"a": {**TENSOR, "shape": [1] * 65}}),
}


def infer(document: Any) -> bytes:
    return document if isinstance(document, bytes) else orjson.dumps(document)


def one_input(**changed: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "a", "datatype": "FP32", "shape": [1], "data": [1], **changed}]}


ONE = orjson.dumps(one_input(datatype="BYTES", shape=[MB - 64], parameters={"binary_data_size": 4 * (MB - 64)}))
V2_BOMBS: dict[str, tuple[bytes, dict[str, str]]] = {
    "a header longer than the body": (b"{}", {"inference-header-content-length": "99999999999"}),
    "a header length that is none": (b"{}", {"inference-header-content-length": "-1"}),
    "a header length of many digits": (b"{}", {"inference-header-content-length": "1" * 20_000}),
    "a million strings of nothing": (
        ONE.replace(b',"data":[1]', b"") + bytes(4 * (MB - 64)),
        {"inference-header-content-length": str(len(ONE) - len(b',"data":[1]'))},
    ),
    "a shape that overflows": (infer(one_input(shape=[2**62, 2**62, 16])), {}),
    "a shape of two thousand million": (infer(one_input(shape=[2_000_000_000])), {}),
    "100,000 nested lists of data": (infer(b'{"inputs":[{"name":"a","data":' + b"[" * 100_000), {}),
    "900 nested lists of data": (
        b'{"inputs":[{"name":"a","datatype":"FP32","shape":[1],"data":' + b"[" * 900 + b"]" * 900 + b"}]}",
        {},
    ),
    "4 MB of inputs": (filled(b"{},", b'{"inputs":[', b"{}]}"), {}),
    "4 MB of numbers": (
        filled(b"1.5,", b'{"inputs":[{"name":"a","datatype":"FP32","shape":[1],"data":[', b"1]}]}"),
        {},
    ),
    "shared memory": (infer(one_input(parameters={"shared_memory_region": "x" * 1000})), {}),
}


def test_bodies_made_to_cost_are_refused_on_every_lane(tmp_path: Path) -> None:
    """Given bodies within the limit that would be dear to decode, each is refused and the memory for it is given back."""
    bombs = [(f"/mcp: {name}", "/mcp", body, ACCEPT) for name, body in JSON_BOMBS.items()]
    bombs += [(f"/rpc: {name}", "/rpc", body, ACCEPT) for name, body in JSON_BOMBS.items()]
    bombs += [
        (f"/rpc, MessagePack: {name}", "/rpc", body, {"content-type": "application/msgpack"})
        for name, body in PACKED_BOMBS.items()
    ]
    bombs += [(f"/v2: {name}", "/v2/models/ok/infer", body, headers) for name, (body, headers) in V2_BOMBS.items()]

    async def test() -> None:
        async with guarded(tmp_path) as running:

            async def flood() -> None:
                taken = {}
                for name, path, body, headers in bombs:
                    assert len(body) <= BODY_LIMIT, name
                    taken[name] = (await request(running.port, "POST", path, body, headers)).status
                assert {name: status for name, status in taken.items() if status not in {400, 404, 413, 415, 431}} == {}

            assert await growth(running, flood) <= 16 * MB

    run(test)
