"""Finished calls as OpenTelemetry spans on their way to a collector: one for the call, below it one for each wait and request.

Owns the names and attributes of spans, by the semantic conventions for MCP, GenAI and HTTP, and the exporter. Imports the SDK,
so only `spans` imports this, once there is an endpoint. Spans are made when a call is over, from what its record says, with the
ids that others were told; they leave in batches from a thread of the SDK's own. Never holds arguments, results or tokens.
"""

import os
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from opentelemetry import trace as api
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, Status, StatusCode, TraceFlags

from modelservice_api.adapter_config import ServerConfig
from modelservice_sidecar.core.trace import Ids
from modelservice_sidecar.metrics import Counter
from modelservice_sidecar.steps import BACKEND, HAND_OVER
from modelservice_sidecar.telemetry import CALL, CallRecord

_WAITING: Final = 4096
"""Spans that wait for the collector; what comes while there are more is counted and dropped before it costs anything."""
_QUEUE: Final = 2 * _WAITING
_BATCH: Final = 512
_BETWEEN_BATCHES_MS: Final = 1000
_EXPORT_TIMEOUT: Final = 5
_NANOSECONDS: Final = 1_000_000_000
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)

Attributes = dict[str, str | int]


class SpanExport:
    """Sends the spans of calls to one endpoint; without one they go nowhere until a processor is added to `provider`."""

    def __init__(self, endpoint: str, server: ServerConfig, counted: Counter) -> None:
        self._ids = _ToldIds()
        self._counted = counted
        self._counting = _Counting(counted)
        self._made = 0
        self.provider = TracerProvider(
            sampler=ALWAYS_ON,  # it was decided before
            resource=Resource.create(
                {
                    "service.name": server.name,
                    "service.version": server.version,
                    "service.instance.id": os.uname().nodename,
                }
            ),
            shutdown_on_exit=False,
            id_generator=self._ids,
            span_limits=SpanLimits(max_span_attributes=32, max_span_attribute_length=512),
        )
        self._tracer = self.provider.get_tracer("modelservice.adapter")
        if endpoint:
            self._counting.exporter = OTLPSpanExporter(
                f"{endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_TIMEOUT, compression=Compression.Gzip
            )
            self.provider.add_span_processor(
                BatchSpanProcessor(
                    self._counting,
                    max_queue_size=_QUEUE,
                    max_export_batch_size=_BATCH,
                    schedule_delay_millis=_BETWEEN_BATCHES_MS,
                )
            )

    def call(self, record: CallRecord, now: float) -> None:
        """Make the spans of a call that ended `now`, on the wall's clock."""
        if self._made - self._counting.taken > _WAITING:
            self._counted.add("dropped", count=1 + len(record.steps))
            return
        self._made += 1 + len(record.steps)
        offset = now - perf_counter()  # steps are on the other clock
        ids = record.ids
        name, attributes = _describe(record)
        span = self._start(name, SpanKind.SERVER, now - record.seconds, attributes, ids, ids.parent_id, ids.span_id)
        for step in record.steps:
            child_id = step.span_id or os.urandom(8).hex()
            if step.name in {BACKEND, HAND_OVER}:
                name = str(step.attributes.get("http.request.method") or step.name)
                kind, attributes = SpanKind.CLIENT, {**step.attributes, **_tokens(record)}
            else:
                name, kind, attributes = f"wait {step.name}", SpanKind.INTERNAL, step.attributes
            child = self._start(name, kind, step.began + offset, attributes, ids, ids.span_id, child_id)
            _end(child, step.error, "", (step.ended or perf_counter()) + offset)
        _end(span, record.failure, record.error, now)

    def close(self) -> None:
        """Send what waits and stop. Blocks for as long as the collector takes."""
        self.provider.shutdown()

    def _start(
        self,
        name: str,
        kind: SpanKind,
        began: float,
        attributes: Attributes,
        ids: Ids,
        parent_id: str,
        span_id: str,
    ) -> api.Span:
        trace_id = int(ids.trace_id, 16)
        context = api.set_span_in_context(api.INVALID_SPAN)  # never what happens to be current
        if parent_id:
            parent = api.SpanContext(
                trace_id,
                int(parent_id, 16),
                is_remote=parent_id == ids.parent_id,
                trace_flags=_SAMPLED,
                trace_state=api.TraceState.from_header([ids.state]) if ids.state else None,
            )
            context = api.set_span_in_context(api.NonRecordingSpan(parent))
        self._ids.trace_id, self._ids.span_id = trace_id, int(span_id, 16)
        return self._tracer.start_span(name, context, kind, attributes, start_time=int(began * _NANOSECONDS))


class _ToldIds(IdGenerator):
    """The SDK asks for the ids of a new span: those that the caller and the model server were told already."""

    trace_id = span_id = 1

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _Counting(SpanExporter):
    """Counts what became of spans. `taken` is how many left the queue, whatever became of them."""

    def __init__(self, counted: Counter) -> None:
        self._counted = counted
        self.exporter: SpanExporter | None = None
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        assert self.exporter is not None
        result = self.exporter.export(spans)
        self.taken += len(spans)
        self._counted.add("sent" if result is SpanExportResult.SUCCESS else "failed", count=len(spans))
        return result

    def shutdown(self) -> None:
        if self.exporter is not None:
            self.exporter.shutdown()


def _describe(record: CallRecord) -> tuple[str, Attributes]:
    """The name and the attributes of a call's span. A tool is named only where it is published."""
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "modelservice.request_id": record.ids.request_id,
        "modelservice.outcome": record.outcome,
    }
    match record.era:
        case "rpc":
            method = attributes["rpc.method"] = "call_tool"
            attributes["rpc.system.name"] = "jsonrpc"
        case "v2":
            method = attributes["rpc.method"] = "infer"
        case _:
            method = attributes["mcp.method.name"] = CALL
    failure = record.failure
    for name, value in (
        ("mcp.protocol.version", record.revision),
        ("jsonrpc.request.id", "" if record.message_id is None else str(record.message_id)),
        ("gen_ai.tool.name", record.tool),
        ("modelservice.variant", record.variant),
        ("user.id", record.user),
        ("rpc.response.status_code", failure if failure.lstrip("-").isdigit() else ""),
    ):
        if value:
            attributes[name] = value
    return (f"{method} {record.tool}" if record.tool else method), attributes


def _tokens(record: CallRecord) -> Attributes:
    if not record.tokens_in and not record.tokens_out:
        return {}
    return {"gen_ai.usage.input_tokens": record.tokens_in, "gen_ai.usage.output_tokens": record.tokens_out}


def _end(span: api.Span, failure: str, message: str, ended: float) -> None:
    if failure:
        span.set_attribute("error.type", failure)
        span.set_status(Status(StatusCode.ERROR, message or None))
    span.end(int(ended * _NANOSECONDS))
