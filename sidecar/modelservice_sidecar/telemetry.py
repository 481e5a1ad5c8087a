"""What the adapter counts and says about calls: Prometheus metrics and one log line each.

Owns metric names and the fields of a call's line. Names follow OpenTelemetry's semantic conventions for MCP where they have
one. Labels take only published tool names and words from closed sets, so no caller can grow them.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from modelservice_sidecar.core.trace import Ids
from modelservice_sidecar.log import LineWriter

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(kw_only=True, slots=True)
class CallRecord:
    """Everything that is said about one call. `tool` is empty where the caller named none that is published."""

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
    error: str = ""


class _Timings:
    """A histogram that costs a call one bisection: prometheus_client's takes a lock for every bucket."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(_BUCKETS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' buckets: how many were at most so long."""
        bounds = [*map(str, map(float, _BUCKETS)), "+Inf"]
        return list(zip(bounds, accumulate(map(float, self.counts)), strict=True))


class Telemetry(Collector):
    """The adapter's metrics. Written by the loop alone and read by the rendering thread, so nothing is locked: a scrape may
    see a call in one family and not yet in the other."""

    def __init__(self, *, writer: LineWriter) -> None:
        self.writer = writer
        self._calls: dict[tuple[str, str, str], int] = {}
        self._rejections: dict[str, int] = {}
        self._duration: dict[str, _Timings] = {}
        self._backend: dict[str, _Timings] = {}
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is scraped."""
        self._gauges.append((name, description, read))

    def rejected(self, reason: str) -> None:
        """Count a refused request; `reason` is a word from the code, never from a request."""
        self._rejections[reason] = self._rejections.get(reason, 0) + 1

    def call(self, record: CallRecord) -> None:
        """Count a finished call and write its line."""
        tool = record.tool
        key = (tool, record.outcome, record.era)
        self._calls[key] = self._calls.get(key, 0) + 1
        timings = self._duration.get(tool)
        if timings is None:
            timings, self._backend[tool] = _Timings(), _Timings()
            self._duration[tool] = timings
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
            self._backend[tool].observe(record.backend_seconds)
            line["backend_status"] = record.backend_status
        if record.error:
            line["error"] = record.error
        self.writer.line(line)

    def collect(self) -> Iterator[Metric]:
        """Every family, for prometheus_client to write down."""
        calls = CounterMetricFamily("modelservice_calls", "Tool calls by outcome.", labels=("tool", "outcome", "era"))
        for key, count in list(self._calls.items()):
            calls.add_metric(key, count)
        yield calls
        rejections = CounterMetricFamily(
            "modelservice_rejections", "Requests refused before they became a call.", labels=("reason",)
        )
        for reason, count in list(self._rejections.items()):
            rejections.add_metric((reason,), count)
        yield rejections
        duration = HistogramMetricFamily(
            "mcp_server_operation_duration_seconds",
            "Time from a call's last byte to its answer.",
            labels=("mcp_method_name", "gen_ai_tool_name"),
        )
        for tool, timings in list(self._duration.items()):
            duration.add_metric(("tools/call", tool), timings.cumulative(), timings.total)
        yield duration
        backend = HistogramMetricFamily(
            "modelservice_backend_duration_seconds", "Time that the model server took.", labels=("tool",)
        )
        for tool, timings in list(self._backend.items()):
            backend.add_metric((tool,), timings.cumulative(), timings.total)
        yield backend
        for name, description, read in self._gauges:
            yield GaugeMetricFamily(name, description, value=read())

    def render(self) -> bytes:
        """The metrics as Prometheus reads them. Takes milliseconds with many tools: not for the loop."""
        return generate_latest(self)


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
