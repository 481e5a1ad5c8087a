"""What stands between finding a model server and publishing it: warm-up calls, and the declared tensors."""

import threading

import pytest
from fastapi import FastAPI

from adapter_harness import adapter, run
from model_apps import model_server
from modelservice_api.adapter_config import AdapterConfig, ModelConfig, TensorConfig, WarmUpRequestConfig


class ColdModel:
    """Fails until it was told that it may work; counts what it was asked."""

    def __init__(self) -> None:
        self.works = threading.Event()
        self.asked: list[float] = []

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/predict", operation_id="predict")
        def predict(value: float) -> float:
            self.asked.append(value)
            if not self.works.is_set():
                raise RuntimeError
            return value * 2

        return app


def warming(*requests: WarmUpRequestConfig) -> AdapterConfig:
    return AdapterConfig(warm_up=requests)


@pytest.mark.promise("warm-up")
def test_tools_are_published_after_every_warm_up_call_succeeded_and_not_before() -> None:
    model = ColdModel()
    first = WarmUpRequestConfig(tool="predict", arguments={"value": 1.5})
    second = WarmUpRequestConfig(tool="predict", arguments={"value": 2.5})

    async def test() -> None:
        with model_server(model.app()) as port:
            async with adapter(port, warming(first, second), wait=False) as running:
                told = await running.lines.wait_for("backend", state="WarmingUp")
                assert told["message"] == "Warm-up call 1 of 2, predict, is being made."
                await running.lines.wait_for(
                    "backend",
                    state="WarmingUp",
                    message="Warm-up call 1 of 2, predict, failed: The model server failed (HTTP 500).",
                )
                assert (await running.modern("tools/list")).json["result"]["tools"] == []
                model.works.set()
                await running.ready()
                assert model.asked[-2:] == [1.5, 2.5]
                asked = len(model.asked)
                assert (await running.call("predict", {"value": 4}))["structuredContent"] == {"result": 8}
                assert len(model.asked) == asked + 1

    run(test)


@pytest.mark.promise("warm-up")
@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (WarmUpRequestConfig(tool="train"), "Warm-up call 1 of 1, train, names no published tool; there are predict."),
        (
            WarmUpRequestConfig(tool="predict", arguments={"value": "x"}),
            'Warm-up call 1 of 1, predict, has wrong arguments: $.value: the value is not of type "number"',
        ),
    ],
    ids=["an unknown tool", "wrong arguments"],
)
def test_a_warm_up_call_that_cannot_be_made_says_why_and_reaches_no_model(
    request_: WarmUpRequestConfig, said: str
) -> None:
    model = ColdModel()

    async def test() -> None:
        with model_server(model.app()) as port:
            async with adapter(port, warming(request_), wait=False) as running:
                await running.lines.wait_for("backend", state="WarmingUp", message=said)
                assert model.asked == []

    run(test)


@pytest.mark.promise("refuse-model-spec-conflict")
def test_declared_tensors_of_a_server_without_tensors_are_a_conflict_and_no_call_gets_through() -> None:
    model = ColdModel()
    model.works.set()
    declared = ModelConfig(inputs=(TensorConfig(name="value", datatype="FP32", shape=(-1,)),))

    async def test() -> None:
        with model_server(model.app()) as port:
            async with adapter(port, AdapterConfig(model=declared), wait=False) as running:
                told = await running.lines.wait_for("backend", state="ModelSpecConflict")
                assert "none of its tools takes tensors" in told["message"]
                result = await running.call("predict", {"value": 1})
                assert result["isError"]
                assert "The model is not what was declared" in result["content"][0]["text"]
                assert model.asked == []
                await running.adapter.reconfigure(AdapterConfig())
                await running.ready()
                assert (await running.call("predict", {"value": 1}))["structuredContent"] == {"result": 2}

    run(test)
