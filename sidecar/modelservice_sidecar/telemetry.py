"""What the adapter counts and says about calls: Prometheus metrics and one log line each.

Owns metric names and the fields of a call's line. Names follow OpenTelemetry's semantic conventions for MCP where they have
one. Labels take only published tool names and words from closed sets, so no caller can grow them.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from modelservice_sidecar.core.trace import Ids
from modelservice_sidecar.log import LineWriter

_STAGE_FIELDS: Final = ("cache", "retries", "batch_rows")
"""What stages leave behind, told where there is something to tell."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(kw_only=True, slots=True)
class CallRecord:
    """Everything that is said about one call. `tool` is empty where the caller named none that is published, `user` where no
    identity is asked for or told."""

    ids: Ids
    era: str
    tool: str = ""
    outcome: str = "ok"
    status: int = 200
    seconds: float = 0.0
    backend_seconds: float = 0.0
    backend_status: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    user: str = ""
    cache: str = ""
    retries: int = 0
    batch_rows: int = 0
    error: str = ""


class Histogram:
    """One that costs a call one bisection: prometheus_client's takes a lock for every bucket."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = _BUCKETS) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' buckets: how many were at most so much."""
        bounds = [*map(str, map(float, self._bounds)), "+Inf"]
        return list(zip(bounds, accumulate(map(float, self.counts)), strict=True))


@dataclass(kw_only=True, slots=True)
class Counter:
    """A stage's counter. Label values are published tool names and words from the code."""

    description: str
    labels: tuple[str, ...]
    values: dict[tuple[str, ...], int] = field(default_factory=dict)

    def add(self, *labels: str) -> None:
        self.values[labels] = self.values.get(labels, 0) + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class StateSet:
    """Which of a few states something is in."""

    description: str
    states: Sequence[str]
    read: Callable[[], str]


class Telemetry:
    """The adapter's metrics. Written by the loop alone and read by the rendering thread, so nothing is locked: a scrape may
    see a call in one family and not yet in the other."""

    def __init__(self, *, writer: LineWriter) -> None:
        self.writer = writer
        self.calls: dict[tuple[str, str, str], int] = {}
        self.rejections: dict[str, int] = {}
        self.auth: dict[str, int] = {}
        self.duration: dict[str, Histogram] = {}
        self.backend: dict[str, Histogram] = {}
        self.tokens: dict[tuple[str, str], int] = {}
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self.states: dict[str, StateSet] = {}
        self.counters: dict[str, Counter] = {}
        self.histograms: dict[str, tuple[str, Histogram]] = {}

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is scraped."""
        self.gauges[name] = (description, read)

    def state(self, name: str, description: str, states: Sequence[str], read: Callable[[], str]) -> None:
        """A gauge that is 1 for the state that is read when it is scraped, and 0 for the others."""
        self.states[name] = StateSet(description=description, states=states, read=read)

    def counter(self, name: str, description: str, labels: tuple[str, ...]) -> Counter:
        """The counter of that name, made when it is first asked for."""
        return self.counters.setdefault(name, Counter(description=description, labels=labels))

    def histogram(self, name: str, description: str, bounds: Sequence[float]) -> Histogram:
        """The histogram of that name, made when it is first asked for."""
        return self.histograms.setdefault(name, (description, Histogram(bounds)))[1]

    def rejected(self, reason: str) -> None:
        """Count a refused request; `reason` is a word from the code, never from a request."""
        self.rejections[reason] = self.rejections.get(reason, 0) + 1

    def authenticated(self, outcome: str) -> None:
        """Count a look at a request's token; `outcome` is a word from the code."""
        self.auth[outcome] = self.auth.get(outcome, 0) + 1

    def call(self, record: CallRecord) -> None:
        """Count a finished call and write its line."""
        tool = record.tool
        key = (tool, record.outcome, record.era)
        self.calls[key] = self.calls.get(key, 0) + 1
        timings = self.duration.get(tool)
        if timings is None:
            timings, self.backend[tool] = Histogram(), Histogram()
            self.duration[tool] = timings
        timings.observe(record.seconds)
        line: dict[str, object] = {
            "event": "call",
            "request_id": record.ids.request_id,
            "trace_id": record.ids.trace_id,
            "tool": tool,
            "era": record.era,
            "outcome": record.outcome,
            "status": record.status,
            "ms": round(record.seconds * 1000, 3),
            "backend_ms": round(record.backend_seconds * 1000, 3),
            "bytes_in": record.bytes_in,
            "bytes_out": record.bytes_out,
        }
        if record.backend_status:
            self.backend[tool].observe(record.backend_seconds)
            line["backend_status"] = record.backend_status
        if record.tokens_in or record.tokens_out:
            self._count_tokens(record)
            line["tokens_in"], line["tokens_out"] = record.tokens_in, record.tokens_out
        if record.user:
            line["user"] = record.user
        for name in _STAGE_FIELDS:
            if value := getattr(record, name):
                line[name] = value
        if record.error:
            line["error"] = record.error
        self.writer.line(line)

    def _count_tokens(self, record: CallRecord) -> None:
        for kind, count in (("input", record.tokens_in), ("output", record.tokens_out)):
            key = (record.tool, kind)
            self.tokens[key] = self.tokens.get(key, 0) + count

    def render(self) -> bytes:
        """The metrics as Prometheus reads them. Takes milliseconds with many tools: not for the loop."""
        from modelservice_sidecar import exposition  # two megabytes that nobody pays who is not scraped

        return exposition.render(self)


class LogBridge(logging.Handler):
    """Brings what libraries log (uvicorn's and asyncio's warnings) into the same JSON lines."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__(level=logging.WARNING)
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = {"level": record.levelname.lower(), "logger": record.name}
        fields["message"] = record.getMessage()[:2000]
        if record.exc_info:
            fields["error"] = logging.Formatter().formatException(record.exc_info)[-8000:]
        self._writer.event("log", **fields)
