"""A model server with OpenTelemetry of its own: each request is a span below the caller's, sent to an OTLP/HTTP endpoint."""

from typing import Annotated

from fastapi import Body, FastAPI, HTTPException, Request
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


def traced_app(endpoint: str) -> FastAPI:
    """Doubles numbers; refuses negative ones in words that repeat them."""
    provider = TracerProvider(resource=Resource.create({"service.name": "model"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
    tracer = provider.get_tracer("model")
    app = FastAPI()

    @app.post("/double")
    def double(request: Request, value: Annotated[int, Body()]) -> int:
        context = TraceContextTextMapPropagator().extract(dict(request.headers))
        with tracer.start_as_current_span("inference", context, SpanKind.SERVER):
            if value < 0:
                raise HTTPException(400, f"{value} is negative")
            return value * 2

    return app
