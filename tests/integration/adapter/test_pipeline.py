"""The pipeline on the real adapter: the same stages for every lane, and what callers see of them."""

import asyncio
import itertools
import struct
from typing import Any

import msgspec
import pytest

import tensor_backend
from adapter_harness import Reply, Running, adapter, modern_body, modern_headers, request, run
from faulty_model import faulty_model, until
from model_apps import SlowModel, model_server
from modelservice_api.adapter_config import (
    AdapterConfig,
    AuthConfig,
    BatcherConfig,
    CacheConfig,
    IssuerConfig,
    LimitsConfig,
    RateLimitingConfig,
    RetryConfig,
    TokenBucketConfig,
    ToolAnnotationsConfig,
    ToolOverride,
    ToolsConfig,
)
from modelservice_sidecar.core.tensors import Tensor
from tensor_backend import TensorBackend
from token_issuer import RESOURCE, Issuer

pytestmark = pytest.mark.promise("limits")


def shared(tokens: int, period: float = 3600) -> RateLimitingConfig:
    return RateLimitingConfig(shared=TokenBucketConfig(max_tokens=tokens, refill_period=period))


async def metrics(running: Running) -> str:
    return (await request(running.admin_port, "GET", "/metrics")).body.decode()


ROW = Tensor(datatype="FP32", shape=(1, 2), data=struct.pack("<2f", 1, 2))
ARGUMENTS = {"a": [[1.0, 2.0]]}


async def by_mcp(running: Running) -> Reply:
    return await running.modern("tools/call", {"name": "add", "arguments": ARGUMENTS})


async def by_handshake_era(running: Running) -> Reply:
    return await running.legacy("tools/call", {"name": "add", "arguments": ARGUMENTS})


async def by_rpc(running: Running) -> Reply:
    return await running.rpc("call_tool", {"name": "add", "arguments": ARGUMENTS})


async def by_message_pack(running: Running) -> Reply:
    tensor = {"dtype": "FP32", "shape": [1, 2], "bin": ROW.data}
    message = {"jsonrpc": "2.0", "id": 1, "method": "call_tool", "params": {"name": "add", "arguments": {"a": tensor}}}
    body = msgspec.msgpack.encode(message)
    return await request(running.port, "POST", "/rpc", body, {"content-type": "application/msgpack"})


async def by_v2(running: Running) -> Reply:
    inputs = [{"name": "a", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]
    return await request(running.port, "POST", "/v2/models/add/infer", {"inputs": inputs}, {})


LANES = [by_mcp, by_handshake_era, by_rpc, by_message_pack, by_v2]


@pytest.mark.parametrize("spends", LANES)
def test_every_lane_draws_from_the_same_buckets_and_says_when_to_come_back(spends: Any) -> None:
    async def test() -> None:
        backend = TensorBackend()
        config = AdapterConfig(rate_limiting=shared(1))
        async with tensor_backend.adapter(backend, config) as running:
            assert (await spends(running)).status == 200
            for lane in LANES:
                reply = await lane(running)
                if lane in (by_mcp, by_handshake_era):
                    result = reply.json["result"]
                    assert result["isError"] is True
                    assert result["content"][0]["text"] == "This service has had too many calls; try again in 3600 s."
                    assert result["_meta"]["modelservice.dev/retryAfter"] == 3600
                else:
                    assert (reply.status, reply.headers["retry-after"]) == (429, "3600")
                    assert b"This service has had too many calls" in reply.body
                if lane is by_rpc:
                    told = {"outcome": "rate_limited", "retryable": True, "retryAfter": 3600}
                    assert (reply.json["error"]["code"], reply.json["error"]["data"]) == (1429, told)
            assert len(backend.calls) == 1
            counted = 'modelservice_rate_limited_total{bucket="shared",tool="add"} 5.0'
            assert counted in (await metrics(running)).replace(
                'tool="add",bucket="shared"', 'bucket="shared",tool="add"'
            )

    run(test)


def test_a_user_is_the_verified_subject_and_nothing_that_a_caller_can_claim() -> None:
    async def test() -> None:
        issuer = Issuer()
        trusted = IssuerConfig(name="idp", issuer=issuer.url, audiences=(RESOURCE,), jwks=issuer.jwks())
        bucket = TokenBucketConfig(max_tokens=2, refill_period=3600)
        config = AdapterConfig(
            auth=AuthConfig(issuers=(trusted,), resource=RESOURCE),
            rate_limiting=RateLimitingConfig(per_user=bucket),
        )

        async with faulty_model() as model, adapter(model.port, config) as running:

            async def call(subject: str, **headers: str) -> dict[str, Any]:
                params = {"name": "look", "arguments": {}}
                token = issuer.token(issuer.claims(sub=subject))
                given = {**modern_headers("tools/call", params), "authorization": f"Bearer {token}", **headers}
                reply = await request(running.port, "POST", "/mcp", modern_body("tools/call", params), given)
                return dict(reply.json["result"])

            for _ in range(2):
                assert not (await call("alice"))["isError"]
            refused = await call("alice", **{"x-forwarded-for": "192.0.2.7", "x-user": "bob", "from": "bob"})
            assert refused["content"][0]["text"].startswith("You have made too many calls; try again in ")
            assert not (await call("bob"))["isError"]
            line = await running.lines.wait_for("call", outcome="rate_limited")
            assert line["user"] == (await running.lines.wait_for("call", outcome="ok"))["user"]
            assert model.calls["/look"] == 3

    run(test)


def test_a_changed_configuration_refills_no_bucket_and_a_removed_block_lets_calls_through() -> None:
    async def test() -> None:
        async with faulty_model() as model, adapter(model.port, AdapterConfig(rate_limiting=shared(2))) as running:
            for _ in range(2):
                assert not (await running.call("look"))["isError"]
            for changed in (
                AdapterConfig(rate_limiting=shared(2), limits=LimitsConfig(timeout=3)),
                AdapterConfig(rate_limiting=shared(20)),
            ):
                await running.adapter.reconfigure(changed)
                assert (await running.call("look"))["isError"]
            await running.adapter.reconfigure(AdapterConfig())
            assert not (await running.call("look"))["isError"]

    run(test)


def test_the_model_server_is_told_how_long_its_caller_waits() -> None:
    async def test() -> None:
        config = AdapterConfig(limits=LimitsConfig(timeout=7))
        async with faulty_model() as model, adapter(model.port, config) as running:
            await running.call("act")
            assert 0 < int(model.headers["x-envoy-expected-rq-timeout-ms"]) <= 7000

    run(test)


def test_only_a_read_only_idempotent_tool_is_answered_from_the_cache_and_the_log_says_so() -> None:
    async def test() -> None:
        async with faulty_model() as model, adapter(model.port, AdapterConfig(cache=CacheConfig(ttl=3600))) as running:
            answers = [(await running.call("look"))["structuredContent"] for _ in range(3)]
            by_rpc = (await running.rpc("call_tool", {"name": "look"})).json["result"]["structuredContent"]
            assert [*answers, by_rpc] == [{"call": 1}] * 4
            for _ in range(2):
                await running.call("act")
            assert model.calls == {"/look": 1, "/act": 2}
            hit = await running.lines.wait_for("call", tool="look", cache="hit")
            assert (hit["outcome"], hit["backend_ms"]) == ("ok", 0.0)
            assert "backend_status" not in hit
            override = ToolOverride(annotations=ToolAnnotationsConfig(read_only_hint=True, idempotent_hint=True))
            marked = AdapterConfig(cache=CacheConfig(ttl=3600), tools=ToolsConfig(overrides={"act": override}))
            await running.adapter.reconfigure(marked)
            assert {(await running.call("act"))["structuredContent"]["call"] for _ in range(3)} == {4}
            assert (await running.call("look"))["structuredContent"] == {
                "call": 5
            }  # another configuration, empty cache
            told = await metrics(running)
            assert "modelservice_cache_entries 2" in told

    run(test)


def test_one_of_many_that_wait_for_the_same_answer_may_leave() -> None:
    async def test() -> None:
        async with faulty_model() as model, adapter(model.port, AdapterConfig(cache=CacheConfig(ttl=3600))) as running:
            model.fault = "hang"
            params = {"name": "look", "arguments": {}}
            waiting = [asyncio.create_task(running.modern("tools/call", params)) for _ in range(5)]
            await model.arrived.wait()
            await until(lambda: running.adapter.calls.in_flight == 5)
            waiting[0].cancel()  # its connection closes
            left = await running.lines.wait_for("call", outcome="cancelled")
            assert left["tool"] == "look"
            assert (model.calls["/look"], model.hanging) == (1, 1)
            for task in waiting[1:]:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await until(lambda: not model.hanging)  # the last one's leaving reaches the model server

    run(test)


def test_calls_of_all_lanes_share_a_batch() -> None:
    async def test() -> None:
        backend = TensorBackend()
        config = AdapterConfig(batcher=BatcherConfig(max_batch_size=16, max_latency=5))
        async with tensor_backend.adapter(backend, config) as running:
            gate = asyncio.Event()
            began = asyncio.Event()
            ask = backend.call

            async def slow(*given: Any) -> Any:
                began.set()
                await gate.wait()
                return await ask(*given)

            backend.call = slow  # type: ignore[method-assign]
            first = asyncio.create_task(by_mcp(running))
            await began.wait()
            others = [asyncio.create_task(lane(running)) for lane in (by_mcp, by_rpc, by_message_pack, by_v2)]
            await until(lambda: running.adapter.calls.in_flight == 5)
            gate.set()
            replies = await asyncio.gather(first, *others)
            assert [reply.status for reply in replies] == [200] * 5
            assert replies[1].json["result"]["structuredContent"] == {"sum": [[1.0, 2.0]], "rows": [[1]]}
            assert replies[4].json["outputs"][0]["data"] == [1.0, 2.0]
            sizes = [arguments["a"].shape[0] for _, arguments in backend.calls]
            assert sizes[0] == 1
            assert sum(sizes) == 5
            line = await running.lines.wait_for("call", era="v2")
            assert line["batch_rows"] == sizes[-1]

    run(test)


def test_what_is_too_much_is_refused_at_once_and_what_waits_is_answered() -> None:
    async def test() -> None:
        slow = SlowModel()
        config = AdapterConfig(limits=LimitsConfig(max_concurrency=2))
        with model_server(slow.app()) as port:
            async with adapter(port, config) as running:
                calls = [asyncio.create_task(running.rpc("call_tool", {"name": "slow"})) for _ in range(15)]
                refused = [reply for reply in (await first_done(calls, 5)) if reply.status == 503]
                assert len(refused) == 5  # two run, eight wait
                for reply in refused:
                    assert reply.json["error"]["data"]["outcome"] == "overloaded"
                    assert int(reply.headers["retry-after"]) >= 1
                await asyncio.to_thread(slow.entered.acquire)
                slow.release()
                replies = await asyncio.gather(*calls)
                assert sorted(reply.status for reply in replies) == [200] * 10 + [503] * 5

    run(test)


async def first_done(tasks: "list[asyncio.Task[Reply]]", count: int) -> list[Reply]:
    return [await done for done in itertools.islice(asyncio.as_completed(tasks), count)]


def test_a_busy_model_server_that_says_when_is_asked_again_then() -> None:
    async def test() -> None:
        async with faulty_model() as model, adapter(model.port, AdapterConfig(retry=RetryConfig())) as running:
            model.faults = ["503"]
            assert (await running.call("look"))["structuredContent"] == {"call": 2}
            line = await running.lines.wait_for("call", tool="look")
            assert (line["retries"], line["outcome"]) == (1, "ok")
            model.retry_after = "900"
            model.faults = ["503"]
            reply = await running.rpc("call_tool", {"name": "look"})
            assert (reply.status, reply.headers["retry-after"]) == (503, "900")
            assert reply.json["error"]["data"] == {"outcome": "backend_busy", "retryable": True, "retryAfter": 900}

    run(test)
