"""One operation's arguments: which there are, what each may be, and where in the request each goes.

Owns flattening and grouping, the choice of a body's media type, files, and parameter styles as a document declares them.
Pure. Parameters and bodies come as OpenAPI 3 writes them, references and faults included; what cannot be sent is a
`SchemaError`, which costs this operation only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from modelservice_sidecar.core import catalogue, swagger, text
from modelservice_sidecar.core.openapi_binding import Body, BodyKind, Location, Parameter
from modelservice_sidecar.core.schema import Converter, Schema, SchemaError, follow, plain_object

FILE_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "A file, with its content in base64.",
    "properties": {
        "filename": {"type": "string", "maxLength": 255, "description": "Its name, if that matters."},
        "mimeType": {"type": "string", "maxLength": 129, "description": "Its media type, such as image/png."},
        "data": {"type": "string", "contentEncoding": "base64", "description": "Its content."},
    },
    "required": ["data"],
    "additionalProperties": False,
}

_BYTES_SCHEMA: Final[Schema] = {"type": "string", "contentEncoding": "base64", "description": "The content, in base64."}

# A parameter of these names is never the caller's to set: they frame the request or carry credentials (OpenAPI says the
# first three "shall be ignored").
_RESERVED_HEADERS: Final = frozenset(
    {"accept", "content-type", "authorization", "proxy-authorization", "cookie", "host", "content-length", "connection"}
    | {"transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive", "proxy-connection", "content-encoding"}
    | {"traceparent", "tracestate", "x-request-id"}
)
_ARGUMENT_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_MEDIA_TYPE: Final = re.compile(r"[\w.+*-]+/[\w.+*-]+(?:\s*;[\x20-\x7e]*)?", re.ASCII)
_DEFAULT_STYLE: Final[dict[str, str]] = {"path": "simple", "header": "simple", "query": "form", "cookie": "form"}
_STYLES: Final[dict[str, frozenset[str]]] = {
    "path": frozenset({"simple", "label", "matrix", "spaceDelimited", "tabDelimited", "pipeDelimited"}),
    "header": frozenset({"simple", "spaceDelimited", "tabDelimited", "pipeDelimited"}),
    "query": frozenset({"form", "spaceDelimited", "tabDelimited", "pipeDelimited", "deepObject"}),
    "cookie": frozenset({"form"}),
}
_JOINING: Final[dict[str, str]] = {"form": ",", "spaceDelimited": " ", "tabDelimited": "\t", "pipeDelimited": "|"}
_RANK: Final[tuple[BodyKind, ...]] = ("json", "multipart", "form", "text", "bytes")


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """What was read: the argument schema and how arguments are sent. `notes` are what callers should know."""

    schema: Schema
    parameters: tuple[Parameter, ...]
    body: Body | None
    notes: tuple[str, ...]


@dataclass(kw_only=True, slots=True)
class _Arguments:
    """The argument schema under construction."""

    properties: dict[str, Any] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    open: bool = False


def read(
    converter: Converter,
    raw_parameters: list[Any],
    raw_body: Any,
    templates: Mapping[str, bool],
) -> Read:
    """The arguments of an operation. `templates` are the names in its path, and whether their values may hold slashes.

    Raises:
        SchemaError: a parameter or the body cannot be sent as it is declared.
    """
    document = converter.document
    notes: list[str] = []
    declared = _parameters(document, raw_parameters, templates, notes)
    body_schema, body = _choose_body(document, follow(document, raw_body))
    flat = _is_flat(document, declared, body_schema, body)
    arguments = _Arguments()
    parameters = tuple(
        _add_parameter(arguments, converter, raw, flat=flat, slashes=raw["in"] == "path" and templates[raw["name"]])
        for raw in declared
    )
    if body is not None:
        body = _add_body(arguments, converter, body_schema, body, flat=flat)
    unknown = [name for name in arguments.required if name not in arguments.properties]
    if unknown:
        arguments.required = [name for name in arguments.required if name in arguments.properties]
        notes.append(f"it requires {text.line(unknown[0], 64)!r}, which it does not describe")
    return Read(schema=_root(arguments, converter.definitions()), parameters=parameters, body=body, notes=tuple(notes))


def media_kind(media: str) -> BodyKind:
    """How a body of this media type is written."""
    essence = media.partition(";")[0].strip().lower()
    if essence in {"application/json", "*/*"} or essence.endswith("+json"):
        return "json"
    if essence == "multipart/form-data":
        return "multipart"
    if essence == "application/x-www-form-urlencoded":
        return "form"
    textual = {"application/xml", "application/yaml", "application/x-yaml", "application/x-ndjson", "application/jsonl"}
    if essence.startswith("text/") or essence.endswith(("+xml", "+yaml")) or essence in textual:
        return "text"
    return "bytes"


def _parameters(
    document: Mapping[str, Any], raw_parameters: list[Any], templates: Mapping[str, bool], notes: list[str]
) -> list[dict[str, Any]]:
    """The parameters with references followed; a later one, the operation's own, replaces its path's of the same name."""
    chosen: dict[tuple[str, str], dict[str, Any]] = {}
    for raw in raw_parameters:
        parameter = follow(document, raw)
        if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
            raise SchemaError("a parameter has no name")
        name, location = parameter["name"], parameter.get("in")
        if not isinstance(location, str) or location not in _DEFAULT_STYLE:
            raise SchemaError(f"the parameter {text.line(name, 64)!r} is in an unknown place")
        if location == "header":
            if not _HEADER_NAME.fullmatch(name):
                raise SchemaError(f"{text.line(name, 64)!r} cannot be a header's name")
            if name.lower() in _RESERVED_HEADERS or name.lower().startswith("mcp-"):
                if parameter.get("required") is True:
                    notes.append(f"it wants the header {name!r}, which callers cannot set; it may refuse every call")
                continue
        if "schema" not in parameter and "content" not in parameter and "type" in parameter:
            parameter = swagger.with_schema(parameter)
        chosen[location, name] = parameter
    for name in templates:
        if ("path", name) not in chosen:
            chosen["path", name] = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    return [raw for (location, name), raw in chosen.items() if location != "path" or name in templates]


def _choose_body(document: Mapping[str, Any], raw: Any) -> tuple[Any, Body | None]:
    """The media type that is spoken: JSON, else multipart, else form, else text, else raw bytes."""
    if not isinstance(raw, dict) or not isinstance(raw.get("content"), dict) or not raw["content"]:
        return None, None
    content: dict[str, Any] = raw["content"]
    ranked = sorted(content, key=lambda media: (_RANK.index(media_kind(media)), "json" not in media))
    media = ranked[0]
    if not _MEDIA_TYPE.fullmatch(media):
        raise SchemaError(f"{text.line(media, 64)!r} is no media type")
    kind = media_kind(media)
    described = content[media] if isinstance(content[media], dict) else {}
    schema = described.get("schema")
    if kind in {"multipart", "form"} and plain_object(document, schema) is None:
        raise SchemaError(f"its {kind} body is not an object with named fields")
    sent_as = "application/json" if kind == "json" and "*" in media else media
    optional = raw.get("required") is not True and kind not in {"multipart", "form"}
    joined, part_types = _encodings(described.get("encoding"))
    return schema, Body(
        kind=kind, media_type=sent_as, argument="body", optional=optional, joined=joined, part_types=part_types
    )


def _encodings(raw: Any) -> tuple[dict[str, str], dict[str, str]]:
    """What `encoding` says about a form's fields: lists in one value, and media types of parts."""
    joined: dict[str, str] = {}
    part_types: dict[str, str] = {}
    for name, encoding in raw.items() if isinstance(raw, dict) else ():
        if not isinstance(encoding, dict):
            continue
        style = encoding.get("style", "form")
        if encoding.get("explode", style == "form") is False and isinstance(style, str) and style in _JOINING:
            joined[name] = _JOINING[style]
        media = encoding.get("contentType")
        if isinstance(media, str) and "," not in media and "*" not in media and _MEDIA_TYPE.fullmatch(media):
            part_types[name] = media
    return joined, part_types


def _is_flat(document: Mapping[str, Any], parameters: list[dict[str, Any]], schema: Any, body: Body | None) -> bool:
    """Whether every parameter and body property can be an argument of its own without two sharing a name."""
    names = [_argument_name(raw["name"]) for raw in parameters]
    target = _flat_body(document, schema, body)
    if target is not None:
        names += target["properties"]
    elif body is not None:
        names.append("body")
    return len(names) == len(set(names))


def _flat_body(document: Mapping[str, Any], schema: Any, body: Body | None) -> Schema | None:
    """The body's object schema if its properties may be arguments of their own."""
    if body is None or body.kind in {"text", "bytes"}:
        return None
    target = plain_object(document, schema)
    if target is not None and body.optional and target.get("required"):
        return None  # "all of these or no body at all" cannot be said with arguments of their own
    if target is None or not all(_ARGUMENT_NAME.fullmatch(name) for name in target["properties"]):
        return None
    return target


def _add_parameter(
    arguments: _Arguments, converter: Converter, raw: dict[str, Any], *, flat: bool, slashes: bool
) -> Parameter:
    location: Location = raw["in"]
    schema, as_json = _parameter_schema(raw)
    argument = _argument_name(raw["name"])
    converted = converter.convert(schema, f"$.{argument}")
    description = text.clean(_string(raw.get("description")))
    if description and "description" not in converted:
        converted = {**converted, "description": description}
    target = arguments if flat else _group(arguments, location)
    if argument in target.properties:
        argument = catalogue.with_suffix(argument, raw["name"])
    target.properties[argument] = converted
    if raw.get("required") is True or location == "path":
        target.required.append(argument)
        if not flat and location not in arguments.required:
            arguments.required.append(location)
    if not flat:
        arguments.properties[location] = {"description": f"The {location} parameters.", **_object(target)}
    style = raw.get("style")
    if not isinstance(style, str) or style not in _STYLES[location]:
        style = _DEFAULT_STYLE[location]
    explode = raw["explode"] if isinstance(raw.get("explode"), bool) else style == "form"
    return Parameter(
        argument=argument,
        name=raw["name"],
        location=location,
        style=style,
        explode=explode,
        group=None if flat else location,
        as_json=as_json,
        slashes=slashes and style == "simple",
    )


def _group(arguments: _Arguments, location: str) -> _Arguments:
    existing = arguments.properties.get(location, {})
    return _Arguments(properties=dict(existing.get("properties", {})), required=list(existing.get("required", [])))


def _parameter_schema(raw: dict[str, Any]) -> tuple[Any, bool]:
    content = raw.get("content")
    if isinstance(content, dict) and content:
        media, described = next(iter(content.items()))
        schema = described.get("schema", {}) if isinstance(described, dict) else {}
        return schema, media_kind(media) == "json"
    return raw.get("schema", {}), False


def _add_body(arguments: _Arguments, converter: Converter, schema: Any, body: Body, *, flat: bool) -> Body:
    document = converter.document
    target = _flat_body(document, schema, body) if flat else None
    files = _file_fields(document, schema) if body.kind == "multipart" else frozenset[str]()
    if body.kind == "bytes":
        converted: Schema = dict(_BYTES_SCHEMA)
    elif body.kind == "text":
        converted = {"type": "string", "description": "The text to send."}
    else:
        # Converting the followed schema keeps its properties at hand for a flat root and for files.
        source = target if target is not None else follow(document, schema) if files else schema
        converted = converter.convert({} if source is None else source, "$" if target is not None else "$.body")
        for name in files & converted.get("properties", {}).keys():
            converted["properties"][name] = _file_schema(converted["properties"][name])
    if target is None:
        arguments.properties["body"] = converted
        if not body.optional:
            arguments.required.append("body")
        return replace(body, files=files)
    arguments.properties.update(converted["properties"])
    arguments.required += converted.get("required", [])
    # Where the document says nothing, what it does not name is refused: it would be dropped without a word.
    arguments.open = isinstance(target.get("additionalProperties"), dict) or target.get("additionalProperties") is True
    return replace(body, argument=None, files=files)


def _file_fields(document: Mapping[str, Any], schema: Any) -> frozenset[str]:
    """Properties that are files, or lists of files."""
    target = plain_object(document, schema)
    if target is None:
        return frozenset()
    return frozenset(name for name, sub in target["properties"].items() if _is_file(document, sub))


def _is_file(document: Mapping[str, Any], schema: Any, depth: int = 0) -> bool:
    """`format: binary` in 3.0, `contentMediaType` in 3.1, `type: file` before; lists and nullable ones count."""
    target = follow(document, schema)
    if not isinstance(target, dict) or depth > 4:
        return False
    if target.get("type") == "array":
        return _is_file(document, target.get("items"), depth + 1)
    choices = target.get("anyOf")
    if isinstance(choices, list) and any(_is_file(document, sub, depth + 1) for sub in choices[:4]):
        return True
    media = target.get("contentMediaType")
    raw = isinstance(media, str) and "contentEncoding" not in target and media_kind(media) == "bytes"
    return raw or target.get("format") == "binary" or target.get("type") == "file"


def _file_schema(schema: Schema) -> Schema:
    kept: Schema = {key: schema[key] for key in ("description", "title") if key in schema}
    many = schema.get("type") == "array" or any(
        isinstance(sub, dict) and sub.get("type") == "array" for sub in schema.get("anyOf", ())
    )
    return {"type": "array", "items": dict(FILE_SCHEMA), **kept} if many else {**FILE_SCHEMA, **kept}


def _root(arguments: _Arguments, definitions: dict[str, Schema]) -> Schema:
    root = _object(arguments)
    if arguments.open:
        del root["additionalProperties"]
    if definitions:
        root["$defs"] = definitions
    return root


def _object(arguments: _Arguments) -> Schema:
    schema: Schema = {"type": "object", "properties": arguments.properties}
    if arguments.required:
        schema["required"] = list(dict.fromkeys(arguments.required))
    # An argument that nothing takes would be dropped silently; refused, its sender learns of the misspelling.
    schema["additionalProperties"] = False
    return schema


def _argument_name(name: str) -> str:
    if _ARGUMENT_NAME.fullmatch(name):
        return name
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:64] or "argument"


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
