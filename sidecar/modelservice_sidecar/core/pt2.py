"""Reads what a model exported by `torch.export` takes and gives, from the JSON inside its `.pt2` file: without PyTorch.

Owns the reading of that document (PyTorch's export schema, version 8). Pure. A `.pt2` file also holds pickles, which are never
looked at here.
"""

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from modelservice_api.adapter_config import Datatype
from modelservice_sidecar.core.tensors import Signature, TensorSpec

DATATYPES: Final[dict[int, Datatype]] = {
    1: "UINT8",
    2: "INT8",
    3: "INT16",
    4: "INT32",
    5: "INT64",
    6: "FP16",
    7: "FP32",
    8: "FP64",
    12: "BOOL",
    13: "BF16",
    28: "UINT16",
}
"""By the numbers of the export schema's ScalarType."""

_MAJOR: Final = 8
_SYMBOL: Final = re.compile(r"Symbol\('(\w+)'[^()]*\)|(\w+)")
_LARGEST: Final = 2**62
"""Sizes beyond this are how an export says that there is no bound."""


class Pt2Error(Exception):
    """The document is none that this can read; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entries:
    """Which kind of archive the names of its entries show. `document` is the entry that describes an exported program."""

    kind: str
    document: str = ""


# Only what is read: the rest of the graph, which is most of the document, is passed over and takes no memory.


class _Name(msgspec.Struct, frozen=True):
    name: str


class _Argument(msgspec.Struct, frozen=True):
    as_tensor: _Name | None = None


class _User(msgspec.Struct, frozen=True):
    arg: _Argument


class _InputSpec(msgspec.Struct, frozen=True):
    user_input: _User | None = None
    constant_input: msgspec.Raw | None = None


class _OutputSpec(msgspec.Struct, frozen=True):
    user_output: _User | None = None


class _Expression(msgspec.Struct, frozen=True):
    expr_str: str


class _Size(msgspec.Struct, frozen=True):
    as_int: int | None = None
    as_expr: _Expression | None = None


class _Value(msgspec.Struct, frozen=True):
    dtype: int
    sizes: list[_Size]


class _Graph(msgspec.Struct, frozen=True):
    tensor_values: dict[str, _Value]


class _GraphSignature(msgspec.Struct, frozen=True):
    input_specs: list[_InputSpec]
    output_specs: list[_OutputSpec]


class _CallSignature(msgspec.Struct, frozen=True):
    out_spec: str


class _Call(msgspec.Struct, frozen=True):
    signature: _CallSignature | None = None


class _Module(msgspec.Struct, frozen=True):
    graph: _Graph
    signature: _GraphSignature
    module_call_graph: list[_Call]


class _Range(msgspec.Struct, frozen=True):
    min_val: int | None = None
    max_val: int | None = None


class _Document(msgspec.Struct, frozen=True):
    graph_module: _Module
    range_constraints: dict[str, _Range] = {}


class _Version(msgspec.Struct, frozen=True):
    major: int


class _Versioned(msgspec.Struct, frozen=True):
    schema_version: _Version


class _Tree(msgspec.Struct, frozen=True):
    type: str | None = None
    context: str | None = None
    children_spec: list["_Tree"] = []


_decode_version: Final = msgspec.json.Decoder(_Versioned).decode
_decode_document: Final = msgspec.json.Decoder(_Document).decode


def kind_of(names: list[str]) -> Entries:
    """What a zip archive with these entries is: `exported`, `script`, `compiled` or nothing known."""
    for name in names:
        if name.endswith("/models/model.json") or name == "serialized_exported_program.json":
            return Entries(kind="exported", document=name)
    if any("/data/aotinductor/" in name for name in names):
        return Entries(kind="compiled")
    if any(name.endswith("/constants.pkl") for name in names) and any("/code/" in name for name in names):
        return Entries(kind="script")
    return Entries(kind="")


def read(content: bytes) -> Signature:
    """The signature of an exported program.

    Raises:
        Pt2Error: it has inputs or outputs that are no tensors, or is written in another schema.
    """
    try:
        version = _decode_version(content).schema_version.major
        if version != _MAJOR:
            raise Pt2Error(f"is written in version {version} of the export schema, {_MAJOR} is known; export it again")
        document = _decode_document(content)
        return _read(document.graph_module, document.range_constraints)
    except (msgspec.MsgspecError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise Pt2Error("is not what torch.export writes; export it again") from error


def _read(module: _Module, ranges: dict[str, _Range]) -> Signature:
    values = module.graph.tensor_values
    inputs = [
        _tensor(spec.user_input.arg if spec.user_input is not None else _Argument(), "takes")
        for spec in module.signature.input_specs
        if spec.user_input is not None or spec.constant_input is not None
    ]
    outputs = [
        _tensor(spec.user_output.arg, "gives") for spec in module.signature.output_specs if spec.user_output is not None
    ]
    if not inputs or not outputs:
        raise Pt2Error("takes or gives no tensor")
    names = _output_names(module.module_call_graph[0].signature, len(outputs))
    return Signature(
        inputs=tuple(_spec(name, values[name], ranges) for name in inputs),
        outputs=tuple(_spec(name, values[value], ranges) for name, value in zip(names, outputs, strict=True)),
    )


def _tensor(argument: _Argument, verb: str) -> str:
    if argument.as_tensor is None:
        raise Pt2Error(f"{verb} something that is no tensor, which an export has fixed; export it without that")
    return argument.as_tensor.name


def _spec(name: str, value: _Value, ranges: dict[str, _Range]) -> TensorSpec:
    datatype = DATATYPES.get(value.dtype)
    if datatype is None:
        raise Pt2Error(f"has {name} in PyTorch's datatype number {value.dtype}, which callers cannot be told")
    shape: list[int] = []
    bounds: dict[int, tuple[int, int | None]] = {}
    for axis, size in enumerate(value.sizes):
        if size.as_int is not None:
            shape.append(size.as_int)
            continue
        shape.append(-1)
        symbol = _SYMBOL.fullmatch(size.as_expr.expr_str) if size.as_expr is not None else None
        known = ranges.get(symbol[1] or symbol[2]) if symbol else None
        if known is not None:
            most = known.max_val
            bounds[axis] = (known.min_val or 0, most if most is not None and most < _LARGEST else None)
    return TensorSpec(name=name, datatype=datatype, shape=tuple(shape), bounds=bounds)


def _output_names(signature: _CallSignature | None, count: int) -> list[str]:
    """A flat dictionary's keys; otherwise numbers."""
    if signature is not None:
        tree = msgspec.json.decode(signature.out_spec, type=tuple[int, _Tree])[1]
        if tree.type == "builtins.dict" and all(child.type is None for child in tree.children_spec):
            keys = msgspec.json.decode(tree.context or "[]", type=list[str])
            if len(keys) == count:
                return keys
    return ["output"] if count == 1 else [f"output_{number}" for number in range(count)]
