"""How much later a streamed answer's first token comes through the adapter than from the language model's server itself.

Owns the benchmark `openai-stream`. The client asks both in turn, over a connection that stays; it takes the time from its
request to the bytes that hold the first token, and reads every answer to its end to see that nothing is missing.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from servicebench import machine, wire
from servicebench.children import Child
from servicebench.failure import BenchError
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report, median
from servicebench.sampling import collect
from servicebench.subjects import ADAPTER, DIRECT, SERVERS, Subject, running, start_adapter

NAME = "openai-stream"
ASKED = "count"
TOKENS = tuple(f"token{number} " for number in range(8))
WHOLE = f"{ASKED}: {''.join(TOKENS)}"
_SHOWN_FIRST = f"{ASKED}: {TOKENS[0]}"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How a subject is asked: the request, the bytes that say the first token is there, and what the whole answer must say."""

    request: bytes
    first: bytes
    text: Callable[[bytes], str]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Medians over some calls, in milliseconds: until the first token, and until the end."""

    first: float
    whole: float


class Caller:
    """One kept connection to a subject."""

    def __init__(self, name: str, port: int, asked: Asked) -> None:
        self._name = name
        self._asked = asked
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self) -> tuple[float, float]:
        """Seconds until the first token and until the end.

        Raises:
            BenchError: the answer is not the right one.
        """
        received = bytearray()
        first = 0.0
        began = time.perf_counter()
        self._socket.sendall(self._asked.request)
        while not received.endswith(b"\r\n0\r\n\r\n"):
            part = self._socket.recv(65536)
            now = time.perf_counter()
            if not part:
                raise BenchError(f"{self._name} closed the connection: {bytes(received[-300:])!r}")
            received += part
            if not first and self._asked.first in received:
                first = now - began
        ended = time.perf_counter() - began
        said = self._asked.text(bytes(received))
        if said != WHOLE or not first:
            raise BenchError(f"{self._name} answers wrongly: {said!r}")
        return first, ended

    def sample(self, calls: int) -> Sample:
        times = [self.call() for _ in range(calls)]
        return Sample(
            first=median(first for first, _ in times) * 1000, whole=median(ended for _, ended in times) * 1000
        )

    def close(self) -> None:
        self._socket.close()


def direct() -> Asked:
    """OpenAI's own protocol."""
    body = {"model": "bench", "stream": True, "messages": [{"role": "user", "content": ASKED}]}

    def text(received: bytes) -> str:
        return "".join(value["choices"][0]["delta"].get("content", "") for value in _events(received))

    first = json.dumps(_SHOWN_FIRST).encode()
    return Asked(request=_post("/v1/chat/completions", {}, body), first=b'"content":' + first, text=text)


def through_adapter() -> Asked:
    """An MCP call with a progress token: its first progress message is the first token."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": wire.MODERN_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "progressToken": "p",
    }
    params = {"name": "chat", "arguments": {"prompt": ASKED}, "_meta": meta}
    headers = {
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": wire.MODERN_VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "chat",
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}

    def text(received: bytes) -> str:
        return str(_events(received)[-1]["result"]["structuredContent"]["text"])

    # Without the closing quote: a second token may have come in the same moment.
    first = json.dumps(_SHOWN_FIRST.strip()).encode().removesuffix(b'"')
    return Asked(request=_post("/mcp", headers, message), first=b'"message":' + first, text=text)


def run(cores: Cores, *, quick: bool) -> Report:
    """Both in turn, the same call."""
    require("taskset", "setpriv")
    rounds, calls = (1, 20) if quick else (10, 100)
    with ExitStack() as stack:
        server = Child("openai-server", [sys.executable, str(SERVERS / "openai_server.py")], core=cores.others)
        stack.enter_context(server)
        port = int(server.wait_for(str.isdigit))
        adapter = stack.enter_context(
            running(Subject(name=ADAPTER, wire=wire.modern(), start=start_adapter), port, cores)
        )
        adapter.child.read_on()
        callers = {
            DIRECT: Caller(DIRECT, port, direct()),
            ADAPTER: Caller(ADAPTER, adapter.port, through_adapter()),
        }
        for caller in callers.values():
            stack.callback(caller.close)
            caller.sample(calls)  # warm

        def take(name: str) -> tuple[Sample, float]:
            before = machine.usage()
            return callers[name].sample(calls), machine.usage().foreign_percent(before)

        samples = collect(list(callers), take, rounds=rounds)
    figures = {
        name: Sample(first=median(one.first for one in taken), whole=median(one.whole for one in taken))
        for name, taken in samples.by_key.items()
    }
    later = figures[ADAPTER].first - figures[DIRECT].first
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=(
            Metric(metric="first_token_later", value=later, unit="ms", goal=2.0, better="lower"),
            Metric(
                metric="end_later",
                value=figures[ADAPTER].whole - figures[DIRECT].whole,
                unit="ms",
                goal=None,
                better="lower",
            ),
        ),
        compared={name: {"first_token_ms": one.first, "end_ms": one.whole} for name, one in figures.items()},
        discarded=samples.discarded,
        quiet=samples.quiet,
    )


def _post(path: str, headers: dict[str, str], body: object) -> bytes:
    content = json.dumps(body).encode()
    given = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(content)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + content


def _events(received: bytes) -> list[dict[str, object]]:
    """The JSON values of an event stream; its HTTP chunks are cut at events, so what is no data line is passed over."""
    lines = [line[6:] for line in received.split(b"\n") if line.startswith(b"data: ") and b"[DONE]" not in line]
    return [json.loads(line) for line in lines]
