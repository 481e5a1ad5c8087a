"""Tools from an OpenAPI document: which operations are published, how they are named, and how arguments map to a request.

Owns the reading of the document. Pure: the document comes in decoded, specs and notes come out. One operation that cannot
be published costs a note and never the others. What is done with a binding at call time is in `http_call`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

from modelservice_api.adapter_config import OpenAPIConfig
from modelservice_sidecar.core import catalogue, text
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import DescribeError
from modelservice_sidecar.core.schema import Converter, Schema, SchemaError, follow, object_root, plain_object

Location = Literal["path", "query", "header", "cookie"]
BodyKind = Literal["json", "multipart", "form", "text", "bytes"]

METHODS: Final = ("get", "post", "put", "patch", "delete")

NOT_TOOLS: Final = frozenset(
    {
        "/health",
        "/healthz",
        "/health/live",
        "/health/ready",
        "/livez",
        "/live",
        "/readyz",
        "/ready",
        "/ping",
        "/metrics",
    }
    | {"/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json", "/openapi.yaml", "/swagger.json", "/favicon.ico"}
)
"""Paths that serve machines, not models; left out unless `include` names their operation."""

FILE_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "A file, with its content in base64.",
    "properties": {
        "filename": {"type": "string"},
        "mimeType": {"type": "string"},
        "data": {"type": "string", "contentEncoding": "base64"},
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
_TEMPLATE: Final = re.compile(r"\{([^{}]+)\}")
_DEFAULT_STYLE: Final[dict[str, str]] = {"path": "simple", "header": "simple", "query": "form", "cookie": "form"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One parameter. `group` is the argument object it stands in, `None` where arguments are flat."""

    argument: str
    name: str
    location: Location
    style: str
    explode: bool
    group: str | None = None
    as_json: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """The request body. `argument` is `None` where its properties are arguments of their own.

    `files` are the properties whose values are files. Without any of its arguments, an `optional` body is not sent.
    """

    kind: BodyKind
    media_type: str
    argument: str | None
    optional: bool = False
    files: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """How to call one operation. `path` still holds its templates, `target` is the same encoded for the wire; `wrap` puts
    every JSON answer under `result`."""

    method: str
    path: str
    target: str
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    wrap: bool = False
    accept: str = "application/json, */*;q=0.5"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What a document holds: the tools, and sentences about what is not published and why."""

    tools: tuple[ToolSpec, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    path: str
    method: str
    operation: Mapping[str, Any]
    shared: tuple[Any, ...]
    operation_id: str
    short_name: str


@dataclass(kw_only=True, slots=True)
class _Arguments:
    """The argument schema under construction."""

    properties: dict[str, Any] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    open: bool = False


def read(document: object, config: OpenAPIConfig) -> Reading:
    """The document's tools under this configuration.

    Raises:
        DescribeError: the document is not an OpenAPI 3 document.
    """
    checked = _check_document(document)
    notes: list[str] = []
    found = [entry for entry in _operations(checked, notes) if _wanted(entry, config)]
    short_names = Counter(entry.short_name for entry in found)
    tools: dict[str, ToolSpec] = {}
    for entry in found:
        identity = f"{entry.method} {entry.path}"
        unique = short_names[entry.short_name] == 1
        name = catalogue.tool_name(entry.short_name if unique else entry.operation_id, identity)
        if name in tools:
            name = catalogue.with_suffix(name, identity)
        try:
            tools[name] = _tool(checked, entry, name, notes)
        except SchemaError as error:
            notes.append(f"{entry.method.upper()} {text.clean(entry.path, 120)} is not published: {error}.")
    return Reading(tools=tuple(tools.values()), notes=tuple(notes))


def _check_document(document: object) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise DescribeError("Invalid", "The OpenAPI document is not a JSON object.")
    version = document.get("openapi")
    if "swagger" in document:
        raise DescribeError("Invalid", "The document is Swagger 2.0; only OpenAPI 3 is understood.")
    if not isinstance(version, str):
        raise DescribeError("NotRecognised", "The JSON document there has no `openapi` field, so it is not OpenAPI.")
    if not version.startswith("3."):
        raise DescribeError("Invalid", f"OpenAPI {text.clean(version, 20)} is not understood; only OpenAPI 3 is.")
    if not isinstance(document.get("paths", {}), dict):
        raise DescribeError("Invalid", "`paths` of the OpenAPI document is not an object.")
    return document


def _operations(document: Mapping[str, Any], notes: list[str]) -> Iterator[_Found]:
    prefix = _server_prefix(document)
    for path, raw_item in document.get("paths", {}).items():
        try:
            item = follow(document, raw_item)
        except SchemaError as error:
            notes.append(f"{text.clean(path, 120)} is not published: {error}.")
            continue
        if not isinstance(item, dict) or not path.startswith("/"):
            continue
        for method in METHODS:
            operation = item.get(method)
            if isinstance(operation, dict):
                operation_id = operation.get("operationId")
                if not isinstance(operation_id, str) or not operation_id:
                    operation_id = f"{method}_{path.strip('/')}"
                yield _Found(
                    path=prefix + path,
                    method=method,
                    operation=operation,
                    shared=tuple(_list(item.get("parameters"))),
                    operation_id=operation_id,
                    short_name=_short_name(operation_id, path, method),
                )


def _server_prefix(document: Mapping[str, Any]) -> str:
    """The path part of the first server: where the application is mounted. Host and scheme are never followed."""
    for server in _list(document.get("servers"))[:1]:
        url = server.get("url") if isinstance(server, dict) else None
        if isinstance(url, str) and "{" not in url:
            try:
                return urlsplit(url).path.rstrip("/")
            except ValueError:
                return ""
    return ""


def _short_name(operation_id: str, path: str, method: str) -> str:
    """FastAPI makes `predict_predict_post` of a function `predict`; the function's name is what people know."""
    tail = re.sub(r"\W", "_", path) + "_" + method
    return operation_id.removesuffix(tail).strip("_") or operation_id if operation_id.endswith(tail) else operation_id


def _wanted(entry: _Found, config: OpenAPIConfig) -> bool:
    names = (entry.operation_id, entry.short_name)

    def matches(patterns: tuple[str, ...]) -> bool:
        return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)

    if matches(config.exclude):
        return False
    if config.tags and not set(config.tags) & {
        tag for tag in _list(entry.operation.get("tags")) if isinstance(tag, str)
    }:
        return False
    if config.include:
        return matches(config.include)
    return entry.path not in NOT_TOOLS


def _tool(document: Mapping[str, Any], entry: _Found, name: str, notes: list[str]) -> ToolSpec:
    converter = Converter(document=document, legacy=str(document["openapi"]).startswith("3.0"), direction="input")
    raw_parameters = _parameters(document, entry, notes)
    raw_body = follow(document, entry.operation.get("requestBody"))
    body_schema, body = _choose_body(document, raw_body)
    flat = _is_flat(document, raw_parameters, body_schema, body)
    arguments = _Arguments()
    parameters = tuple(_add_parameter(arguments, converter, raw, flat=flat) for raw in raw_parameters)
    if body is not None:
        body = _add_body(arguments, converter, document, body_schema, body, flat=flat)
    output_schema, wrap = _output(document, entry)
    return ToolSpec(
        name=name,
        operation_id=entry.operation_id,
        title=text.clean(_string(entry.operation.get("summary")), 128) or None,
        description=_description(entry),
        input_schema=_root(arguments, converter.definitions()),
        output_schema=output_schema,
        annotations=_annotations(entry.method),
        binding=Operation(
            method=entry.method.upper(),
            path=entry.path,
            target=encode_path(entry.path),
            parameters=parameters,
            body=body,
            wrap=wrap,
        ),
    )


def _description(entry: _Found) -> str:
    written = text.clean(_string(entry.operation.get("description"))) or text.clean(
        _string(entry.operation.get("summary"))
    )
    described = written or f"{entry.method.upper()} {text.clean(entry.path, 200)}"
    return f"(Deprecated) {described}" if entry.operation.get("deprecated") is True else described


def _annotations(method: str) -> dict[str, object]:
    """What HTTP promises about a method; a POST promises nothing, so nothing is said."""
    if method == "get":
        return {"readOnlyHint": True, "idempotentHint": True}
    if method == "put":
        return {"idempotentHint": True}
    return {"destructiveHint": True, "idempotentHint": True} if method == "delete" else {}


def _parameters(document: Mapping[str, Any], entry: _Found, notes: list[str]) -> list[dict[str, Any]]:
    """The operation's parameters with references followed; an operation's own replace the path's of the same name."""
    chosen: dict[tuple[str, str], dict[str, Any]] = {}
    for raw in (*entry.shared, *_list(entry.operation.get("parameters"))):
        parameter = follow(document, raw)
        if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
            raise SchemaError("a parameter has no name")
        name, location = parameter["name"], parameter.get("in")
        if location not in _DEFAULT_STYLE:
            raise SchemaError(f"the parameter {text.clean(name, 64)!r} is in an unknown place")
        if location == "header" and (name.lower() in _RESERVED_HEADERS or name.lower().startswith("mcp-")):
            if parameter.get("required") is True:
                where = f"{entry.method.upper()} {text.clean(entry.path, 120)}"
                notes.append(f"{where} wants the header {name!r}, which callers cannot set; it may refuse every call.")
            continue
        chosen[location, name] = parameter
    templates = _TEMPLATE.findall(entry.path)
    missing = [name for name in templates if ("path", name) not in chosen]
    for name in missing:
        chosen["path", name] = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    return [raw for (location, name), raw in chosen.items() if location != "path" or name in templates]


def _choose_body(document: Mapping[str, Any], raw: Any) -> tuple[Any, Body | None]:
    """The media type that is spoken: JSON, else multipart, else form, else text, else raw bytes."""
    if not isinstance(raw, dict) or not isinstance(raw.get("content"), dict) or not raw["content"]:
        return None, None
    content: dict[str, Any] = raw["content"]
    ranked = sorted(content, key=lambda media: (_RANK.index(_body_kind(media)), "json" not in media))
    media = ranked[0]
    kind = _body_kind(media)
    schema = content[media].get("schema") if isinstance(content[media], dict) else None
    if kind in {"multipart", "form"} and plain_object(document, schema) is None:
        raise SchemaError(f"its {kind} body is not an object with named fields")
    sent_as = "application/json" if kind == "json" and "*" in media else media
    optional = raw.get("required") is not True and kind not in {"multipart", "form"}
    return schema, Body(kind=kind, media_type=sent_as, argument="body", optional=optional)


def _body_kind(media: str) -> BodyKind:
    essence = media.partition(";")[0].strip().lower()
    if essence in {"application/json", "*/*"} or essence.endswith("+json"):
        return "json"
    if essence == "multipart/form-data":
        return "multipart"
    if essence == "application/x-www-form-urlencoded":
        return "form"
    return "text" if essence.startswith("text/") else "bytes"


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


def _add_parameter(arguments: _Arguments, converter: Converter, raw: dict[str, Any], *, flat: bool) -> Parameter:
    location: Location = raw["in"]
    schema, as_json = _parameter_schema(raw)
    converted = converter.convert(schema)
    description = text.clean(_string(raw.get("description")))
    if description and "description" not in converted:
        converted = {**converted, "description": description}
    target = arguments if flat else _group(arguments, location)
    argument = _argument_name(raw["name"])
    if argument in target.properties:
        argument = catalogue.with_suffix(argument, raw["name"])
    target.properties[argument] = converted
    if raw.get("required") is True or location == "path":
        target.required.append(argument)
        if not flat and location not in arguments.required:
            arguments.required.append(location)
    if not flat:
        arguments.properties[location] = _object(target)
    style = _string(raw.get("style")) or _DEFAULT_STYLE[location]
    explode = raw["explode"] if isinstance(raw.get("explode"), bool) else style == "form"
    return Parameter(
        argument=argument,
        name=raw["name"],
        location=location,
        style=style,
        explode=explode,
        group=None if flat else location,
        as_json=as_json,
    )


def _group(arguments: _Arguments, location: str) -> _Arguments:
    existing = arguments.properties.get(location, {})
    return _Arguments(properties=dict(existing.get("properties", {})), required=list(existing.get("required", [])))


def _parameter_schema(raw: dict[str, Any]) -> tuple[Any, bool]:
    content = raw.get("content")
    if isinstance(content, dict) and content:
        media, described = next(iter(content.items()))
        return (described.get("schema", {}) if isinstance(described, dict) else {}), _body_kind(media) == "json"
    return raw.get("schema", {}), False


def _add_body(
    arguments: _Arguments,
    converter: Converter,
    document: Mapping[str, Any],
    schema: Any,
    body: Body,
    *,
    flat: bool,
) -> Body:
    target = _flat_body(document, schema, body) if flat else None
    files = _file_fields(document, schema) if body.kind == "multipart" else frozenset[str]()
    if body.kind == "bytes":
        converted: Schema = dict(_BYTES_SCHEMA)
    elif body.kind == "text":
        converted = {"type": "string", "description": "The text to send."}
    else:
        # Converting the followed schema keeps its properties at hand for a flat root and for files.
        source = target if target is not None else follow(document, schema) if files else schema
        converted = converter.convert({} if source is None else source)
        for name in files & converted.get("properties", {}).keys():
            converted["properties"][name] = _file_schema(converted["properties"][name])
    if target is None:
        arguments.properties["body"] = converted
        if not body.optional:
            arguments.required.append("body")
        return replace(body, files=files)
    arguments.properties.update(converted["properties"])
    arguments.required += converted.get("required", [])
    arguments.open = converted.get("additionalProperties") is not False
    return replace(body, argument=None, files=files)


def _file_fields(document: Mapping[str, Any], schema: Any) -> frozenset[str]:
    target = plain_object(document, schema)
    properties = target["properties"] if target is not None else {}
    return frozenset(name for name, sub in properties.items() if _is_file(document, sub))


def _is_file(document: Mapping[str, Any], schema: Any) -> bool:
    """Files are `format: binary` in OpenAPI 3.0 and `contentMediaType` in 3.1; lists and nullable ones count."""
    target = follow(document, schema)
    if not isinstance(target, dict):
        return False
    if target.get("type") == "array":
        return _is_file(document, target.get("items"))
    if any(_is_file(document, sub) for sub in _list(target.get("anyOf"))[:4]):
        return True
    return target.get("format") == "binary" or target.get("contentMediaType") == "application/octet-stream"


def _file_schema(schema: Schema) -> Schema:
    kept: Schema = {key: schema[key] for key in ("description", "title") if key in schema}
    many = schema.get("type") == "array" or any(sub.get("type") == "array" for sub in schema.get("anyOf", ()))
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
        schema["required"] = list(arguments.required)
    # An argument that nothing takes would be dropped silently; refused, its sender learns of the misspelling.
    schema["additionalProperties"] = False
    return schema


def _output(document: Mapping[str, Any], entry: _Found) -> tuple[Schema | None, bool]:
    """The output schema, and whether answers are wrapped.

    Only where the one success answer is JSON and nothing else: a tool that declares an output schema must always answer
    with structured content.
    """
    responses = follow(document, entry.operation.get("responses"))
    successes = [raw for code, raw in _items(responses) if str(code).upper().startswith("2")]
    if len(successes) != 1:
        return None, False
    try:
        answer = follow(document, successes[0])
        content = answer.get("content") if isinstance(answer, dict) else None
        if not isinstance(content, dict) or len(content) != 1:
            return None, False
        media, described = next(iter(content.items()))
        schema = described.get("schema") if isinstance(described, dict) else None
        if not schema or _body_kind(media) != "json" or not isinstance(schema, dict):
            return None, False
        legacy = str(document["openapi"]).startswith("3.0")
        converter = Converter(document=document, legacy=legacy, direction="output")
        target = object_root(document, schema)
        if target is not None:
            root = {"properties": {}, **converter.convert(target), "type": "object"}
        else:
            root = {"type": "object", "properties": {"result": converter.convert(schema)}}
            root["required"] = ["result"]
        definitions = converter.definitions()
    except SchemaError:
        return None, False  # an answer needs no schema; the tool is still worth publishing
    return ({**root, "$defs": definitions} if definitions else root), target is None


def encode_path(path: str) -> str:
    """A path for the request line; what is encoded already stays."""
    return quote(path, safe="/-._~!$&'()*+,;=:@%")


def _argument_name(name: str) -> str:
    if _ARGUMENT_NAME.fullmatch(name):
        return name
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:64] or "argument"


def _items(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


_RANK: Final[tuple[BodyKind, ...]] = ("json", "multipart", "form", "text", "bytes")
