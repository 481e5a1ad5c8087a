"""What the adapter counts and says about calls: Prometheus metrics and one log line each.

Owns the families that every adapter has and the fields of a call's line; stages bring families of their own. Names follow
OpenTelemetry's semantic conventions for MCP where they have one. Labels take only published tool names and words from the
code, so no caller can grow them.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from modelservice_sidecar import exposition, log
from modelservice_sidecar.core import errors
from modelservice_sidecar.core.trace import Ids
from modelservice_sidecar.log import LineWriter
from modelservice_sidecar.metrics import DURATIONS, Counter, Exemplar, Family, Gauge, Histogram, Info, Labels, State
from modelservice_sidecar.spans import Tracing
from modelservice_sidecar.steps import Steps

_STAGE_FIELDS: Final = ("cache", "retries", "batch_rows")
"""What stages leave behind, told where there is something to tell."""
CALL: Final = "tools/call"


@dataclass(kw_only=True, slots=True)
class CallRecord:
    """Everything that is said about one call. `tool` is empty where the caller named none that is published, `user` where no
    identity is asked for or told.

    `era` is the lane: an era of MCP, `rpc` or `v2`. `revision` and `message_id` are MCP's and JSON-RPC's. `variant` is the
    version of the model that answered. `input` and `output` are set where bodies are logged, redacted.
    """

    ids: Ids
    era: str
    revision: str = ""
    message_id: int | float | str | None = None
    tool: str = ""
    variant: str = ""
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
    steps: Steps = field(default_factory=Steps)
    input: Any = None
    output: Any = None

    @property
    def failure(self) -> str:
        """What went wrong, by OpenTelemetry's rules for `error.type`: `tool_error`, or the code that the caller was told."""
        return "" if self.outcome == "ok" else _failure(self)


class Telemetry:
    """The adapter's metrics, by name. Written by the loop alone."""

    def __init__(self, *, writer: LineWriter, wall: Callable[[], float] = time.time) -> None:
        self.writer = writer
        self.families: dict[str, Family] = {}
        self.tracing = Tracing(
            self.counter("modelservice_spans", "Spans by what became of them at the collector.", ("result",))
        )
        self._wall = wall
        self._calls = self.counter("modelservice_calls", "Tool calls by outcome.", ("tool", "outcome", "era"))
        self._rejections = self.counter(
            "modelservice_rejections", "Requests refused before they became a call.", ("reason",)
        )
        self._auth = self.counter(
            "modelservice_auth", "Requests by what came of the look at their token.", ("outcome",)
        )
        self._duration = self.histogram(
            "mcp_server_operation_duration_seconds",
            "Time from a request's last byte to its answer; error_type is empty where it succeeded.",
            DURATIONS,
            ("mcp_method_name", "gen_ai_tool_name", "error_type"),
        )
        self._backend = self.histogram(
            "modelservice_backend_duration_seconds", "Time that the model server took.", DURATIONS, ("tool",)
        )
        self._waits = self.histogram(
            "modelservice_stage_wait_seconds",
            "Time that a call waited in a stage, where it waited.",
            DURATIONS,
            ("stage",),
        )
        self._tokens = self.counter(
            "modelservice_tokens", "Tokens that language models read and wrote.", ("tool", "type")
        )

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is scraped."""
        self.families[name] = Gauge(name, description, read)

    def state(self, name: str, description: str, states: Sequence[str], read: Callable[[], str]) -> None:
        """A gauge that is 1 for the state that is read when it is scraped, and 0 for the others."""
        self.families[name] = State(name, description, states, read)

    def info(self, name: str, description: str, labels: Labels, read: Callable[[], Labels]) -> None:
        """A gauge that is always 1, with labels that are read when it is scraped."""
        self.families[name] = Info(name, description, labels, read)

    def counter(self, name: str, description: str, labels: Labels = ()) -> Counter:
        """The counter of that name, made when it is first asked for."""
        made = self.families.setdefault(name, Counter(name, description, labels))
        assert isinstance(made, Counter)
        return made

    def histogram(
        self, name: str, description: str, bounds: Sequence[float] = DURATIONS, labels: Labels = ()
    ) -> Histogram:
        """The histogram of that name, made when it is first asked for."""
        made = self.families.setdefault(name, Histogram(name, description, bounds, labels))
        assert isinstance(made, Histogram)
        return made

    def rejected(self, reason: str) -> None:
        """Count a refused request; `reason` is a word from the code, never from a request."""
        self._rejections.add(reason)

    def authenticated(self, outcome: str) -> None:
        """Count a look at a request's token; `outcome` is a word from the code."""
        self._auth.add(outcome)

    def operation(self, method: str, seconds: float) -> None:
        """Count an answered request that is no call; `method` is one of those that are served."""
        self._duration.observe(seconds, method, "", "")

    def call(self, record: CallRecord) -> None:
        """Count a finished call, write its line, and record its spans where its trace is recorded."""
        tool = record.tool
        self._calls.add(tool, record.outcome, record.era)
        duration = self._duration.of(CALL, tool, record.failure)
        duration.observe(record.seconds)
        if record.backend_seconds:
            self._backend.observe(record.backend_seconds, tool)
        if record.tokens_in or record.tokens_out:
            self._tokens.add(tool, "input", count=record.tokens_in)
            self._tokens.add(tool, "output", count=record.tokens_out)
        stages = record.steps.milliseconds() if record.steps else None
        if stages:
            for stage, milliseconds in stages.items():
                self._waits.observe(milliseconds / 1000, stage)
        if record.steps.recorded:
            now = self._wall()
            duration.exemplify(Exemplar(record.ids.trace_id, record.seconds, now))
            self.tracing.call(record, now)
        self.writer.line(_line(record, stages))

    def render(self, *, open_metrics: bool = False) -> bytes:
        """The metrics in one of the two formats. Takes milliseconds with many tools: not for the loop."""
        return exposition.render(list(self.families.values()), open_metrics=open_metrics)


def _line(record: CallRecord, stages: dict[str, float] | None) -> dict[str, object]:
    """A call's log line. docs/reference/log-lines.md explains every field."""
    line: dict[str, object] = {
        "event": "call",
        "request_id": record.ids.request_id,
        "trace_id": record.ids.trace_id,
        "tool": record.tool,
        "variant": record.variant,
        "era": record.era,
        "outcome": record.outcome,
        "status": record.status,
        "ms": round(record.seconds * 1000, 3),
        "backend_ms": round(record.backend_seconds * 1000, 3),
        "bytes_in": record.bytes_in,
        "bytes_out": record.bytes_out,
    }
    if record.backend_status:
        line["backend_status"] = record.backend_status
    if record.tokens_in or record.tokens_out:
        line["tokens_in"], line["tokens_out"] = record.tokens_in, record.tokens_out
    if record.user:
        line["user"] = record.user
    if stages:
        line["stages_ms"] = stages
    for name in _STAGE_FIELDS:
        if value := getattr(record, name):
            line[name] = value
    if record.steps.recorded:
        line["span_id"] = record.ids.span_id
    if record.error:
        line["error"] = record.error
    if record.input is not None:
        line["input"] = record.input
    if record.output is not None:
        line["output"] = record.output
    return line


def _failure(record: CallRecord) -> str:
    told = _TOLD.get(record.outcome)
    if told is None:
        return record.outcome  # cancelled: the caller was told nothing
    if record.era == "v2":
        return str(record.status)
    return "tool_error" if told.tool_error and record.era != "rpc" else str(told.code)


_TOLD: Final = {told.outcome: told for told in errors.TABLE.values()}


class LogBridge(logging.Handler):
    """Brings what libraries log (uvicorn's, asyncio's and the span exporter's warnings) into the same JSON lines."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__(level=logging.WARNING)
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = {"level": record.levelname.lower(), "logger": record.name}
        fields["message"] = record.getMessage()[:2000]
        if record.exc_info and record.exc_info[1] is not None:
            # The lines below show the error's own message, which may hold what a caller sent.
            fields["message"] = str(fields["message"]).partition("\n")[0]
            fields["error"] = log.fault(record.exc_info[1])
        self._writer.event("log", **fields)
