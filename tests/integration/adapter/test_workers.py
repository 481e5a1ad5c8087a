"""Worker processes under a real model: crashes, queues, spares, cancelled calls, and that nothing of them stays."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import uvloop

from artifact_models import (
    artifact,
    config_of,
    onnx_models,
    python_of,
    run,
    serving,
    text_of,
    until,
    until_report,
    until_told,
    workers,
)
from modelservice_api.adapter_config import AdapterConfig
from modelservice_sidecar.core import codec
from modelservice_sidecar.core.errors import BackendAnswerTooLargeError
from modelservice_sidecar.worker import wire
from modelservice_sidecar.worker.process import Launch
from modelservice_sidecar.worker.supervised import UnusableModelError, Worker
from modelservice_sidecar.worker.wire import Load

LONG = 10_000_000
"""Turns of the slow model that no test waits for."""
SHORT = 300
FAILED = wire.encode(wire.Reply(outcome="failed"))


@pytest.fixture(scope="module")
def models() -> Path:
    return onnx_models()


@pytest.mark.promise("isolated")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_crash_is_one_error_that_names_the_signal(models: Path, number: signal.Signals) -> None:
    async def test() -> None:
        async with serving(config_of("ONNX", artifact("ONNX", models / "slow.onnx"))) as running:
            worker = workers(running)["slow"]
            runs = worker.runs
            crashed = asyncio.create_task(running.call("slow", {"turns": LONG}))
            await until(lambda: worker.runs == runs + 1)
            waiting = [asyncio.create_task(running.call("slow", {"turns": SHORT})) for _ in range(3)]
            os.kill(worker.pid, number)
            result = await crashed
            assert result["isError"] is True
            assert text_of(result) == (
                f"The model's process ended by {number.name} during the call; it is being started again."
            )
            for done in await asyncio.gather(*waiting):
                assert done["structuredContent"] == {"total": 256.0}
            assert worker.starts == 2

    run(test)


@pytest.mark.promise("isolated")
def test_a_crash_of_one_model_loses_no_call_of_the_other(models: Path) -> None:
    async def test() -> None:
        config = config_of(
            "ONNX", artifact("ONNX", models / "slow.onnx"), artifact("ONNX", models / "linear.onnx", name="double")
        )
        async with serving(config) as running:
            slow, double = workers(running)["slow"], workers(running)["double"]
            assert slow.pid != double.pid
            crashes = 0
            for number in range(60):
                if number % 20 == 10:
                    call = asyncio.create_task(running.call("slow", {"turns": LONG}))
                    runs = slow.runs
                    await until(lambda runs=runs: slow.runs > runs)  # type: ignore[misc]
                    os.kill(slow.pid, signal.SIGKILL)
                    crashes += (await call)["isError"]
                result = await running.call("double", {"x": [[number, 1]]})
                assert result["structuredContent"] == {"y": [[2 * number, 2]]}
            assert crashes == 3
            assert double.starts == 1

    run(test)


def test_calls_of_one_model_are_answered_one_after_another_and_each_with_its_own_answer(models: Path) -> None:
    async def test() -> None:
        async with serving(config_of("ONNX", artifact("ONNX", models / "linear.onnx"))) as running:
            results = await asyncio.gather(*(running.call("linear", {"x": [[number, 0]]}) for number in range(40)))
            assert [result["structuredContent"]["y"][0][0] for result in results] == [
                2 * number for number in range(40)
            ]

    run(test)


def test_a_spare_takes_over_at_once(models: Path) -> None:
    async def test() -> None:
        config = config_of("ONNX", artifact("ONNX", models / "linear.onnx", spare=True))
        async with serving(config) as running:
            worker = workers(running)["linear"]
            await until(lambda: worker.spare_pid != 0)
            first, spare = worker.pid, worker.spare_pid
            os.kill(first, signal.SIGKILL)
            await until(lambda: worker.pid == spare)
            assert (await running.call("linear", {"x": [[1, 1]]}))["isError"] is False
            await until(lambda: worker.spare_pid not in {0, spare})

    run(test)


def test_a_call_past_its_time_is_left_to_end_and_the_next_one_is_answered(models: Path) -> None:
    async def test() -> None:
        config = config_of("ONNX", artifact("ONNX", models / "slow.onnx"), timeout=1.0)
        async with serving(config) as running:
            worker = workers(running)["slow"]
            turns = 1000
            while (await running.call("slow", {"turns": turns}))["isError"] is False:
                turns *= 2
            # The process still works on it; this one waits for that and then has its turn.
            waited = await running.call("slow", {"turns": 1})
            while waited["isError"]:
                waited = await running.call("slow", {"turns": 1})
            assert waited["structuredContent"] == {"total": 256.0}
            assert worker.starts == 1

    run(test)


def test_a_call_that_nobody_awaits_and_that_does_not_end_costs_its_process(models: Path) -> None:
    async def test() -> None:
        config = config_of("ONNX", artifact("ONNX", models / "slow.onnx", overtime=0.2), timeout=0.5)
        async with serving(config) as running:
            worker = workers(running)["slow"]
            result = await running.call("slow", {"turns": LONG})
            assert "did not answer within 0.5 s" in text_of(result)
            await until(lambda: worker.starts == 2 and worker.ready)
            assert (await running.call("slow", {"turns": 1}))["structuredContent"] == {"total": 256.0}

    run(test)


def test_a_process_that_cannot_be_started_again_is_told_and_comes_back(models: Path, tmp_path: Path) -> None:
    served = tmp_path / "m.onnx"
    served.write_bytes((models / "linear.onnx").read_bytes())

    async def test() -> None:
        async with serving(config_of("ONNX", artifact("ONNX", served))) as running:
            worker = workers(running)["m"]
            content = served.read_bytes()
            served.write_bytes(b"broken")
            os.kill(worker.pid, signal.SIGKILL)
            await until(lambda: worker.starts >= 4)
            result = await running.call("m", {"x": [[1, 1]]})
            assert "onnxruntime cannot load it" in text_of(result)
            await until_told(running, "onnxruntime cannot load it")
            served.write_bytes(content)
            await until(lambda: worker.ready or workers(running)["m"].ready)
            assert (await running.call("m", {"x": [[1, 1]]}))["structuredContent"] == {"y": [[2, 2]]}

    run(test)


def test_a_worker_gets_no_environment_but_its_own(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "s3cret")

    async def test() -> None:
        async with serving(config_of("ONNX", artifact("ONNX", models / "linear.onnx", threads=3))) as running:
            found = psutil.Process(workers(running)["linear"].pid).environ()
            assert "A_SECRET" not in found
            assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_DEVICE_ORDER"]) == ("", "PCI_BUS_ID")
            assert found["OMP_NUM_THREADS"] == found["OPENBLAS_NUM_THREADS"] == found["MKL_NUM_THREADS"] == "3"

    run(test)


def test_two_models_on_one_device_are_refused_before_anything_starts(models: Path) -> None:
    async def test() -> None:
        config = config_of(
            "ONNX",
            artifact("ONNX", models / "linear.onnx", name="m", devices="0"),
            artifact("ONNX", models / "slow.onnx", name="n", devices="0"),
        )
        async with serving(config, wait=False) as running:
            assert "m and n are both assigned to device 0" in await until_report(running, "Invalid")

    run(test)


def test_one_bad_file_does_not_take_the_others_away(models: Path) -> None:
    async def test() -> None:
        config = config_of(
            "ONNX", artifact("ONNX", models / "linear.onnx"), artifact("ONNX", models / "nothing.onnx", name="gone")
        )
        async with serving(config) as running:
            assert "There is no file" in (await running.report())["backend"]["message"]
            assert (await running.call("linear", {"x": [[1, 1]]}))["isError"] is False

    run(test)


@pytest.mark.parametrize("uses", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_large_tensors_go_through_whole_and_too_large_answers_are_refused(models: Path, uses: Any) -> None:
    values = np.arange(5_000_000, dtype=np.float32).reshape(-1, 2)

    def load(limit: int) -> Load:
        return Load(artifact=str(models / "linear.onnx"), function="main", threads=1, max_answer=limit)

    async def test() -> None:
        for limit in (values.nbytes, values.nbytes - 1):
            worker = Worker(Launch(runtime="onnx", python=python_of("ONNX"), load=load(limit)), overtime=1, spare=False)
            await worker.start()
            try:
                answered = await worker.call({"x": codec.from_array(values)})
                assert limit == values.nbytes
                assert np.array_equal(codec.array(answered["y"]), values * 2)
            except BackendAnswerTooLargeError as error:
                assert limit < values.nbytes
                assert "19999999 bytes" in str(error)
            finally:
                await worker.aclose()

    uses(test())


def _start(python: str) -> str:
    """What is said about a worker that is started with that interpreter."""
    load = Load(artifact="m.onnx", function="main", threads=1, max_answer=1024)
    said = ""

    async def test() -> None:
        nonlocal said
        worker = Worker(Launch(runtime="onnx", python=python, load=load), overtime=1, spare=False)
        with pytest.raises(UnusableModelError) as raised:
            await worker.start()
        said = str(raised.value)
        await worker.aclose()

    run(test)
    return said


@pytest.mark.parametrize(
    "written",
    [
        b"\xff" * 100,
        wire.PREFIX.pack(10, 1 << 62) + b"0123456789",
        wire.PREFIX.pack(3, 0) + b"\xc1\xc1\xc1",
        wire.PREFIX.pack(2, 0) + b"\x81\xa0",
        wire.PREFIX.pack(len(FAILED), 0) + FAILED + b"and more",
        b"",
    ],
    ids=["noise", "a body without an end", "no MessagePack", "half a head", "too much", "nothing"],
)
def test_a_program_that_does_not_speak_as_a_worker_does_is_ended(tmp_path: Path, written: bytes) -> None:
    pretender = tmp_path / "python"
    pretender.write_text(
        f"#!{sys.executable}\nimport os, sys, time\nos.write(int(sys.argv[4]), {written!r})\n"
        f"os.close(int(sys.argv[4]))\ntime.sleep(3600)\n"
    )
    pretender.chmod(0o755)
    assert _start(str(pretender)) == "m.onnx cannot be loaded: the model's process ended by SIGKILL."


def test_an_interpreter_without_what_every_worker_needs_is_told() -> None:
    bare = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert "its Python has no numpy or no msgspec; install both beside the runtime" in _start(str(bare))


ADAPTER_THAT_STAYS = """
import asyncio, sys
from pathlib import Path
from modelservice_api.adapter_config import AdapterConfig
from modelservice_sidecar.backends.onnx import make

async def main():
    backend = make(AdapterConfig.model_validate_json(Path(sys.argv[1]).read_text()))
    await backend.describe()
    print(backend.workers()["slow"].pid, flush=True)
    worker = backend.workers()["slow"]
    from modelservice_sidecar.core import codec
    await worker.call({"turns": codec.from_lists(10_000_000, "INT64", limit=99)})

asyncio.run(main())
"""


def test_a_worker_ends_with_its_adapter_even_in_the_middle_of_a_call(models: Path, tmp_path: Path) -> None:
    config: AdapterConfig = config_of("ONNX", artifact("ONNX", models / "slow.onnx", python=python_of("ONNX")))
    (tmp_path / "config.json").write_text(config.to_json())
    command = [sys.executable, "-c", ADAPTER_THAT_STAYS, str(tmp_path / "config.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        assert worker.ppid() == parent.pid
        parent.kill()
    worker.wait(10)
