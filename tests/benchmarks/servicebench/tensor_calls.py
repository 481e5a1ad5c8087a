"""Tensors through a real Triton: the inputs, how each way of calling wants them, and one kept connection that is timed.

Owns what the tensor benchmarks have in common. Every answer's status and length are looked at, and of each sample the first
answer is compared whole.
"""

from __future__ import annotations

import base64
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import orjson
from servicebench import machine, wire
from servicebench.failure import BenchError
from servicebench.machine import Cores
from servicebench.report import median
from servicebench.subjects import ADAPTER, NGINX, Subject, running, start_adapter

from modelservice_api.adapter_config import AdapterConfig, LimitsConfig, McpConfig
from modelservice_sidecar.core import v2_wire
from modelservice_sidecar.core.tensors import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # real servers are started as tests start them
from triton_server import triton

Way = Literal["V2 binary", "V2 JSON", "MCP", "JSON-RPC", "MessagePack"]
CONFIG = AdapterConfig(mcp=McpConfig(binary_transfer=True), limits=LimitsConfig(max_body_bytes=64 * 1024 * 1024))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model with one input and one output, and the values of a call."""

    model: str
    input: str
    output: str
    given: np.ndarray[Any, np.dtype[np.float32]]
    expected: np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Where to ask."""

    triton: int
    adapter: int
    nginx: int


def image() -> Case:
    """588 KiB in, ten numbers out."""
    pixels = np.random.default_rng(7).random((224, 224, 3), dtype=np.float32)
    return Case(model="image", input="pixels", output="scores", given=pixels, expected=pixels[0, :10, 0] * 2)


def megabyte() -> Case:
    """1 MiB in and out."""
    values = np.random.default_rng(7).standard_normal(262_144, dtype=np.float32)
    return Case(model="same", input="x", output="y", given=values, expected=values)


@contextmanager
def servers(cores: Cores) -> Iterator[Ports]:
    """A Triton, on the core of the caller, and what stands in front of it, on a core of its own."""
    subject = Subject(name=ADAPTER, wire=wire.modern(), start=partial(start_adapter, config=CONFIG))
    with (
        tempfile.TemporaryDirectory(prefix="modelservice-bench-") as folder,
        triton(Path(folder), ["image", "same"]) as server,
        running(subject, server.port, cores) as adapter,
        running(NGINX, server.port, cores) as nginx,
    ):
        adapter.child.read_on()
        yield Ports(triton=server.port, adapter=adapter.port, nginx=nginx.port)


class Caller:
    """One kept connection, one way of calling, one case."""

    def __init__(self, port: int, way: Way, case: Case) -> None:
        self._name = f"{case.model} by {way}"
        self._case = case
        self._request, self._read = _WAYS[way](case)
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(16 * 1024 * 1024)

    def sample(self, calls: int) -> tuple[float, float]:
        """The median of some calls in milliseconds, and the foreign CPU meanwhile in per cent.

        Raises:
            BenchError: an answer is wrong.
        """
        before = machine.usage()
        times: list[float] = []
        for number in range(calls):
            began = time.perf_counter()
            head, body = self._call()
            times.append(time.perf_counter() - began)
            if number == 0:
                self._verify(head, body)
        return median(times) * 1000, machine.usage().foreign_percent(before)

    def close(self) -> None:
        self._socket.close()

    def _call(self) -> tuple[dict[str, str], memoryview]:
        self._socket.sendall(self._request)
        view, size, end = memoryview(self._buffer), 0, -1
        while end < 0:
            size += self._receive(view[size:])
            end = self._buffer.find(b"\r\n\r\n", 0, size)
        head = _head(bytes(view[:end]))
        whole = end + 4 + int(head["content-length"])
        if head["status"] != "200" or whole > len(self._buffer):
            raise BenchError(f"{self._name}: {bytes(view[: min(size, 600)])!r}")
        while size < whole:
            size += self._receive(view[size:])
        return head, view[end + 4 : whole]

    def _receive(self, into: memoryview) -> int:
        count = self._socket.recv_into(into)
        if not count:
            raise BenchError(f"{self._name}: the connection was closed")
        return count

    def _verify(self, head: dict[str, str], body: memoryview) -> None:
        found = self._read(head, bytes(body))
        if not np.array_equal(np.asarray(found, np.float32).reshape(-1), self._case.expected.reshape(-1)):
            raise BenchError(f"{self._name} answers wrongly")


def _head(raw: bytes) -> dict[str, str]:
    first, *lines = raw.decode("latin-1").split("\r\n")
    named = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {**named, "status": first.split(" ")[1]}


Read = Callable[[dict[str, str], bytes], Any]


def _v2(case: Case, *, binary: bool) -> tuple[bytes, Read]:
    tensor = Tensor(datatype="FP32", shape=case.given.shape, data=case.given.tobytes())
    asked = v2_wire.InferRequest(inputs={case.input: tensor}, binary_outputs=binary)
    message = v2_wire.write_request(asked, binary=binary)
    headers = {"Content-Type": message.content_type}
    if message.header_length is not None:
        headers[v2_wire.HEADER_LENGTH] = str(message.header_length)

    def read(head: dict[str, str], body: bytes) -> Any:
        answer = v2_wire.parse_response(body, head.get(v2_wire.HEADER_LENGTH), limit=2**30)
        return np.frombuffer(answer.outputs[case.output].data, np.float32)

    return _post(f"/v2/models/{case.model}/infer", headers, message.body), read


def _mcp(case: Case) -> tuple[bytes, Read]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": wire.MODERN_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    }
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Mcp-Protocol-Version": wire.MODERN_VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": case.model,
    }
    params = {"name": case.model, "arguments": {case.input: case.given}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}

    def read(_head: dict[str, str], body: bytes) -> Any:
        result = orjson.loads(body)["result"]
        value = result["structuredContent"][case.output]
        if isinstance(value, list):
            return value
        blob = next(block["resource"]["blob"] for block in result["content"] if block["type"] == "resource")
        return np.frombuffer(base64.b64decode(blob), np.float32)

    return _post("/mcp", headers, orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY)), read


def _call_tool(case: Case, value: object) -> dict[str, Any]:
    params = {"name": case.model, "arguments": {case.input: value}}
    return {"jsonrpc": "2.0", "id": 1, "method": "call_tool", "params": params}


def _json_rpc(case: Case) -> tuple[bytes, Read]:
    message = _call_tool(case, case.given)

    def read(_head: dict[str, str], body: bytes) -> Any:
        return orjson.loads(body)["result"]["structuredContent"][case.output]

    body = orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY)
    return _post("/rpc", {"Content-Type": "application/json"}, body), read


def _messagepack(case: Case) -> tuple[bytes, Read]:
    tensor = {"dtype": "FP32", "shape": case.given.shape, "bin": case.given.tobytes()}
    message = _call_tool(case, tensor)

    def read(_head: dict[str, str], body: bytes) -> Any:
        return np.frombuffer(msgspec.msgpack.decode(body)["result"]["tensors"][case.output]["bin"], np.float32)

    return _post("/rpc", {"Content-Type": "application/msgpack"}, msgspec.msgpack.encode(message)), read


_WAYS: dict[Way, Callable[[Case], tuple[bytes, Read]]] = {
    "V2 binary": partial(_v2, binary=True),
    "V2 JSON": partial(_v2, binary=False),
    "MCP": _mcp,
    "JSON-RPC": _json_rpc,
    "MessagePack": _messagepack,
}


def _post(path: str, headers: dict[str, str], body: bytes) -> bytes:
    given = {"Host": "127.0.0.1", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body
