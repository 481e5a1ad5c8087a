"""A real Triton's models as tools: what the schemas say, what reaches the model, and what comes back, over HTTP and gRPC."""

import asyncio
import base64
import json
import struct
from typing import Any

import jsonschema
import pytest
from mcp.client import Client

from adapter_harness import Running, adapter, encode, modern_body, modern_headers, run
from modelservice_api.adapter_config import AdapterConfig, BackendConfig, LimitsConfig, ModelConfig, V2Config
from modelservice_sidecar.exchange import Timing
from triton_server import Triton, appears

LANES = pytest.mark.parametrize("lane", ["http", "grpc"])


def config(
    server: Triton, lane: str = "http", *, non_finite: Any = "Refuse", models: tuple[str, ...] = ()
) -> AdapterConfig:
    v2 = V2Config(grpc_port=server.grpc_port if lane == "grpc" else 0, models=models)
    return AdapterConfig(
        backend=BackendConfig(v2=v2),
        model=ModelConfig(non_finite=non_finite),
        limits=LimitsConfig(max_body_bytes=64 * 1024 * 1024),
    )


def said(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def tool(running: Running, name: str) -> dict[str, Any]:
    tools = (await running.modern("tools/list")).json["result"]["tools"]
    return next(one for one in tools if one["name"] == name)


async def names(running: Running) -> set[str]:
    return {one["name"] for one in (await running.modern("tools/list")).json["result"]["tools"]}


@pytest.mark.promise("triton-tools")
def test_every_model_is_one_typed_tool_found_without_configuration(triton_server: Triton) -> None:
    async def test() -> None:
        async with adapter(triton_server.port) as running, Client(running.url) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            report = await running.report()
        assert set(tools) == {"accumulate", "add", "count", "odd", "queued", "ragged", "twice", "types"}
        assert report["backend"]["type"] == "V2"
        assert "triton" in report["backend"]["message"]
        for found in tools.values():
            jsonschema.Draft202012Validator.check_schema(found.input_schema)
            jsonschema.Draft202012Validator.check_schema(found.output_schema or {})
        schema = tools["add"].input_schema
        assert schema["required"] == ["a"]  # the config says that b is optional
        assert schema["additionalProperties"] is False
        rows = schema["properties"]["a"]["anyOf"][0]
        number = {"type": "array", "items": {"type": "number"}}
        assert rows == {"type": "array", "items": number, "minItems": 1, "maxItems": 16}
        fixed = tools["twice"].input_schema["properties"]["x"]["anyOf"][0]["items"]
        assert (fixed["minItems"], fixed["maxItems"]) == (3, 3)

    run(test)


@pytest.mark.promise("triton-tools")
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("add", {"a": [1, 2]}, {"sum": [1, 2]}),
        ("add", {"a": [[1, 2], [3, 4]], "b": [[0.5, 1], [1, 1]]}, {"sum": [[1.5, 3], [4, 5]]}),
        ("twice", {"x": [1, 2, 3]}, {"y": [4, 8, 12]}),
        ("odd", {"mode": ["2.5"]}, {"value": [2.5]}),
        ("odd", {"mode": [["2.5"], ["-1"]]}, {"value": [[2.5], [-1]]}),
        ("ragged", {"rows": [1, 2, 3, 4]}, {"total": [10]}),
        ("ragged", {"rows": [[1, 2], [3], [4, 5, 6]]}, {"total": [[3], [3], [15]]}),
    ],
    ids=["unbatched", "batched", "ensemble", "reshape", "reshape-batched", "ragged", "ragged-rows"],
)
def test_a_call_gives_what_the_model_says(
    triton_server: Triton, name: str, arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    async def test() -> None:
        async with adapter(triton_server.port) as running:
            result = await running.call(name, arguments)
            assert result["structuredContent"] == expected
            assert json.loads(said(result)) == expected

    run(test)


VALUES: dict[str, list[Any]] = {
    "in_bool": [True, False],
    "in_uint8": [0, 255],
    "in_uint16": [65535],
    "in_uint32": [4294967295],
    "in_uint64": ["18446744073709551615", 1],
    "in_int8": [-128, 127],
    "in_int16": [-32768],
    "in_int32": [-2147483648],
    "in_int64": ["-9223372036854775808", 7],
    "in_fp16": [0.5, -65504],
    "in_bf16": [1.25, 3],
    "in_fp32": [0.1, 1e-30],
    "in_fp64": [0.1, 1e300],
    "in_string": ["", "grüße", "b"],
}


@pytest.mark.promise("triton-tools")
def test_every_datatype_comes_back_exactly(triton_server: Triton) -> None:
    async def test() -> None:
        async with adapter(triton_server.port) as running:
            result = await running.call("types", VALUES)
            told = result["structuredContent"]
            assert told == {key.replace("in_", "out_"): values for key, values in VALUES.items()}
            # The same once more, with one tensor as bytes: NaN's place holders and halves survive bit by bit.
            halves = base64.b64encode(struct.pack("<2e", 1.5, -2)).decode()
            given = {"dtype": "FP16", "shape": [2], "encoding": "base64", "data": halves}
            result = await running.call("types", {**VALUES, "in_fp16": given})
            assert result["structuredContent"]["out_fp16"] == [1.5, -2]

    run(test)


@pytest.mark.promise("input-checked")
@pytest.mark.parametrize(
    ("name", "arguments", "path"),
    [
        ("add", {"a": [[1, 2], [3]]}, "$.a[1]"),
        ("add", {"a": [[1]] * 17}, "$.a"),
        ("add", {"a": [[1, "2"]]}, "$.a[0][1]"),
        ("add", {"a": [[1, True]]}, "$.a[0][1]"),
        ("add", {"a": [[[1]]]}, "$.a"),
        ("add", {"a": 1}, "$.a"),
        ("add", {"b": [1]}, "lacks a"),
        ("add", {"a": [1], "c": [1]}, "$.c"),
        ("add", {"a": [1], "b": [[1]]}, "$.a"),
        ("add", {"a": [1e39]}, "$.a[0]"),
        ("add", {"a": {"dtype": "FP64", "shape": [1], "encoding": "base64", "data": "AAAAAAAAAAA="}}, "$.a"),
        ("add", {"a": {"dtype": "FP32", "shape": [3], "encoding": "base64", "data": "AAAAAA=="}}, "$.a"),
        ("add", {"a": {"dtype": "FP32", "shape": [1], "encoding": "base64", "data": "AADAfw=="}}, "$.a[0]"),
        ("twice", {"x": [1, 2]}, "$.x"),
        ("accumulate", {"value": [2**53 + 1], "sequence_id": 1}, "$.value[0]"),
        ("accumulate", {"value": [1]}, "lacks sequence_id"),
        ("accumulate", {"value": [1], "sequence_id": 0}, "$.sequence_id"),
        ("accumulate", {"value": [1], "sequence_id": 1, "START": [1]}, "$.START"),
        ("count", {"n": [2**31]}, "$.n[0]"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_wrong_input_is_one_sentence_with_its_place_and_no_request(
    triton_server: Triton, name: str, arguments: dict[str, Any], path: str
) -> None:
    async def test() -> None:
        async with adapter(triton_server.port) as running:
            before = triton_server.requests(name)
            result = await running.call(name, arguments)
            assert result["isError"] is True
            assert path in said(result)
            assert said(result).count("\n") == 0
            assert (await running.lines.wait_for("call"))["outcome"] == "invalid_arguments"
            assert triton_server.requests(name) == before

    run(test)


def test_deep_nesting_is_refused_without_a_request(triton_server: Triton) -> None:
    async def test() -> None:
        async with adapter(triton_server.port) as running:
            before = triton_server.requests("add")
            for depth in (17, 200, 100_000):
                body = orjson_body("add", b'{"a":' + b"[" * depth + b"]" * depth + b"}")
                reply = await post(running, "add", body)
                assert b"error" in reply.lower()
                assert b"internal" not in reply.lower()
            assert triton_server.requests("add") == before
            assert (await running.call("add", {"a": [1]}))["structuredContent"] == {"sum": [1]}

    run(test)


def orjson_body(name: str, arguments: bytes) -> bytes:
    whole = json.dumps(modern_body("tools/call", {"name": name, "arguments": "HERE"})).encode()
    return whole.replace(b'"HERE"', arguments)


async def post(running: Running, name: str, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    headers = {**modern_headers("tools/call", {"name": name}), "connection": "close"}
    writer.write(encode("POST", "/mcp", body, headers))
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.promise("triton-tools")
def test_values_that_are_no_numbers_are_an_error_unless_the_service_says_null(triton_server: Triton) -> None:
    async def test() -> None:
        async with adapter(triton_server.port) as running:
            result = await running.call("odd", {"mode": ["nan"]})
            assert result["isError"] is True
            assert "$" not in said(result)
            assert "value[0] is NaN" in said(result)
        async with adapter(triton_server.port, config(triton_server, non_finite="Null")) as running:
            result = await running.call("odd", {"mode": [["nan"], ["1"]]})
            assert result["structuredContent"] == {"value": [[None], [1]]}
            nan = base64.b64encode(struct.pack("<2f", float("nan"), 1)).decode()
            given = {"dtype": "FP32", "shape": [2], "encoding": "base64", "data": nan}
            assert (await running.call("add", {"a": given}))["structuredContent"] == {"sum": [None, 1]}

    run(test)


@pytest.mark.promise("hostile")
def test_a_model_s_own_error_is_told_without_its_text(triton_server: Triton) -> None:
    async def test() -> None:
        async with adapter(triton_server.port) as running:
            result = await running.call("odd", {"mode": ["fail"]})
            assert said(result) == "The model server failed (HTTP 500)."
            line = await running.lines.wait_for("call")
            assert (line["outcome"], line["backend_status"]) == ("backend_failed", 500)

    run(test)


@pytest.mark.promise("triton-tools")
def test_a_sequence_is_what_its_callers_say_it_is(triton_server: Triton) -> None:
    async def test() -> None:
        async with adapter(triton_server.port) as running:
            properties = (await tool(running, "accumulate"))["inputSchema"]["properties"]
            assert set(properties) == {"value", "sequence_id", "sequence_start", "sequence_end"}
            start = {"value": [3], "sequence_id": 71, "sequence_start": True}
            assert (await running.call("accumulate", start))["structuredContent"] == {"total": [3]}
            other = {"value": [100], "sequence_id": 72, "sequence_start": True, "sequence_end": True}
            assert (await running.call("accumulate", other))["structuredContent"] == {"total": [100]}
            more = {"value": [4], "sequence_id": 71.0}
            assert (await running.call("accumulate", more))["structuredContent"] == {"total": [7]}
            end = {"value": ["9007199254740993"], "sequence_id": 71, "sequence_end": True}
            assert (await running.call("accumulate", end))["structuredContent"] == {"total": ["9007199254741000"]}
            refused = await running.call("accumulate", {"value": [1], "sequence_id": 99})
            assert "refuses the request (HTTP 400)" in said(refused)

    run(test)


@LANES
@pytest.mark.promise("triton-tools")
@pytest.mark.parametrize("count", [4, 0])
def test_a_model_that_answers_in_parts_is_told_part_by_part(triton_server: Triton, lane: str, count: int) -> None:
    async def test() -> None:
        async with adapter(triton_server.port, config(triton_server, lane), timing=Timing(throttle=0.0)) as running:
            params = {"name": "count", "arguments": {"n": [count]}, "_meta": {"progressToken": 1}}
            reply = await running.modern("tools/call", params)
            answer = reply.json["result"]
            parts = [{"text": [f"part {number}"]} for number in range(count)]
            assert answer["structuredContent"] == {"parts": parts}
            assert json.loads(said(answer)) == {"parts": parts}
            schema = (await tool(running, "count"))["outputSchema"]
            jsonschema.validate(answer["structuredContent"], schema)
            if count:
                progress = [event["params"] for event in reply.events[:-1]]
                # A first call that is slow has signs of life without a message before them.
                told = [one["message"] for one in progress if "message" in one]
                assert told == [f"part {number}" for number in range(count)]
                values = [one["progress"] for one in progress]
                assert values == sorted(set(values))
            # Without anybody who listens, the answer is the same.
            assert (await running.call("count", {"n": [count]}))["structuredContent"] == {"parts": parts}

    run(test)


@LANES
@pytest.mark.promise("traced")
def test_the_ids_of_a_call_reach_the_model(triton_server: Triton, lane: str) -> None:
    async def test() -> None:
        trace = "0af7651916cd43dd8448eb211c80319c"
        sent = {
            "traceparent": f"00-{trace}-b7ad6b7169203331-01",
            "tracestate": "vendor=1",
            "x-request-id": f"req-{lane}",
        }
        async with adapter(triton_server.port, config(triton_server, lane)) as running:
            # Triton's generate extension, which HTTP uses for `count`, hands no headers to the model.
            call = {"http": ("odd", {"mode": ["1"]}), "grpc": ("count", {"n": [1]})}[lane]
            await running.modern("tools/call", {"name": call[0], "arguments": call[1]}, **sent)
            told = json.loads((triton_server.events / "told").read_text())
            assert told["id"] == told["x-request-id"] == f"req-{lane}"
            assert told["tracestate"] == "vendor=1"
            assert told["traceparent"].startswith(f"00-{trace}-")

    run(test)


@LANES
@pytest.mark.promise("hostile")
def test_a_caller_that_leaves_stops_a_model_that_answers_in_parts(triton_server: Triton, lane: str) -> None:
    async def test() -> None:
        cancelled = triton_server.events / "cancelled"
        cancelled.unlink(missing_ok=True)
        async with adapter(triton_server.port, config(triton_server, lane), timing=Timing(throttle=0.0)) as running:
            params = {"name": "count", "arguments": {"n": [40], "pause_at": [2]}, "_meta": {"progressToken": 1}}
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(
                encode("POST", "/mcp", modern_body("tools/call", params), modern_headers("tools/call", params))
            )
            while b"part 1" not in await reader.readline():
                pass
            writer.close()
            assert (await running.lines.wait_for("call"))["outcome"] == "cancelled"
            await appears(cancelled)
            assert running.adapter.calls.in_flight == 0
            assert (await running.call("count", {"n": [1]}))["structuredContent"] == {"parts": [{"text": ["part 0"]}]}

    run(test)


@LANES
@pytest.mark.promise("triton-tools")
def test_ten_megabytes_go_in_and_come_back(triton_server: Triton, lane: str) -> None:
    async def test() -> None:
        async with adapter(triton_server.port, config(triton_server, lane)) as running:
            data = struct.pack("<f", 0.5) * (10 * 1024 * 1024 // 4)
            given = {
                "dtype": "FP32",
                "shape": [len(data) // 4],
                "encoding": "base64",
                "data": base64.b64encode(data).decode(),
            }
            result = await running.call("add", {"a": given})
            assert result["isError"] is False
            told = result["structuredContent"]["sum"]
            assert (told["dtype"], told["shape"]) == ("FP32", [len(data) // 4])
            resource = result["content"][1]["resource"]
            assert resource["uri"] == told["resource"]
            assert base64.b64decode(resource["blob"]) == data
            line = await running.lines.wait_for("call")
            assert ("backend_status" in line) == (lane == "http")  # which is how the two lanes differ in the log

    run(test)


@pytest.mark.promise("triton-tools")
def test_only_the_models_that_are_named_are_tools_and_a_missing_one_is_said(triton_server: Triton) -> None:
    async def test() -> None:
        async with adapter(triton_server.port, config(triton_server, models=("add", "nope"))) as running:
            report = await running.report()
            assert report["tools"]["names"] == ["add"]
            assert "'nope' of spec.backend.v2.models is not ready" in report["backend"]["message"]

    run(test)


@pytest.mark.promise("triton-tools")
def test_a_load_and_an_unload_change_the_tools_and_tell_who_listens(triton_server: Triton) -> None:
    async def test() -> None:
        async with adapter(triton_server.port) as running, Client(running.url) as client:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    assert "twice" in {tool.name for tool in (await client.list_tools()).tools}
                    await asyncio.to_thread(triton_server.unload, "twice")
                    await anext(events)
                    assert "twice" not in await names(running)
                    await asyncio.to_thread(triton_server.load, "twice")
                    await anext(events)
                    assert "twice" in await names(running)
            finally:
                await asyncio.to_thread(triton_server.load, "twice")
            assert (await running.call("twice", {"x": [1, 0, 0]}))["structuredContent"] == {"y": [4, 0, 0]}

    run(test)
