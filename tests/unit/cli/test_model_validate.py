"""`modelservice model validate`: real model files, loaded by their real runtime, held against what is written beside them."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import artifact_models
import venvs
from modelservice_cli.__main__ import build_parser, main
from modelservice_cli.model import METADATA

REPOSITORY = Path(__file__).resolve().parents[3]
SUPPORT = REPOSITORY / "tests" / "support"
LINEAR: dict[str, Any] = {
    "version": "3",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of ONNX files."""
    folder = tmp_path_factory.mktemp("onnx")
    subprocess.run([venvs.python_of("onnx"), SUPPORT / "artifact_onnx.py", folder], check=True, timeout=120)
    return folder


@pytest.fixture
def version(made: Path, tmp_path: Path) -> Path:
    """The folder of version 3 of a model that is as its metadata says."""
    folder = tmp_path / "models" / "3"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes((made / "linear.onnx").read_bytes())
    write(folder, LINEAR)
    return folder


def write(folder: Path, metadata: Any) -> None:
    text = metadata if isinstance(metadata, str) else json.dumps(metadata)
    (folder / METADATA).write_text(text)


def validate(*arguments: str | Path) -> int:
    return main(["model", "validate", "--python", str(venvs.python_of("onnx")), *map(str, arguments)])


@pytest.mark.promise("versions")
@pytest.mark.parametrize("named", ["model.onnx", METADATA, "model.safetensors", ".", "..", "../.."])
def test_a_file_that_is_as_its_metadata_says_passes_however_it_is_named(
    version: Path, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (version / "model.safetensors").touch()
    assert validate(version / named) == 0
    told = capsys.readouterr().out.strip()
    assert told.endswith("model.onnx: loads and matches its metadata: takes x FP32[?, 2]; gives y FP32[?, 2].")


@pytest.mark.promise("versions")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"inputs": [{"name": "x", "datatype": "FP64", "shape": [-1, 2]}]},
            ["The input x is declared as FP64[?, 2], but the model takes FP32[?, 2]."],
        ),
        (
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}], "outputs": []},
            ["The input x is declared as FP32[?, 3], but the model takes FP32[?, 2]."],
        ),
        (
            {"inputs": [{"name": "z", "datatype": "FP32", "shape": []}]},
            [
                "The input z is declared, but the model has no such input; it has x.",
                "The model needs the input x (FP32[?, 2]), which is not declared.",
            ],
        ),
        ({"version": "4"}, ["metadata.json says version 4, but its folder is models/3."]),
        ({"version": None}, ["metadata.json says no version, but its folder is models/3."]),
        (
            {"inputs": [], "outputs": []},
            ["metadata.json declares no inputs and no outputs, so there is nothing to compare."],
        ),
        (
            {"inputs": [{"name": "x", "datatype": "float", "shape": [-2]}]},
            ["metadata.json: inputs[0].datatype: ", "metadata.json: inputs[0].shape[0]: "],
        ),
        ({"author": "me"}, ["metadata.json: author: "]),
    ],
)
def test_every_difference_is_one_line_that_names_the_file(
    version: Path, change: dict[str, Any], told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write(version, {**LINEAR, **change})
    assert validate(version) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(told)
    for line, sentence in zip(lines, told, strict=True):
        assert line.startswith(f"{version / 'model.onnx'}: {sentence}")


@pytest.mark.promise("versions")
def test_a_file_that_does_not_load_and_one_without_metadata_are_differences(
    version: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (version / "model.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert validate(version) == 1
    assert "The file does not load: " in capsys.readouterr().out
    (version / METADATA).unlink()
    assert validate(version) == 1
    assert "There is no metadata.json beside it; write one" in capsys.readouterr().out
    write(version, "{")
    assert validate(version) == 1
    assert "metadata.json: Invalid JSON" in capsys.readouterr().out


def torch_program(folder: Path) -> None:
    shutil.copy(artifact_models.torch_models() / "net.pt2", folder / "model.pt2")


def tvm_module(folder: Path) -> None:
    shutil.copy(artifact_models.onnx_models() / "linear.onnx", folder / "source.onnx")
    python = artifact_models.python_of("Torch")
    done = artifact_models.tvm("build", str(folder / "source.onnx"), "-o", str(folder / "model.so"), "--python", python)
    assert done.returncode == 0, done.stderr


@pytest.mark.promise("versions")
@pytest.mark.parametrize(("kind", "put"), [("Torch", torch_program), ("TVM", tvm_module)])
def test_every_kind_of_file_is_loaded_by_its_own_runtime(
    kind: artifact_models.Kind, put: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "models" / "1"
    folder.mkdir(parents=True)
    put(folder)
    write(folder, {"version": "1", "inputs": [{"name": "nothing", "datatype": "BOOL", "shape": []}]})
    arguments = ["model", "validate", "--python", artifact_models.python_of(kind), str(folder)]
    assert main([*arguments, "--format", "json"]) == 1
    (said,) = json.loads(capsys.readouterr().out)["models"]
    assert said["loads"]
    assert said["inputs"]
    assert said["outputs"]
    write(folder, {"version": "1", "inputs": said["inputs"], "outputs": said["outputs"]})
    assert main(arguments) == 0


@pytest.mark.promise("versions")
def test_a_whole_repository_is_checked_and_told_to_programs(
    made: Path, version: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = version.parent / "4"
    other.mkdir()
    (other / "model.onnx").write_bytes((made / "linear-wider.onnx").read_bytes())
    (other / "model.so").write_bytes(b"")
    write(other, {**LINEAR, "version": "4"})
    assert validate("--format", "json", version.parent) == 2  # nothing here runs model.so
    models = json.loads(capsys.readouterr().out)["models"]
    assert [Path(one["path"]).relative_to(version.parent).as_posix() for one in models] == [
        "3/model.onnx", "4/model.onnx", "4/model.so",
    ]  # fmt: skip
    assert [(one["version"], one["loads"], bool(one["problem"])) for one in models] == [
        ("3", True, False), ("4", True, False), ("", False, True),
    ]  # fmt: skip
    assert models[0]["inputs"] == LINEAR["inputs"]
    assert models[0]["differences"] == []
    assert models[1]["differences"][0] == "metadata.json is about one model, but model.onnx and model.so are beside it."
    assert "declared as FP32[?, 2], but the model takes FP32[?, 3]" in models[1]["differences"][1]
    assert "has no tvm; install modelservice[tvm]" in models[2]["problem"]


@pytest.mark.promise("versions")
@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("nowhere", "There is no "),
        ("empty", "holds no model; a version is a folder with model.onnx"),
        ("notes.txt", "is no model file; there are .onnx"),
    ],
)
def test_what_is_no_model_cannot_be_checked(
    tmp_path: Path, named: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    assert validate(tmp_path / named) == 2
    said = capsys.readouterr()
    assert (told in said.err, said.out) == (True, "")


def test_an_interpreter_that_is_none_or_lacks_the_runtime_is_said(
    version: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "validate", "--python", "/nowhere/python", str(version)]) == 2
    assert "/nowhere/python has no onnxruntime; install modelservice[onnx]" in capsys.readouterr().out


@pytest.mark.promise("versions")
def test_the_hook_runs_this_command_on_these_files() -> None:
    (hook,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    program, *arguments = shlex.split(hook["entry"])
    options = build_parser().parse_args([*arguments, "models/3/model.onnx", "models/3/metadata.json"])
    assert (program, options.module, len(options.paths)) == ("modelservice", "model", 2)
    for path, wanted in {
        "models/3/model.onnx": True,
        "fraud/models/2026-01/metadata.json": True,
        "models/3/model.so": True,
        "models/3/model.safetensors": True,
        "models/3/README.md": False,
        "src/models/user.py": False,
        "mymodels/3/model.onnx": False,
    }.items():
        assert bool(re.search(hook["files"], path)) is wanted, path
