"""The official MCP client as a traced program: ``python traced_client.py URL ENDPOINT MODE TOOL ARGUMENTS``.

Its spans go to the OTLP/HTTP endpoint; it prints the trace id of the span around its call. A process of its own, because
OpenTelemetry has one tracer provider in each.
"""

import asyncio
import json
import sys

import mcp
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor


async def main(url: str, endpoint: str, mode: str, tool: str, arguments: str) -> None:
    provider = TracerProvider(resource=Resource.create({"service.name": "client"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
    trace.set_tracer_provider(provider)
    async with mcp.Client(url, mode=mode, read_timeout_seconds=30) as client:
        with trace.get_tracer("agent").start_as_current_span("agent turn") as span:
            answer = await client.call_tool(tool, json.loads(arguments))
    provider.shutdown()
    print(json.dumps({"trace_id": f"{span.get_span_context().trace_id:032x}", "is_error": answer.is_error}))


asyncio.run(main(*sys.argv[1:]))
