"""What the adapter counts and says about calls: Prometheus metrics and one log line each.

Owns metric names and the fields of a call's line. Names follow OpenTelemetry's semantic conventions for MCP where they have
one. Labels take only published tool names and words from closed sets, so no caller can grow them.
"""

import logging
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

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


@dataclass(kw_only=True, slots=True)
class Telemetry:
    """The adapter's metrics, in a registry of their own so that two adapters can live in one process."""

    writer: LineWriter
    registry: CollectorRegistry = field(default_factory=lambda: CollectorRegistry(auto_describe=False))
    _calls: Any = None
    _duration: Any = None
    _backend: Any = None
    _rejections: Any = None
    _children: dict[tuple[str, str, str], tuple[Any, Any, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._calls = Counter(
            "modelservice_calls", "Tool calls by outcome.", ("tool", "outcome", "era"), registry=self.registry
        )
        self._duration = Histogram(
            "mcp_server_operation_duration_seconds",
            "Time from a call's last byte to its answer.",
            ("mcp_method_name", "gen_ai_tool_name"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._backend = Histogram(
            "modelservice_backend_duration_seconds",
            "Time that the model server took.",
            ("tool",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._rejections = Counter(
            "modelservice_rejections",
            "Requests refused before they became a call.",
            ("reason",),
            registry=self.registry,
        )

    def gauge(self, name: str, description: str, read: Any) -> None:
        """A gauge that is read when it is scraped."""
        Gauge(name, description, registry=self.registry).set_function(read)

    def rejected(self, reason: str) -> None:
        """Count a refused request; `reason` is a word from the code, never from a request."""
        self._rejections.labels(reason).inc()

    def call(self, record: CallRecord) -> None:
        """Count a finished call and write its line."""
        key = (record.tool, record.outcome, record.era)
        children = self._children.get(key)
        if children is None:
            children = self._children[key] = (
                self._calls.labels(*key),
                self._duration.labels("tools/call", record.tool),
                self._backend.labels(record.tool),
            )
        children[0].inc()
        children[1].observe(record.seconds)
        line: dict[str, object] = {
            "event": "call",
            "request_id": record.ids.request_id,
            "trace_id": record.ids.trace_id,
            "tool": record.tool,
            "era": record.era,
            "outcome": record.outcome,
            "status": record.status,
            "ms": round(record.seconds * 1000, 3),
            "backend_ms": round(record.backend_seconds * 1000, 3),
            "bytes_in": record.bytes_in,
            "bytes_out": record.bytes_out,
        }
        if record.backend_status:
            children[2].observe(record.backend_seconds)
            line["backend_status"] = record.backend_status
        if record.error:
            line["error"] = record.error
        self.writer.line(line)

    def forget_tools(self) -> None:
        """Drop the cached children after the tools changed; the counts themselves stay."""
        self._children.clear()

    def render(self) -> bytes:
        """The metrics as Prometheus reads them. Takes milliseconds with many tools: not for the loop."""
        return generate_latest(self.registry)


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
