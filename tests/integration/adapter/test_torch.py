"""PyTorch files through the whole adapter: `.pt2` whose signature is read without PyTorch, and TorchScript."""

import asyncio
import json
import os
import shutil
import signal
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from artifact_models import (
    artifact,
    config_of,
    run,
    serving,
    text_of,
    torch_models,
    until,
    until_report,
    workers,
)

ROW = [1.0, 1.0, 1.0, 1.0]
SCRIPT = {
    "version": "v1",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4], "bounds": {"0": [1, 64]}}],
    "outputs": [{"name": "rating", "datatype": "FP32", "shape": [-1, 3]}],
    "description": "Rate rows.",
    "maxBatch": 64,
}
TURNS = {
    "version": "v1",
    "inputs": [{"name": "turns", "datatype": "INT64", "shape": []}],
    "outputs": [{"name": "total", "datatype": "FP32", "shape": []}],
}


@pytest.fixture(scope="module")
def models() -> Path:
    return torch_models()


@pytest.mark.promise("torch-onnx-tools")
def test_an_exported_program_is_a_typed_tool_with_its_own_bounds(models: Path) -> None:
    async def test() -> None:
        async with serving(config_of("Torch", artifact("Torch", models / "net.pt2"))) as running:
            assert "torch" not in sys.modules
            listed = (await running.modern("tools/list")).json["result"]["tools"][0]
            assert "Takes x FP32[1..64, 4]; gives output FP32[1..64, 3]" in listed["description"]
            worker = workers(running)["net"]
            assert (await running.call("net", {"x": [ROW]}))["structuredContent"] == {"output": [[41.0] * 3]}
            runs = worker.runs
            assert "$.x" in text_of(await running.call("net", {"x": [ROW] * 65}))
            assert "$.x" in text_of(await running.call("net", {"x": [[1.0]]}))
            assert worker.runs == runs

    run(test)


def test_datatypes_that_numpy_lacks_and_named_outputs_come_back_as_they_are(models: Path) -> None:
    async def test() -> None:
        config = config_of("Torch", artifact("Torch", models / "kinds.pt2"), artifact("Torch", models / "named.pt2"))
        async with serving(config) as running:
            given = {"half": [0.5, -65504], "brain": [1.25, 3e38], "yes": [True, False], "number": [1, -1]}
            result = (await running.call("kinds", given))["structuredContent"]
            assert result["output_0"] == given["half"]
            assert result["output_1"][0] == 1.25
            assert result["output_1"][1] == pytest.approx(3e38, rel=0.01)
            assert (result["output_2"], result["output_3"]) == ([False, True], [2, 0])
            named = (await running.call("named", {"x": [1, 3]}))["structuredContent"]
            assert named == {"double": [2, 6], "half": [0.5, 1.5]}

    run(test)


@pytest.mark.promise("torch-onnx-tools")
def test_torchscript_is_served_with_the_signature_file_beside_it(models: Path, tmp_path: Path) -> None:
    shutil.copy(models / "net.pt", tmp_path / "net.pt")
    (tmp_path / "net.json").write_text(json.dumps(SCRIPT))

    async def test() -> None:
        async with serving(config_of("Torch", artifact("Torch", tmp_path / "net.pt"))) as running:
            listed = (await running.modern("tools/list")).json["result"]["tools"][0]
            assert listed["description"].startswith("Rate rows.")
            assert (await running.call("net", {"x": [ROW]}))["structuredContent"] == {"rating": [[41.0] * 3]}
            assert (await running.call("net", {"x": ROW}))["structuredContent"] == {"rating": [41.0] * 3}

    run(test)


@pytest.mark.promise("isolated")
def test_a_crash_in_the_middle_of_a_call_is_one_error(models: Path, tmp_path: Path) -> None:
    shutil.copy(models / "turns.pt", tmp_path / "turns.pt")
    (tmp_path / "turns.json").write_text(json.dumps(TURNS))

    async def test() -> None:
        async with serving(config_of("Torch", artifact("Torch", tmp_path / "turns.pt"))) as running:
            worker = workers(running)["turns"]
            runs = worker.runs
            crashed = asyncio.create_task(running.call("turns", {"turns": 100_000_000}))
            await until(lambda: worker.runs == runs + 1)
            os.kill(worker.pid, signal.SIGSEGV)
            assert "ended by SIGSEGV" in text_of(await crashed)
            assert (await running.call("turns", {"turns": 2}))["structuredContent"] == {"total": 256.0}

    run(test)


def _archive(path: Path, **entries: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name.replace("__", "/").replace("_json", ".json"), content)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (None, "is neither a .pt2 file nor TorchScript"),
        ({"m__data_pkl": ""}, "save the model with torch.export.save, not torch.save"),
        ({"m__data__aotinductor__model__m.so": ""}, "is a package of AOTInductor"),
        ({"m__models__model_json": "{}"}, "is not what torch.export writes"),
        ({"m__models__model_json": '{"schema_version": {"major": 9}}'}, "version 9 of the export schema"),
    ],
)
def test_a_file_that_cannot_be_served_is_told_in_a_sentence(
    tmp_path: Path, entries: dict[str, str] | None, said: str
) -> None:
    path = tmp_path / "m.pt2"
    if entries is None:
        path.write_bytes(b"\x80\x04pickle")
    else:
        _archive(path, **entries)

    async def test() -> None:
        async with serving(config_of("Torch", artifact("Torch", path)), wait=False) as running:
            message = await until_report(running, "Invalid")
            assert said in message
            assert "m.pt2" in message

    run(test)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"python": ""}, "PyTorch cannot be imported"),
        ({"devices": "0", "memory_fraction": 0.5}, "PyTorch sees none"),
        ({"memory_fraction": 0.5}, "has a memoryFraction but no device"),
    ],
)
def test_what_the_machine_lacks_is_told_in_a_sentence(models: Path, fields: dict[str, Any], said: str) -> None:
    async def test() -> None:
        config = config_of("Torch", artifact("Torch", models / "net.pt2", **fields))
        async with serving(config, wait=False) as running:
            assert said in await until_report(running, "Invalid")

    run(test)


def test_torchscript_without_a_signature_file_says_what_to_do(models: Path, tmp_path: Path) -> None:
    shutil.copy(models / "net.pt", tmp_path / "net.pt")

    async def test() -> None:
        async with serving(config_of("Torch", artifact("Torch", tmp_path / "net.pt")), wait=False) as running:
            assert "write the signature file net.json" in await until_report(running, "Invalid")

    run(test)
