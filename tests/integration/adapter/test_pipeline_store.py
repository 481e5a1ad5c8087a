"""Rate limits that all pods share, in a real Redis: one count for all, and what happens while it does not answer."""

import asyncio
from typing import Any, Literal

import pytest

import venvs
from adapter_harness import Running, adapter, request, run
from faulty_model import faulty_model
from modelservice_api.adapter_config import (
    AdapterConfig,
    RateLimitingConfig,
    RateLimitStoreConfig,
    TokenBucketConfig,
    ToolRateLimitConfig,
)
from modelservice_sidecar.core.ratelimit import Bucket, Buckets, Rules, ToolBuckets
from modelservice_sidecar.pipeline import shared_limit
from modelservice_sidecar.pipeline.shared_limit import SharedBuckets, StoreFailedError
from redis_server import redis_server

pytestmark = pytest.mark.promise("limits")


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    """Making the environment may take longer than a test may."""
    venvs.python_of("redis")


def limited(port: int, tokens: int, mode: Literal["Open", "Closed"], *, period: float = 3600) -> AdapterConfig:
    store = RateLimitStoreConfig(host="127.0.0.1", port=port, prefix="ml/fraud", failure_mode=mode)
    bucket = TokenBucketConfig(max_tokens=tokens, refill_period=period)
    tool = ToolRateLimitConfig(name="act", shared=bucket)
    return AdapterConfig(rate_limiting=RateLimitingConfig(tools=(tool,), store=store))


async def outcome(running: Running, tool: str = "act") -> str:
    reply = await running.rpc("call_tool", {"name": tool})
    return "ok" if reply.status == 200 else str(reply.json["error"]["data"]["outcome"])


async def later(running: Running, tenths: int) -> str:
    await asyncio.sleep(shared_limit.PAUSE * tenths / 10)
    return await outcome(running)


def test_two_pods_draw_from_one_bucket() -> None:
    async def test() -> None:
        async with redis_server() as redis, faulty_model() as model:
            config = limited(redis.port, 10, "Closed")
            async with adapter(model.port, config) as one, adapter(model.port, config) as other:
                found = await asyncio.gather(*(outcome(pod) for _ in range(10) for pod in (one, other)))
                assert sorted(found) == ["ok"] * 10 + ["rate_limited"] * 10
                assert model.calls["/act"] == 10
                reply = await one.rpc("call_tool", {"name": "act"})
                assert reply.headers["retry-after"] in {"359", "360"}
                # A pod that comes up later, or reads its configuration again, changes nothing.
                await one.adapter.reconfigure(limited(redis.port, 10, "Open"))
                assert await outcome(one) == "rate_limited"
                assert await outcome(one, "look") == "ok"  # it has no bucket, so the store is not asked
                assert await redis.ask("DBSIZE") == b":1"

    run(test)


@pytest.mark.parametrize(("mode", "expected"), [("Open", ["ok", "ok", "rate_limited"]), ("Closed", ["overloaded"] * 3)])
@pytest.mark.parametrize("fault", ["ended", "frozen"])
def test_while_the_store_does_not_answer_its_failure_mode_decides(
    fault: str, mode: Literal["Open", "Closed"], expected: list[str]
) -> None:
    async def test() -> None:
        async with redis_server() as redis, faulty_model() as model:
            config = limited(redis.port, 2, mode)
            async with adapter(model.port, config) as running:
                assert await outcome(running) == "ok"
                if fault == "ended":
                    await redis.stop()
                else:
                    redis.freeze()
                assert [await outcome(running) for _ in range(3)] == expected
                told = (await request(running.admin_port, "GET", "/metrics")).body.decode()
                assert f'modelservice_rate_limit_store_failures_total{{mode="{mode.lower()}"}} 3.0' in told
                if fault == "ended":
                    await redis.start()
                else:
                    redis.thaw()
                if mode == "Closed":
                    asked = await asyncio.gather(*(later(running, tenths) for tenths in range(25)))
                    assert asked[-1] in {"ok", "rate_limited"}  # it is asked again a while after the last question

    run(test)


def test_a_store_that_is_away_costs_one_call_its_patience_and_not_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    async def test() -> None:
        config = RateLimitStoreConfig(host="127.0.0.1", port=1, prefix="p", failure_mode="Open")
        now = 0.0
        buckets = SharedBuckets(config, monotonic=lambda: now)
        draws = Rules(shared=Bucket(max_tokens=1, period=60)).of("t")

        async def ask(*given: Any) -> None:
            asked.append(given)
            raise ConnectionRefusedError

        monkeypatch.setattr(buckets, "_ask", ask)
        for seconds in (0.0, 0.1, 0.9, 1.0, 1.5):
            now = seconds
            with pytest.raises(StoreFailedError):
                await buckets.take(draws, "")
        assert len(asked) == 2

    run(test)


def test_the_store_decides_as_one_pod_alone_would_and_remembers_nobody_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_limit, "PATIENCE", 10.0)
    rules = Rules(
        per_user=Bucket(max_tokens=3, period=1e6),
        shared=Bucket(max_tokens=5, period=1e6),
        tools={
            "heavy": ToolBuckets(per_user=Bucket(max_tokens=1, period=1e6), shared=Bucket(max_tokens=2, period=1e6))
        },
    )
    calls = [
        *[("heavy", "anna"), ("heavy", "anna"), ("light", "anna"), ("light", "anna"), ("light", "anna")],
        *[("heavy", "ben"), ("heavy", "carl"), ("light", "ben"), ("light", "carl"), ("light", "dora")],
    ]

    async def test() -> None:
        async with redis_server() as redis:
            alone = Buckets(rules)
            config = RateLimitStoreConfig(host="127.0.0.1", port=redis.port, prefix="p", failure_mode="Closed")
            together = SharedBuckets(config, monotonic=lambda: 0.0)
            for tool, user in calls:
                expected = alone.take(tool, user, 0.0)
                found = await together.take(rules.of(tool), user)
                assert (found is None) is (expected is None), (tool, user)
                if found is not None and expected is not None:
                    assert found.bucket == expected.bucket
                    assert found.retry_after == pytest.approx(expected.retry_after, abs=60)
            for user in ("anna", "ben", "carl"):
                assert await redis.ask("KEYS", f"*{user}*") == b"*0"
            assert await redis.ask("TTL", "{p}:shared:") == b":1000001"
            await together.aclose()

    run(test)
