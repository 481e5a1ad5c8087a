"""pydantic types → Kubernetes structural schemas (apiextensions.k8s.io/v1 `JSONSchemaProps`).

Owns the translation and refuses what it cannot express: an unknown keyword raises instead of being dropped, an
unbounded string or list raises, because the API server could then not bound the cost of a CEL rule. Reads types only;
files are written by `crdgen`.

Rules: KEP-1693 and the "Structural schemas" section of the Kubernetes documentation (a type on every node, no `$ref`,
no `anyOf` of types).
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

_COPIED = frozenset(
    {
        "type",
        "description",
        "enum",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "x-kubernetes-list-map-keys",
    }
)
_HANDLED = frozenset(
    {"properties", "required", "items", "additionalProperties", "default", "$ref", "anyOf", "title", "$defs"}
)


class NotStructuralError(ValueError):
    """A type says something that a structural schema cannot."""


def structural_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The structural schema of `model`.

    Raises:
        NotStructuralError: Names the path inside the type and what cannot be expressed there.
    """
    document = model.model_json_schema(by_alias=True, mode="validation")
    rules = _collect_rules(model)
    return _convert(document, document.get("$defs", {}), model.__name__, rules)


def _collect_rules(model: type[BaseModel]) -> dict[str, tuple[tuple[str, str], ...]]:
    """CEL rules by the name under which pydantic puts a type into `$defs` (and the root under its own name)."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    pending: list[type[BaseModel]] = [model]
    while pending:
        current = pending.pop()
        if current.__name__ in found:
            continue
        found[current.__name__] = tuple(getattr(current, "cel", ()))
        for field in current.model_fields.values():
            pending.extend(_models_in(field.annotation))
    return found


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in _models_in(argument)]


def _convert(
    node: Mapping[str, Any],
    definitions: Mapping[str, Any],
    path: str,
    rules: Mapping[str, tuple[tuple[str, str], ...]],
    name: str = "",
) -> dict[str, Any]:
    node = _without_null(node, path)
    if "$ref" in node:
        target = node["$ref"].rsplit("/", 1)[-1]
        own = {key: value for key, value in node.items() if key != "$ref"}
        return _convert({**definitions[target], **own}, definitions, path, rules, target)
    if unknown := set(node) - _COPIED - _HANDLED:
        raise NotStructuralError(f"{path}: {', '.join(sorted(unknown))} cannot be expressed in a structural schema")
    if "type" not in node:
        raise NotStructuralError(f"{path}: a structural schema needs a type on every node")
    result = {key: value for key, value in node.items() if key in _COPIED}
    if "description" in result:
        result["description"] = " ".join(str(result["description"]).split())
    result |= _default_of(node)
    match node["type"]:
        case "object":
            result |= _object(node, definitions, path, rules, name or path)
        case "array":
            result |= _array(node, definitions, path, rules)
        case "string":
            _require_bounded_string(node, path)
        case "integer" | "boolean":
            pass
        case other:
            raise NotStructuralError(f"{path}: type {other!r} is not used in this API (floats have no place in a spec)")
    return result


def _without_null(node: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """`anyOf [T, null]` is pydantic's optional; here optional means absent, so it is T."""
    if "anyOf" not in node:
        return node
    branches = [branch for branch in node["anyOf"] if branch.get("type") != "null"]
    if len(branches) != 1 or len(branches) == len(node["anyOf"]):
        raise NotStructuralError(f"{path}: a union of types cannot be expressed in a structural schema")
    return {**branches[0], **{key: value for key, value in node.items() if key not in ("anyOf", "default")}}


def _default_of(node: Mapping[str, Any]) -> dict[str, Any]:
    """Scalar defaults are shown to users by the API server; empty containers and nulls mean absent."""
    default = node.get("default")
    return {"default": default} if isinstance(default, bool | int | str) and default != "" else {}


def _object(
    node: Mapping[str, Any],
    definitions: Mapping[str, Any],
    path: str,
    rules: Mapping[str, tuple[tuple[str, str], ...]],
    name: str,
) -> dict[str, Any]:
    if "properties" not in node:
        return _map(node, definitions, path, rules)
    result: dict[str, Any] = {
        "properties": {
            key: _convert(value, definitions, f"{path}.{key}", rules) for key, value in node["properties"].items()
        }
    }
    if "required" in node:
        result["required"] = list(node["required"])
    if node.get("additionalProperties", False) is not False:
        raise NotStructuralError(f"{path}: properties beside additionalProperties cannot be expressed")
    if own := rules.get(name, ()):
        result["x-kubernetes-validations"] = [{"rule": rule, "message": message} for rule, message in own]
    return result


def _map(
    node: Mapping[str, Any],
    definitions: Mapping[str, Any],
    path: str,
    rules: Mapping[str, tuple[tuple[str, str], ...]],
) -> dict[str, Any]:
    values = node.get("additionalProperties")
    if values is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if not isinstance(values, Mapping):
        raise NotStructuralError(f"{path}: an object needs properties or additionalProperties")
    if "maxProperties" not in node:
        raise NotStructuralError(f"{path}: a map needs a bound on its number of keys")
    return {"additionalProperties": _convert(values, definitions, f"{path}[]", rules)}


def _array(
    node: Mapping[str, Any],
    definitions: Mapping[str, Any],
    path: str,
    rules: Mapping[str, tuple[tuple[str, str], ...]],
) -> dict[str, Any]:
    if "maxItems" not in node:
        raise NotStructuralError(f"{path}: a list needs max_length")
    if "items" not in node:
        raise NotStructuralError(f"{path}: a list needs one type of item")
    kind = "map" if "x-kubernetes-list-map-keys" in node else "atomic"
    return {"items": _convert(node["items"], definitions, f"{path}[]", rules), "x-kubernetes-list-type": kind}


def _require_bounded_string(node: Mapping[str, Any], path: str) -> None:
    if "maxLength" not in node and "enum" not in node:
        raise NotStructuralError(f"{path}: a string needs max_length")
