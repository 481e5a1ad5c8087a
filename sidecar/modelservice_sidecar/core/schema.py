"""JSON Schemas as OpenAPI documents hold them, turned into the ones MCP tools publish: JSON Schema 2020-12, self-contained.

Owns the conversion: 3.0 and Swagger dialect to 2020-12, references to `$defs` with only what is reachable, recursion kept as
references and never inlined, text cleaned, the root a plain object; and the repair of what breaks JSON Schema's own rules,
each with a sentence. Pure. Every walk is bounded in depth and size, so a hostile document costs an error and not a stack.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeGuard
from urllib.parse import unquote

from modelservice_sidecar.core import text

Schema = dict[str, Any]
Direction = Literal["input", "output"]

MAX_DEPTH: Final = 64
MAX_NODES: Final = 20_000
"""Schema positions per tool; beyond it the operation is reported as too large."""
MAX_REF_CHAIN: Final = 32
MAX_PARTS: Final = 64
MAX_REPAIRS: Final = 20
MAX_EXAMPLE: Final = 1_000
"""Characters of an example or default as JSON; larger ones are a picture or a tensor, which no model reads."""

_ONE: Final = frozenset(
    {"items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "not"}
    | {"if", "then", "else", "contentSchema"}
)
_MANY: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_OF_PARTS: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "allOf", "title", "description", "discriminator", "xml"}
    | {"example", "examples", "externalDocs", "deprecated", "default", "nullable", "readOnly", "writeOnly"}
)
"""What the parts of an `allOf` may say and still be one object together."""
_COMPOSING: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"})
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
    | {"minContains", "maxContains"}
)
"""What is left out of an *output* schema: a published output schema binds the answer, clients refuse answers that break
it, and model servers' documents are often stricter than their answers. Types and structure stay, bounds go."""

_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_MEANT: Final[dict[str, str]] = {
    "int": "integer",
    "int32": "integer",
    "int64": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "str": "string",
    "text": "string",
    "date": "string",
    "datetime": "string",
    "uuid": "string",
    "file": "string",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
    "map": "object",
    "none": "null",
}
"""Words for types that documents use and JSON Schema has not."""

_BOUNDS: Final = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)


class SchemaError(Exception):
    """A schema cannot be published; the text says which reference or bound is at fault."""


class _Wrong:
    """Marks a keyword's value that JSON Schema does not allow."""


_WRONG: Final = _Wrong()


def _number(value: Any) -> Any:
    return value if _is_number(value) and (isinstance(value, int) or math.isfinite(value)) else _WRONG


def _count(value: Any) -> Any:
    return int(value) if _number(value) is not _WRONG and value == int(value) >= 0 else _WRONG


def _flag(value: Any) -> Any:
    return value if isinstance(value, bool) else _WRONG


def _word(value: Any) -> Any:
    return value if isinstance(value, str) else _WRONG


def _names(value: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return _WRONG
    return list(dict.fromkeys(value))


def _dependent(value: Any) -> Any:
    usable = isinstance(value, dict) and all(_names(names) is not _WRONG for names in value.values())
    return {name: _names(names) for name, names in value.items()} if usable else _WRONG


def _choices(value: Any) -> Any:
    if not isinstance(value, list) or not value:
        return _WRONG
    kept: list[Any] = []
    seen: set[str] = set()
    for choice in value:
        if not _is_shallow(choice):
            return _WRONG
        written = json.dumps(choice, sort_keys=True, default=str)
        if written not in seen:
            seen.add(written)
            kept.append(choice)
    return kept


def _bound(value: Any) -> Any:
    return value if isinstance(value, bool) else _number(value)  # OpenAPI 3.0's booleans are translated later


def _step(value: Any) -> Any:
    return value if _number(value) is not _WRONG and value > 0 else _WRONG


_CHECKED: Final[dict[str, Callable[[Any], Any]]] = {
    "minimum": _number,
    "maximum": _number,
    "exclusiveMinimum": _bound,
    "exclusiveMaximum": _bound,
    "multipleOf": _step,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count),
    **dict.fromkeys(("minContains", "maxContains"), _count),
    **dict.fromkeys(("uniqueItems", "deprecated"), _flag),
    **dict.fromkeys(("format", "contentEncoding", "contentMediaType"), _word),
    "required": _names,
    "dependentRequired": _dependent,
    "enum": _choices,
}
"""Keywords with what their value must be. A value that is not is left out, and a sentence says so."""


@dataclass(kw_only=True, slots=True)
class _Definition:
    schema: Schema = field(default_factory=dict)
    reached: tuple[str, ...] = ()
    positions: int = 0
    repairs: tuple[str, ...] = ()
    error: SchemaError | None = None


@dataclass(kw_only=True, slots=True)
class Definitions:
    """A document's definitions in one direction: each is converted once, however many tools reach it."""

    names: dict[str, str] = field(default_factory=dict)
    sources: dict[str, tuple[Any, tuple[Schema, ...]]] = field(default_factory=dict)
    converted: dict[str, _Definition] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class Converter:
    """Converts the schemas of one tool in one direction and collects the definitions they reach.

    `document` is the whole OpenAPI document, which local references point into; `legacy` says it is OpenAPI 3.0 or older.
    `is_pattern` says whether the validator can use a regular expression. `repairs` are sentences about what was changed.
    """

    document: Mapping[str, Any]
    legacy: bool
    direction: Direction
    is_pattern: Callable[[str], bool] = lambda _: True
    shared: Definitions = field(default_factory=Definitions)
    repairs: list[str] = field(default_factory=list)
    _reached: list[str] = field(default_factory=list)
    _scopes: tuple[Schema, ...] = ()
    _positions: int = 0

    def convert(self, schema: object, where: str = "$") -> Schema:
        """The schema in 2020-12; a boolean schema becomes its object form. `where` names it in repairs."""
        converted = self._convert(schema, 0, where)
        if isinstance(converted, dict):
            return converted
        return {} if converted else {"not": {}}

    def definitions(self) -> dict[str, Schema]:
        """Every definition that what was converted so far reaches, itself converted."""
        done: dict[str, Schema] = {}
        pending = list(self._reached)
        while pending:
            name = pending.pop()
            if name not in done:
                definition = self._definition(name)
                self._count(definition.positions, 0)
                self.repairs += definition.repairs
                done[name] = definition.schema
                pending += definition.reached
        return {name: done[name] for name in sorted(done)}

    def _definition(self, name: str) -> _Definition:
        found = self.shared.converted.get(name)
        if found is None:
            source, scopes = self.shared.sources[name]
            inner = Converter(
                document=self.document,
                legacy=self.legacy,
                direction=self.direction,
                is_pattern=self.is_pattern,
                shared=self.shared,
                _scopes=scopes,
            )
            try:
                found = _Definition(schema=inner.convert(source, name))
                found.reached, found.repairs = tuple(inner._reached), tuple(inner.repairs)
            except SchemaError as error:
                found = _Definition(error=error)
            found.positions = inner._positions
            self.shared.converted[name] = found
        if found.error is not None:
            raise found.error
        return found

    def _count(self, positions: int, depth: int) -> None:
        self._positions += positions
        if depth > MAX_DEPTH or self._positions > MAX_NODES:
            raise SchemaError(f"a schema is nested deeper than {MAX_DEPTH} or larger than {MAX_NODES} positions")

    def _convert(self, schema: object, depth: int, where: str) -> Schema | bool:
        self._count(1, depth)
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            if depth == 0:
                raise SchemaError("a schema is neither an object nor a boolean")
            self._repaired(where, "is not a schema, so anything is accepted there")
            return {}
        schema = self._opened(schema, where)
        outer = self._scopes
        self._scopes = (*outer, *(schema[key] for key in ("$defs", "definitions") if isinstance(schema.get(key), dict)))
        out: Schema = {}
        for keyword, value in schema.items():
            self._keyword(out, keyword, value, schema, depth, where)
        self._scopes = outer
        return self._settled(out, schema, where)

    def _opened(self, schema: Schema, where: str) -> Schema:
        """An `allOf` whose parts forbid each other's properties, which nothing can meet, as the one object that is meant."""
        parts = schema.get("allOf")
        if not isinstance(parts, list) or len(parts) + ("properties" in schema) < 2:
            return schema
        try:
            closed = any(follow(self.document, part).get("additionalProperties") is False for part in parts)
            together = merged(self.document, schema) if closed else None
        except (SchemaError, AttributeError):
            return schema
        if together is None:
            return schema
        self._repaired(
            where, "has parts in its allOf that forbid each other's properties, so they are read as one object"
        )
        return together

    def _settled(self, out: Schema, schema: Schema, where: str) -> Schema:
        """The converted keywords made to agree with each other."""
        if self.direction == "output" and isinstance(out.get("additionalProperties"), bool):
            del out["additionalProperties"]
        if self.legacy and "$ref" in out:  # OpenAPI 3.0 ignores siblings of a reference
            out = {key: value for key, value in out.items() if key in {"$ref", "description", "title", "default"}}
        _exclusive_bounds(out)
        self._drop_contradictions(out, where)
        if "default" in out and not self._fits(out["default"], schema, 0):
            dropped = out.pop("default")
            if dropped is not None:  # many documents say null and mean none
                self._repaired(where, "has a default that its own schema refuses, so the default is left out")
        nullable = schema.get("nullable") is True or schema.get("x-nullable") is True
        return _with_null(out) if nullable else out

    def _keyword(self, out: Schema, keyword: str, value: object, schema: Schema, depth: int, where: str) -> None:
        if keyword == "$ref":
            out["$ref"] = self._reference(value)
        elif self.direction == "output" and keyword in _STRICTNESS:
            return
        elif keyword in _NAMED or keyword in _MANY or keyword in _ONE:
            self._applicator(out, keyword, value, depth, where)
        elif keyword in _CHECKED:
            checked = _CHECKED[keyword](value)
            if checked is _WRONG:
                # Draft 3 wrote `required: true` at the property; its object reads it there.
                if keyword != "required" or not isinstance(value, bool):
                    self._repaired(where, f"has a {keyword} that JSON Schema does not allow, so it is left out")
            elif keyword == "required":
                self._require(out, checked, schema, where)
            else:
                out[keyword] = checked
        elif keyword == "pattern":
            if isinstance(value, str) and self.is_pattern(value):
                out["pattern"] = value
            else:
                self._repaired(where, "has a pattern that is no valid regular expression, so it is left out")
        elif keyword == "type":
            self._type(out, value, where)
        else:
            _annotation(out, keyword, value)

    def _applicator(self, out: Schema, keyword: str, value: object, depth: int, where: str) -> None:
        """A keyword whose value is one schema, a list of them, or named ones."""
        if keyword in _NAMED and isinstance(value, dict):
            kept = {name: sub for name, sub in value.items() if not self._hidden(keyword, sub)}
            if keyword == "patternProperties":
                kept = self._usable_patterns(kept, where)
            out[keyword] = {
                name: self._convert(sub, depth + 1, f"{where}.{text.line(str(name), 64)}") for name, sub in kept.items()
            }
            if keyword == "properties" and self.direction == "input":
                flagged = [n for n, sub in kept.items() if isinstance(sub, dict) and sub.get("required") is True]
                if flagged:
                    out["required"] = list(dict.fromkeys([*out.get("required", ()), *flagged]))
        elif keyword in _MANY and isinstance(value, list) and value:
            out[keyword] = [self._convert(sub, depth + 1, f"{where}.{keyword}[{i}]") for i, sub in enumerate(value)]
        elif keyword == "items" and isinstance(value, list) and value:  # tuples before 2020-12
            out["prefixItems"] = [self._convert(sub, depth + 1, f"{where}[{i}]") for i, sub in enumerate(value)]
        elif keyword in _ONE and isinstance(value, dict | bool):
            out[keyword] = self._convert(value, depth + 1, f"{where}[]" if keyword == "items" else where)
        else:
            self._repaired(where, f"has a {keyword} that JSON Schema does not allow, so it is left out")

    def _usable_patterns(self, named: Schema, where: str) -> Schema:
        usable = {name: sub for name, sub in named.items() if self.is_pattern(name)}
        if len(usable) < len(named):
            self._repaired(where, "has a pattern that is no valid regular expression, so it is left out")
        return usable

    def _require(self, out: Schema, names: list[str], schema: Schema, where: str) -> None:
        properties = _properties(schema)
        hidden = {name for name, sub in properties.items() if self._hidden("properties", sub)}
        unknown = set()
        if schema.get("additionalProperties") is False and not schema.keys() & _COMPOSING:
            unknown = set(names) - properties.keys()
        if unknown:
            self._repaired(where, f"requires {_quoted(unknown)}, which it has not, so that is left out")
        kept = [name for name in names if name not in hidden and name not in unknown]
        out["required"] = list(dict.fromkeys([*out.get("required", ()), *kept]))

    def _type(self, out: Schema, value: object, where: str) -> None:
        given = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        kinds = [_MEANT.get(kind.lower(), kind) for kind in given if isinstance(kind, str)]
        known = [kind for kind in dict.fromkeys(kinds) if kind in _TYPES]
        if known == ["null"] and len(given) > 1:
            known = []  # what the other type was meant to be is not known, so nothing is said
        if known:
            out["type"] = known[0] if isinstance(value, str) or len(known) == 1 else known
        if value == "file":
            out["format"] = "binary"
        elif not known or known != given:
            self._repaired(where, f"has the type {text.line(str(value), 40)!r}, which JSON Schema has not")

    def _drop_contradictions(self, out: Schema, where: str) -> None:
        """What no value can meet: an enum of another type, a lower bound above the upper one."""
        kinds = [out["type"]] if isinstance(out.get("type"), str) else out.get("type")
        if kinds and "enum" in out:
            possible = [choice for choice in out["enum"] if choice is None or _is_of(choice, kinds)]
            if len(possible) < len(out["enum"]):
                self._repaired(where, "has choices in its enum that are not of its type, so they are left out")
            out["enum"] = possible
            if not [choice for choice in possible if choice is not None]:
                del out["enum"]
        if kinds and "const" in out and not _is_of(out["const"], kinds):
            del out["const"]
            self._repaired(where, "has a const that is not of its type, so it is left out")
        for lower, upper in _BOUNDS:
            if lower in out and upper in out and out[lower] > out[upper]:
                del out[lower], out[upper]
                self._repaired(where, f"has a {lower} above its {upper}, so both are left out")

    def _fits(self, value: Any, schema: Any, depth: int) -> bool:
        """Whether the schema, as it stands in the document, lets this default through; in doubt it does."""
        try:
            target = follow(self.document, schema)
        except SchemaError:
            return True
        if depth > 4 or not isinstance(target, dict):
            return True
        if value is None:
            null = target.get("nullable") is True or target.get("x-nullable") is True
            return null or not isinstance(target.get("type"), str) or target["type"] == "null"
        kinds = [target["type"]] if isinstance(target.get("type"), str) else target.get("type")
        if isinstance(kinds, list) and not _is_of(value, [_MEANT.get(str(kind).lower(), kind) for kind in kinds]):
            return False
        if isinstance(target.get("enum"), list) and target["enum"] and value not in target["enum"]:
            return False
        if not _within(value, target):
            return False
        choices = [target[key] for key in ("anyOf", "oneOf") if isinstance(target.get(key), list)]
        if any(choice and not any(self._fits(value, sub, depth + 1) for sub in choice[:16]) for choice in choices):
            return False
        every = target.get("allOf")
        return not isinstance(every, list) or all(self._fits(value, sub, depth + 1) for sub in every[:16])

    def _hidden(self, keyword: str, schema: object) -> bool:
        """Whether a property is not for this direction: a caller does not send what is `readOnly`."""
        flag = "readOnly" if self.direction == "input" else "writeOnly"
        return keyword == "properties" and isinstance(schema, dict) and schema.get(flag) is True

    def _reference(self, target: object) -> str:
        if not isinstance(target, str) or not target.startswith("#"):
            raise SchemaError(
                f"the reference {text.line(str(target), 120)!r} leaves the document, which is not followed"
            )
        key = target
        scopes: tuple[Schema, ...] = ()
        try:
            source = resolve(self.document, target)
        except SchemaError:
            # A schema pasted from elsewhere brings its own definitions, and references that mean those.
            key, source, scopes = self._in_scope(target)
        shared = self.shared
        if key not in shared.names:
            shared.names[key] = name = _definition_name(target, shared.sources)
            shared.sources[name] = (source, scopes)
        self._reached.append(shared.names[key])
        return f"#/$defs/{shared.names[key]}"

    def _in_scope(self, target: str) -> tuple[str, Any, tuple[Schema, ...]]:
        parts = target.split("/")
        if len(parts) == 3 and parts[1] in {"$defs", "definitions"}:
            name = unquote(parts[2]).replace("~1", "/").replace("~0", "~")
            for position in range(len(self._scopes), 0, -1):
                scope = self._scopes[position - 1]
                if name in scope:
                    return f"{target} in {id(scope)}", scope[name], self._scopes[:position]
        raise SchemaError(f"the reference {text.line(target, 120)!r} points nowhere")

    def _repaired(self, where: str, what: str) -> None:
        if len(self.repairs) < MAX_REPAIRS:
            self.repairs.append(f"{where} {what}")


def resolve(document: Mapping[str, Any], pointer: str) -> Any:
    """What a local reference such as `#/components/schemas/Node` points at.

    Raises:
        SchemaError: it points nowhere.
    """
    node: Any = document
    if not pointer.startswith("#/"):
        raise SchemaError(f"the reference {text.line(pointer, 120)!r} points nowhere")
    for raw in pointer.split("/")[1:]:
        part = unquote(raw).replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isascii() and part.isdigit() and len(part) < 7 and int(part) < len(node):
            node = node[int(part)]
        else:
            raise SchemaError(f"the reference {text.line(pointer, 120)!r} points nowhere")
    return node


def follow(document: Mapping[str, Any], node: Any) -> Any:
    """The node itself, or what its chain of `$ref` ends at."""
    for _ in range(MAX_REF_CHAIN):
        if not (isinstance(node, dict) and isinstance(node.get("$ref"), str)):
            return node
        if not node["$ref"].startswith("#"):
            raise SchemaError(
                f"the reference {text.line(node['$ref'], 120)!r} leaves the document, which is not followed"
            )
        node = resolve(document, node["$ref"])
    raise SchemaError("a chain of references does not end")


def object_root(document: Mapping[str, Any], schema: Any) -> Schema | None:
    """The schema with its outer reference followed, if it can stand at a tool's root: an object and nothing but.

    Compositions and nullable objects cannot: clients drop tools whose root is not a plain object.
    """
    target = follow(document, schema)
    if isinstance(target, dict) and isinstance(target.get("allOf"), list):
        target = merged(document, target) or target
    if not isinstance(target, dict) or target.get("nullable") is True or target.get("x-nullable") is True:
        return None
    if target.get("type") != "object" and not ("type" not in target and isinstance(target.get("properties"), dict)):
        return None
    composed = ("allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas")
    return None if any(key in target for key in composed) else target


def merged(document: Mapping[str, Any], schema: Schema) -> Schema | None:
    """One object for an `allOf` of objects, which is how documents write inheritance.

    `None` where a part says more than which properties there are.
    """
    properties: Schema = {}
    required: list[str] = []
    more: list[Any] = []
    pending: list[Any] = [schema]
    for _ in range(MAX_PARTS):
        if not pending:
            return _joined_parts(schema, properties, required, more)
        part = follow(document, pending.pop(0))
        if not isinstance(part, dict) or not all(key in _OF_PARTS or key.startswith("x-") for key in part):
            return None
        if part.get("type", "object") != "object" or part.get("nullable") is True or part.get("x-nullable") is True:
            return None
        for name, sub in _properties(part).items():
            known = properties.get(name, sub)
            properties[name] = sub if known == sub else {"allOf": [known, sub]}
        names = _names(part.get("required", []))
        required += [] if names is _WRONG else names
        more += [part["additionalProperties"]] if "additionalProperties" in part else []
        inner = part.get("allOf", [])
        pending = [*(inner if isinstance(inner, list) else ()), *pending]
    return None


def _joined_parts(schema: Schema, properties: Schema, required: list[str], more: list[Any]) -> Schema:
    described: Schema = {key: schema[key] for key in ("description", "title") if key in schema}
    joined: Schema = {"type": "object", **described, "properties": properties}
    if required:
        joined["required"] = list(dict.fromkeys(required))
    if more:  # a part that takes nothing else speaks for its own properties only; the whole still takes nothing else
        joined["additionalProperties"] = False if False in more else more[0]
    return joined


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


def _annotation(out: Schema, keyword: str, value: object) -> None:
    """Keywords that say something and check nothing. Any other keyword is none of 2020-12's and goes."""
    if keyword in {"description", "title"}:
        if isinstance(value, str) and (cleaned := text.clean(value)):
            out[keyword] = cleaned
    elif (keyword == "const" and _is_shallow(value)) or (keyword == "default" and _is_short(value)):
        out[keyword] = value
    elif keyword == "example" and _is_short(value):
        out.setdefault("examples", [value])
    elif keyword == "examples" and isinstance(value, list) and (short := [one for one in value[:3] if _is_short(one)]):
        out[keyword] = short


def _is_shallow(value: object) -> bool:
    """Whether a value can be written by anybody: some writers stop at a few hundred levels."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            sub
            for node in level
            for sub in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
        ]
        if not level:
            return True
    return False


def _is_short(value: object) -> bool:
    """Whether an example is small, and free of characters that nobody sees."""
    if not _is_shallow(value):
        return False
    written = json.dumps(value, ensure_ascii=False, default=str)
    return len(written) <= MAX_EXAMPLE and text.clean(written, MAX_EXAMPLE) == written.strip()


def _exclusive_bounds(out: Schema) -> None:
    """OpenAPI 3.0's exclusive bounds were booleans; some documents of 3.1 still hold them."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(out.get(exclusive), bool) and out.pop(exclusive) and bound in out:
            out[exclusive] = out.pop(bound)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_of(value: Any, kinds: list[Any]) -> bool:
    known: dict[str, bool] = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "number": _is_number(value),
        "integer": _is_number(value) and (isinstance(value, int) or value.is_integer()),
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "null": value is None,
    }
    return any(known.get(kind, True) if isinstance(kind, str) else True for kind in kinds)


def _within(value: Any, schema: Schema) -> bool:
    """Whether a number or string keeps the plain bounds of a schema as it stands in the document."""
    if _is_number(value):
        lower, upper = schema.get("minimum"), schema.get("maximum")
        return not (_is_number(lower) and value < lower) and not (_is_number(upper) and value > upper)
    if isinstance(value, str):
        shortest, longest = schema.get("minLength"), schema.get("maxLength")
        return not (_is_number(shortest) and len(value) < shortest) and not (
            _is_number(longest) and len(value) > longest
        )
    return True


def _quoted(names: set[str]) -> str:
    return ", ".join(repr(text.line(name, 64)) for name in sorted(names)[:3])


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


def _definition_name(pointer: str, taken: Mapping[str, object]) -> str:
    base = re.sub(r"[^A-Za-z0-9_.]", "_", unquote(pointer.rsplit("/", 1)[-1]))[:64] or "Root"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name
