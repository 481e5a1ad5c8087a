"""Reads a file of weights in the safetensors format, each tensor into memory that runtimes can use as it is.

Owns the format's reading: eight bytes with the header's length, the header as JSON, then the tensors. Nothing in such a file
can run. The file is read, not mapped: a mapped file that is cut short by its writer would end the process.
"""

import json
import struct
from pathlib import Path
from typing import Any, Final

import numpy as np

from modelservice_sidecar.worker.runtimes.arrays import NUMPY_TYPES, Array, UnusableError
from modelservice_sidecar.worker.wire import ALIGNMENT

DATATYPES: Final = {
    "BOOL": "BOOL",
    "U8": "UINT8",
    "U16": "UINT16",
    "U32": "UINT32",
    "U64": "UINT64",
    "I8": "INT8",
    "I16": "INT16",
    "I32": "INT32",
    "I64": "INT64",
    "F16": "FP16",
    "BF16": "BF16",
    "F32": "FP32",
    "F64": "FP64",
}
"""The format's names of types, and the Open Inference Protocol's."""

_MAX_HEADER: Final = 100 * 1024 * 1024
_LENGTH: Final = struct.Struct("<Q")


def read(path: Path, wanted: list[dict[str, Any]]) -> list[Array]:
    """The wanted tensors (`name`, `datatype`, `shape`) in order; others in the file are passed over.

    Raises:
        UnusableError: the file cannot be read, or a tensor is missing or another one than is wanted.
    """
    try:
        with path.open("rb", buffering=0) as file:
            size = path.stat().st_size
            prefix = file.read(_LENGTH.size)
            length = _LENGTH.unpack(prefix)[0] if len(prefix) == _LENGTH.size else size
            if length > min(_MAX_HEADER, size - _LENGTH.size):
                raise UnusableError(f"{path} is no safetensors file; write it whole, then rename it into place.")
            header: Any = json.loads(file.read(length))
            return [_read(path, file, header, _LENGTH.size + length, size, part) for part in wanted]
    except OSError as error:
        raise UnusableError(f"The weights {path} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnusableError(f"{path} is no safetensors file: {error}.") from error


def _read(path: Path, file: Any, header: Any, start: int, size: int, part: dict[str, Any]) -> Array:
    name, datatype, shape = part["name"], part["datatype"], list(part["shape"])
    found = header.get(name)
    if found is None:
        raise UnusableError(f"{path} lacks the weight {name}.")
    there = f"{DATATYPES.get(found['dtype'], found['dtype'])}{found['shape']}"
    if there != f"{datatype}{shape}":
        raise UnusableError(f"The weight {name} of {path} is {there}; the code was built for {datatype}{shape}.")
    array = empty(datatype, shape)
    begin, end = found["data_offsets"]
    if end - begin != array.nbytes or not 0 <= begin <= end <= size - start:
        raise UnusableError(
            f"{path} is cut off or damaged at the weight {name}; write it whole, then rename it into place."
        )
    file.seek(start + begin)
    view = array.reshape(-1).view(np.uint8).data
    while view:
        count = file.readinto(view)
        if not count:
            raise UnusableError(f"{path} became shorter while it was read; write it whole, then rename it into place.")
        view = view[count:]
    return array


def empty(datatype: str, shape: list[int]) -> Array:
    """An array of that type with the alignment that runtimes want."""
    kind = np.dtype(NUMPY_TYPES[datatype])
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size].view(kind).reshape(shape)
