"""`modelservice tvm`: compiles models with TVM, and says whether a machine can run a compiled one.

Owns the words that people read. The compilation is `tvm_build`, a program for the interpreter that holds TVM; the comparison is
the one that the workers make.
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from modelservice_sidecar.core import elf, native, signature_file
from modelservice_sidecar.core.native import Host, Row
from modelservice_sidecar.core.signature_file import SignatureFile

BASELINES = {"x86_64": "x86-64-v3", "amd64": "x86-64-v3"}
"""What nearly every machine in a data centre can do; LLVM's `generic` elsewhere."""

_DESCRIBE = """
import dataclasses, json, sys, types
package = types.ModuleType("modelservice_sidecar")
package.__path__ = [sys.argv[1]]
sys.modules["modelservice_sidecar"] = package
from modelservice_sidecar.worker import host
print(json.dumps(dataclasses.asdict(host.describe()), default=sorted))
"""


def run(options: argparse.Namespace) -> int:
    """Build or check; the exit code."""
    return build(options) if options.action == "build" else check(options)


def build(options: argparse.Namespace) -> int:
    """Compile a model: 0 when the files are written, 1 where it cannot be compiled, 2 for wrong arguments."""
    model, output = Path(options.model), Path(options.output)
    try:
        bounds = dict(_bound(text) for text in options.bound)
    except ValueError as error:
        return _fail(str(error), 2)
    if model.suffix not in {".pt2", ".onnx"}:
        return _fail(f"{model} is neither a .pt2 nor a .onnx file; export the model to one of them first.", 2)
    if not model.is_file():
        return _fail(f"There is no file {model}.", 2)
    if output.suffix != ".so" or not output.parent.is_dir():
        return _fail(f"{output} is no name for a .so file in a folder that exists.", 2)
    machine = options.target.partition("-")[0] or platform.machine().lower()
    request = {
        "model": str(model),
        "output": str(output),
        "triple": options.target,
        "mcpu": options.mcpu or BASELINES.get(machine, "generic"),
        "bounds": bounds,
        "description": options.description,
    }
    program = Path(__file__).with_name("tvm_build.py")
    python = options.python or sys.executable
    try:
        code = subprocess.run([python, "-I", program, json.dumps(request)], check=False).returncode  # noqa: S603
    except OSError as error:
        return _fail(f"{python} cannot be started: {error.strerror}.", 2)
    if code != 0:
        return 1
    signature = signature_file.read(output.with_suffix(".json").read_bytes())
    for line in _summary(output, signature):
        print(line)
    return 0


def check(options: argparse.Namespace) -> int:
    """Compare: 0 where it fits, 1 where it does not, 2 where there is nothing to compare."""
    artifact = Path(options.artifact)
    try:
        library = elf.read(artifact.read_bytes())
        document = _recorded(artifact)
        host = _host(options.python)
    except OSError as error:
        return _fail(f"{error.filename} cannot be read: {error.strerror}.", 2)
    except elf.NotElfError as error:
        return _fail(f"{artifact} {error}.", 2)
    except (signature_file.BadSignatureError, ValueError) as error:
        return _fail(str(error), 2)
    rows = native.compare(library, native.made_of(document), host)
    print(_table(rows))
    if document is None:
        print(f"There is no {artifact.with_suffix('.json').name}: CPU features and TVM's version are not known.")
    told = native.sentence(artifact.name, rows)
    if told:
        return _fail(told, 1)
    print(f"{artifact.name} can run on this machine.")
    return 0


def _bound(text: str) -> tuple[str, list[int]]:
    name, _, sizes = text.partition("=")
    least, _, most = sizes.partition(":")
    if not name or not least.isdigit() or not most.isdigit() or not int(least) <= int(most):
        raise ValueError(f"{text!r} is no bound; write it as NAME=LEAST:MOST, such as batch=1:64.")
    return name, [int(least), int(most)]


def _recorded(artifact: Path) -> dict[str, Any] | None:
    beside = artifact.with_suffix(".json")
    if not beside.exists():
        return None
    try:
        return signature_file.read(beside.read_bytes()).document()
    except signature_file.BadSignatureError as error:
        raise signature_file.BadSignatureError(f"The signature file {beside} is not valid: {error}.") from error


def _host(python: str) -> Host:
    package = Path(native.__file__).parents[1]
    command = [python or sys.executable, "-I", "-c", _DESCRIBE, str(package)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if told.returncode != 0:
        raise ValueError(f"{command[0]} cannot say what it has: {told.stderr.strip().rsplit(chr(10), 1)[-1]}")
    facts = json.loads(told.stdout)
    return Host(**{**facts, "flags": frozenset(facts["flags"])})


def _table(rows: Sequence[Row]) -> str:
    cells = [("", "needed", "found"), *((row.what, row.needed, row.found) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    marks = ["    ", *("ok  " if row.fits else "NO  " for row in rows)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(mark + line for mark, line in zip(marks, lines, strict=True))


def _summary(output: Path, signature: SignatureFile) -> list[str]:
    files = [output.name, output.with_suffix(".json").name]
    if signature.weights is not None:
        files.append(signature.weights.file)
    found = signature.signature()
    takes = ", ".join(f"{spec.name} {spec}" for spec in found.inputs)
    gives = ", ".join(f"{spec.name} {spec}" for spec in found.outputs)
    made = signature.made
    return [
        f"Wrote {', '.join(files)} to {output.parent}, for {made.triple} {made.mcpu}.",
        f"Takes {takes}; gives {gives}.",
    ]


def _fail(message: str, code: int) -> int:
    print(f"modelservice tvm: {message}", file=sys.stderr)
    return code
