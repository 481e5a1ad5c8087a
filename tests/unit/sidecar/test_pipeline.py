"""What the stages do with a call: their order, and each one's part, over a model server that does what it is told."""

import asyncio
from typing import Any

import pytest

from adapter_harness import run
from modelservice_api.adapter_config import (
    AdapterConfig,
    BatcherConfig,
    CacheConfig,
    CircuitBreakerConfig,
    LimitsConfig,
    RateLimitingConfig,
    RetryConfig,
    TokenBucketConfig,
    ToolRateLimitConfig,
)
from modelservice_sidecar.backends.base import Answer, CallContext
from modelservice_sidecar.core.authorization import Access
from modelservice_sidecar.core.errors import (
    BackendBusyError,
    BackendDisconnectedError,
    BackendFailureError,
    BackendRefusedError,
    BackendUnreachableError,
    CallError,
    CircuitOpenError,
    DeadlineExceededError,
    InvalidArgumentsError,
    OverloadedError,
    RateLimitedError,
    UnauthenticatedError,
)
from modelservice_sidecar.pipeline import chain, retry
from modelservice_sidecar.pipeline.chain import ORDER
from pipeline_harness import READ, Bench, ToldBackend, spec, text

pytestmark = pytest.mark.promise("limits")

FIVE = TokenBucketConfig(max_tokens=5, refill_period=10)


async def fine(arguments: dict[str, Any], context: CallContext) -> Answer:
    return text(f"got {arguments}")


async def for_ever(arguments: dict[str, Any], context: CallContext) -> Answer:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


def failing(*errors: CallError | None) -> Any:
    """Fails so, call by call; `None` and everything after is answered."""
    left = list(errors)

    async def behave(arguments: dict[str, Any], context: CallContext) -> Answer:
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return text("fine")

    return behave


# The list


def names_of(handler: Any) -> list[str]:
    """The classes of a chain, outermost first."""
    found = []
    while hasattr(handler, "_inner"):
        found.append(type(handler).__name__)
        handler = handler._inner
    return [*found, handler.__name__]


def test_the_order_is_the_documented_one() -> None:
    assert ORDER == (
        "deadline",
        "authorise",
        "rate_limit",
        "check_arguments",
        "cache",
        "breaker",
        "retry",
        "concurrency",
        "hand_over",
        "check_answer",
        "batch",
        "backend",
    )


def test_a_stage_that_is_not_configured_is_not_in_the_chain() -> None:
    async def test() -> None:
        always = ["Deadline", "CheckArguments", "Concurrency", "CheckAnswer", "ask_backend"]
        assert names_of(Bench(ToldBackend(fine)).handler) == always
        everything = AdapterConfig(
            rate_limiting=RateLimitingConfig(shared=FIVE),
            cache=CacheConfig(ttl=1),
            circuit_breaker=CircuitBreakerConfig(),
            retry=RetryConfig(),
            batcher=BatcherConfig(max_batch_size=8),
        )
        bench = Bench(ToldBackend(fine), everything, access=Access(required=True))
        assert names_of(bench.handler) == [
            "Deadline",
            "Authorise",
            "RateLimit",
            "CheckArguments",
            "Cache",
            "CircuitBreaker",
            "Retry",
            "Concurrency",
            "CheckAnswer",
            "Batch",
            "ask_backend",
        ]
        bench.config = AdapterConfig()
        bench.access = None
        assert names_of(bench.build()) == always

    run(test)


def test_who_may_not_call_spends_no_token_and_learns_nothing_about_arguments() -> None:
    async def test() -> None:
        config = AdapterConfig(
            rate_limiting=RateLimitingConfig(shared=TokenBucketConfig(max_tokens=1, refill_period=9))
        )
        bench = Bench(ToldBackend(fine), config, access=Access(required=True, anonymous_tools=frozenset({"look"})))
        for _ in range(3):
            with pytest.raises(UnauthenticatedError):
                await bench.call("act", x="no integer")
        with pytest.raises(InvalidArgumentsError):
            await bench.call("look", x="no integer")
        with pytest.raises(RateLimitedError):  # a wrong call was a call
            await bench.call("look", x=1)
        assert bench.backend.calls == []

    run(test)


# Deadline


def test_a_call_ends_when_its_time_is_up_and_the_model_server_sees_it_cancelled() -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(for_ever))
        with pytest.raises(DeadlineExceededError, match="within 30 s"):
            await bench.call("act", seconds=0.01)
        assert (bench.backend.running, bench.backend.cancelled) == (0, 1)
        task = bench.start("act")
        await bench.backend.entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(test)


# Rate limit


def test_users_are_limited_each_for_itself_and_callers_without_a_token_together() -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(fine), AdapterConfig(rate_limiting=RateLimitingConfig(per_user=FIVE)))
        for user in ("anna", "ben", ""):
            for _ in range(5):
                await bench.call("act", user=user)
            with pytest.raises(RateLimitedError, match="You have made too many calls; try again in 2 s") as refused:
                await bench.call("act", user=user)
            assert refused.value.retry_after == pytest.approx(2.0, rel=0.02)
        bench.now += 2.0
        await bench.call("act", user="anna")
        assert 'modelservice_rate_limited_total{bucket="per_user",tool="act"} 3.0' in bench.metrics()

    run(test)


def test_a_reload_of_the_configuration_refills_no_bucket_also_where_it_changed() -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(fine), AdapterConfig(rate_limiting=RateLimitingConfig(shared=FIVE)))
        for _ in range(5):
            await bench.call("act")
        tool = ToolRateLimitConfig(name="look", shared=FIVE)
        for config in (
            AdapterConfig(rate_limiting=RateLimitingConfig(shared=FIVE), limits=LimitsConfig(timeout=5)),
            AdapterConfig(rate_limiting=RateLimitingConfig(shared=FIVE, tools=(tool,))),
            AdapterConfig(rate_limiting=RateLimitingConfig(shared=TokenBucketConfig(max_tokens=50, refill_period=10))),
        ):
            bench.config = config
            bench.build()
            with pytest.raises(RateLimitedError):
                await bench.call("act")

    run(test)


# Cache

CACHED = AdapterConfig(cache=CacheConfig(ttl=60, max_bytes=100_000))


def test_the_same_call_of_a_read_only_idempotent_tool_is_answered_from_the_cache_until_it_is_too_old() -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(fine), CACHED)
        first = await bench.call("look", x=1)
        assert await bench.call("look", x=1) == first
        await bench.call("look", x=2)
        bench.now += 59
        assert await bench.call("look", x=1) == first
        assert [call["x"] for call in bench.backend.calls] == [1, 2]
        bench.now += 2
        await bench.call("look", x=1)
        assert [call["x"] for call in bench.backend.calls] == [1, 2, 1]
        metrics = bench.metrics()
        assert 'modelservice_cache_requests_total{result="hit",tool="look"} 2.0' in metrics
        assert 'modelservice_cache_requests_total{result="miss",tool="look"} 3.0' in metrics
        assert "modelservice_cache_entries 2.0" in metrics

    run(test)


@pytest.mark.parametrize(
    "annotations", [{}, {"readOnlyHint": True}, {"idempotentHint": True}, {"readOnlyHint": 1, "idempotentHint": "yes"}]
)
def test_tools_that_are_not_marked_both_are_asked_every_time(annotations: dict[str, object]) -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(fine), CACHED, tools=(spec("tool", annotations=annotations),))
        for _ in range(3):
            await bench.call("tool", x=1)
        assert len(bench.backend.calls) == 3

    run(test)


def test_errors_are_not_kept() -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(failing(BackendRefusedError("no"), BackendFailureError("no"))), CACHED)
        for _ in range(2):
            with pytest.raises(CallError):
                await bench.call("look", x=1)
        assert await bench.call("look", x=1) == await bench.call("look", x=1) == text("fine")
        assert len(bench.backend.calls) == 3

    run(test)


@pytest.mark.parametrize(("scope", "asked"), [("PerUser", 3), ("Shared", 1)])
def test_users_see_each_other_s_answers_only_where_that_is_asked_for(scope: Any, asked: int) -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(fine), AdapterConfig(cache=CacheConfig(ttl=60, scope=scope)))
        for user in ("anna", "ben", "", "anna", "ben", ""):
            await bench.call("look", x=1, user=user)
        assert len(bench.backend.calls) == asked

    run(test)


def test_other_tools_another_model_or_another_configuration_begin_with_an_empty_cache() -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(fine), CACHED)
        await bench.call("look", x=1)
        bench.build()  # a snapshot for another reason, such as peers
        await bench.call("look", x=1)
        assert len(bench.backend.calls) == 1
        bench.published = Bench(ToldBackend(fine)).published
        bench.build()
        await bench.call("look", x=1)
        assert len(bench.backend.calls) == 2
        bench.config = CACHED.model_copy(update={"limits": LimitsConfig(timeout=7)})
        bench.build()
        await bench.call("look", x=1)
        assert len(bench.backend.calls) == 3

    run(test)


@pytest.mark.parametrize("error", [BackendUnreachableError("gone"), BackendDisconnectedError("gone")])
def test_a_model_server_that_was_gone_may_come_back_as_another(error: CallError) -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(failing(None, error)), CACHED)
        await bench.call("look", x=1)
        with pytest.raises(CallError):
            await bench.call("look", x=2)
        await bench.call("look", x=1)
        assert [call["x"] for call in bench.backend.calls] == [1, 2, 1]

    run(test)


def test_equal_calls_under_way_are_one_call_and_who_leaves_takes_nobody_along() -> None:
    async def test() -> None:
        gate = asyncio.Event()

        async def slow(arguments: dict[str, Any], context: CallContext) -> Answer:
            await gate.wait()
            return text("one")

        bench = Bench(ToldBackend(slow), CACHED)
        first, second, third = (bench.start("look", x=1) for _ in range(3))
        other = bench.start("look", x=2)
        await bench.backend.entered.wait()
        await asyncio.sleep(0)
        assert [call["x"] for call in bench.backend.calls] == [1, 2]
        first.cancel()  # the one that asked
        with pytest.raises(asyncio.CancelledError):
            await first
        gate.set()
        assert [await task for task in (second, third, other)] == [text("one")] * 3
        assert bench.backend.cancelled == 0
        assert 'result="joined",tool="look"} 2.0' in bench.metrics()

    run(test)


def test_a_call_that_nobody_waits_for_any_more_is_stopped_and_the_next_begins_anew() -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(for_ever), CACHED)
        tasks = [bench.start("look", x=1, seconds=0.02) for _ in range(3)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [DeadlineExceededError] * 3
        await asyncio.sleep(0)
        assert (len(bench.backend.calls), bench.backend.cancelled) == (1, 1)
        bench.backend.behave = fine
        await bench.call("look", x=1)
        assert len(bench.backend.calls) == 2

    run(test)


def test_all_who_wait_get_the_error_of_the_one_call() -> None:
    async def test() -> None:
        async def fail(arguments: dict[str, Any], context: CallContext) -> Answer:
            await asyncio.sleep(0)
            raise BackendFailureError("no")

        bench = Bench(ToldBackend(fail), CACHED)
        results = await asyncio.gather(*(bench.call("look", x=1) for _ in range(4)), return_exceptions=True)
        assert [str(result) for result in results] == ["no"] * 4
        assert len(bench.backend.calls) == 1

    run(test)


def test_kept_answers_are_bounded_in_bytes_whatever_they_hold() -> None:
    async def test() -> None:
        async def large(arguments: dict[str, Any], context: CallContext) -> Answer:
            value = {"numbers": [0.5] * 1000}
            return Answer(content=[{"type": "text", "text": "é" * 10_000}], structured=value, has_structured=True)

        bench = Bench(ToldBackend(large), CACHED)
        for number in range(50):
            answer = await bench.call("look", x=number)
            assert answer.structured == {"numbers": [0.5] * 1000}
        answers = bench.pipeline._answers
        assert answers is not None
        assert 0 < answers.store.size <= 100_000
        assert 1 < len(answers.store) < 10
        kept = await bench.call("look", x=49)
        assert kept.raw is not None
        assert len(bench.backend.calls) == 50
        metrics = bench.metrics()
        assert f"modelservice_cache_bytes {float(answers.store.size)}" in metrics

    run(test)


# Breaker

BREAKING = AdapterConfig(circuit_breaker=CircuitBreakerConfig(consecutive_failures=3, open_duration=2))


def test_a_failing_model_server_is_left_alone_and_asked_again_with_one_call() -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(failing(*[BackendFailureError("no")] * 4)), BREAKING)
        for _ in range(3):
            with pytest.raises(BackendFailureError):
                await bench.call("act")
        for _ in range(10):
            with pytest.raises(CircuitOpenError, match="try again in 2 s") as refused:
                await bench.call("act")
            assert refused.value.retry_after == pytest.approx(2.0)
        assert 'modelservice_circuit_breaker_state{state="open"} 1.0' in bench.metrics()
        assert len(bench.backend.calls) == 3
        bench.now += 2
        with pytest.raises(BackendFailureError):
            await bench.call("act")
        with pytest.raises(CircuitOpenError):
            await bench.call("act")
        bench.now += 2
        assert await bench.call("act") == await bench.call("act") == text("fine")
        assert 'modelservice_circuit_breaker_state{state="closed"} 1.0' in bench.metrics()

    run(test)


@pytest.mark.parametrize(
    ("error", "status", "opens"),
    [
        (BackendUnreachableError("x"), 0, True),
        (BackendDisconnectedError("x"), 0, True),
        (BackendFailureError("x"), 500, True),
        (BackendFailureError("x"), 302, False),
        (BackendRefusedError("x"), 422, False),
        (BackendBusyError("x"), 503, False),
        (ValueError("a fault of ours"), 0, False),
    ],
)
def test_only_the_model_server_s_own_failures_open_the_breaker(error: Exception, status: int, opens: bool) -> None:
    async def test() -> None:
        async def behave(arguments: dict[str, Any], context: CallContext) -> Answer:
            context.backend_status = status
            raise error

        bench = Bench(ToldBackend(behave), BREAKING)
        for _ in range(3):
            with pytest.raises(type(error)):
                await bench.call("act")
        with pytest.raises(CircuitOpenError if opens else type(error)):
            await bench.call("act")

    run(test)


def test_calls_whose_time_was_up_at_the_model_server_are_failures_and_callers_that_left_are_not() -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(for_ever), BREAKING)
        for _ in range(5):
            left = bench.start("act")
            await asyncio.sleep(0)
            left.cancel()
            await asyncio.gather(left, return_exceptions=True)
        for _ in range(3):
            with pytest.raises(DeadlineExceededError):
                await bench.call("act", seconds=0.01)
        with pytest.raises(CircuitOpenError):
            await bench.call("act")

    run(test)


def test_calls_that_only_waited_in_our_own_line_say_nothing_about_the_model_server() -> None:
    async def test() -> None:
        config = BREAKING.model_copy(update={"limits": LimitsConfig(max_concurrency=1)})
        bench = Bench(ToldBackend(for_ever), config)
        holding = bench.start("act")
        await bench.backend.entered.wait()
        for _ in range(4):
            with pytest.raises(DeadlineExceededError):
                await bench.call("act", seconds=0.005)
        assert bench.pipeline._breaker_state() == "closed"
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)

    run(test)


def test_a_model_server_that_was_found_anew_is_asked_at_once() -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(failing(*[BackendUnreachableError("no")] * 3)), BREAKING)
        for _ in range(3):
            with pytest.raises(BackendUnreachableError):
                await bench.call("act")
        bench.build()
        with pytest.raises(CircuitOpenError):
            await bench.call("act")
        bench.published = Bench(ToldBackend(fine)).published
        bench.build()
        assert await bench.call("act") == text("fine")

    run(test)


# Retry

RETRYING = AdapterConfig(retry=RetryConfig(max_attempts=3, budget_percent=10))


def test_an_idempotent_tool_s_call_is_sent_again_and_others_are_not() -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(failing(BackendFailureError("a"), BackendDisconnectedError("b"))), RETRYING)
        call = bench.call_of("look")
        assert await bench.handler(call) == text("fine")
        assert (len(bench.backend.calls), call.context.retries) == (3, 2)
        bench.backend.behave = failing(BackendFailureError("c"))
        with pytest.raises(BackendFailureError):
            await bench.call("act")
        bench.backend.behave = failing(BackendUnreachableError("nothing was sent"))
        assert await bench.call("act") == text("fine")
        assert 'modelservice_retries_total{result="sent",tool="look"} 2.0' in bench.metrics()

    run(test)


def test_attempts_and_budget_are_bounded() -> None:
    async def test() -> None:
        async def fail(arguments: dict[str, Any], context: CallContext) -> Answer:
            raise BackendFailureError("no")

        bench = Bench(ToldBackend(fail), RETRYING)
        with pytest.raises(BackendFailureError):
            await bench.call("look")
        assert len(bench.backend.calls) == 3
        for _ in range(999):
            with pytest.raises(BackendFailureError):
                await bench.call("look")
        assert len(bench.backend.calls) - 1000 <= 10 + 100
        assert 'modelservice_retries_total{result="no_budget",tool="look"}' in bench.metrics()

    run(test)


def test_a_retry_waits_as_long_as_it_is_told_and_not_beyond_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(retry.asyncio, "sleep", sleep)  # type: ignore[attr-defined]

    async def test() -> None:
        chances = iter([0.5, 0.25, 0.0, 0.0])
        bench = Bench(ToldBackend(fine), RETRYING, chance=lambda: next(chances))
        bench.backend.behave = failing(BackendFailureError("no"), BackendBusyError("busy", retry_after=7.0))
        assert await bench.call("look") == text("fine")
        assert waits == [0.025, 7.0]
        bench.backend.behave = failing(BackendBusyError("busy", retry_after=31.0))
        with pytest.raises(BackendBusyError):
            await bench.call("look", seconds=30.0)
        assert len(waits) == 2
        assert 'modelservice_retries_total{result="no_time",tool="look"} 1.0' in bench.metrics()

    run(test)


def test_one_call_is_one_failure_to_the_breaker_however_often_it_was_sent() -> None:
    async def test() -> None:
        async def fail(arguments: dict[str, Any], context: CallContext) -> Answer:
            raise BackendFailureError("no")

        config = RETRYING.model_copy(update={"circuit_breaker": CircuitBreakerConfig(consecutive_failures=3)})
        bench = Bench(ToldBackend(fail), config)
        for _ in range(3):
            with pytest.raises(BackendFailureError):
                await bench.call("look")
        with pytest.raises(CircuitOpenError):
            await bench.call("look")
        assert len(bench.backend.calls) == 9

    run(test)


def test_a_call_that_waits_to_be_sent_again_holds_no_slot() -> None:
    async def test() -> None:
        config = RETRYING.model_copy(update={"limits": LimitsConfig(max_concurrency=1)})
        bench = Bench(ToldBackend(failing(BackendBusyError("busy", retry_after=0.05))), config)
        waiting = bench.start("look")
        await bench.backend.entered.wait()
        await asyncio.sleep(0)
        assert bench.pipeline.limiter.running == 0
        assert await bench.call("act") == text("fine")
        assert await waiting == text("fine")

    run(test)


# Concurrency


def test_what_could_not_be_served_in_time_is_refused_at_once_instead_of_waiting_for_it() -> None:
    async def test() -> None:
        bench = Bench(ToldBackend(for_ever), AdapterConfig(limits=LimitsConfig(max_concurrency=2)))
        limiter = bench.pipeline.limiter
        for _ in range(2):
            await limiter.acquire()
        limiter.release(10.0)  # calls take ten seconds here
        await limiter.acquire()
        line = [asyncio.create_task(limiter.acquire(30.0)) for _ in range(5)]
        await asyncio.sleep(0)
        assert limiter.waiting == 5
        # The sixth in line would have its turn after thirty seconds.
        with pytest.raises(OverloadedError) as refused:
            await bench.call("act", seconds=29.0)
        assert refused.value.retry_after == pytest.approx(30.0)
        for task in line:
            task.cancel()
        await asyncio.gather(*line, return_exceptions=True)

    run(test)


# Extensions


def test_every_stage_of_ours_is_a_place_for_another_package_s() -> None:
    class Passing:
        def __init__(self, before: str) -> None:
            self.before = before

        async def handle(self, call: Any, proceed: Any) -> Answer:
            seen.append(self.before)
            answer: Answer = await proceed(call)
            return answer

    from modelservice_sidecar.pipeline.extension import Extension

    seen: list[str] = []

    async def test() -> None:
        bench = Bench(ToldBackend(fine))
        extensions = [Extension(name=place, before=place, stage=Passing(place)) for place in reversed(ORDER)]
        handler = chain.chain({}, extensions)
        await handler(bench.call_of("act"))
        assert tuple(seen) == ORDER

    run(test)


def test_read_only_alone_is_no_licence_to_send_again() -> None:
    async def test() -> None:
        bench = Bench(
            ToldBackend(failing(BackendFailureError("no"))),
            RETRYING,
            tools=(spec("tool", annotations={"readOnlyHint": READ["readOnlyHint"]}),),
        )
        with pytest.raises(BackendFailureError):
            await bench.call("tool")

    run(test)
