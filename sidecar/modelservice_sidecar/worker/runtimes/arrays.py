"""Tensors inside a worker: numpy arrays with a datatype beside them, and what every runtime's model can do.

Owns the step from bytes to arrays and back. BF16 travels as its 16 bits, for numpy has no such type; BYTES is an object array
of `bytes`.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from modelservice_sidecar.worker.wire import Buffer, Facts, Load

Array = np.ndarray[Any, np.dtype[Any]]

NUMPY_TYPES: Final[dict[str, str]] = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "BF16": "<u2",
    "FP32": "<f4",
    "FP64": "<f8",
}
_NAMES: Final = {np.dtype(code): name for name, code in NUMPY_TYPES.items() if name != "BF16"}
_LENGTH: Final = struct.Struct("<I")


class UnusableError(Exception):
    """The model cannot be run here; the text is a sentence that says what to do."""


class RefusedError(Exception):
    """The model does not want this input."""


class Value(NamedTuple):
    """One tensor."""

    datatype: str
    array: Array


class Model(Protocol):
    """A loaded model. One call at a time."""

    facts: Facts

    def run(self, inputs: Mapping[str, Value]) -> Mapping[str, Value]:
        """The outputs for these inputs."""
        ...

    def load_weights(self) -> None:
        """Read the file of weights again. The old ones stay where that fails."""
        ...


class Runtime(Protocol):
    """What a module of this package offers."""

    def load(self, load: Load) -> Model:
        """The model, ready to run."""
        ...


def from_bytes(datatype: str, shape: list[int], data: memoryview) -> Value:
    """A tensor over the bytes it came in; BYTES are copied."""
    if datatype != "BYTES":
        return Value(datatype, np.frombuffer(data, NUMPY_TYPES[datatype]).reshape(shape))
    items = np.empty(int(np.prod(shape, dtype=np.int64)), dtype=object)
    at = 0
    for number in range(items.size):
        (length,) = _LENGTH.unpack_from(data, at)
        items[number] = bytes(data[at + 4 : at + 4 + length])
        at += 4 + length
    return Value(datatype, items.reshape(shape))


def to_bytes(value: Value) -> Buffer:
    """The tensor's bytes, uncopied where they lie in C order."""
    if value.datatype == "BYTES":
        return b"".join(_LENGTH.pack(len(item)) + item for item in value.array.ravel().tolist())
    contiguous = np.ascontiguousarray(value.array, dtype=NUMPY_TYPES[value.datatype])
    return contiguous.reshape(-1).view(np.uint8).data


def of(array: Array) -> Value:
    """A tensor of the array's own datatype; texts become BYTES.

    Raises:
        TypeError: numpy's type has no name among the datatypes.
    """
    if array.dtype == object or array.dtype.kind in "SU":
        texts = np.empty(array.shape, dtype=object)
        flat = texts.reshape(-1)
        for number, item in enumerate(array.ravel().tolist()):
            flat[number] = item if isinstance(item, bytes) else str(item).encode()
        return Value("BYTES", texts)
    name = _NAMES.get(array.dtype)
    if name is None:
        raise TypeError(f"the model answers with {array.dtype}, which is no datatype of the Open Inference Protocol")
    return Value(name, array)
