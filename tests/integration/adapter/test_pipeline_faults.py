"""A model server that hangs, crashes or fails: every caller is answered, it is left alone, and taken up again."""

import asyncio
import os
import signal
import sys
from collections import Counter
from typing import Any

import pytest

from adapter_harness import adapter, run
from faulty_model import Fault, faulty_model, until
from modelservice_api.adapter_config import (
    AdapterConfig,
    CircuitBreakerConfig,
    LimitsConfig,
    PeersConfig,
    RetryConfig,
)
from modelservice_sidecar import peers
from modelservice_sidecar.core.retrypolicy import RESERVE

pytestmark = pytest.mark.promise("limits")

OPEN = 0.2


def guarded(**more: Any) -> AdapterConfig:
    given: dict[str, Any] = {
        "limits": LimitsConfig(timeout=0.3),
        "circuit_breaker": CircuitBreakerConfig(consecutive_failures=5, open_duration=OPEN),
        **more,
    }
    return AdapterConfig(**given)


@pytest.mark.parametrize(
    ("fault", "outcome"), [("hang", "deadline"), ("crash", "disconnected"), ("500", "backend_failed")]
)
def test_every_caller_is_answered_the_breaker_opens_and_the_model_server_is_taken_up_again(
    fault: Fault, outcome: str
) -> None:
    async def test() -> None:
        async with faulty_model() as model, adapter(model.port, guarded()) as running:
            assert not (await running.call("act"))["isError"]
            model.fault = fault
            seen: Counter[str] = Counter()
            for _ in range(4):  # more than the five that it takes, from several callers at once
                replies = await asyncio.gather(*(running.rpc("call_tool", {"name": "act"}) for _ in range(3)))
                seen.update(reply.json["error"]["data"]["outcome"] for reply in replies)
            assert set(seen) <= {outcome, "circuit_open"}
            assert sum(seen.values()) == 12
            # Five in a row open it; those that were with the model server in that moment end as they end.
            assert model.calls["/act"] - 1 == seen[outcome] < 12
            refused = await running.rpc("call_tool", {"name": "look"})  # whatever the tool
            assert (refused.status, refused.json["error"]["code"], refused.headers["retry-after"]) == (503, 1012, "1")
            model.fault = "none"

            for _ in range(100):
                if (await running.rpc("call_tool", {"name": "act"})).status == 200:
                    break
                await asyncio.sleep(OPEN / 10)
            for _ in range(10):
                assert (await running.rpc("call_tool", {"name": "act"})).status == 200
            assert model.hanging == 0

    run(test)


def test_a_model_server_that_died_is_asked_as_soon_as_it_is_found_again_and_not_after_the_breaker_s_time() -> None:
    async def test() -> None:
        breaker = CircuitBreakerConfig(consecutive_failures=2, open_duration=3600)
        async with faulty_model() as model, adapter(model.port, guarded(circuit_breaker=breaker)) as running:
            await model.stop()
            for _ in range(3):
                assert (await running.call("act"))["isError"]
            await running.lines.wait_for("backend", state="Unreachable")
            told = (await running.rpc("call_tool", {"name": "act"})).json["error"]["data"]
            assert told["outcome"] == "circuit_open"
            await model.start()
            await until(lambda: running.adapter.discovery.report.state == "Ready")
            assert not (await running.call("act"))["isError"]

    run(test)


def test_a_process_killed_with_calls_in_flight_costs_them_an_error_each_and_nobody_hangs() -> None:
    program = (
        "import asyncio, sys; sys.path.insert(0, sys.argv[1])\n"
        "from faulty_model import FaultyModel\n"
        "async def main():\n"
        "    model = FaultyModel(); model.fault = 'hang'; await model.start()\n"
        "    print(model.port, flush=True)\n"
        "    while True:\n"
        "        await model.arrived.wait(); model.arrived.clear(); print('call', flush=True)\n"
        "asyncio.run(main())\n"
    )

    async def test() -> None:
        support = os.path.join(os.path.dirname(__file__), "..", "..", "support")
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, support, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        assert child.stdout is not None
        try:
            port = int(await child.stdout.readline())
            async with adapter(port, guarded(limits=LimitsConfig(timeout=20))) as running:
                calls = [asyncio.create_task(running.rpc("call_tool", {"name": "act"})) for _ in range(8)]
                await until(lambda: running.adapter.calls.in_flight == 8)
                await child.stdout.readline()
                os.kill(child.pid, signal.SIGKILL)
                replies = await asyncio.gather(*calls)
                outcomes = {reply.json["error"]["data"]["outcome"] for reply in replies}
                assert outcomes <= {"disconnected", "unreachable", "circuit_open"}
                assert "disconnected" in outcomes
                assert running.adapter.calls.in_flight == 0
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()

    run(test)


def test_a_call_that_may_have_run_is_sent_again_for_idempotent_tools_alone() -> None:
    async def test() -> None:
        async with faulty_model() as model, adapter(model.port, AdapterConfig(retry=RetryConfig())) as running:
            for fault in ("500", "crash"):
                model.faults = [fault]  # type: ignore[list-item]
                before = dict(model.calls)
                assert not (await running.call("look"))["isError"]
                model.faults = [fault]  # type: ignore[list-item]
                assert (await running.call("act"))["isError"]
                assert model.calls["/act"] - before["/act"] == 1
            line = await running.lines.wait_for("call", tool="look", retries=1)
            assert line["outcome"] == "ok"

    run(test)


def test_retries_stay_within_their_budget_while_everything_fails() -> None:
    async def test() -> None:
        retry = RetryConfig(max_attempts=3, budget_percent=10)
        async with faulty_model() as model, adapter(model.port, AdapterConfig(retry=retry)) as running:
            model.fault = "500"
            callers = [[running.call("look") for _ in range(20)] for _ in range(10)]
            for group in callers:
                results = await asyncio.gather(*group)
                assert all(result["isError"] for result in results)
            calls = 200
            assert calls < model.calls["/look"] <= calls + RESERVE + calls // 10

    run(test)


def test_retries_end_with_the_call_s_time() -> None:
    async def test() -> None:
        config = AdapterConfig(limits=LimitsConfig(timeout=0.2), retry=RetryConfig(max_attempts=10, budget_percent=100))
        async with faulty_model() as model, adapter(model.port, config) as running:
            model.fault = "500"
            reply = await running.rpc("call_tool", {"name": "look"})
            assert reply.json["error"]["data"]["outcome"] in {"backend_failed", "deadline"}
            assert model.calls["/look"] < 10

    run(test)


def test_a_pod_whose_breaker_is_open_is_no_pod_to_hand_a_call_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PAUSE", 0.001)

    async def test() -> None:
        breaker = CircuitBreakerConfig(consecutive_failures=1, open_duration=3600)
        async with faulty_model() as failing, adapter(failing.port, guarded(circuit_breaker=breaker)) as other:
            failing.fault = "500"
            assert (await other.call("act"))["isError"]
            async with faulty_model() as model:
                facing = AdapterConfig(peers=PeersConfig(host="127.0.0.1", port=other.port))
                async with adapter(model.port, facing) as running:
                    await model.stop()
                    reply = await running.rpc("call_tool", {"name": "act"})
                    assert reply.json["error"]["message"] == (
                        "The model server cannot be reached, in this pod or in another."
                    )
                    asked = [line for line in other.lines.of("call") if line["outcome"] == "circuit_open"]
                    assert len(asked) == peers.ATTEMPTS_WHILE_STAYING
                    assert failing.calls["/act"] == 1
                    await model.start()

    run(test)
