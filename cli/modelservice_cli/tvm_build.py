"""Compiles a model with TVM; run as a program by the interpreter that holds TVM and what reads the model.

Owns the compilation and the three files that it writes: the code, the weights and the signature file. Needs only Python, TVM,
and PyTorch or onnx; it may import nothing of this project, for that interpreter need not hold it.

Usage: ``python tvm_build.py REQUEST``: a JSON object, as `tvm.py` beside it writes. Says what went wrong in one line on
standard error; the exit code is 1 then.
"""

import json
import os
import platform
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

DATATYPES = {
    "bool": ("BOOL", "BOOL"),
    "uint8": ("UINT8", "U8"),
    "uint16": ("UINT16", "U16"),
    "uint32": ("UINT32", "U32"),
    "uint64": ("UINT64", "U64"),
    "int8": ("INT8", "I8"),
    "int16": ("INT16", "I16"),
    "int32": ("INT32", "I32"),
    "int64": ("INT64", "I64"),
    "float16": ("FP16", "F16"),
    "bfloat16": ("BF16", "BF16"),
    "float32": ("FP32", "F32"),
    "float64": ("FP64", "F64"),
}
"""TVM's names of types, the Open Inference Protocol's, and the safetensors format's."""

COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")
"""What TVM links with, where CXX is not set."""


class BuildError(Exception):
    """It cannot be built; the text is a sentence."""


class Imported:
    """A model as TVM has it, with the names that callers know."""

    def __init__(self, module: Any, inputs: list[str], outputs: list[str] | None, weights: dict[str, str]) -> None:
        self.module = module
        self.inputs = inputs
        self.outputs = outputs
        self.weights = weights


def main(arguments: list[str]) -> int:
    """Build what the request says; the exit code."""
    request = json.loads(arguments[0])
    try:
        build(request)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def build(request: dict[str, Any]) -> None:
    """Compile and write."""
    _need_compiler()
    try:
        import tvm
        import tvm_ffi
        from tvm import relax
    except ImportError as error:
        raise BuildError(
            f"TVM cannot be imported by {sys.executable} ({error}); install modelservice[tvm] there."
        ) from error
    source, output = Path(request["model"]), Path(request["output"])
    imported = _from_torch(source) if source.suffix == ".pt2" else _from_onnx(source)
    module, kept = relax.frontend.detach_params(imported.module)
    function = module["main"]
    count = len(imported.inputs)
    bounds = _bounds(function, request["bounds"])
    inputs = [
        {**_told(parameter.ty, name, bounds), "parameter": str(parameter.name)}
        for parameter, name in zip(function.params[:count], imported.inputs, strict=True)
    ]
    returned = list(function.ret_ty.fields) if hasattr(function.ret_ty, "fields") else [function.ret_ty]
    outputs = [
        _told(kind, name, bounds)
        for kind, name in zip(returned, imported.outputs or _output_names(len(returned)), strict=True)
    ]
    parameters = [str(parameter.name) for parameter in function.params[count:]]
    tensors = list(kept.get("main", []))
    if len(tensors) != len(parameters):
        raise BuildError(f"{source.name} has {len(parameters)} weights and values for {len(tensors)} of them.")
    document: dict[str, Any] = {"version": "v1", "inputs": inputs, "outputs": outputs}
    if request["description"]:
        document["description"] = request["description"]
    if tensors:
        # Transposed weights are read as they lie: transposing them first would make each call ten times slower, for TVM then
        # walks them across. What else only prepares weights is a function of its own, done once for each set.
        module = relax.transform.FuseTransposeMatmul()(module)
        module = relax.transform.LiftTransformParams()(module)
        document["weights"] = {
            "file": output.with_suffix(".safetensors").name,
            "transform": "main_transform_params",
            "tensors": [
                {
                    "name": imported.weights.get(parameter, parameter),
                    "parameter": parameter,
                    "datatype": DATATYPES[str(tensor.dtype)][0],
                    "shape": [int(size) for size in tensor.shape],
                }
                for parameter, tensor in zip(parameters, tensors, strict=True)
            ],
        }
    triple = request["triple"] or f"{platform.machine()}-linux-gnu"
    target = tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": request["mcpu"]})
    features = tvm.target.codegen.llvm_get_cpu_features(target)
    document["made"] = {
        "triple": triple,
        "mcpu": request["mcpu"],
        "features": sorted(str(name) for name in features),
        "tvm": tvm.__version__,
        "tvmFfi": tvm_ffi.__version__,
    }
    try:
        executable = tvm.compile(module, target=target)
        # Each file is put in its place whole: an adapter may be serving the ones before.
        _replace(output, lambda new: executable.export_library(str(new)))
    except Exception as error:
        raise BuildError(f"TVM cannot compile {source.name}: {_last_line(error)}") from error
    if tensors:
        names = [part["name"] for part in document["weights"]["tensors"]]
        _replace(output.with_suffix(".safetensors"), lambda new: _write_weights(new, names, tensors))
    _replace(
        output.with_suffix(".json"), lambda new: new.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    )


def _need_compiler() -> None:
    """TVM looks for one only after the compilation, and fails with a message about None."""
    if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), *COMPILERS) if name):
        raise BuildError(
            "There is no C++ compiler, which TVM links with; install one (apt-get install g++) or set CXX to it."
        )


def _from_torch(source: Path) -> Imported:
    try:
        import torch
        from tvm.relax.frontend.torch import from_exported_program
    except ImportError as error:
        raise BuildError(f"A .pt2 file needs PyTorch, which {sys.executable} has not ({error}).") from error
    try:
        program = torch.export.load(source)
    except Exception as error:
        raise BuildError(f"PyTorch cannot load {source.name}: {_last_line(error)}") from error
    signature = program.graph_signature
    inputs = list(signature.user_inputs)
    if any(not isinstance(name, str) for name in inputs):
        raise BuildError(
            f"{source.name} takes numbers beside tensors, which torch.export has fixed; export it without them."
        )
    try:
        module = from_exported_program(program, keep_params_as_input=True)
    except Exception as error:
        raise BuildError(f"TVM does not know all that {source.name} does: {_last_line(error)}") from error
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    return Imported(module, inputs, None, weights)


def _from_onnx(source: Path) -> Imported:
    try:
        import onnx
        from tvm.relax.frontend.onnx import from_onnx
    except ImportError as error:
        raise BuildError(f"An ONNX file needs the package onnx, which {sys.executable} has not ({error}).") from error
    try:
        model = onnx.load(source)
        onnx.checker.check_model(model)
    except Exception as error:
        raise BuildError(f"{source.name} is no valid ONNX file: {_last_line(error)}") from error
    try:
        module = from_onnx(model, keep_params_in_input=True)
    except Exception as error:
        raise BuildError(f"TVM does not know all that {source.name} does: {_last_line(error)}") from error
    constants = {item.name for item in model.graph.initializer}
    inputs = [item.name for item in model.graph.input if item.name not in constants]
    return Imported(module, inputs, [item.name for item in model.graph.output], {})


def _bounds(function: Any, asked: dict[str, list[int | None]]) -> dict[str, list[int | None]]:
    """The smallest and largest size of free dimensions by TVM's names: the model's own, and over them what was asked for."""
    attributes = dict(function.attrs) if function.attrs is not None else {}
    found: dict[str, list[int | None]] = {}
    for name, value in dict(attributes.get("tir_var_lower_bound", {})).items():
        found[str(name)] = [max(1, int(value)), None]  # a model of no rows is no use, and runtimes crash on it
    for name, value in dict(attributes.get("tir_var_upper_bound", {})).items():
        found.setdefault(str(name), [1, None])[1] = int(value)
    return {**found, **asked}


def _told(kind: Any, name: str, bounds: dict[str, list[int | None]]) -> dict[str, Any]:
    datatype = DATATYPES.get(str(getattr(kind, "dtype", "")))
    if datatype is None or getattr(kind, "shape", None) is None:
        raise BuildError(f"{name} is {kind}; only tensors of known rank and common datatypes can be given to callers.")
    shape: list[int] = []
    limits: dict[str, list[int | None]] = {}
    for axis, size in enumerate(kind.shape):
        if hasattr(size, "value"):
            shape.append(int(size.value))
            continue
        shape.append(-1)
        if str(size) in bounds:
            limits[str(axis)] = bounds[str(size)]
    return {"name": name, "datatype": datatype[0], "shape": shape, **({"bounds": limits} if limits else {})}


def _output_names(count: int) -> list[str]:
    return ["output"] if count == 1 else [f"output_{number}" for number in range(count)]


def _write_weights(path: Path, names: list[str], tensors: list[Any]) -> None:
    """The safetensors format: the header's length, the header, the tensors."""
    header: dict[str, Any] = {}
    at = 0
    for name, tensor in zip(names, tensors, strict=True):
        size = tensor.numpy().nbytes
        header[name] = {
            "dtype": DATATYPES[str(tensor.dtype)][1],
            "shape": [int(number) for number in tensor.shape],
            "data_offsets": [at, at + size],
        }
        at += size
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for tensor in tensors:
            file.write(tensor.numpy().tobytes())


def _replace(path: Path, write: Any) -> None:
    new = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        write(new)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _last_line(error: Exception) -> str:
    return (str(error).strip().rsplit("\n", 1)[-1] or type(error).__name__).rstrip(".") + "."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
