"""Calls that come, leave and end in any order: nobody gets another's answer, nobody hangs, nothing is left behind."""

import asyncio
from collections import Counter
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter_harness import run
from modelservice_api.adapter_config import AdapterConfig, BatcherConfig, CacheConfig, LimitsConfig
from modelservice_sidecar.backends.base import Answer, CallContext
from modelservice_sidecar.core.errors import BackendFailureError
from modelservice_sidecar.core.tensors import Tensor
from modelservice_sidecar.pipeline.batch import Batch
from pipeline_harness import READ, Bench, ToldBackend, added, spec, tensor_spec, text

pytestmark = pytest.mark.promise("limits")

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 3)),
        st.tuples(st.just("leave"), st.integers(0, 30)),
        st.tuples(st.just("answer"), st.integers(0, 30)),
        st.tuples(st.just("fail"), st.integers(0, 30)),
        st.tuples(st.just("turn"), st.integers(1, 4)),
    ),
    max_size=40,
)


class Held:
    """A model server that answers a call when it is told to, and counts how many calls of each kind are under way."""

    def __init__(self, answer: Any, kind: Any) -> None:
        self._answer = answer
        self._kind = kind
        self.waiting: list[asyncio.Future[bool]] = []
        self.under_way: Counter[Any] = Counter()
        self.most: Counter[Any] = Counter()

    async def __call__(self, arguments: dict[str, Any], context: CallContext) -> Answer:
        kind = self._kind(arguments)
        self.under_way[kind] += 1
        self.most[kind] = max(self.most[kind], self.under_way[kind])
        gate: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting.append(gate)
        try:
            if not await gate:
                raise BackendFailureError("told to")
            answer: Answer = self._answer(arguments)
            return answer
        finally:
            self.waiting.remove(gate)
            self.under_way[kind] -= 1

    def end(self, which: int, *, well: bool) -> None:
        pending = [gate for gate in self.waiting if not gate.done()]
        if pending:
            pending[which % len(pending)].set_result(well)


async def play(bench: Bench, held: Held, steps: list[tuple[str, int]], start: Any) -> list[tuple[int, Any, bool]]:
    """What was asked, what came back, and whether the caller left."""
    tasks: list[tuple[int, asyncio.Task[Answer]]] = []
    left: set[int] = set()
    for action, number in steps:
        if action == "start":
            tasks.append((number, start(number)))
        elif action == "leave" and tasks:
            place = number % len(tasks)
            if not tasks[place][1].done():
                tasks[place][1].cancel()
                left.add(place)
        elif action in {"answer", "fail"}:
            held.end(number, well=action == "answer")
        for _ in range(number if action == "turn" else 1):
            await asyncio.sleep(0)
    for _ in range(300):
        if all(task.done() for _, task in tasks):
            break
        held.end(0, well=True)
        await asyncio.sleep(0.001 if not held.waiting else 0)
    assert all(task.done() for _, task in tasks)
    results = await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)
    for _ in range(10):
        await asyncio.sleep(0)
    assert held.waiting == []
    assert bench.pipeline.limiter.running == 0
    return [
        (asked, result, place in left) for place, ((asked, _), result) in enumerate(zip(tasks, results, strict=True))
    ]


@settings(deadline=None)
@given(steps=STEPS)
def test_equal_calls_are_one_call_in_any_order_of_events(steps: list[tuple[str, int]]) -> None:
    async def test() -> None:
        held = Held(lambda arguments: text(f"for {arguments['x']}"), lambda arguments: arguments["x"])
        config = AdapterConfig(cache=CacheConfig(ttl=60), limits=LimitsConfig(max_concurrency=1000))
        bench = Bench(ToldBackend(held), config, tools=(spec("look", annotations=READ),))
        for asked, result, left in await play(bench, held, steps, lambda x: bench.start("look", x=x)):
            if isinstance(result, Answer):
                assert result == text(f"for {asked}")
            else:
                assert isinstance(result, BackendFailureError) or (left and isinstance(result, asyncio.CancelledError))
        assert max(held.most.values(), default=0) <= 1
        answers = bench.pipeline._answers
        assert answers is not None
        assert answers.flights == {}

    run(test)


@settings(deadline=None)
@given(steps=STEPS)
def test_every_caller_of_a_batch_gets_its_own_row_in_any_order_of_events(steps: list[tuple[str, int]]) -> None:
    async def test() -> None:
        def rows(arguments: dict[str, Any]) -> Answer:
            x = arguments["x"]
            assert isinstance(x, Tensor)
            assert x.shape[0] <= 3
            return Answer(content=[], tensors={"y": added(x)})

        held = Held(rows, lambda _: "all")
        batcher = BatcherConfig(max_batch_size=3, max_latency=0.001)
        config = AdapterConfig(batcher=batcher, limits=LimitsConfig(max_concurrency=1000))
        bench = Bench(ToldBackend(held), config, tools=(tensor_spec("add", annotations=READ),))
        for asked, result, left in await play(bench, held, steps, lambda x: bench.start("add", x=[[x, 0.5]])):
            if isinstance(result, Answer):
                assert result.raw is not None
                assert orjson.loads(result.raw) == {"y": [[asked + 0.5]]}
            else:
                assert isinstance(result, BackendFailureError) or (left and isinstance(result, asyncio.CancelledError))
        handler: Any = bench.handler
        while not isinstance(handler, Batch):
            handler = handler._inner
        assert handler._gatherings == {}

    run(test)
