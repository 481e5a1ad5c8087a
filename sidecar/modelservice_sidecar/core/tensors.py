"""What a tensor is, what a model takes and gives, and the JSON Schemas that say so to MCP clients.

Owns the datatypes of the Open Inference Protocol, `Signature`, and the schemas generated from it. Pure, and without numpy:
values are turned into bytes and back in `core.codec`, which is imported only by adapters that serve tensors.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from modelservice_api.adapter_config import Datatype
from modelservice_sidecar.core.schema import Schema

ITEM_SIZES: Final[dict[Datatype, int]] = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "BF16": 2,
    "FP32": 4,
    "FP64": 8,
    "BYTES": 0,
}
"""Bytes per element; 0 for BYTES, whose elements have a length each."""

FLOATS: Final[frozenset[Datatype]] = frozenset({"FP16", "BF16", "FP32", "FP64"})

MAX_RANK: Final = 16
MAX_EXACT: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly (RFC 8259, section 6); beyond it integers are decimal strings."""

INLINE_BYTES: Final = 64 * 1024
"""A result tensor up to this size is JSON numbers in `/mcp` answers; a larger one is a resource of bytes."""

TENSOR_MIME: Final = "application/vnd.modelservice.tensor"
"""Raw little-endian elements in C order; datatype and shape stand beside it. BYTES elements each follow their length (u32)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """One tensor as bytes: little-endian elements in C order; for BYTES, each element after its length as a 32-bit integer.

    That is the Open Inference Protocol's binary form, so it goes to such a server as it is.
    """

    datatype: Datatype
    shape: tuple[int, ...]
    data: bytes | bytearray | memoryview

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def fields(self) -> dict[str, Any]:
        """The tensor for MessagePack: `{dtype, shape, bin}`, its bytes as they are."""
        return {"dtype": self.datatype, "shape": list(self.shape), "bin": self.data}


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSpec:
    """One tensor of a model. `shape` holds the batch axis where the model has one; -1 is a free dimension.

    `argument` is the name callers use, where `name` is the model server's own. `bounds` are the smallest and largest size
    of free dimensions by axis; `None` as the largest is no bound. `ragged`: rows may differ in length, and the model server
    wants them one after another.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    argument: str = ""
    description: str = ""
    optional: bool = False
    ragged: bool = False
    bounds: Mapping[int, tuple[int, int | None]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name in arguments and results."""
        return self.argument or self.name

    def range_of(self, axis: int) -> tuple[int, int | None]:
        """The smallest and largest size of one dimension."""
        size = self.shape[axis]
        return (size, size) if size >= 0 else self.bounds.get(axis, (0, None))

    def __str__(self) -> str:
        """For example `FP32[1..16, 4]`; `?` is a free dimension."""
        return f"{self.datatype}[{', '.join(self._dimension(axis) for axis in range(len(self.shape)))}]"

    def _dimension(self, axis: int) -> str:
        least, most = self.range_of(axis)
        if least == most:
            return str(least)
        if most is None:
            return "?" if least <= 1 else f"{least}.."
        return f"{least}..{most}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """An argument beside the tensors: one plain value that tells the model server something about the call."""

    name: str
    schema: Schema
    required: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """What a model takes and gives.

    `max_batch` above 0 says that axis 0 of every tensor is the batch axis with at most so many rows: callers may leave it
    out of all inputs, and it is then left out of all outputs. `nulls`: values that are no finite number may go in, and come
    out as null in JSON; otherwise they are errors. `controls` are arguments that are no tensors.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int = 0
    nulls: bool = False
    controls: tuple[Control, ...] = ()

    @property
    def batched(self) -> bool:
        return self.max_batch > 0


def argument_names(names: Sequence[str]) -> list[str]:
    """Names that model providers accept for arguments (`[A-Za-z0-9_.-]`, 64 at most), unique, in the order given."""
    found: list[str] = []
    for name in names:
        base = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:64].strip("_") or "tensor"
        wanted, number = base, 1
        while wanted in found:
            number += 1
            wanted = f"{base[:60]}_{number}"
        found.append(wanted)
    return found


def batch_axis(spec: TensorSpec, max_batch: int) -> TensorSpec:
    """The spec with the batch axis put first: 1 to `max_batch` rows."""
    shifted = {axis + 1: bounds for axis, bounds in spec.bounds.items()}
    return TensorSpec(
        name=spec.name,
        datatype=spec.datatype,
        shape=(-1, *spec.shape),
        argument=spec.argument,
        description=spec.description,
        optional=spec.optional,
        ragged=spec.ragged,
        bounds={0: (1, max_batch), **shifted},
    )


def input_schema(signature: Signature) -> Schema:
    """The tool's input schema: nested lists, or one tensor object per argument."""
    properties: Schema = {spec.key: _argument(spec, batched=signature.batched) for spec in signature.inputs}
    required = [spec.key for spec in signature.inputs if not spec.optional]
    for control in signature.controls:
        properties[control.name] = control.schema
        required += [control.name] if control.required else []
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        "$defs": {"Tensor": TENSOR_OBJECT},
    }


def output_schema(signature: Signature) -> Schema:
    """The tool's output schema: nested lists, or where a tensor may be large, a note of where its bytes are."""
    properties: Schema = {}
    large = False
    for spec in signature.outputs:
        described = {"description": _described(spec)}
        forms = _lists(spec, batched=signature.batched, nullable=signature.nulls)
        if _may_be_large(spec):
            large = True
            forms.append({"$ref": "#/$defs/LargeTensor"})
        properties[spec.key] = {**described, **(forms[0] if len(forms) == 1 else {"anyOf": forms})}
    schema: Schema = {"type": "object", "properties": properties, "required": [spec.key for spec in signature.outputs]}
    if large:
        schema["$defs"] = {"LargeTensor": LARGE_TENSOR}
    return schema


def list_schema(
    spec: TensorSpec, *, skip_batch: bool = False, nullable: bool = False, alternatives: bool = True
) -> Schema:
    """The schema of one tensor as nested lists; `skip_batch` leaves axis 0 out.

    Without `alternatives` it means the same with no `anyOf`, whose failures do not say what is wrong.
    """
    schema = _element(spec.datatype, nullable=nullable) if alternatives else _plain_element(spec.datatype)
    for axis in range(len(spec.shape) - 1, 0 if skip_batch else -1, -1):
        least, most = spec.range_of(axis)
        schema = {"type": "array", "items": schema}
        if least:
            schema["minItems"] = least
        if most is not None:
            schema["maxItems"] = most
    return schema


TENSOR_OBJECT: Final[Schema] = {
    "type": "object",
    "description": "A tensor as bytes: little-endian elements in C order, base64.",
    "properties": {
        "dtype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": MAX_RANK},
        "encoding": {"const": "base64"},
        "data": {"type": "string", "contentEncoding": "base64"},
    },
    "required": ["dtype", "shape", "encoding", "data"],
    "additionalProperties": False,
}

LARGE_TENSOR: Final[Schema] = {
    "type": "object",
    "description": "A large tensor; its bytes are in the answer's resource of that URI.",
    "properties": {
        "dtype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "resource": {"type": "string"},
    },
    "required": ["dtype", "shape", "resource"],
}


def _argument(spec: TensorSpec, *, batched: bool) -> Schema:
    return {
        "description": _described(spec),
        "anyOf": [*_lists(spec, batched=batched, nullable=False), {"$ref": "#/$defs/Tensor"}],
    }


def _lists(spec: TensorSpec, *, batched: bool, nullable: bool) -> list[Schema]:
    forms = [list_schema(spec, nullable=nullable)]
    if batched:
        forms.append(list_schema(spec, skip_batch=True, nullable=nullable))
    return forms


def _described(spec: TensorSpec) -> str:
    return f"{spec.description} {spec}".strip()


def _may_be_large(spec: TensorSpec) -> bool:
    sizes = [spec.range_of(axis)[1] for axis in range(len(spec.shape))]
    known = [size for size in sizes if size is not None]
    return spec.datatype == "BYTES" or len(known) < len(sizes) or prod(known) * ITEM_SIZES[spec.datatype] > INLINE_BYTES


def _element(datatype: Datatype, *, nullable: bool) -> Schema:
    if datatype == "BOOL":
        return {"type": "boolean"}
    if datatype == "BYTES":
        return {"type": "string"}
    if datatype in FLOATS:
        return {"type": ["number", "null"] if nullable else "number"}
    least, most = integer_range(datatype)
    if not is_wide(datatype):
        return {"type": "integer", "minimum": least, "maximum": most}
    return {
        "anyOf": [
            {"type": "integer", "minimum": max(least, -MAX_EXACT), "maximum": MAX_EXACT},
            {"type": "string", "pattern": "^-?[0-9]{1,20}$", "description": "A decimal integer beyond 2^53."},
        ]
    }


def _plain_element(datatype: Datatype) -> Schema:
    element = _element(datatype, nullable=False)
    if "anyOf" not in element:
        return element
    number, digits = element["anyOf"]
    return {**number, "type": ["integer", "string"], "pattern": digits["pattern"]}


def integer_range(datatype: Datatype) -> tuple[int, int]:
    """The smallest and largest value of an integer datatype."""
    bits = ITEM_SIZES[datatype] * 8
    return (0, 2**bits - 1) if datatype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def is_wide(datatype: Datatype) -> bool:
    """Whether integers of this datatype can be beyond what every JSON reader keeps exactly."""
    return datatype in {"INT64", "UINT64"}


def shape_problem(spec: TensorSpec, shape: Sequence[int], *, skip_batch: bool = False) -> str | None:
    """What is wrong with a shape for this tensor, or `None`. `skip_batch`: axis 0 of the spec is left out."""
    first = 1 if skip_batch else 0
    rank = len(spec.shape) - first
    if len(shape) != rank:
        return f"has {len(shape)} dimensions, {spec} needs {rank}"
    for axis, size in enumerate(shape, start=first):
        least, most = spec.range_of(axis)
        if size < least or (most is not None and size > most):
            allowed = str(least) if least == most else f"{least} to {'any' if most is None else most}"
            return f"has size {size} in dimension {axis - first}, {spec} allows {allowed}"
    return None


def is_unbatched(spec: TensorSpec, rank: int) -> bool:
    """Whether a value of this rank is one row of a batched tensor, without its batch axis."""
    return rank == len(spec.shape) - 1
