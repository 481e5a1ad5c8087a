"""Compiled TVM modules in a worker, run by TVM's runtime without its compiler.

Owns TVM's virtual machine, its parameters and its weights. Whether the code fits the machine is asked before it is loaded: what
does not fit would end the process without a word.
"""

import ctypes
import mmap
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from modelservice_sidecar.core import elf, native
from modelservice_sidecar.worker import host
from modelservice_sidecar.worker.runtimes import arrays, weights
from modelservice_sidecar.worker.runtimes.arrays import RefusedError, UnusableError, Value
from modelservice_sidecar.worker.wire import Facts, Load, Told

_DATATYPES: Final = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
}
_NAMES: Final = {datatype: name for name, datatype in _DATATYPES.items()}
_CONTEXT: Final = re.compile(r"ErrorContext\(fn=(?P<function>\S+), loc=(?P<place>\S+), (?P<rest>.*?)\) \"")
_TENSOR: Final = re.compile(r"R\.Tensor\(\((?P<shape>[^()]*(?:\([^()]*\)[^()]*)*)\), dtype=\"(?P<dtype>\w+)\"\)")


def load(load: Load) -> "TvmModel":
    """The model, ready to run."""
    path = Path(load.artifact)
    library = _inspect(path)
    told = native.sentence("It", native.compare(library, native.made_of(load.expected), host.describe()))
    if told:
        raise UnusableError(told)
    if load.memory_fraction is not None:
        raise UnusableError("TVM takes no share of a device's memory; leave memoryFraction out.")
    try:
        import tvm
        import tvm_ffi.libinfo
        from tvm.runtime.vm import VirtualMachine
    except (ImportError, OSError) as error:
        raise UnusableError(
            f"TVM cannot be imported: {error}; install modelservice[tvm] for this interpreter."
        ) from error
    runtime = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
    missing = [name for name in library.undefined if name.startswith("TVM") and not hasattr(runtime, name)]
    if missing:
        raise UnusableError(
            f"It needs {missing[0]}, which TVM {tvm.__version__} has not; build it again with this version."
        )
    device = tvm.cuda(0) if load.has_device else tvm.cpu()
    if not device.exist:
        raise UnusableError(f"The device {device} is assigned, and TVM does not see it.")
    try:
        module = tvm.runtime.load_module(load.artifact)
        machine = VirtualMachine(module, device)
    except Exception as error:
        raise UnusableError(f"TVM cannot load it: {_last_line(error)}.") from error
    return TvmModel(tvm, module, machine, device, load)


class TvmModel:
    """One virtual machine, which is not thread safe."""

    def __init__(self, tvm: Any, module: Any, machine: Any, device: Any, load: Load) -> None:
        self._tvm = tvm
        self._machine = machine
        self._device = device
        expected = load.expected or {}
        self._weights_path = Path(load.weights) if load.weights else None
        self._wanted: list[dict[str, Any]] = (expected.get("weights") or {}).get("tensors", [])
        self._transform: str = (expected.get("weights") or {}).get("transform", "")
        try:
            arity = machine.module["get_function_arity"](load.function)
        except Exception as error:
            raise UnusableError(f"It has no function {load.function}; set `function` to one that it has.") from error
        self._parameters = [
            str(machine.module["get_function_param_name"](load.function, number)) for number in range(arity)
        ]
        self._run = machine[load.function]
        stats = _stats(module, load.function)
        if load.expected is None:
            self._inputs = {name: name for name in self._parameters}
            self._outputs: list[str] = []
            self.facts = _facts(self._parameters, stats)
        else:
            self._inputs = {part.get("parameter") or part["name"]: part["name"] for part in expected["inputs"]}
            self._outputs = [part["name"] for part in expected["outputs"]]
            _agree(expected["inputs"], stats)
            self.facts = Facts()
        self._weights: list[Any] = []
        self.load_weights()
        rest = len(self._parameters) - len(self._weights)
        if self._parameters[:rest] != list(self._inputs):
            raise UnusableError(
                f"It takes {', '.join(self._parameters) or 'nothing'}, its signature file says {', '.join(self._inputs)}; "
                "they are not of one build."
            )

    def run(self, inputs: Mapping[str, Value]) -> Mapping[str, Value]:
        """The outputs for these inputs."""
        given = [self._tensor(inputs[name]) for name in self._inputs.values()]
        try:
            answered = self._run(*given, *self._weights)
        except (ValueError, TypeError) as error:
            raise RefusedError(_last_line(error)) from error
        found = list(answered) if not hasattr(answered, "numpy") else [answered]
        names = self._outputs or _output_names(len(found))
        return {name: _value(tensor) for name, tensor in zip(names, found, strict=True)}

    def load_weights(self) -> None:
        """Read the file of weights, if there is one; the old ones stay where that fails."""
        if self._weights_path is None:
            return
        found = [
            self._tensor(Value(part["datatype"], array))
            for part, array in zip(self._wanted, weights.read(self._weights_path, self._wanted), strict=True)
        ]
        self._weights = list(self._machine[self._transform](found)) if self._transform else found

    def _tensor(self, value: Value) -> Any:
        array = value.array
        if value.datatype == "BF16":
            import ml_dtypes

            return self._tvm.runtime.tensor(array.view(ml_dtypes.bfloat16), device=self._device)
        if self._device.dlpack_device_type() != self._tvm.cpu().dlpack_device_type():
            return self._tvm.runtime.tensor(array, device=self._device)
        # Uncopied: what comes over the socket and from the file lies as TVM wants it.
        return self._tvm.runtime.from_dlpack(array)


def _inspect(path: Path) -> elf.SharedLibrary:
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped,
            memoryview(mapped) as data,
        ):
            return elf.read(data)
    except (elf.NotElfError, ValueError) as error:
        said = error if isinstance(error, elf.NotElfError) else "is empty"
        raise UnusableError(f"It {said}; build it with `modelservice tvm build`.") from error
    except OSError as error:
        raise UnusableError(f"It cannot be read: {error.strerror}.") from error


def _stats(module: Any, function: str) -> dict[str, list[Told]]:
    """Tensors by place (`param[0]`, `return`) as far as the module's debug text tells them."""
    try:
        text = str(module["stats"]())
    except Exception:  # noqa: BLE001 - debug text; without it there is one check less
        return {}
    found: dict[str, list[Told]] = {}
    for context in _CONTEXT.finditer(text):
        if context["function"] == function:
            found[context["place"]] = [
                Told(
                    name=_parameter(context["rest"]),
                    datatype=_DATATYPES.get(tensor["dtype"], tensor["dtype"]),
                    shape=_shape(tensor["shape"]),
                )
                for tensor in _TENSOR.finditer(context["rest"])
            ]
    return found


def _parameter(rest: str) -> str:
    return rest.removeprefix("param=").partition(",")[0] if rest.startswith("param=") else ""


def _shape(text: str) -> list[int]:
    sizes: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        number = re.fullmatch(r"(?:T\.int64\()?(\d+)\)?", part)
        sizes.append(int(number[1]) if number else -1)
    return sizes


def _facts(parameters: Sequence[str], stats: Mapping[str, list[Told]]) -> Facts:
    """What the module tells of itself, which is all or nothing."""
    inputs = [stats.get(f"param[{number}]", []) for number in range(len(parameters))]
    outputs = stats.get("return", [])
    if not outputs or any(len(told) != 1 for told in inputs):
        return Facts()
    names = _output_names(len(outputs))
    return Facts(
        inputs=[told[0] for told in inputs],
        outputs=[
            Told(name=name, datatype=told.datatype, shape=told.shape) for name, told in zip(names, outputs, strict=True)
        ],
        notes=["There is no signature file; upper bounds of free dimensions are not known."],
    )


def _agree(inputs: Sequence[Mapping[str, Any]], stats: Mapping[str, list[Told]]) -> None:
    by_name = {told[0].name: told[0] for told in stats.values() if len(told) == 1}
    for part in inputs:
        told = by_name.get(part.get("parameter") or part["name"])
        if told is not None and (told.datatype != part["datatype"] or told.shape != list(part["shape"])):
            raise UnusableError(
                f"Its signature file says that {part['name']} is {part['datatype']}{list(part['shape'])}, the code itself says "
                f"{told.datatype}{told.shape}; they are not of one build."
            )


def _output_names(count: int) -> list[str]:
    return ["output"] if count == 1 else [f"output_{number}" for number in range(count)]


def _value(tensor: Any) -> Value:
    datatype = _DATATYPES.get(str(tensor.dtype))
    if datatype is None:
        raise TypeError(f"the model answers with {tensor.dtype}, which is no datatype of the Open Inference Protocol")
    if datatype == "BF16":
        return Value(datatype, tensor.numpy().view(np.uint16))
    return arrays.of(tensor.numpy())


def _last_line(error: Exception) -> str:
    return str(error).strip().rsplit("\n", 1)[-1].rstrip(".")
