"""JSON Schemas as OpenAPI documents hold them, turned into the ones MCP tools publish: JSON Schema 2020-12, self-contained.

Owns the conversion: 3.0 dialect to 2020-12, references to `$defs` with only what is reachable, recursion kept as
references and never inlined, text cleaned, the root a plain object. Pure. Every walk is bounded in depth and size, so a
hostile document costs an error and not a stack.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import unquote

from modelservice_sidecar.core import text

Schema = dict[str, Any]
Direction = Literal["input", "output"]

MAX_DEPTH: Final = 64
MAX_NODES: Final = 20_000
"""Schema positions per tool; beyond it the operation is reported as too large."""
MAX_REF_CHAIN: Final = 32

_DROPPED: Final = frozenset(
    {
        "xml",
        "discriminator",
        "externalDocs",
        "nullable",
        "readOnly",
        "writeOnly",
        "$schema",
        "$id",
        "$anchor",
        "$comment",
    }
    | {"$dynamicRef", "$dynamicAnchor", "$vocabulary", "example", "$defs", "definitions"}
)
_ONE: Final = frozenset(
    {"items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "not"}
    | {"if", "then", "else", "contentSchema", "additionalItems"}
)
_MANY: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_STRICTNESS: Final = frozenset(
    {"required", "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "multipleOf"}
    | {"exclusiveMaximum", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "propertyNames"}
    | {
        "unevaluatedProperties",
        "unevaluatedItems",
        "dependentRequired",
        "dependentSchemas",
        "if",
        "then",
        "else",
        "not",
    }
    | {"enum", "const", "contentEncoding", "contentMediaType", "patternProperties", "contains"}
)
"""What is left out of an *output* schema: a published output schema binds the answer, clients refuse answers that break
it, and model servers' documents are often stricter than their answers. Types and structure stay, bounds go."""


class SchemaError(Exception):
    """A schema cannot be published; the text says which reference or bound is at fault."""


@dataclass(kw_only=True, slots=True)
class Converter:
    """Converts the schemas of one tool in one direction and collects the definitions they reach.

    `document` is the whole OpenAPI document, which local references point into; `legacy` says it is OpenAPI 3.0.
    """

    document: Mapping[str, Any]
    legacy: bool
    direction: Direction
    _names: dict[str, str] = field(default_factory=dict)
    _pending: list[str] = field(default_factory=list)
    _nodes: int = 0

    def convert(self, schema: object) -> Schema:
        """The schema in 2020-12; a boolean schema becomes its object form."""
        converted = self._convert(schema, 0)
        if isinstance(converted, dict):
            return converted
        return {} if converted else {"not": {}}

    def definitions(self) -> dict[str, Schema]:
        """Every definition that what was converted so far reaches, itself converted."""
        done: dict[str, Schema] = {}
        while self._pending:
            pointer = self._pending.pop()
            name = self._names[pointer]
            if name not in done:
                done[name] = self.convert(resolve(self.document, pointer))
        return {name: done[name] for name in sorted(done)}

    def _convert(self, schema: object, depth: int) -> Schema | bool:
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise SchemaError(f"a schema is nested deeper than {MAX_DEPTH} or larger than {MAX_NODES} positions")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise SchemaError("a schema is neither an object nor a boolean")
        out: Schema = {}
        for keyword, value in schema.items():
            self._keyword(out, keyword, value, schema, depth)
        if self.direction == "output" and isinstance(out.get("additionalProperties"), bool):
            del out["additionalProperties"]
        if self.legacy:
            out = _from_3_0(out)
        return _with_null(out) if schema.get("nullable") is True else out

    def _keyword(self, out: Schema, keyword: str, value: object, schema: Schema, depth: int) -> None:
        if keyword == "$ref":
            out["$ref"] = self._reference(value)
        elif keyword in _DROPPED or keyword.startswith("x-"):
            if keyword == "example":
                out.setdefault("examples", [value])
        elif self.direction == "output" and keyword in _STRICTNESS:
            return
        elif keyword in _NAMED and isinstance(value, dict):
            out[keyword] = {
                name: self._convert(sub, depth + 1) for name, sub in value.items() if not self._hidden(keyword, sub)
            }
        elif keyword in _MANY and isinstance(value, list):
            out[keyword] = [self._convert(sub, depth + 1) for sub in value]
        elif keyword in _ONE and isinstance(value, dict | bool):
            out[keyword] = self._convert(value, depth + 1)
        elif keyword == "required" and isinstance(value, list):
            hidden = {n for n, sub in _properties(schema).items() if self._hidden("properties", sub)}
            out[keyword] = [name for name in value if isinstance(name, str) and name not in hidden]
        elif keyword in {"description", "title"}:
            if isinstance(value, str) and (cleaned := text.clean(value)):
                out[keyword] = cleaned
        else:
            out[keyword] = value

    def _hidden(self, keyword: str, schema: object) -> bool:
        """Whether a property is not for this direction: a caller does not send what is `readOnly`."""
        flag = "readOnly" if self.direction == "input" else "writeOnly"
        return keyword == "properties" and isinstance(schema, dict) and schema.get(flag) is True

    def _reference(self, target: object) -> str:
        if not isinstance(target, str) or not target.startswith("#"):
            raise SchemaError(
                f"the reference {text.clean(str(target), 120)!r} leaves the document, which is not followed"
            )
        if target not in self._names:
            resolve(self.document, target)
            self._names[target] = _definition_name(target, set(self._names.values()))
            self._pending.append(target)
        return f"#/$defs/{self._names[target]}"


def resolve(document: Mapping[str, Any], pointer: str) -> Any:
    """What a local reference such as `#/components/schemas/Node` points at.

    Raises:
        SchemaError: it points nowhere.
    """
    node: Any = document
    for raw in pointer.removeprefix("#").split("/")[1:]:
        part = unquote(raw).replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        else:
            raise SchemaError(f"the reference {text.clean(pointer, 120)!r} points nowhere")
    return node


def follow(document: Mapping[str, Any], node: Any) -> Any:
    """The node itself, or what its chain of `$ref` ends at."""
    for _ in range(MAX_REF_CHAIN):
        if not (isinstance(node, dict) and isinstance(node.get("$ref"), str)):
            return node
        if not node["$ref"].startswith("#"):
            raise SchemaError(
                f"the reference {text.clean(node['$ref'], 120)!r} leaves the document, which is not followed"
            )
        node = resolve(document, node["$ref"])
    raise SchemaError("a chain of references does not end")


def object_root(document: Mapping[str, Any], schema: Any) -> Schema | None:
    """The schema with its outer reference followed, if it can stand at a tool's root: an object and nothing but.

    Compositions and nullable objects cannot: clients drop tools whose root is not a plain object.
    """
    target = follow(document, schema)
    if isinstance(target, dict) and len(target.get("allOf", ())) == 1 and "properties" not in target:
        target = follow(document, target["allOf"][0])
    if not isinstance(target, dict) or target.get("nullable") is True:
        return None
    if target.get("type") != "object" and not ("type" not in target and isinstance(target.get("properties"), dict)):
        return None
    composed = ("allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas")
    return None if any(key in target for key in composed) else target


def plain_object(document: Mapping[str, Any], schema: Any) -> Schema | None:
    """Like `object_root`, if the object has named properties that can be arguments of their own; maps have not."""
    target = object_root(document, schema)
    if target is None or isinstance(target.get("additionalProperties"), dict):
        return None
    properties = target.get("properties")
    return target if isinstance(properties, dict) and properties else None


def _properties(schema: Schema) -> Schema:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _from_3_0(out: Schema) -> Schema:
    """The remaining differences of OpenAPI 3.0: exclusive bounds were booleans, siblings of `$ref` were ignored."""
    if "$ref" in out:
        return {key: value for key, value in out.items() if key in {"$ref", "description", "title"}}
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(out.get(exclusive), bool) and out.pop(exclusive) and bound in out:
            out[exclusive] = out.pop(bound)
    return out


def _with_null(schema: Schema) -> Schema:
    """The schema, and null. `enum` must list it too, else it still excludes null."""
    if "enum" in schema and None not in schema["enum"]:
        schema = {**schema, "enum": [*schema["enum"], None]}
    kind = schema.get("type")
    if isinstance(kind, str):
        return {**schema, "type": [kind, "null"]}
    if isinstance(kind, list):
        return schema if "null" in kind else {**schema, "type": [*kind, "null"]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if not schema.keys() & {"$ref", "allOf", "oneOf"}:
        return schema  # no type at all: null is already allowed
    described: Schema = {key: schema.pop(key) for key in ("description", "title", "default") if key in schema}
    return {"anyOf": [schema, {"type": "null"}], **described}


def _definition_name(pointer: str, taken: set[str]) -> str:
    base = re.sub(r"[^A-Za-z0-9_.]", "_", unquote(pointer.rsplit("/", 1)[-1]))[:64] or "Root"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name
