"""One trace from the client through the adapter to the model server, as a collector receives it."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapter_harness import adapter, request, run
from artifact_models import artifact, config_of, onnx_models, serving
from model_apps import SlowModel, model_server, named_app
from modelservice_api.adapter_config import (
    AdapterConfig,
    BackendConfig,
    LimitsConfig,
    PeersConfig,
    ServerConfig,
    TracingConfig,
    V2Config,
)
from modelservice_sidecar.core.trace import Ids
from modelservice_sidecar.metrics import Counter, Gauge
from modelservice_sidecar.span_export import SpanExport
from modelservice_sidecar.telemetry import CallRecord
from otlp_receiver import Collector, Span, collector
from traced_model import traced_app
from triton_server import triton

pytestmark = pytest.mark.promise("spans")

CLIENT = Path(__file__).resolve().parents[2] / "support" / "traced_client.py"
TRACE, PARENT_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRITON = "triton-inference-server"
PARENT = f"00-{TRACE}-{PARENT_SPAN}-01"


def traced(receiver: Collector, ratio: float = 1.0, **more: Any) -> AdapterConfig:
    tracing = TracingConfig(endpoint=receiver.endpoint, sample_ratio=ratio)
    return AdapterConfig(server=ServerConfig(name="fraud", version="3"), tracing=tracing, **more)


async def spans_of(receiver: Collector, what: Callable[[list[Span]], bool]) -> list[Span]:
    return await asyncio.to_thread(receiver.wait_for, what)


def one(spans: list[Span], service: str, name: str) -> Span:
    [found] = [span for span in spans if (span.service, span.name) == (service, name)]
    return found


def count(spans: list[Span], service: str, kind: str = "") -> int:
    return sum(span.service == service and kind in {"", span.kind} for span in spans)


async def official_client(url: str, receiver: Collector, mode: str, tool: str, arguments: Any) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(CLIENT), url, receiver.endpoint, mode, tool, json.dumps(arguments),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    return dict(json.loads(out))


@pytest.mark.promise("traced")
@pytest.mark.parametrize(("mode", "revision"), [("2026-07-28", "2026-07-28"), ("legacy", "2025-11-25")])
def test_the_official_client_s_span_and_the_model_s_are_one_chain_through_the_adapter(mode: str, revision: str) -> None:
    async def test() -> None:
        with collector() as receiver, model_server(traced_app(receiver.endpoint)) as port:
            async with adapter(port, traced(receiver, ratio=0.0)) as running:
                told = await official_client(running.url, receiver, mode, "double", {"body": 4})
                assert told["is_error"] is False

                def all_there(spans: list[Span]) -> bool:
                    return {"agent turn", "tools/call double", "inference", "POST"} <= {
                        span.name for span in spans if span.trace_id == told["trace_id"]
                    }

                spans = [span for span in await spans_of(receiver, all_there) if span.trace_id == told["trace_id"]]
                ours, backend = one(spans, "fraud", "tools/call double"), one(spans, "fraud", "POST")
                model = one(spans, "model", "inference")
                client = next(span for span in spans if span.service == "client" and span.span_id == ours.parent_id)
                assert (model.parent_id, backend.parent_id) == (backend.span_id, ours.span_id)
                assert one(spans, "client", "agent turn").span_id in {client.span_id, client.parent_id}
                assert (ours.kind, backend.kind, model.kind) == ("server", "client", "server")
                assert client.started <= ours.started <= backend.started <= model.started
                assert model.ended <= backend.ended <= ours.ended <= client.ended
                about = ours.attributes
                line = await running.lines.wait_for("call", tool="double")
                assert (line["trace_id"], line["span_id"]) == (told["trace_id"], ours.span_id)
                assert about["modelservice.request_id"] == line["request_id"]
                assert {key: about[key] for key in about if key.startswith(("mcp.", "gen_ai.", "network."))} == {
                    "mcp.method.name": "tools/call",
                    "mcp.protocol.version": revision,
                    "gen_ai.tool.name": "double",
                    "gen_ai.operation.name": "execute_tool",
                    "network.transport": "tcp",
                    "network.protocol.name": "http",
                }
                assert about["jsonrpc.request.id"]
                assert (about["modelservice.variant"], about["modelservice.outcome"]) == ("3", "ok")
                assert backend.attributes == {"http.request.method": "POST", "http.response.status_code": 200}
                assert not any(span.failed for span in spans)

    run(test)


def test_what_failed_is_told_by_the_rules_of_opentelemetry_and_without_the_caller_s_words() -> None:
    async def test() -> None:
        with collector() as receiver, model_server(traced_app(receiver.endpoint)) as port:
            async with adapter(port, traced(receiver)) as running:
                await running.call("double", {"body": -4711})
                await running.modern("tools/call", {"name": "nope-4711"})
                await running.rpc("call_tool", {"name": "double", "arguments": {"body": "4711"}})
                spans = await spans_of(receiver, lambda spans: count(spans, "fraud", "server") == 3)
                refused, unknown, invalid = (
                    one(spans, "fraud", name) for name in ("tools/call double", "tools/call", "call_tool double")
                )
                assert [span.failed for span in (refused, unknown, invalid)] == [True] * 3
                assert [span.attributes["error.type"] for span in (refused, unknown, invalid)] == [
                    "tool_error",
                    "-32602",
                    "-32602",
                ]
                assert [span.attributes["modelservice.outcome"] for span in (refused, unknown, invalid)] == [
                    "backend_refused",
                    "unknown_tool",
                    "invalid_arguments",
                ]
                assert "gen_ai.tool.name" not in unknown.attributes
                assert (invalid.attributes["rpc.system.name"], invalid.attributes["rpc.response.status_code"]) == (
                    "jsonrpc",
                    "-32602",
                )
                asked = one(spans, "fraud", "POST")
                assert (asked.parent_id, asked.attributes["error.type"]) == (refused.span_id, "400")
                assert not any(
                    b"4711" in body for body in receiver.raw if b"fraud" in body
                )  # the model says what it likes

    run(test)


def test_a_wait_for_a_slot_is_a_span_a_stage_time_and_a_metric() -> None:
    async def test() -> None:
        model = SlowModel()
        with collector() as receiver, model_server(model.app()) as port:
            async with adapter(port, traced(receiver, limits=LimitsConfig(max_concurrency=1))) as running:
                first = asyncio.ensure_future(running.call("slow"))
                await asyncio.to_thread(model.entered.acquire)
                second = asyncio.ensure_future(running.call("slow"))
                waiting = running.adapter.telemetry.families["modelservice_calls_waiting"]
                assert isinstance(waiting, Gauge)
                while not waiting.read():  # noqa: ASYNC110 - the line has no event
                    await asyncio.sleep(0)
                model.release()
                await first
                model.release()
                await second
                spans = await spans_of(receiver, lambda spans: len(spans) == 5)
                waited = one(spans, "fraud", "wait concurrency")
                assert waited.kind == "internal"
                assert {span.name for span in spans if span.parent_id == waited.parent_id} == {
                    "wait concurrency",
                    "POST",
                }
                lines = running.lines.of("call")
                assert [list(line.get("stages_ms", {})) for line in lines] == [[], ["concurrency"]]
                metrics = (await request(running.admin_port, "GET", "/metrics")).body.decode()
                assert 'modelservice_stage_wait_seconds_count{stage="concurrency"} 1.0' in metrics

    run(test)


def test_the_caller_decides_what_is_recorded_and_else_the_ratio() -> None:
    async def test() -> None:
        with collector() as receiver, model_server(traced_app(receiver.endpoint)) as port:
            async with adapter(port, traced(receiver, ratio=0.5)) as running:
                low, high = "a" * 16 + "7" + "f" * 15, "a" * 16 + "8" + "0" * 15
                sent = [
                    {"traceparent": PARENT},
                    {"traceparent": f"00-{'1' * 32}-{PARENT_SPAN}-00"},
                    {"b3": f"{'2' * 32}-{PARENT_SPAN}-1"},
                    {"Trace-ID": low},
                    {"X-Trace-Id": high},
                ]
                for headers in sent:
                    await running.rpc("call_tool", {"name": "double", "arguments": {"body": 1}}, **headers)
                spans = await spans_of(
                    receiver, lambda spans: count(spans, "model") == 3 and count(spans, "fraud") == 6
                )
                ours = {span.trace_id: span for span in spans if span.service == "fraud" and span.kind == "server"}
                assert ours.keys() == {TRACE, "2" * 32, low}
                assert [ours[key].parent_id for key in (TRACE, "2" * 32, low)] == [PARENT_SPAN, PARENT_SPAN, ""]

    run(test)


def test_without_an_endpoint_the_caller_s_span_stays_the_parent_of_the_model_s() -> None:
    async def test() -> None:
        with collector() as receiver, model_server(traced_app(receiver.endpoint)) as port:
            async with adapter(port) as running:
                await running.rpc("call_tool", {"name": "double", "arguments": {"body": 1}}, traceparent=PARENT)
                [span] = await spans_of(receiver, bool)
                assert (span.service, span.trace_id, span.parent_id) == ("model", TRACE, PARENT_SPAN)
                assert "span_id" not in (await running.lines.wait_for("call"))

    run(test)


def test_calls_of_one_batch_have_spans_of_their_own() -> None:
    async def test() -> None:
        with collector() as receiver, model_server(traced_app(receiver.endpoint)) as port:
            async with adapter(port, traced(receiver)) as running:
                batch = [
                    {"jsonrpc": "2.0", "id": number, "method": "call_tool", "params": ["double", {"body": number}]}
                    for number in (1, 2)
                ]
                headers = {"content-type": "application/json", "traceparent": PARENT}
                await request(running.port, "POST", "/rpc", batch, headers)
                spans = await spans_of(receiver, lambda spans: count(spans, "fraud") == 4)
                ours = [span for span in spans if span.kind == "server" and span.service == "fraud"]
                assert len({span.span_id for span in ours}) == 2
                assert {span.parent_id for span in ours} == {PARENT_SPAN}
                assert {span.attributes["jsonrpc.request.id"] for span in ours} == {"1", "2"}

    run(test)


def test_a_collector_that_refuses_or_is_away_costs_no_call_and_is_counted() -> None:
    async def test() -> None:
        with collector() as receiver, model_server(traced_app(receiver.endpoint)) as port:
            async with adapter(port, traced(receiver)) as running:
                receiver.status = 400
                assert (await running.call("double", {"body": 2}))["structuredContent"] == {"result": 4}
                counted = running.adapter.telemetry.counter("modelservice_spans", "", ())
                await asyncio.to_thread(receiver.wait_for_requests, 1)
                while not counted.values.get(("failed",)):  # noqa: ASYNC110 - the exporter's thread has no event
                    await asyncio.sleep(0.01)
                receiver.status = 200
                await running.call("double", {"body": 2})
                await spans_of(receiver, lambda spans: any(span.service == "fraud" for span in spans))

    run(test)


def test_spans_that_wait_are_sent_when_the_adapter_ends() -> None:
    async def test() -> None:
        with collector() as receiver, model_server(traced_app(receiver.endpoint)) as port:
            async with adapter(port, traced(receiver)) as running:
                for _ in range(20):
                    await running.call("double", {"body": 2})
            assert sum(span.name == "tools/call double" for span in receiver.spans) == 20

    run(test)


def test_a_call_that_another_pod_answers_is_one_chain_through_both() -> None:
    async def test() -> None:
        with collector() as receiver, model_server(traced_app(receiver.endpoint)) as port:
            there = traced(receiver).model_copy(update={"server": ServerConfig(name="other-pod")})
            async with adapter(port, there) as other:
                here = traced(receiver, peers=PeersConfig(host="127.0.0.1", port=other.port))
                async with adapter(port, here) as running:
                    running.adapter.begin_drain()
                    await running.call("double", {"body": 2})

                    def all_there(spans: list[Span]) -> bool:
                        return {"fraud", "other-pod", "model"} <= {span.service for span in spans}

                    spans = await spans_of(receiver, all_there)
                    chain = [
                        one(spans, "fraud", "tools/call double"),
                        one(spans, "fraud", "hand_over"),
                        one(spans, "other-pod", "call_tool double"),
                        one(spans, "other-pod", "POST"),
                        one(spans, "model", "inference"),
                    ]
                    assert [span.parent_id for span in chain[1:]] == [span.span_id for span in chain[:-1]]
                    assert len({span.trace_id for span in chain}) == 1
                    assert "hand_over" in (await running.lines.wait_for("call"))["stages_ms"]

    run(test)


def test_spans_that_a_collector_does_not_take_are_bounded_and_counted() -> None:
    counted = Counter("spans", "Spans.", ("result",))
    export = SpanExport("", ServerConfig(), counted)
    record = CallRecord(ids=Ids(request_id="r", trace_id=TRACE, span_id=PARENT_SPAN, flags="01"), era="modern")
    for _ in range(5000):
        export.call(record, 1.0)
    assert 800 < counted.values[("dropped",)] < 1000


def test_a_collector_that_hangs_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    async def test() -> None:
        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        hanging = await asyncio.start_server(hang, "127.0.0.1", 0)
        endpoint = f"http://127.0.0.1:{hanging.sockets[0].getsockname()[1]}"
        document = tmp_path / "config.json"
        config = AdapterConfig(tracing=TracingConfig(endpoint=endpoint, sample_ratio=1))
        document.write_text(config.to_json(), encoding="utf-8")
        with model_server(named_app("double")) as port:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "modelservice_sidecar", "--config", str(document), "--mcp-port", "0",
                "--admin-port", "0", "--bind", "127.0.0.1", "--admin-bind", "127.0.0.1", "--drain-seconds", "0",
                "--backend-port", str(port), stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert process.stdout is not None
            events: list[str] = []
            mcp_port = 0
            async for line in process.stdout:
                told = json.loads(line)
                events.append(told["event"])
                mcp_port = told.get("mcp_port", mcp_port)
                if told["event"] == "backend" and told["state"] == "Ready":
                    call = {"jsonrpc": "2.0", "id": 1, "method": "call_tool", "params": ["double", {}]}
                    await request(mcp_port, "POST", "/rpc", call, {"content-type": "application/json"})
                    process.terminate()
            assert await process.wait() == 0
            assert "call" in events
            assert events[-1] == "stopped"
        hanging.close()

    run(test)


@pytest.mark.promise("traced")
@pytest.mark.parametrize("lane", ["POST", "backend"])
def test_triton_s_own_spans_hang_below_the_adapter_s_over_http_and_over_grpc(tmp_path: Path, lane: str) -> None:
    async def test() -> None:
        with collector() as receiver:
            settings = ["mode=opentelemetry", f"opentelemetry,url={receiver.endpoint}/v1/traces", "rate=1"]
            settings += ["level=TIMESTAMPS", "opentelemetry,bsp_schedule_delay=100"]
            arguments = [f"--trace-config={setting}" for setting in settings]
            with triton(tmp_path / "triton", ["add"], arguments=arguments) as server:
                v2 = V2Config(models=("add",), grpc_port=server.grpc_port if lane == "backend" else 0)
                config = traced(receiver, backend=BackendConfig(type="V2", v2=v2))
                async with adapter(server.port, config) as running:
                    # Of a megabyte and more, tensors go over gRPC.
                    row = [1.0] * (300_000 if lane == "backend" else 2)
                    params = {"name": "add", "arguments": {"a": [row]}}
                    answer = await running.rpc("call_tool", params, traceparent=PARENT)
                    assert answer.status == 200, answer.body[:300]

                    def all_there(spans: list[Span]) -> bool:
                        return {"fraud", TRITON} <= {span.service for span in spans if span.trace_id == TRACE}

                    spans = [span for span in await spans_of(receiver, all_there) if span.trace_id == TRACE]
                    below = one(spans, "fraud", lane).span_id
                    assert below in {span.parent_id for span in spans if span.service == TRITON}

    run(test)


def test_a_model_in_a_process_of_the_adapter_s_is_a_step_like_any_other() -> None:
    async def test() -> None:
        with collector() as receiver:
            config = config_of("ONNX", artifact("ONNX", onnx_models() / "linear.onnx", name="double"))
            async with serving(config.model_copy(update={"tracing": traced(receiver).tracing})) as running:
                await running.call("double", {"x": [[1, 2]]})
                spans = await spans_of(receiver, lambda spans: len(spans) == 2)
                backend = next(span for span in spans if span.name == "backend")
                assert (backend.kind, backend.parent_id) == (
                    "client",
                    next(iter({s.span_id for s in spans} - {backend.span_id})),
                )
                line = await running.lines.wait_for("call", tool="double")
                assert line["backend_ms"] > 0
                metrics = (await request(running.admin_port, "GET", "/metrics")).body.decode()
                assert 'modelservice_backend_duration_seconds_count{tool="double"} 1.0' in metrics

    run(test)
