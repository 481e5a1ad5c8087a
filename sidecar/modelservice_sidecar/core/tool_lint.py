"""What a language model would stumble over in a list of tools, said before one does.

Owns the rules and their wording. Pure, and knows no kind of model server: what it reads is what `tools/list` says. Findings are
advice; none of them keeps a tool from being published.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from modelservice_sidecar.core import text
from modelservice_sidecar.core.catalogue import MAX_NAME

SHORT_DESCRIPTION: Final = 20
LONG_DESCRIPTION: Final = 1_000
"""Characters. The adapter cuts at 1,024, and so do model providers."""
MANY_TOOLS: Final = 20
MANY_TOKENS: Final = 10_000
"""For all tools together; they are read anew with every conversation."""
LARGE_TOOL: Final = 2_000
"""Tokens of one tool."""
DEEP: Final = 5
"""Levels of objects and lists below the arguments."""
BYTES_PER_TOKEN: Final = 4
"""A rule of thumb for JSON in English; every model's tokens differ."""

_MAX_POSITIONS: Final = 20_000
_ONLY_PLACE: Final = re.compile(r"(\(Deprecated\) )?(GET|POST|PUT|PATCH|DELETE) /")
_CHARACTERS: Final = re.compile(r"[A-Za-z0-9_-]+")
_CHOICES: Final = ("anyOf", "oneOf", "allOf")
_SAYS_WHAT: Final = frozenset({"type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "not"})
_SAYS_SHAPE: Final = frozenset({"properties", "patternProperties", "additionalProperties", *_CHOICES})
_BOUNDS_TEXT: Final = frozenset(
    {"maxLength", "enum", "const", "pattern", "format", "contentEncoding", "contentMediaType"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing to better. `tool` is `*` where it is about all of them, `path` the place within the tool."""

    tool: str
    path: str
    rule: str
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.tool}: {self.path}: {self.problem}; {self.advice}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was found, and what the tools cost: `tokens` is an estimate over the whole listing."""

    tools: int
    tokens: int
    findings: tuple[Finding, ...]

    @property
    def summary(self) -> str:
        found = len(self.findings)
        said = "nothing to better" if not found else f"{found} finding{'' if found == 1 else 's'}"
        return f"{self.tools} tool{'' if self.tools == 1 else 's'}, about {self.tokens:,} tokens: {said}."


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """One position in an argument schema. `named`: it is an argument or a property, and not an item or a choice."""

    path: str
    schema: Mapping[str, Any]
    level: int
    named: bool


def lint(definitions: Sequence[Mapping[str, Any]], notes: Sequence[str] = ()) -> Report:
    """The findings about these tools, as `tools/list` defines them. `notes` are what discovery said about the rest."""
    findings = [
        Finding(
            tool="*",
            path="document",
            rule="document",
            problem=text.line(note, 500).rstrip("."),
            advice="correct it at the model server",
        )
        for note in notes
    ]
    tokens = [_tokens(definition) for definition in definitions]
    findings += _whole(definitions, sum(tokens))
    for definition, cost in zip(definitions, tokens, strict=True):
        findings += _tool(definition, cost)
    return Report(tools=len(definitions), tokens=sum(tokens), findings=tuple(findings))


def _whole(definitions: Sequence[Mapping[str, Any]], tokens: int) -> Iterator[Finding]:
    """What is wrong with the tools as a set."""
    if len(definitions) > MANY_TOOLS:
        yield Finding(
            tool="*",
            path="tools",
            rule="too-many-tools",
            problem=f"there are {len(definitions)} tools, and choosing right gets harder beyond {MANY_TOOLS}",
            advice="publish those that callers need, by tools.filter or by include, exclude or tags of backend.openAPI",
        )
    if tokens > MANY_TOKENS:
        yield Finding(
            tool="*",
            path="tools",
            rule="listing-large",
            problem=f"the list costs about {tokens:,} tokens in every conversation",
            advice="publish fewer tools, or shorten the largest ones",
        )
    alike: dict[str, list[str]] = {}
    for definition in definitions:
        name = _name(definition)
        alike.setdefault(re.sub(r"[^a-z0-9]", "", name.lower()), []).append(name)
    for names in alike.values():
        if len(names) > 1:
            how = "are the same" if len(set(names)) == 1 else "differ only in case or punctuation"
            yield Finding(
                tool=names[0],
                path="name",
                rule="name-clash",
                problem=f"the names {', '.join(names[:5])} {how}",
                advice="rename one in tools.overrides",
            )


def _tool(definition: Mapping[str, Any], tokens: int) -> Iterator[Finding]:
    name = _name(definition)

    def finding(path: str, rule: str, problem: str, advice: str) -> Finding:
        return Finding(tool=name, path=path, rule=rule, problem=problem, advice=advice)

    if len(name) > MAX_NAME:
        yield finding("name", "name-long", f"the name has {len(name)} characters", f"shorten it to {MAX_NAME}")
    if not _CHARACTERS.fullmatch(name):
        advice = "keep to letters, digits, _ and -"
        yield finding("name", "name-characters", "the name has characters that clients refuse", advice)
    yield from (finding("description", *said) for said in _description(definition.get("description")))
    if tokens > LARGE_TOOL:
        advice = "take a simpler schema, or fewer arguments"
        yield finding("$", "schema-large", f"the tool costs about {tokens:,} tokens", advice)
    schema = definition.get("inputSchema")
    schema = schema if isinstance(schema, Mapping) else {}
    if schema.get("type") != "object" or "$ref" in schema or any(key in schema for key in _CHOICES):
        advice = "make it one plain object and put the choice into an argument"
        yield finding("$", "root-composition", "the arguments are not a plain object, which some clients drop", advice)
    yield from (finding(*said) for said in _arguments(schema))
    if not isinstance(definition.get("outputSchema"), Mapping):
        advice = "if it is JSON, declare its model (in FastAPI: response_model or a return annotation)"
        yield finding("answer", "answer-undescribed", "the answer has no schema", advice)


def _description(description: object) -> Iterator[tuple[str, str, str]]:
    written = description.strip() if isinstance(description, str) else ""
    advice = "say what the tool does, when to use it and what it gives back (a docstring, or tools.overrides)"
    if not written or _ONLY_PLACE.match(written):
        yield "description-missing", "there is no description", advice
    elif len(written) < SHORT_DESCRIPTION:
        yield "description-short", f"the description has only {len(written)} characters", advice
    elif len(written) > LONG_DESCRIPTION:
        shorter = f"cut it to {LONG_DESCRIPTION:,}; what is beyond 1,024 is lost"
        yield "description-long", f"the description has {len(written):,} characters", shorter


def _arguments(root: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    undescribed_inside = 0
    deepest = ""
    for place in _walk(root):
        schema = place.schema
        if place.level > DEEP and not deepest:
            deepest = place.path
        if place.named and not _described(schema, root):
            if place.level == 1:
                advice = "say what it means, its unit and an example"
                yield place.path, "argument-undescribed", "the argument has no description", advice
            else:
                undescribed_inside += 1
        if place.named and not schema.keys() & _SAYS_WHAT:
            yield place.path, "argument-untyped", "anything is accepted", "give it a type"
        yield from _unbounded(place)
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            unknown = [name for name in _list(schema.get("required")) if name not in properties]
            if unknown and not any(key in schema for key in _CHOICES):
                problem = f"{text.line(str(unknown[0]), 64)!r} is required and not described"
                yield place.path, "required-unknown", problem, "describe it, or do not require it"
    if undescribed_inside:
        many = "1 property has" if undescribed_inside == 1 else f"{undescribed_inside} properties have"
        problem = f"{many} no description inside the arguments"
        yield "$", "property-undescribed", problem, "describe those whose name does not say it"
    if deepest:
        problem = f"the arguments nest deeper than {DEEP} levels"
        yield deepest, "nesting-deep", problem, "flatten them; models lose track of closing brackets"


def _unbounded(place: _Place) -> Iterator[tuple[str, str, str, str]]:
    """Lists, texts and maps without an end, each told once at its outermost level."""
    schema = place.schema
    kinds = _kinds(schema)
    if "array" in kinds:
        dimensions, free = 0, 0
        node: Any = schema
        while isinstance(node, Mapping) and "array" in _kinds(node) and dimensions < 8:
            dimensions += 1
            free += "maxItems" not in node and "prefixItems" not in node
            node = node.get("items")
        if place.path.endswith("[]") or not free:
            return
        if dimensions > 1:
            advice = "say the shape with minItems and maxItems"
            yield place.path, "shape-unbounded", f"{free} of {dimensions} dimensions have no bound", advice
        else:
            yield place.path, "array-unbounded", "the list has no maxItems", "say how many the model takes"
    elif "string" in kinds and not schema.keys() & _BOUNDS_TEXT:
        yield place.path, "string-unbounded", "the text has no maxLength, format or choices", "say what the model takes"
    elif "object" in kinds and place.level > 0 and not schema.keys() & _SAYS_SHAPE:
        yield place.path, "object-unbounded", "the object may hold anything", "name its properties"


def _kinds(schema: Mapping[str, Any]) -> list[Any]:
    kinds = schema.get("type")
    return kinds if isinstance(kinds, list) else [kinds]


def _walk(root: Mapping[str, Any]) -> Iterator[_Place]:
    """Every position once, definitions where they are first referred to, in the order in which they are written."""
    definitions = root.get("$defs")
    definitions = definitions if isinstance(definitions, Mapping) else {}
    seen: set[str] = set()
    stack = [_Place(path="$", schema=root, level=0, named=False)]
    for _ in range(_MAX_POSITIONS):
        if not stack:
            return
        place = stack.pop()
        yield place
        stack += reversed(list(_below(place, definitions, seen)))


def _below(place: _Place, definitions: Mapping[str, Any], seen: set[str]) -> Iterator[_Place]:
    schema, path, level = place.schema, place.path, place.level

    def at(sub: object, where: str, deeper: int, *, named: bool = False) -> Iterator[_Place]:
        if isinstance(sub, Mapping):
            yield _Place(path=where, schema=sub, level=deeper, named=named)

    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/") and reference not in seen:
        seen.add(reference)
        yield from at(definitions.get(reference.removeprefix("#/$defs/")), path, level)
    for key in _CHOICES:
        for sub in _list(schema.get(key)):
            yield from at(sub, path, level)
    properties = schema.get("properties")
    for name, sub in properties.items() if isinstance(properties, Mapping) else ():
        yield from at(sub, f"{path}.{text.line(str(name), 64)}", level + 1, named=True)
    yield from at(schema.get("items"), f"{path}[]", level + 1)
    for sub in _list(schema.get("prefixItems")):
        yield from at(sub, f"{path}[]", level + 1)
    yield from at(schema.get("additionalProperties"), f"{path}.*", level + 1)


def _described(schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Whether the property says what it is, itself or by the definition that it refers to."""
    if schema.get("description"):
        return True
    reference = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    definitions = root.get("$defs")
    target = definitions.get(reference) if isinstance(definitions, Mapping) else None
    if isinstance(target, Mapping) and target.get("description"):
        return True
    return any(
        isinstance(sub, Mapping) and bool(sub.get("description")) for key in _CHOICES for sub in _list(schema.get(key))
    )


def _tokens(definition: Mapping[str, Any]) -> int:
    written = json.dumps(definition, ensure_ascii=False, separators=(",", ":"), default=str)
    return -(-len(written.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def _name(definition: Mapping[str, Any]) -> str:
    name = definition.get("name")
    return text.line(name, 128) if isinstance(name, str) else "?"


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
