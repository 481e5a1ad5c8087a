"""ONNX files through the whole adapter: a typed tool each, run by a real onnxruntime in a process of its own."""

import asyncio
import base64
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifact_models import (
    artifact,
    config_of,
    onnx_models,
    run,
    serving,
    text_of,
    until,
    until_report,
    until_told,
    workers,
)


@pytest.fixture(scope="module")
def models() -> Path:
    return onnx_models()


@pytest.mark.promise("torch-onnx-tools")
def test_a_file_is_one_typed_tool_and_answers(models: Path) -> None:
    async def test() -> None:
        async with serving(config_of("ONNX", artifact("ONNX", models / "linear.onnx", name="double"))) as running:
            listed = (await running.modern("tools/list")).json["result"]["tools"]
            assert [tool["name"] for tool in listed] == ["double"]
            assert "x FP32[?, 2]" in listed[0]["description"]
            assert listed[0]["inputSchema"]["required"] == ["x"]
            result = await running.call("double", {"x": [[1, 2], [3, 4.5]]})
            assert result["structuredContent"] == {"y": [[2, 4], [6, 9]]}

    run(test)


def test_a_named_file_is_served_without_a_type_and_nothing_is_looked_for_at_the_port(models: Path) -> None:
    async def test() -> None:
        chosen = config_of("ONNX", artifact("ONNX", models / "linear.onnx"))
        config = chosen.model_copy(update={"backend": chosen.backend.model_copy(update={"type": "Auto"})})
        async with serving(config) as running:
            assert (await running.report())["backend"]["type"] == "ONNX"

    run(test)


def test_every_datatype_goes_through_unchanged(models: Path) -> None:
    given: dict[str, Any] = {
        "bool": [True, False],
        "uint8": [0, 255],
        "uint16": [0, 65535],
        "uint32": [0, 4294967295],
        "uint64": [1, "18446744073709551615"],
        "int8": [-128, 127],
        "int16": [-32768, 32767],
        "int32": [-2147483648, 2147483647],
        "int64": [-1, "-9223372036854775808"],
        "float16": [0.5, -65504],
        "float": [0.5, 3.4e38],
        "double": [0.1, -1e300],
        "string": ["", "Grüße ☃"],
    }

    async def test() -> None:
        async with serving(config_of("ONNX", artifact("ONNX", models / "types.onnx"))) as running:
            result = await running.call("types", given)
            assert result["isError"] is False, result
            answered = result["structuredContent"]
            for name, values in given.items():
                expected = np.array(values, np.float32).tolist() if name == "float" else values
                got = np.array(answered[f"same_{name}"], np.float32).tolist() if name == "float" else None
                assert (name, got or answered[f"same_{name}"]) == (name, expected)

    run(test)


@pytest.mark.promise("input-checked")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "lacks x"),
        ({"x": [[1, 2, 3]]}, "$.x"),
        ({"x": [1, 2]}, "$.x"),
        ({"x": [[1, "2"]]}, "$.x[0][1]"),
        ({"x": [[1, 2], [3]]}, "$.x"),
        ({"x": [[1, 1e39]]}, "$.x[0][1]"),
        ({"x": [[1, 2]], "extra": 1}, "extra"),
        ({"x": {"dtype": "FP64", "shape": [1, 2], "encoding": "base64", "data": ""}}, "FP64"),
        ({"x": {"dtype": "FP32", "shape": [9, 2], "encoding": "base64", "data": "AAAA"}}, "$.x"),
        (
            {
                "x": {
                    "dtype": "FP32",
                    "shape": [1, 2],
                    "encoding": "base64",
                    "data": base64.b64encode(np.array([1, np.nan], "<f4").tobytes()).decode(),
                }
            },
            "NaN",
        ),
    ],
)
def test_wrong_input_is_named_and_never_reaches_the_model(models: Path, arguments: dict[str, Any], said: str) -> None:
    async def test() -> None:
        async with serving(config_of("ONNX", artifact("ONNX", models / "linear.onnx"))) as running:
            worker = workers(running)["linear"]
            await running.call("linear", {"x": [[1, 1]]})
            before = worker.runs
            result = await running.call("linear", arguments)
            assert result["isError"] is True
            assert said in text_of(result)
            assert worker.runs == before

    run(test)


def test_outputs_that_are_no_tensors_are_left_out_with_a_note(models: Path) -> None:
    async def test() -> None:
        async with serving(config_of("ONNX", artifact("ONNX", models / "sequence.onnx"))) as running:
            assert (await running.call("sequence", {"x": [7]}))["structuredContent"] == {"y": [7]}
            assert "output all is seq(tensor(float)) and is left out" in (await running.report())["backend"]["message"]

    run(test)


def test_an_exchanged_file_is_served_without_a_lost_or_a_wrong_call(models: Path, tmp_path: Path) -> None:
    served = tmp_path / "m.onnx"
    shutil.copy(models / "linear.onnx", served)

    async def test() -> None:
        async with serving(config_of("ONNX", artifact("ONNX", served))) as running:
            seen: list[float] = []

            async def call_on() -> None:
                while 3.0 not in seen[-3:]:
                    result = await running.call("m", {"x": [[1, 1]]})
                    assert result["isError"] is False, result
                    seen.append(result["structuredContent"]["y"][0][0])

            callers = [asyncio.create_task(call_on()) for _ in range(4)]
            shutil.copy(models / "linear-heavier.onnx", tmp_path / "new")
            os.replace(tmp_path / "new", served)
            await asyncio.gather(*callers)
            assert set(seen) == {2.0, 3.0}

            # A file that is broken changes nothing but the report.
            (tmp_path / "broken").write_bytes(b"not a model")
            os.replace(tmp_path / "broken", served)
            assert "onnxruntime cannot load it" in await until_told(running, "still served")
            assert (await running.call("m", {"x": [[1, 1]]}))["structuredContent"] == {"y": [[3, 3]]}

            # Another signature is another tool definition.
            shutil.copy(models / "linear-wider.onnx", tmp_path / "wide")
            os.replace(tmp_path / "wide", served)
            await until(lambda: "3]" in running.adapter.catalogue.by_name["m"].definition["description"])
            assert (await running.call("m", {"x": [[1, 1, 1]]}))["structuredContent"] == {"y": [[2, 2, 2]]}

    run(test)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.onnx", None, "There is no file"),
        ("empty.onnx", b"", "onnxruntime cannot load it"),
        ("text.onnx", b"<html>", "onnxruntime cannot load it"),
    ],
)
def test_a_file_that_cannot_be_served_is_told_in_a_sentence(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)

    async def test() -> None:
        async with serving(config_of("ONNX", artifact("ONNX", tmp_path / name)), wait=False) as running:
            message = await until_report(running, "Invalid")
            assert said in message
            assert name in message

    run(test)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"python": "/nonexistent/python"}, "/nonexistent/python"),
        ({"python": ""}, "onnxruntime cannot be imported"),
        ({"devices": "0"}, "knows no CUDA"),
        ({"devices": "0,0"}, "name each once"),
    ],
)
def test_what_the_machine_lacks_is_told_in_a_sentence(models: Path, fields: dict[str, Any], said: str) -> None:
    async def test() -> None:
        config = config_of("ONNX", artifact("ONNX", models / "linear.onnx", **fields))
        async with serving(config, wait=False) as running:
            assert said in await until_report(running, "Invalid")

    run(test)
