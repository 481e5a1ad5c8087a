"""Compiled TVM modules: built by our command, checked against the machine, served by worker processes, weights exchanged."""

import asyncio
import json
import os
import shutil
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from adapter_harness import Running
from artifact_models import (
    artifact,
    config_of,
    copy_tvm,
    onnx_models,
    put,
    python_of,
    run,
    serving,
    text_of,
    torch_models,
    tvm,
    tvm_model,
    until,
    until_report,
    until_told,
    workers,
)

ROW = [1.0, 1.0, 1.0, 1.0]
ONES, TWOS = [41.0, 41.0, 41.0], [162.0, 162.0, 162.0]


@pytest.fixture(scope="module")
def net() -> Path:
    """A net of two layers for 1 to 64 rows."""
    return tvm_model(torch_models() / "net.pt2", "--description", "Rate one row of four numbers.")


@pytest.mark.promise("tvm-tools")
def test_eight_calls_at_once_then_one_row_too_many_then_a_crash(net: Path) -> None:
    async def test() -> None:
        async with serving(config_of("TVM", artifact("TVM", net))) as running:
            listed = (await running.modern("tools/list")).json["result"]["tools"][0]
            assert listed["description"].startswith("Rate one row of four numbers. Takes x FP32[1..64, 4]")
            worker = workers(running)["net"]

            calls = [running.call("net", {"x": [[number, 0, 0, 0]] * (number + 1)}) for number in range(8)]
            for number, result in enumerate(await asyncio.gather(*calls)):
                value = 8.0 * (number + 1) + 1
                assert result["structuredContent"] == {"output": [[value] * 3] * (number + 1)}

            runs = worker.runs
            assert (await running.call("net", {"x": [ROW] * 64}))["isError"] is False
            refused = await running.call("net", {"x": [ROW] * 65})
            assert (refused["isError"], worker.runs) == (True, runs + 1)
            assert "$.x" in text_of(refused)

            # Stopped, so that the call is under way for sure when the process dies.
            os.kill(worker.pid, signal.SIGSTOP)
            crashed = asyncio.create_task(running.call("net", {"x": [ROW]}))
            await until(lambda: worker.runs == runs + 2)
            os.kill(worker.pid, signal.SIGSEGV)
            os.kill(worker.pid, signal.SIGCONT)
            assert "ended by SIGSEGV during the call; it is being started again" in text_of(await crashed)
            assert (await running.call("net", {"x": [ROW]}))["structuredContent"] == {"output": [ONES]}

    run(test)


@pytest.mark.promise("tvm-tools")
def test_new_weights_are_served_without_a_lost_or_a_wrong_call_and_bad_ones_are_refused(
    net: Path, tmp_path: Path
) -> None:
    served, weights = copy_tvm(net, tmp_path), tmp_path / "net.safetensors"

    async def test() -> None:
        async with serving(config_of("TVM", artifact("TVM", served, spare=True))) as running:
            worker = workers(running)["net"]
            await until(lambda: worker.spare_pid != 0)
            seen: list[list[float]] = []

            async def call_on() -> None:
                while TWOS not in seen[-1:]:
                    result = await running.call("net", {"x": [ROW]})
                    assert result["isError"] is False, result
                    seen.append(result["structuredContent"]["output"][0])

            callers = [asyncio.create_task(call_on()) for _ in range(4)]
            await until(lambda: ONES in seen)
            put(torch_models() / "net-twos.safetensors", weights)
            await asyncio.gather(*callers)
            first_new = seen.index(TWOS)
            assert seen[:first_new] == [ONES] * first_new
            assert set(map(tuple, seen[first_new + 4 :])) <= {tuple(TWOS)}
            assert worker.starts == 2

            for name, said in (
                ("net-cut.safetensors", "lacks the weight second.weight"),
                ("net-other.safetensors", "is FP64[8, 4]; the code was built for FP32[8, 4]"),
                ("net.pt2", "is no safetensors file"),
            ):
                put(torch_models() / name, weights)
                await until_told(running, said)
                assert (await running.call("net", {"x": [ROW]}))["structuredContent"] == {"output": [TWOS]}

            # The spare has the new weights as well.
            put(torch_models() / "net-twos.safetensors", weights)
            await until(lambda: (running.lines.of("backend")[-1]["message"]) == "")
            os.kill(worker.pid, signal.SIGKILL)
            spare = worker.spare_pid
            await until(lambda: worker.pid == spare)
            assert (await running.call("net", {"x": [ROW]}))["structuredContent"] == {"output": [TWOS]}

    run(test)


def test_an_onnx_file_compiles_with_bounds_for_its_free_dimensions() -> None:
    built = tvm_model(onnx_models() / "linear.onnx", "--bound", "rows=1:16")

    async def test() -> None:
        async with serving(config_of("TVM", artifact("TVM", built))) as running:
            assert (await running.call("linear", {"x": [[1, 2]]}))["structuredContent"] == {"y": [[2, 4]]}
            assert "$.x" in text_of(await running.call("linear", {"x": [[1, 2]] * 17}))

    run(test)


def test_the_check_tells_what_fits(net: Path) -> None:
    done = tvm("check", str(net), "--python", python_of("TVM"))
    assert (done.returncode, done.stderr) == (0, "")
    for part in ("processor", "glibc", "CPU features", "TVM", "can run on this machine"):
        assert part in done.stdout


def _recorded(path: Path, **made: Any) -> None:
    document = json.loads(path.with_suffix(".json").read_text())
    document["made"] |= made
    path.with_suffix(".json").write_text(json.dumps(document))


def _other_processor(path: Path) -> None:
    content = bytearray(path.read_bytes())
    struct.pack_into("<H", content, 18, 0xB7 if content[18] == 0x3E else 0x3E)
    path.write_bytes(content)


def _newer_glibc(path: Path) -> None:
    """A library that needs a glibc of the future: a stub of libc with such a version, and a library linked against it."""
    folder = path.parent
    (folder / "libc.c").write_text("int from_the_future(void) { return 1; }\n")
    (folder / "libc.map").write_text("GLIBC_2.99 { global: from_the_future; };\n")
    (folder / "m.c").write_text("int from_the_future(void); int m(void) { return from_the_future(); }\n")
    options = ["-shared", "-fPIC", "-nostdlib"]
    stub = ["-Wl,--version-script=libc.map", "-Wl,-soname,libfuture.so.6", "-o", "libfuture.so"]
    subprocess.run(["gcc", *options, *stub, "libc.c"], cwd=folder, check=True)
    subprocess.run(["gcc", *options, "-o", path.name, "m.c", "-L.", "-lfuture"], cwd=folder, check=True)


@pytest.mark.promise("tvm-tools")
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_other_processor, "processor"),
        (_newer_glibc, "glibc 2.99 is needed"),
        (lambda path: _recorded(path, mcpu="sapphirerapids", features=["avx2", "sme"]), "a CPU without sme"),
        (lambda path: _recorded(path, tvm="0.99.0"), "TVM 0.99.0 is needed"),
        (lambda path: _recorded(path, tvmFfi="7.0"), "TVM FFI 7.0 is needed"),
    ],
    ids=["processor", "glibc", "cpu", "tvm", "ffi"],
)
def test_what_does_not_fit_the_machine_is_refused_by_the_check_and_by_the_worker(
    net: Path, tmp_path: Path, harm: Any, said: str
) -> None:
    path = copy_tvm(net, tmp_path)
    harm(path)
    done = tvm("check", str(path), "--python", python_of("TVM"))
    assert done.returncode == 1
    assert said in done.stderr

    async def test() -> None:
        async with serving(config_of("TVM", artifact("TVM", path)), wait=False) as running:
            message = await until_report(running, "Invalid")
            assert "cannot run on this machine" in message
            assert said in message

    run(test)


def _remove(suffix: str) -> Any:
    return lambda path: path.with_suffix(suffix).unlink()


def _say(**fields: Any) -> Any:
    def harm(path: Path) -> None:
        document = json.loads(path.with_suffix(".json").read_text())
        path.with_suffix(".json").write_text(json.dumps(document | fields))

    return harm


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_remove(".so"), "There is no file"),
        (_remove(".safetensors"), "names as the weights"),
        (_remove(".json"), "write a signature file beside it"),
        (_say(version="v9"), "version"),
        (_say(surprise=1), "surprise"),
        (_say(inputs=[{"name": "x", "datatype": "FP32", "shape": [-1, 5]}]), "not of one build"),
        (_say(inputs=[{"name": "z", "datatype": "FP32", "shape": [-1, 4]}]), "not of one build"),
        (_say(function="other"), "is about the function other"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"#!/bin/sh"), "is no shared library"),
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), "is cut off or damaged"),
    ],
    ids=["code", "weights", "signature", "version", "field", "shape", "name", "function", "empty", "script", "cut"],
)
def test_files_that_do_not_belong_together_are_told_in_a_sentence(
    net: Path, tmp_path: Path, harm: Any, said: str
) -> None:
    path = copy_tvm(net, tmp_path)
    harm(path)

    async def test() -> None:
        async with serving(config_of("TVM", artifact("TVM", path)), wait=False) as running:
            assert said in await until_report(running, "Invalid")

    run(test)


def test_a_build_without_a_compiler_says_so(tmp_path: Path) -> None:
    source = torch_models() / "net.pt2"
    command = [
        "env",
        "-i",
        "PATH=/nowhere",
        python_of("Torch"),
        "-I",
        str(_program()),
        json.dumps(_request(source, tmp_path / "m.so")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "There is no C++ compiler" in done.stderr
    assert not list(tmp_path.iterdir())


def _program() -> Path:
    import modelservice_cli

    return Path(modelservice_cli.__file__).with_name("tvm_build.py")


def _request(source: Path, output: Path) -> dict[str, Any]:
    return {
        "model": str(source),
        "output": str(output),
        "triple": "",
        "mcpu": "generic",
        "bounds": {},
        "description": "",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("build", "{folder}/m.bin", "-o", "{folder}/m.so"), "neither a .pt2 nor a .onnx"),
        (("build", "{folder}/none.pt2", "-o", "{folder}/m.so"), "There is no file"),
        (("build", "{folder}/m.onnx", "-o", "{folder}/m.txt"), "no name for a .so file"),
        (("build", "{folder}/m.onnx", "-o", "{folder}/m.so", "--bound", "rows=9:1"), "is no bound"),
        (("check", "{folder}/none.so"), "cannot be read"),
        (("check", "{folder}/m.onnx"), "is no shared library"),
    ],
)
def test_wrong_arguments_are_told_in_a_sentence(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    done = tvm(*(argument.format(folder=tmp_path) for argument in arguments))
    assert done.returncode == 2
    assert said in done.stderr


def test_a_model_that_cannot_be_read_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    done = tvm("build", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so"), "--python", python_of("TVM"))
    assert done.returncode == 1
    assert "m.onnx is no valid ONNX file" in done.stderr


def test_a_rebuilt_module_replaces_the_one_that_is_served(net: Path, tmp_path: Path) -> None:
    served = copy_tvm(net, tmp_path)
    wider = tvm_model(onnx_models() / "linear-wider.onnx")

    async def test() -> None:
        async with serving(config_of("TVM", artifact("TVM", served))) as running:
            assert (await running.call("net", {"x": [ROW]}))["isError"] is False
            weights = json.loads(wider.with_suffix(".json").read_text())["weights"]["file"]
            shutil.copy(wider.with_name(weights), tmp_path / weights)
            put(wider, served)
            put(wider.with_suffix(".json"), served.with_suffix(".json"))
            await until(lambda: _takes(running, "net", "FP32[?, 3]"))
            assert (await running.call("net", {"x": [[1, 2, 3]]}))["structuredContent"] == {"y": [[2, 4, 6]]}

    run(test)


def _takes(running: Running, tool: str, shape: str) -> bool:
    return shape in str(running.adapter.catalogue.by_name[tool].definition["description"])
