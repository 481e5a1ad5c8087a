"""Tensors between their forms: JSON lists, base64, MessagePack's `{dtype, shape, bin}`, raw bytes, numpy arrays.

Owns exactness and bounds: sizes are compared before anything is allocated, shape times item size must equal the bytes, and
nothing is rounded, truncated or reinterpreted in silence. Pure. It needs numpy, which costs 15 MB and a tenth of a second:
import this module where a tensor is first met, never at the top of one that every adapter loads.
"""

import binascii
import struct
from collections.abc import Mapping
from itertools import chain
from math import nan, prod
from typing import Any, Final

import numpy as np
import orjson

from modelservice_api.adapter_config import Datatype
from modelservice_sidecar.core.tensors import FLOATS, ITEM_SIZES, MAX_EXACT, MAX_RANK, Tensor, integer_range

Array = np.ndarray[Any, np.dtype[Any]]

_DTYPES: Final[dict[Datatype, str]] = {
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
    "BF16": "<u2",  # the upper half of an FP32: numpy has no such type, so its bits travel as integers
    "FP32": "<f4",
    "FP64": "<f8",
}
_LENGTH: Final = struct.Struct("<I")


class CodecError(Exception):
    """A value is no tensor of the wanted datatype. `path` is below the argument, such as `[3][0]`; the text says why."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


def from_bytes(datatype: str, shape: object, data: bytes | bytearray | memoryview, *, limit: int) -> Tensor:
    """A tensor from untrusted parts; `limit` is the most bytes that it may have.

    Raises:
        CodecError: an unknown datatype, an impossible shape, or bytes that are not what the shape says.
    """
    if datatype not in ITEM_SIZES:
        raise CodecError(f"{datatype[:32]!r} is no datatype; there are {', '.join(ITEM_SIZES)}")
    known = datatype
    sizes = _bounded_shape(shape, known, limit)
    elements = prod(sizes)
    if len(data) > limit:
        raise CodecError(f"is larger than {limit} bytes")
    if known == "BYTES":
        _check_bytes(data, elements)
    elif elements * ITEM_SIZES[known] != len(data):
        raise CodecError(f"has {len(data)} bytes; shape {list(sizes)} of {known} needs {elements * ITEM_SIZES[known]}")
    elif known == "BOOL" and len(data) and np.frombuffer(data, np.uint8).max() > 1:
        raise CodecError("holds a byte that is neither 0 nor 1; BOOL is one such byte per element")
    return Tensor(datatype=known, shape=sizes, data=data)


def from_base64(fields: Mapping[str, Any], *, limit: int) -> Tensor:
    """A tensor from `{dtype, shape, encoding: base64, data}`; the length is compared before anything is decoded.

    Raises:
        CodecError: as `from_bytes`, or the text is not base64.
    """
    text = fields["data"]
    if fields["dtype"] in ITEM_SIZES:
        _bounded_shape(fields["shape"], fields["dtype"], limit)
    if len(text) * 3 // 4 > limit + 3:
        raise CodecError(f"is larger than {limit} bytes", ".data")
    return from_bytes(fields["dtype"], fields["shape"], _base64(text), limit=limit)


def from_lists(value: object, datatype: Datatype, *, limit: int) -> Tensor:
    """A tensor from nested JSON lists whose leaves are already known to be of the datatype's JSON type.

    Works through large lists piece by piece: a thread that does this lets the others in between two pieces.

    Raises:
        CodecError: lists of unequal length, a number that the datatype cannot hold, or more than `limit` bytes.
    """
    if datatype != "BYTES":
        shape = _first_shape(value)
        if shape and 0 < prod(shape) * ITEM_SIZES[datatype] <= limit:
            found = np.empty(shape, _DTYPES[datatype])
            if _fill(found, value, datatype):
                return Tensor(datatype=datatype, shape=shape, data=found.reshape(-1).view(np.uint8).data)
    # Small, or something is wrong: leaf by leaf, which can say where.
    shape, leaves = _flatten(value)
    if len(leaves) * max(ITEM_SIZES[datatype], 1) > limit:
        raise CodecError(f"is larger than {limit} bytes")
    if datatype == "BYTES":
        return Tensor(datatype=datatype, shape=shape, data=_join_strings(leaves, limit))
    if datatype in FLOATS:
        return Tensor(datatype=datatype, shape=shape, data=_floats(leaves, datatype, shape))
    if datatype == "BOOL":
        return Tensor(datatype=datatype, shape=shape, data=np.array(leaves, "?").tobytes())
    return Tensor(datatype=datatype, shape=shape, data=_safe_integers(leaves, datatype, shape))


def from_flat(value: object, datatype: str, shape: object, *, limit: int, nulls: bool = False) -> Tensor:
    """A tensor from an Open Inference Protocol's JSON `data`: a flat list in C order, or nested as the shape says.

    Integers are taken as they are written. With `nulls`, null counts as NaN and floats may be no finite numbers.

    Raises:
        CodecError: an impossible shape, a list that does not hold what the shape says, or elements of another type.
    """
    if datatype not in ITEM_SIZES:
        raise CodecError(f"{datatype[:32]!r} is no datatype; there are {', '.join(ITEM_SIZES)}", ".datatype")
    known = datatype
    sizes = _bounded_shape(shape, known, limit)
    if not isinstance(value, list):
        raise CodecError("is not a list")
    nested, leaves = _flatten(value)
    told = sizes if leaves else sizes[: len(nested)]  # an empty list cannot tell the sizes below it
    if len(leaves) != prod(sizes) or (len(nested) > 1 and nested != told):
        raise CodecError(f"is a list of shape {list(nested)}, where the shape is said to be {list(sizes)}")
    _check_types(leaves, known, nested, nulls=nulls)
    if known == "BYTES":
        return Tensor(datatype=known, shape=sizes, data=_join_strings(leaves, limit))
    found = np.empty(len(leaves), _DTYPES[known])
    if leaves and _fill(found, leaves, known):
        return Tensor(datatype=known, shape=sizes, data=found.view(np.uint8).data)
    if known in FLOATS:
        leaves = [nan if leaf is None else leaf for leaf in leaves] if nulls else leaves
        return Tensor(datatype=known, shape=sizes, data=_floats(leaves, known, nested, finite=not nulls))
    return Tensor(datatype=known, shape=sizes, data=_integers(leaves, known, nested))


def array(tensor: Tensor) -> Array:
    """The tensor as a read-only numpy array over the same bytes; BF16 becomes FP32, BYTES an object array of `bytes`."""
    if tensor.datatype == "BYTES":
        found = np.empty(tensor.elements, dtype=object)
        found[:] = split_bytes(tensor.data)
        return found.reshape(tensor.shape)
    flat = np.frombuffer(tensor.data, _DTYPES[tensor.datatype])
    return _widened(flat, tensor.datatype).reshape(tensor.shape)


def from_array(values: Array, datatype: Datatype | None = None) -> Tensor:
    """A tensor from a numpy array, of the array's own datatype or converted to `BF16` where that is asked for.

    Raises:
        CodecError: numpy's type has no name in the Open Inference Protocol.
    """
    if values.dtype == object or values.dtype.kind in "SU":
        items = [item if isinstance(item, bytes) else str(item).encode() for item in values.ravel().tolist()]
        return Tensor(datatype="BYTES", shape=values.shape, data=join_bytes(items))
    found: Datatype
    if datatype == "BF16":
        found, values = "BF16", _to_bf16(values)
    else:
        named = next(
            (name for name, code in _DTYPES.items() if name != "BF16" and np.dtype(code) == values.dtype), None
        )
        if named is None:
            raise CodecError(f"the type {values.dtype} has no name in the Open Inference Protocol")
        found = named
    contiguous = np.ascontiguousarray(values, dtype=_DTYPES[found])
    return Tensor(datatype=found, shape=values.shape, data=contiguous.reshape(-1).view(np.uint8).data)


def is_finite(tensor: Tensor) -> bool:
    """Whether no element is NaN or an infinity."""
    return non_finite_path(tensor) is None


def non_finite_path(tensor: Tensor) -> str | None:
    """Where the first element stands that is NaN or an infinity, such as `[3][0]`; `None` where there is none."""
    if tensor.datatype not in FLOATS:
        return None
    finite = np.isfinite(array(tensor))
    return None if finite.all() else _path(int(np.argmin(finite)), tensor.shape)


def to_json(tensor: Tensor) -> bytes:
    """The tensor as JSON: nested lists with the shortest digits that give the same number back.

    NaN and infinities become null. Integers beyond 2^53 become decimal strings, BYTES that are no UTF-8 have their bad
    bytes replaced.
    """
    values = array(tensor)
    if tensor.datatype == "BYTES":
        texts = [item.decode("utf-8", "replace") for item in values.ravel().tolist()]
        return orjson.dumps(_nest(texts, tensor.shape))
    if tensor.datatype in {"INT64", "UINT64"} and values.size and _is_wide(values):
        wide = [item if abs(item) <= MAX_EXACT else str(item) for item in values.ravel().tolist()]
        return orjson.dumps(_nest(wide, tensor.shape))
    if values.ndim == 0 or values.size == 0:
        return orjson.dumps(values.tolist())
    return _dumped(values)


def to_flat_json(tensor: Tensor) -> bytes:
    """The tensor as an Open Inference Protocol's JSON `data`: a flat list, all integers as numbers, NaN as null."""
    values = array(tensor).reshape(-1)
    if tensor.datatype == "BYTES":
        return orjson.dumps([item.decode("utf-8", "replace") for item in values.tolist()])
    pieces = (_dumped(values[at : at + _PIECE])[1:-1] for at in range(0, values.size, _PIECE))
    return b"[" + b",".join(pieces) + b"]"


def to_base64(tensor: Tensor) -> str:
    """The tensor's bytes in base64."""
    view = memoryview(tensor.data)
    pieces = (binascii.b2a_base64(view[at : at + _RAW_PIECE], newline=False) for at in range(0, len(view), _RAW_PIECE))
    return b"".join(pieces).decode("ascii")


def from_fields(fields: Mapping[str, Any], *, limit: int) -> Tensor:
    """A tensor from MessagePack's `{dtype, shape, bin}` (`Tensor.fields`), for a map that came in.

    Raises:
        CodecError: it is no such map, or as `from_bytes`.
    """
    data, datatype = fields.get("bin"), fields.get("dtype")
    if set(fields) != {"dtype", "shape", "bin"} or not isinstance(data, bytes | bytearray | memoryview):
        raise CodecError("is not a map of dtype, shape and bin")
    if not isinstance(datatype, str):
        raise CodecError("is not a string", ".dtype")
    return from_bytes(datatype, fields["shape"], data, limit=limit)


def split_bytes(data: bytes | bytearray | memoryview) -> list[bytes]:
    """The elements of a BYTES tensor, whose framing is known to be right."""
    view, found, at = memoryview(data), [], 0
    while at < len(view):
        (length,) = _LENGTH.unpack_from(view, at)
        found.append(bytes(view[at + 4 : at + 4 + length]))
        at += 4 + length
    return found


def join_bytes(items: list[bytes]) -> bytes:
    """Elements as a BYTES tensor's data."""
    return b"".join(part for item in items for part in (_LENGTH.pack(len(item)), item))


def _dumped(values: Array) -> bytes:
    # Views of a body can begin at any byte, which is not where the processor wants numbers to begin.
    aligned = np.require(values, requirements=["C_CONTIGUOUS", "ALIGNED"])
    return orjson.dumps(aligned, option=orjson.OPT_SERIALIZE_NUMPY)


def _bounded_shape(shape: object, datatype: Datatype, limit: int) -> tuple[int, ...]:
    """The shape, if so many elements fit in the limit. A dimension of 0 does not excuse huge ones beside it."""
    sizes = _shape(shape)
    if prod(max(size, 1) for size in sizes) * (ITEM_SIZES[datatype] or _LENGTH.size) > limit:
        raise CodecError(f"is larger than {limit} bytes", ".shape")
    return sizes


def _shape(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list | tuple) or len(shape) > MAX_RANK:
        raise CodecError(f"is not a list of at most {MAX_RANK} sizes", ".shape")
    for size in shape:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise CodecError("holds something that is not a size", ".shape")
    return tuple(shape)


def _check_bytes(data: bytes | bytearray | memoryview, elements: int) -> None:
    view, at, found = memoryview(data), 0, 0
    while at < len(view):
        if at + 4 > len(view):
            raise CodecError("ends within the length of an element")
        at += 4 + _LENGTH.unpack_from(view, at)[0]
        found += 1
    if at != len(view):
        raise CodecError("ends within an element")
    if found != elements:
        raise CodecError(f"has {found} elements, its shape says {elements}")


_PIECE: Final = 16_384
"""Elements that are converted at once: well below a millisecond, in which the interpreter can do nothing else."""

_BASE64_PIECE: Final = 256 * 1024
"""Characters that are decoded at once, for the same reason; a multiple of four."""


_RAW_PIECE: Final = _BASE64_PIECE // 4 * 3


def _base64(text: str) -> bytes:
    pieces: list[bytes] = []
    if len(text) % 4:
        raise CodecError("is not base64", ".data")
    try:
        for at in range(0, len(text), _BASE64_PIECE):
            piece = text[at : at + _BASE64_PIECE]
            if at + _BASE64_PIECE < len(text) and piece.endswith("="):
                raise CodecError("is not base64", ".data")
            pieces.append(binascii.a2b_base64(piece, strict_mode=True))
    except ValueError:
        raise CodecError("is not base64", ".data") from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _first_shape(value: object) -> tuple[int, ...]:
    """The shape that the first element of each level tells; empty for no list, or for one that no tensor can be."""
    shape: list[int] = []
    while isinstance(value, list):
        if len(shape) == MAX_RANK or not value:
            return ()
        shape.append(len(value))
        value = value[0]
    return tuple(shape)


def _fill(found: Array, value: Any, datatype: Datatype) -> bool:
    """Convert nested lists into an array of the shape they should have; false where they are not as they should be."""
    if not isinstance(value, list) or len(value) != len(found):
        return False
    each = found.size // len(found)
    if each > _PIECE:
        return all(_fill(part, item, datatype) for part, item in zip(found, value, strict=True))
    step = _PIECE // each
    return all(_fill_piece(found[at : at + step], value[at : at + step], datatype) for at in range(0, len(value), step))


def _fill_piece(found: Array, value: list[Any], datatype: Datatype) -> bool:
    try:
        given = np.array(value)
    except (ValueError, OverflowError):  # lists of unequal length, or an integer beyond everything
        return False
    if given.shape != found.shape:
        return False
    kind = given.dtype.kind
    if datatype == "BOOL":
        if kind != "b":
            return False
        found[...] = given
    elif datatype in FLOATS:
        if kind not in "iuf":
            return False
        with np.errstate(over="ignore"):
            narrow = _to_bf16(given) if datatype == "BF16" else given.astype(found.dtype)
        found[...] = narrow
        return bool(np.isfinite(_widened(narrow, datatype)).all())
    else:
        least, most = integer_range(datatype)
        if kind not in "iu" or given.min() < max(least, -MAX_EXACT) or given.max() > min(most, MAX_EXACT):
            return False
        found[...] = given
    return True


def _widened(values: Array, datatype: Datatype) -> Array:
    """BF16's bits as the FP32 they stand for; anything else as it is."""
    return (values.astype("<u4") << 16).view("<f4") if datatype == "BF16" else values


def _flatten(value: object) -> tuple[tuple[int, ...], list[Any]]:
    """Shape and leaves of nested lists, level by level, so that depth costs no stack."""
    shape: list[int] = []
    level: list[Any] = [value]
    while level and isinstance(level[0], list):
        if len(shape) == MAX_RANK:
            raise CodecError(f"is nested deeper than {MAX_RANK} lists")
        length = len(level[0])
        for number, item in enumerate(level):
            if not isinstance(item, list) or len(item) != length:
                size = f"{len(item)} elements" if isinstance(item, list) else "none"
                raise CodecError(f"has {size} where the first of its kind has {length}", _path(number, shape))
        shape.append(length)
        level = list(chain.from_iterable(level))
    if list in _types(level):
        number = next(number for number, item in enumerate(level) if isinstance(item, list))
        raise CodecError("is a list where the first of its kind is not", _path(number, shape))
    return tuple(shape), level


def _types(leaves: list[Any]) -> set[type]:
    """Every type among them, looked for piece by piece."""
    found: set[type] = set()
    for at in range(0, len(leaves), _PIECE):
        found.update(map(type, leaves[at : at + _PIECE]))
    return found


def _path(number: int, shape: list[int] | tuple[int, ...]) -> str:
    """Where the leaf of that number stands."""
    parts: list[int] = []
    for size in reversed(shape):
        parts.append(number % size)
        number //= size
    return "".join(f"[{part}]" for part in reversed(parts))


_JSON_TYPES: Final[dict[Datatype, frozenset[type]]] = {
    **dict.fromkeys(ITEM_SIZES, frozenset({int})),
    **dict.fromkeys(FLOATS, frozenset({int, float})),
    "BOOL": frozenset({bool}),
    "BYTES": frozenset({str}),
}


def _check_types(leaves: list[Any], datatype: Datatype, shape: tuple[int, ...], *, nulls: bool) -> None:
    """Leaves of JSON that no schema has seen: a bool is no number, and a number with a point is no integer."""
    allowed = _JSON_TYPES[datatype] | ({type(None)} if nulls and datatype in FLOATS else set())
    if _types(leaves) <= allowed:
        return
    number = next(number for number, leaf in enumerate(leaves) if type(leaf) not in allowed)
    raise CodecError(f"is no {datatype}", _path(number, shape))


def _integers(leaves: list[Any], datatype: Datatype, shape: tuple[int, ...]) -> bytes:
    try:
        return np.array(leaves, _DTYPES[datatype]).tobytes()
    except OverflowError:
        least, most = integer_range(datatype)
        number = next(number for number, leaf in enumerate(leaves) if not least <= leaf <= most)
        raise CodecError(f"is beyond what {datatype} can hold", _path(number, shape)) from None


def _floats(leaves: list[Any], datatype: Datatype, shape: tuple[int, ...], *, finite: bool = True) -> bytes:
    try:
        wide = np.array(leaves, "<f8")
    except OverflowError:
        raise CodecError(f"holds a number that {datatype} cannot hold") from None
    with np.errstate(over="ignore"):
        narrow = _to_bf16(wide) if datatype == "BF16" else wide.astype(_DTYPES[datatype])
    values = _widened(narrow, datatype)
    # A finite JSON number that becomes an infinity was not told to the model as it was given.
    if finite and wide.size and not np.isfinite(values).all():
        raise CodecError(f"is beyond what {datatype} can hold", _path(int(np.argmin(np.isfinite(values))), shape))
    return narrow.tobytes()


def _to_bf16(values: Array) -> Array:
    """The nearest BF16, ties to even, as its bits; NaN stays NaN."""
    bits = values.astype("<f4").view("<u4")
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def _safe_integers(leaves: list[Any], datatype: Datatype, shape: tuple[int, ...]) -> bytes:
    """Integers, or strings of their digits where a JSON number might have lost some on its way."""
    least, most = integer_range(datatype)
    found: list[int] = []
    for number, leaf in enumerate(leaves):
        value = int(leaf)
        if not isinstance(leaf, str) and abs(value) > MAX_EXACT:
            raise CodecError(
                "is beyond 2^53 and may have lost digits on its way; write it as a string", _path(number, shape)
            )
        if value != leaf and not isinstance(leaf, str):
            raise CodecError(f"is no {datatype}", _path(number, shape))
        if not least <= value <= most:
            raise CodecError(f"is beyond what {datatype} can hold", _path(number, shape))
        found.append(value)
    return np.array(found, _DTYPES[datatype]).tobytes()


def _join_strings(leaves: list[str], limit: int) -> bytes:
    try:
        items = [leaf.encode() for leaf in leaves]
    except UnicodeEncodeError:
        raise CodecError("holds a string that is no Unicode text") from None
    if sum(len(item) + 4 for item in items) > limit:
        raise CodecError(f"is larger than {limit} bytes")
    return join_bytes(items)


def _is_wide(values: Array) -> bool:
    return bool(values.max() > MAX_EXACT or values.min() < -MAX_EXACT)


def _nest(leaves: list[Any], shape: tuple[int, ...]) -> Any:
    """A flat list of leaves as nested lists."""
    if not shape:
        return leaves[0]
    for axis in range(len(shape) - 1, 0, -1):
        size = shape[axis]
        leaves = [leaves[number * size : (number + 1) * size] for number in range(prod(shape[:axis]))]
    return leaves
