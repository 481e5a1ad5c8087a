"""`modelservice model validate`: do model files load, and are they what the metadata beside them says?

Owns the repository layout, `models/VERSION/{model.onnx|model.pt2|model.pt|model.so, metadata.json}`, and how differences are
printed. Loading is what the adapter does: in a worker process, by the runtime of the file's kind. The comparison is the
adapter's own too, so a file that passes here gets traffic there.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from pydantic import ValidationError

from modelservice_api.adapter_config import AdapterConfig, ArtifactConfig, BackendConfig, ModelConfig, TensorConfig
from modelservice_api.v1alpha1 import Model
from modelservice_cli.place import UsageError
from modelservice_sidecar.backends.base import Backend
from modelservice_sidecar.core.errors import DescribeError
from modelservice_sidecar.core.model_spec import differences
from modelservice_sidecar.core.tensors import Signature, TensorSpec

EXIT_MATCHES: Final = 0
EXIT_DIFFERS: Final = 1
EXIT_NOT_CHECKED: Final = 2

METADATA: Final = "metadata.json"
MAX_METADATA: Final = 1024 * 1024
_MAX_DEPTH: Final = 6
_MAX_ERRORS: Final = 8


class Kind(NamedTuple):
    """What runs a file: the backend's type and module, and what its worker's Python must hold."""

    type: Literal["ONNX", "Torch", "TVM"]
    module: Literal["onnx", "torch", "tvm"]
    runtime: str


KINDS: Final[dict[str, Kind]] = {
    ".onnx": Kind("ONNX", "onnx", "onnxruntime"),
    ".pt2": Kind("Torch", "torch", "torch"),
    ".pt": Kind("Torch", "torch", "torch"),
    ".so": Kind("TVM", "tvm", "tvm"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """One model file. `differences` are sentences; `problem` is one where there is no verdict."""

    path: Path
    version: str = ""
    signature: Signature | None = None
    differences: tuple[str, ...] = ()
    problem: str = ""


def run(options: argparse.Namespace) -> int:
    """Check every model that the paths lead to, print what is found; the exit code."""
    try:
        files = find(options.paths)
    except UsageError as error:
        print(f"modelservice model validate: {error}", file=sys.stderr)
        return EXIT_NOT_CHECKED
    checked = [asyncio.run(check(path, options.python)) for path in files]
    print(as_json(checked) if options.format == "json" else as_text(checked))
    if any(one.problem for one in checked):
        return EXIT_NOT_CHECKED
    return EXIT_DIFFERS if any(one.differences for one in checked) else EXIT_MATCHES


def find(paths: Iterable[str]) -> list[Path]:
    """The model files at or below the paths; a `metadata.json`, or a file of weights, stands for the model beside it.

    Raises:
        UsageError: a path is not there, or leads to no model file.
    """
    found: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        if not path.exists():
            raise UsageError(f"There is no {given}")
        if path.is_dir():
            models = list(_below(path, 0))
        elif path.suffix in KINDS:
            models = [path]
        elif path.name == METADATA or path.stem == "model":
            models = list(_in(path.parent))
        else:
            raise UsageError(f"{given} is no model file; there are {', '.join(KINDS)}")
        if not models:
            raise UsageError(f"{given} holds no model; a version is a folder with model.onnx, .pt2, .pt or .so in it")
        found.update(dict.fromkeys(models))
    return list(found)


def _in(folder: Path) -> Iterable[Path]:
    return (folder / f"model{suffix}" for suffix in KINDS if (folder / f"model{suffix}").is_file())


def _below(folder: Path, depth: int) -> Iterable[Path]:
    yield from _in(folder)
    if depth < _MAX_DEPTH:
        for inner in sorted(folder.iterdir()):
            if inner.is_dir() and not inner.is_symlink():
                yield from _below(inner, depth + 1)


async def check(path: Path, python: str = "") -> Checked:
    """Load one file and hold it against its metadata. `python` is the interpreter that holds its runtime."""
    kind = KINDS[path.suffix]
    if not _has(python, kind.runtime):
        where = f"{python} has" if python else "this Python has"
        return Checked(
            path=path,
            problem=f"{where} no {kind.runtime}; install modelservice[{kind.module}], or name one that has it by --python",
        )
    declared, said = _metadata(path)
    version = "" if declared is None else declared.version or ""
    try:
        signature = await _signature(str(path), kind, python)
    except DescribeError as error:
        return Checked(path=path, version=version, differences=(*said, f"The file does not load: {error}"))
    if declared is not None:
        said += differences(_as_config(declared), signature)
    return Checked(path=path, version=version, signature=signature, differences=said)


def as_text(checked: Sequence[Checked]) -> str:
    """One line per difference; one for a model without any."""
    lines: list[str] = []
    for one in checked:
        said = [one.problem] if one.problem else list(one.differences)
        if not said and one.signature is not None:
            takes = ", ".join(f"{spec.name} {spec}" for spec in one.signature.inputs)
            gives = ", ".join(f"{spec.name} {spec}" for spec in one.signature.outputs)
            said = [f"loads and matches its metadata: takes {takes}; gives {gives}."]
        lines += [f"{one.path}: {sentence}" for sentence in said]
    return "\n".join(lines)


def as_json(checked: Sequence[Checked]) -> str:
    """The same for programs."""
    models = [
        {
            "path": str(one.path),
            "version": one.version,
            "loads": one.signature is not None,
            "inputs": _told(one.signature.inputs) if one.signature is not None else [],
            "outputs": _told(one.signature.outputs) if one.signature is not None else [],
            "differences": list(one.differences),
            "problem": one.problem,
        }
        for one in checked
    ]
    return json.dumps({"models": models}, indent=2, ensure_ascii=False)


def _metadata(path: Path) -> tuple[Model | None, tuple[str, ...]]:
    """What is declared beside a model file, and what is wrong with that in itself."""
    file = path.with_name(METADATA)
    try:
        if file.stat().st_size > MAX_METADATA:
            return None, (f"{METADATA} is larger than {MAX_METADATA // 1024} KiB.",)
        declared = Model.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None, (
            f"There is no {METADATA} beside it; write one with version, inputs and outputs as in spec.model.",
        )
    except OSError as error:
        return None, (f"{METADATA} cannot be read: {error.strerror}.",)
    except ValidationError as error:
        return None, tuple(f"{METADATA}: {_worded(one)}." for one in error.errors()[:_MAX_ERRORS])
    said: list[str] = []
    siblings = [sibling.name for sibling in _in(path.parent)]
    if path.name in siblings and len(siblings) > 1:
        said.append(f"{METADATA} is about one model, but {' and '.join(siblings)} are beside it.")
    if not declared.inputs and not declared.outputs:
        said.append(f"{METADATA} declares no inputs and no outputs, so there is nothing to compare.")
    folder = path.resolve().parent
    if folder.parent.name == "models" and declared.version != folder.name:
        of = "no version" if declared.version is None else f"version {declared.version}"
        said.append(f"{METADATA} says {of}, but its folder is models/{folder.name}.")
    return declared, tuple(said)


def _worded(error: Any) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).removeprefix(".")
    message = str(error["msg"]).splitlines()[0][:200]
    return f"{path}: {message}" if path else message


def _as_config(declared: Model) -> ModelConfig:
    def tensors(specs: Sequence[Any]) -> tuple[TensorConfig, ...]:
        return tuple(TensorConfig(name=spec.name, datatype=spec.datatype, shape=spec.shape) for spec in specs)

    return ModelConfig(inputs=tensors(declared.inputs), outputs=tensors(declared.outputs))


async def _signature(artifact: str, kind: Kind, python: str) -> Signature:
    """What the model itself says it takes and gives.

    Raises:
        DescribeError: it cannot be loaded.
    """
    files = (ArtifactConfig(artifact=artifact, python=python),)
    config = AdapterConfig(backend=BackendConfig.model_validate({"type": kind.type, kind.module: files}))
    backend: Backend = import_module(f"modelservice_sidecar.backends.{kind.module}").make(config)
    try:
        description = await backend.describe()
    finally:
        await backend.aclose()
    signature = description.tools[0].signature
    assert signature is not None
    return signature


def _has(python: str, runtime: str) -> bool:
    if not python:
        return find_spec(runtime) is not None
    program = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({runtime!r}) is None)"
    try:
        return subprocess.run([python, "-I", "-c", program], check=False, timeout=60).returncode == 0  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False


def _told(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    return [{"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)} for spec in specs]
