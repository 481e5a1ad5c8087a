"""Reads what a model exported by `torch.export` takes and gives, from the JSON inside its `.pt2` file: without PyTorch.

Owns the reading of that document (PyTorch's export schema, version 8). Pure. A `.pt2` file also holds pickles, which are never
looked at here.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import orjson

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
        document = orjson.loads(content)
        version = document["schema_version"]["major"]
        if version != _MAJOR:
            raise Pt2Error(f"is written in version {version} of the export schema, {_MAJOR} is known; export it again")
        return _read(document["graph_module"], document.get("range_constraints", {}))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise Pt2Error("is not what torch.export writes; export it again") from error


def _read(module: dict[str, Any], ranges: dict[str, Any]) -> Signature:
    values = module["graph"]["tensor_values"]
    inputs = [
        _tensor(spec.get("user_input", {}).get("arg", {}), "takes")
        for spec in module["signature"]["input_specs"]
        if "user_input" in spec or "constant_input" in spec
    ]
    outputs = [
        _tensor(spec["user_output"]["arg"], "gives")
        for spec in module["signature"]["output_specs"]
        if "user_output" in spec
    ]
    if not inputs or not outputs:
        raise Pt2Error("takes or gives no tensor")
    names = _output_names(module["module_call_graph"][0]["signature"]["out_spec"], len(outputs))
    return Signature(
        inputs=tuple(_spec(name, values[name], ranges) for name in inputs),
        outputs=tuple(_spec(name, values[value], ranges) for name, value in zip(names, outputs, strict=True)),
    )


def _tensor(argument: dict[str, Any], verb: str) -> str:
    if "as_tensor" not in argument:
        raise Pt2Error(f"{verb} something that is no tensor, which an export has fixed; export it without that")
    return str(argument["as_tensor"]["name"])


def _spec(name: str, value: dict[str, Any], ranges: dict[str, Any]) -> TensorSpec:
    datatype = DATATYPES.get(value["dtype"])
    if datatype is None:
        raise Pt2Error(f"has {name} in PyTorch's datatype number {value['dtype']}, which callers cannot be told")
    shape: list[int] = []
    bounds: dict[int, tuple[int, int | None]] = {}
    for axis, size in enumerate(value["sizes"]):
        if "as_int" in size:
            shape.append(int(size["as_int"]))
            continue
        shape.append(-1)
        symbol = _SYMBOL.fullmatch(size["as_expr"]["expr_str"])
        known = ranges.get(symbol[1] or symbol[2]) if symbol else None
        if known is not None:
            most = known.get("max_val")
            bounds[axis] = (int(known.get("min_val") or 0), int(most) if most is not None and most < _LARGEST else None)
    return TensorSpec(name=name, datatype=datatype, shape=tuple(shape), bounds=bounds)


def _output_names(out_spec: str, count: int) -> list[str]:
    """A flat dictionary's keys; otherwise numbers."""
    tree = orjson.loads(out_spec)[1]
    if tree.get("type") == "builtins.dict" and all(child["type"] is None for child in tree["children_spec"]):
        keys = orjson.loads(tree["context"])
        if len(keys) == count and all(isinstance(key, str) for key in keys):
            return list(keys)
    return ["output"] if count == 1 else [f"output_{number}" for number in range(count)]
