"""What is left of the adapter's service when three times as many calls come as its model server can take.

Owns the benchmark `adapter-overload`. The load is open: calls are sent at their times whether or not earlier ones are answered,
as many clients together do. What counts is how much of the model server's capacity still becomes answers, and how soon the rest
is told that it is too much.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import cast

import uvloop
from servicebench import machine, wire
from servicebench.batcher import fixed_cost_model
from servicebench.failure import BenchError
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report, median
from servicebench.sampling import collect
from servicebench.subjects import ADAPTER, Subject, running, start_adapter
from servicebench.wire import FEATURES, TOOL

from modelservice_api.adapter_config import AdapterConfig, BackendConfig, LimitsConfig

NAME = "adapter-overload"
COST_MS = 2.0
SLOTS = 16
TIMES = 3
_BODY = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "call_tool", "params": {"name": TOOL, "arguments": {"features": FEATURES}}}
).encode()
_REQUEST = (
    b"POST /rpc HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    % len(_BODY)
) + _BODY


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One stretch of load. Times in milliseconds; `answered` is per second."""

    answered: float
    accepted_p50: float
    accepted_p99: float
    refused: int
    refused_p99: float
    others: int


class _Connection(asyncio.Protocol):
    """One kept connection with at most one call on it."""

    def __init__(self, load: _Load) -> None:
        self.load = load
        self.sent = 0.0
        self.received = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def send(self, now: float) -> None:
        assert self.transport is not None
        self.sent, self.received = now, b""
        self.transport.write(_REQUEST)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, _, body = self.received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if length.isdigit() and len(body) >= int(length):
            self.load.ended(self, int(head[9:12]), body)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.sent:
            self.load.ended(self, 0, b"")


class _Load:
    """An open load at a fixed rate, or a closed one of so many callers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._free: deque[_Connection] = deque()
        self._again = False
        self.under_way = 0
        self.accepted: list[float] = []
        self.in_time = 0
        """How many were answered before the load ended."""
        self.refused: list[float] = []
        self.others: Counter[int] = Counter()

    def ended(self, connection: _Connection, status: int, body: bytes) -> None:
        took = (self._loop.time() - connection.sent) * 1000
        connection.sent = 0.0
        self.under_way -= 1
        if status == 200 and b'"score"' in body:
            self.accepted.append(took)
        elif status == 503 and b"overloaded" in body:
            self.refused.append(took)
        else:
            self.others[status] += 1
        if status:
            if self._again:
                self._start(connection)
            else:
                self._free.append(connection)

    def _start(self, connection: _Connection) -> None:
        self.under_way += 1
        connection.send(self._loop.time())

    async def _connect(self) -> _Connection:
        _, connection = await self._loop.create_connection(lambda: _Connection(self), "127.0.0.1", self._port)
        return connection

    async def open_load(self, rate: float, seconds: float) -> None:
        """Calls at their times, as long as less than a second's worth of them is unanswered."""
        self._free.extend([await self._connect() for _ in range(int(rate))])
        began = self._loop.time()
        sent = 0
        while (now := self._loop.time()) < began + seconds:
            while self._free and sent < (now - began) * rate:
                self._start(self._free.popleft())
                sent += 1
            await asyncio.sleep(0.001)
        await self._drain()

    async def closed_load(self, callers: int, seconds: float) -> None:
        """Each caller asks again when it is answered."""
        self._again = True
        for _ in range(callers):
            self._start(await self._connect())
        await asyncio.sleep(seconds)
        self._again = False
        await self._drain()

    async def _drain(self) -> None:
        self.in_time = len(self.accepted)
        for _ in range(3000):
            if not self.under_way:
                break
            await asyncio.sleep(0.01)
        for connection in self._free:
            if connection.transport is not None:
                connection.transport.close()


def run(cores: Cores, *, quick: bool) -> Report:
    """The peak first, then three times as much, in turn."""
    require("taskset", "setpriv")
    rounds, seconds = (1, 1) if quick else (5, 4)
    config = AdapterConfig(backend=BackendConfig(type="OpenAPI"), limits=LimitsConfig(max_concurrency=SLOTS))
    subject = Subject(name=ADAPTER, wire=wire.modern(), start=partial(start_adapter, config=config))
    peaks: list[float] = []
    with ExitStack() as stack:
        backend = stack.enter_context(fixed_cost_model(cores, COST_MS))
        started = stack.enter_context(running(subject, backend.port, cores))
        subject.wire.verify(started.port, subject.name)
        started.child.read_on()
        _measure(started.port, 0.0, 1)
        resident = machine.resident_megabytes(started.child.pid)

        def take(_: str) -> tuple[Sample, float]:
            before = machine.usage()
            peak = _measure(started.port, 0.0, seconds).answered
            peaks.append(peak)
            sample = _measure(started.port, TIMES * peak, seconds)
            return sample, machine.usage().foreign_percent(before)

        samples = collect([NAME], take, rounds=rounds)
        grown = machine.resident_megabytes(started.child.pid) - resident
        subject.wire.verify(started.port, subject.name)
    taken = samples.by_key[NAME]
    if any(sample.others for sample in taken):
        raise BenchError("some calls were neither answered nor refused")
    peak = median(peaks)
    answered = median(sample.answered for sample in taken)
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=(
            Metric(metric="goodput_of_peak", value=answered / peak * 100, unit="%", goal=80, better="higher"),
            Metric(
                metric="refused_p99",
                value=median(sample.refused_p99 for sample in taken),
                unit="ms",
                goal=50,
                better="lower",
            ),
            Metric(metric="resident_growth", value=grown, unit="MB", goal=None, better="lower"),
        ),
        compared={
            "peak": {"answered_per_s": peak},
            f"{TIMES} times as much": {
                "answered_per_s": answered,
                "accepted_p50_ms": median(sample.accepted_p50 for sample in taken),
                "accepted_p99_ms": median(sample.accepted_p99 for sample in taken),
                "refused_per_s": median(sample.refused / seconds for sample in taken),
            },
        },
        discarded=samples.discarded,
        quiet=samples.quiet,
    )


def _measure(port: int, rate: float, seconds: float) -> Sample:
    """Load at that rate; at 0 as many callers as there are slots, which is the most that all are answered."""

    async def load() -> _Load:
        made = _Load(port)
        await (made.open_load(rate, seconds) if rate else made.closed_load(SLOTS, seconds))
        return made

    made = uvloop.run(load())
    return Sample(
        answered=made.in_time / seconds,
        accepted_p50=_percentile(made.accepted, 50),
        accepted_p99=_percentile(made.accepted, 99),
        refused=len(made.refused),
        refused_p99=_percentile(made.refused, 99),
        others=sum(made.others.values()),
    )


def _percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0.0
