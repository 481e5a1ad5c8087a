"""The JSON-RPC endpoint, the admin port, and what is said about every call."""

import asyncio
import re

import pytest

from adapter_harness import adapter, request, run
from model_apps import SlowModel, model_server
from modelservice_api.adapter_config import AdapterConfig, AdapterReport, ServerConfig

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.mark.promise("json-rpc")
def test_list_tools_call_tool_and_get_tool_info_answer_with_ids_beside_the_result(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            listed = await running.rpc("list_tools")
            names = [tool["name"] for tool in listed.json["result"]["tools"]]
            assert names == sorted(names)
            called = await running.rpc("call_tool", {"name": "double", "arguments": {"body": 4}})
            assert called.json["result"] == {
                "content": [{"type": "text", "text": "8"}],
                "structuredContent": {"result": 8},
            }
            info = await running.rpc("get_tool_info", {"name": "double"})
            assert info.json["result"]["inputSchema"]["required"] == ["body"]
            for reply in (listed, called, info):
                assert set(reply.json) == {"jsonrpc", "id", "result", "request_id", "trace_id"}
                assert reply.headers["x-request-id"] == reply.json["request_id"]
                assert re.fullmatch(r"[0-9a-f]{32}", reply.json["trace_id"])

    run(test)


@pytest.mark.promise("json-rpc")
def test_errors_over_json_rpc_carry_code_outcome_and_ids(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            for params, status, code, outcome in (
                ({"name": "nope"}, 400, -32602, "unknown_tool"),
                ({"name": "double", "arguments": {"body": "x"}}, 400, -32602, "invalid_arguments"),
                ({"name": "busy"}, 503, 1007, "backend_busy"),
                ({"name": "secret", "arguments": {"name": "crash"}}, 502, 1008, "backend_failed"),
            ):
                reply = await running.rpc("call_tool", params)
                error = reply.json["error"]
                assert (reply.status, error["code"], error["data"]["outcome"]) == (status, code, outcome)
                assert reply.json["request_id"]
                assert reply.json["trace_id"]
            assert (await running.rpc("destroy")).json["error"]["code"] == -32601
            assert (await running.rpc("call_tool", {"arguments": {}})).json["error"]["code"] == -32602

    run(test)


@pytest.mark.promise("json-rpc")
def test_positional_parameters_batches_and_notifications_work_as_json_rpc_says(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            headers = {"content-type": "application/json"}
            assert (await running.rpc("call_tool", ["double", {"body": 1}])).json["result"]["structuredContent"][
                "result"
            ] == 2
            one = {"jsonrpc": "2.0", "id": "a", "method": "call_tool", "params": ["double", {"body": 2}]}
            silent = {"jsonrpc": "2.0", "method": "list_tools"}
            reply = await request(running.port, "POST", "/rpc", [one, silent, {"bad": 1}], headers)
            assert [(item["id"], item.get("error", {}).get("code")) for item in reply.json] == [
                ("a", None),
                (None, -32600),
            ]
            assert (await request(running.port, "POST", "/rpc", silent, headers)).status == 204
            for batch in ([], [one] * 33):
                reply = await request(running.port, "POST", "/rpc", batch, headers)
                assert (reply.status, reply.json["error"]["code"]) == (400, -32600)

    run(test)


@pytest.mark.promise("traced")
@pytest.mark.parametrize("spelling", ["traceparent", "Traceparent", "TRACEPARENT", "TraceParent"])
def test_one_request_id_and_trace_id_lead_from_client_to_log_in_any_spelling(torture: int, spelling: str) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            in_header = await running.rpc(
                "call_tool", {"name": "echo_headers"}, **{spelling: PARENT, "X-Request-ID": "r-1"}
            )
            in_meta = await running.rpc(
                "call_tool", {"name": "echo_headers", "_meta": {spelling: PARENT, "request_id": "r-2"}}
            )
            for reply, wanted in ((in_header, "r-1"), (in_meta, "r-2")):
                assert (reply.json["request_id"], reply.json["trace_id"]) == (wanted, TRACE)
                line = await running.lines.wait_for("call", request_id=wanted)
                assert line["trace_id"] == TRACE
                seen = reply.json["result"]["structuredContent"]["headers"]
                assert seen["x-request-id"] == wanted
                assert seen["traceparent"].split("-")[1] == TRACE

    run(test)


@pytest.mark.promise("traced")
def test_malformed_ids_are_replaced_and_never_an_error(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            for bad in ("zzz", "00-" + "0" * 32 + "-b7ad6b7169203331-01", PARENT + "-x", "x" * 5000):
                reply = await running.modern(
                    "tools/call", {"name": "words", "_meta": {"traceparent": bad, "request_id": {"a": 1}}}
                )
                assert reply.status == 200
                assert re.fullmatch(r"[0-9a-f]{32}", reply.json["result"]["_meta"]["modelservice.dev/traceId"])
                assert re.fullmatch(r"[0-9a-f]{32}", reply.headers["x-request-id"])

    run(test)


@pytest.mark.promise("observed")
def test_every_call_is_one_log_line_and_one_set_of_metrics(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            await running.call("double", {"body": 2})
            await running.call("double", {"body": "x"})
            await running.modern("tools/call", {"name": "nope"})
            await running.legacy("tools/call", {"name": "double", "arguments": {"body": 2}})
            lines = running.lines.of("call")
            assert [(line["tool"], line["era"], line["outcome"]) for line in lines] == [
                ("double", "modern", "ok"),
                ("double", "modern", "invalid_arguments"),
                ("", "modern", "unknown_tool"),
                ("double", "handshake", "ok"),
            ]
            expected = {"request_id", "trace_id", "status", "ms", "backend_ms", "bytes_in", "bytes_out"}
            assert all(expected <= set(line) for line in lines)
            metrics = (await request(running.admin_port, "GET", "/metrics")).body.decode()
            assert 'modelservice_calls_total{era="modern",outcome="ok",tool="double"} 1.0' in metrics
            labels = 'gen_ai_tool_name="double",mcp_method_name="tools/call"'
            count = "mcp_server_operation_duration_seconds_count"
            assert f'{count}{{error_type="",{labels}}} 2.0' in metrics
            assert f'{count}{{error_type="tool_error",{labels}}} 1.0' in metrics
            assert "modelservice_backend_up 1.0" in metrics
            assert "nope" not in metrics

    run(test)


def test_the_report_is_the_document_that_the_operator_reads(torture: int) -> None:
    async def test() -> None:
        config = AdapterConfig(server=ServerConfig(name="fraud"))
        async with adapter(torture, config) as running:
            report = AdapterReport.model_validate(await running.report())
            assert report.config_digest == config.digest()
            assert (report.backend.type, report.backend.state) == ("OpenAPI", "Ready")
            assert report.tools.count == len(report.tools.names) > 10
            assert report.tools.hash.startswith("sha256:")
            assert "2026-07-28" in report.protocol_versions

    run(test)


def test_liveness_and_readiness_answer_while_the_model_hangs_and_readiness_falls_only_when_draining() -> None:
    async def test() -> None:
        model = SlowModel()
        with model_server(model.app()) as port:
            async with adapter(port) as running:
                hanging = [asyncio.ensure_future(running.call("slow")) for _ in range(3)]
                await asyncio.to_thread(model.entered.acquire)
                for path in ("/healthz", "/readyz", "/tools", "/metrics"):
                    assert (await request(running.admin_port, "GET", path)).status == 200
                running.adapter.begin_drain()
                assert (await request(running.admin_port, "GET", "/healthz")).status == 200
                assert (await request(running.admin_port, "GET", "/readyz")).status == 503
                reply = await running.legacy("ping")
                assert (reply.status, reply.headers["connection"]) == (200, "close")
                assert (await running.modern("subscriptions/listen", {"notifications": {}})).status == 503
                model.release()
                assert all("structuredContent" in result for result in await asyncio.gather(*hanging))

    run(test)


def test_the_admin_port_serves_its_four_paths_and_nothing_else(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            assert (await request(running.admin_port, "GET", "/mcp")).status == 404
            assert (await request(running.admin_port, "POST", "/healthz", b"")).status == 405
            assert (await request(running.admin_port, "HEAD", "/healthz")).status == 200
            for path in ("/healthz", "/readyz", "/metrics", "/tools"):
                assert (await request(running.port, "GET", path)).status == 404

    run(test)
