"""The stage that joins calls of one tensor model: when it sends, who gets what, and what one caller can do to another."""

import asyncio
from typing import Any

import orjson
import pytest

from adapter_harness import run
from modelservice_api.adapter_config import AdapterConfig, BatcherConfig, CircuitBreakerConfig, ModelConfig
from modelservice_sidecar.backends.base import Answer, CallContext
from modelservice_sidecar.core import v2
from modelservice_sidecar.core.errors import (
    BackendAnswerInvalidError,
    BackendFailureError,
    BackendRefusedError,
    CircuitOpenError,
    DeadlineExceededError,
    InvalidArgumentsError,
)
from modelservice_sidecar.core.tensors import Tensor
from modelservice_sidecar.pipeline.batch import Batch
from pipeline_harness import READ, Bench, ToldBackend, added, floats, spec, tensor_spec

pytestmark = pytest.mark.promise("limits")


class Model:
    """Adds the two numbers of each row, one batch after another, when the test lets it."""

    def __init__(self, *, open_gate: bool = True) -> None:
        self.gate = asyncio.Event()
        if open_gate:
            self.gate.set()
        self.sizes: list[int] = []
        self.entered = asyncio.Semaphore(0)
        self.refuses: float | None = None
        self.fails: float | None = None

    async def __call__(self, arguments: dict[str, Any], context: CallContext) -> Answer:
        x = arguments["x"]
        assert isinstance(x, Tensor)
        assert context.wants_tensors
        self.sizes.append(x.shape[0])
        self.entered.release()
        await self.gate.wait()
        if self.refuses is not None and bytes(floats(self.refuses, 0).data)[:4] in bytes(x.data):
            raise BackendRefusedError("a row is wrong")
        if self.fails is not None and bytes(floats(self.fails, 0).data)[:4] in bytes(x.data):
            raise BackendFailureError("crashed on a row")
        context.backend_seconds += 0.5
        context.backend_status = 200
        return Answer(content=[], tensors={"y": added(x)})


def bench_of(model: Any, *, rows: int = 8, latency: float = 30.0, max_batch: int = 64, **more: Any) -> Bench:
    config = AdapterConfig(batcher=BatcherConfig(max_batch_size=rows, max_latency=latency), **more)
    tools = (tensor_spec("add", max_batch=max_batch), tensor_spec("sum", max_batch=max_batch, annotations=READ))
    return Bench(ToldBackend(model), config, tools=tools)


def said(answer: Answer) -> Any:
    """The value that an MCP client reads."""
    assert answer.raw is not None
    return orjson.loads(answer.raw)


def gatherings(bench: Bench) -> int:
    """How many kinds of calls the stage remembers now."""
    handler: Any = bench.handler
    while not isinstance(handler, Batch):
        handler = handler._inner
    return len(handler._gatherings)


async def settled(turns: int = 10) -> None:
    """Let everything happen that can happen by itself."""
    for _ in range(turns):
        await asyncio.sleep(0)


def test_a_call_alone_goes_at_once_and_calls_that_come_meanwhile_go_together() -> None:
    async def test() -> None:
        model = Model(open_gate=False)
        bench = bench_of(model)
        first = bench.start("add", x=[[1, 2]])
        await settled()
        assert model.sizes == [1]
        rest = [bench.start("add", x=[[number, 1]]) for number in range(5)]
        await settled()
        assert model.sizes == [1]
        model.gate.set()
        assert said(await first) == {"y": [[3]]}
        assert [said(await task) for task in rest] == [{"y": [[number + 1]]} for number in range(5)]
        assert model.sizes == [1, 5]
        assert gatherings(bench) == 0
        assert "modelservice_batch_rows_count 2.0" in bench.metrics()

    run(test)


def test_calls_that_come_in_together_go_together_and_no_batch_is_larger_than_allowed() -> None:
    async def test() -> None:
        model = Model()
        bench = bench_of(model, rows=8)
        answers = await asyncio.gather(*(bench.call("add", x=[[number, 0]]) for number in range(20)))
        assert [said(answer) for answer in answers] == [{"y": [[number]]} for number in range(20)]
        assert model.sizes == [8, 8, 4]
        narrow = bench_of(model, rows=8, max_batch=3)
        await asyncio.gather(*(narrow.call("add", x=[[number, 0]]) for number in range(6)))
        assert model.sizes[3:] == [3, 3]

    run(test)


def test_a_call_with_several_rows_one_without_the_batch_axis_and_one_in_bytes_share_a_batch() -> None:
    async def test() -> None:
        model = Model()
        bench = bench_of(model)
        several, one, raw = await asyncio.gather(
            bench.call("add", x=[[1, 2], [3, 4], [5, 6]]),
            bench.call("add", x=[7, 8]),
            bench.call("add", x=floats(9, 10, 11, 12), wants_tensors=True),
        )
        assert model.sizes == [6]
        assert said(several) == {"y": [[3], [7], [11]]}
        assert said(one) == {"y": [15]}
        assert raw.tensors is not None
        assert (raw.tensors["y"].shape, bytes(raw.tensors["y"].data)) == ((2, 1), added(floats(9, 10, 11, 12)).data)

    run(test)


def test_none_waits_longer_than_max_latency_for_company() -> None:
    async def test() -> None:
        model = Model(open_gate=False)
        bench = bench_of(model, latency=0.01)
        first = bench.start("add", x=[[1, 2]])
        await settled()
        second = bench.start("add", x=[[3, 4]])
        for _ in range(2):  # although the first batch is still under way
            await model.entered.acquire()
        model.gate.set()
        assert [said(await first), said(await second)] == [{"y": [[3]]}, {"y": [[7]]}]

    run(test)


def test_calls_of_other_tools_or_other_rows_are_not_joined() -> None:
    async def test() -> None:
        model = Model()
        bench = bench_of(model)
        await asyncio.gather(*(bench.call(tool, x=[[1, 2]]) for tool in ("add", "sum", "add", "sum")))
        assert sorted(model.sizes) == [2, 2]

    run(test)


def test_a_model_server_that_batches_itself_and_tools_without_a_batch_axis_are_left_alone() -> None:
    async def test() -> None:
        calls: list[dict[str, Any]] = []

        async def behave(arguments: dict[str, Any], context: CallContext) -> Answer:
            calls.append(arguments)
            return Answer(content=[])

        config = AdapterConfig(batcher=BatcherConfig(max_batch_size=8))
        tools = (tensor_spec("itself", batches_itself=True), tensor_spec("single", max_batch=0), spec("plain"))
        bench = Bench(ToldBackend(behave), config, tools=tools)
        for _ in range(2):
            await bench.call("itself", x=[[1, 2]])
            await bench.call("plain", x=1)
        assert calls == [{"x": [[1, 2]]}, {"x": 1}] * 2

    run(test)


def test_a_wrong_call_fails_alone_before_it_joins_anybody() -> None:
    async def test() -> None:
        model = Model()
        bench = bench_of(model)
        results = await asyncio.gather(
            bench.call("add", x=[[1, 2]]),
            bench.call("add", x=Tensor(datatype="FP32", shape=(1, 2), data=floats(float("nan"), 1).data)),
            bench.call("add", x=[[3, 4]]),
            return_exceptions=True,
        )
        assert isinstance(results[1], InvalidArgumentsError)
        assert [said(result) for result in (results[0], results[2]) if isinstance(result, Answer)] == [
            {"y": [[3]]},
            {"y": [[7]]},
        ]
        assert model.sizes == [2]

    run(test)


@pytest.mark.parametrize(
    ("tool", "kind", "alone"), [("add", "refuses", True), ("sum", "fails", True), ("add", "fails", False)]
)
def test_one_bad_row_fails_its_own_call_where_it_can_be_told(tool: str, kind: str, alone: bool) -> None:
    async def test() -> None:
        model = Model()
        setattr(model, kind, 666.0)
        bench = bench_of(model)
        results = await asyncio.gather(
            *(bench.call(tool, x=[[number, 0]]) for number in (1, 666, 3)), return_exceptions=True
        )
        bad = BackendRefusedError if kind == "refuses" else BackendFailureError
        if alone:
            assert model.sizes == [3, 1, 1, 1]
            assert isinstance(results[1], bad)
            assert [said(results[place]) for place in (0, 2)] == [{"y": [[1]]}, {"y": [[3]]}]  # type: ignore[arg-type]
        else:  # the batch may have run: a tool that is not idempotent is not run again
            assert model.sizes == [3]
            assert [type(result) for result in results] == [bad] * 3

    run(test)


def test_a_row_whose_result_cannot_be_told_fails_its_own_call() -> None:
    async def test() -> None:
        model = Model()
        bench = bench_of(model)
        results = await asyncio.gather(
            bench.call("add", x=[[1, 2]]), bench.call("add", x=[[3e38, 3e38]]), return_exceptions=True
        )
        assert isinstance(results[0], Answer)
        assert isinstance(results[1], BackendAnswerInvalidError)

    run(test)


def test_a_caller_that_leaves_frees_its_place_and_the_last_one_stops_the_model() -> None:
    async def test() -> None:
        model = Model(open_gate=False)
        bench = bench_of(model)
        first = bench.start("add", x=[[1, 2]])
        await settled()
        waiting = [bench.start("add", x=[[number, 0]]) for number in range(3)]
        await settled()
        waiting[1].cancel()
        first.cancel()
        await settled()
        assert bench.backend.cancelled == 1  # nobody waited for the first batch any more
        assert model.sizes == [1, 2]  # and the second is sent, without the one that left
        waiting[0].cancel()
        await settled()
        assert bench.backend.cancelled == 1
        model.gate.set()
        assert said(await waiting[2]) == {"y": [[2]]}
        await settled()
        assert gatherings(bench) == 0
        assert bench.pipeline.limiter.running == 0

    run(test)


def test_a_model_that_answers_other_rows_than_it_got_is_told_to_every_caller() -> None:
    async def test() -> None:
        async def forgetful(arguments: dict[str, Any], context: CallContext) -> Answer:
            return Answer(content=[], tensors={"y": added(floats(1, 2))})

        bench = bench_of(forgetful)
        results = await asyncio.gather(*(bench.call("add", x=[[1, 2]]) for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [BackendAnswerInvalidError] * 3

    run(test)


def test_a_fault_of_ours_is_an_error_to_every_caller_and_hangs_nobody() -> None:
    async def test() -> None:
        async def broken(arguments: dict[str, Any], context: CallContext) -> Answer:
            raise ZeroDivisionError

        bench = bench_of(broken)
        results = await asyncio.gather(*(bench.call("add", x=[[1, 2]]) for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [ZeroDivisionError] * 3
        await settled()
        assert gatherings(bench) == 0

    run(test)


def test_every_call_of_a_batch_is_accounted_for_and_its_deadline_is_its_own() -> None:
    async def test() -> None:
        model = Model()
        bench = bench_of(model, circuit_breaker=CircuitBreakerConfig(consecutive_failures=1))
        calls = [bench.call_of("add", x=[[number, 0]]) for number in range(3)]
        await asyncio.gather(*(bench.handler(call) for call in calls))
        told = [(c.context.batch_rows, c.context.backend_seconds, c.context.backend_status) for c in calls]
        assert told == [(3, 0.5, 200)] * 3
        model.gate.clear()
        patient = bench.start("add", x=[[1, 2]])
        hurried = bench.start("add", x=[[3, 4]], seconds=0.01)
        with pytest.raises(DeadlineExceededError):
            await hurried
        with pytest.raises(CircuitOpenError):  # the model server had it and let its time pass
            await bench.call("add", x=[[5, 6]])
        model.gate.set()
        assert said(await patient) == {"y": [[3]]}
        assert bench.backend.cancelled == 0

    run(test)


def test_triton_s_own_dynamic_batching_is_known_from_the_model_s_configuration() -> None:
    metadata = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}],
    }
    for config, itself in (
        ({"max_batch_size": 8}, False),
        ({"max_batch_size": 8, "dynamic_batching": {"max_queue_delay_microseconds": 100}}, True),
        ({"max_batch_size": 8, "dynamic_batching": {}}, True),
    ):
        assert v2.read_model("add", metadata, config, ModelConfig()).batches_itself is itself
