"""Tools from an OpenAPI document: which operations are published, and how they are named and described.

Owns the reading of the document. Pure: the document comes in decoded, specs and notes come out. One operation that cannot
be published costs a note and never the others, and what was repaired is said. What an operation's arguments are is in
`openapi_arguments`, Swagger 2.0 in `swagger`; what is done with a binding at call time is in `openapi_request`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from modelservice_api.adapter_config import OpenAPIConfig
from modelservice_sidecar.core import catalogue, openapi_arguments, swagger, text
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import DescribeError
from modelservice_sidecar.core.openapi_binding import Operation, encode_path
from modelservice_sidecar.core.schema import Converter, Definitions, Schema, SchemaError, follow, object_root

METHODS: Final = ("get", "post", "put", "patch", "delete")
MAX_OPERATIONS: Final = 2_000
"""More are not converted: a document of five megabytes can hold hundreds of thousands."""
MAX_DESCRIBED: Final = 20_000
"""More are not even chosen from."""

NOT_TOOLS: Final = frozenset(
    {"/health", "/healthz", "/healthcheck", "/health-check", "/health/live", "/health/ready", "/livez", "/live"}
    | {"/readyz", "/ready", "/startupz", "/ping", "/metrics", "/actuator", "/q/health", "/q/metrics"}
    | {"/docs", "/docs/oauth2-redirect", "/redoc", "/openapi", "/openapi.json", "/openapi.yaml", "/api-docs"}
    | {"/swagger", "/swagger.json", "/swagger.yaml", "/favicon.ico", "/robots.txt"}
)
"""Paths that serve machines, not models, also below `/api` and `/v1`; left out unless `include` names their operation."""
_BELOW_NOT_TOOLS: Final = ("/actuator/", "/swagger-ui", "/q/health/")
_VERSION: Final = re.compile(r"^(?:/api)?(?:/v\d+)?(?=/)")

# `{name}`, and how frameworks mark a value of several segments: `{name:path}`, `{name:.*}`, `{name*}`, `{+name}`, `{name...}`.
_TEMPLATE: Final = re.compile(r"\{(\+?)([^{}:*]+?)(\*{1,2}|\.\.\.)?(?::([^{}]*))?\}")
_SEVERAL: Final = frozenset({"path", ".*", ".+"})
_MAX_OTHERS: Final = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What a document holds: the tools, and sentences about what is not published or was repaired, and why.

    `dialect` is what the document calls itself, such as `OpenAPI 3.1.0`.
    """

    tools: tuple[ToolSpec, ...]
    notes: tuple[str, ...] = ()
    dialect: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Source:
    """The document and what is known about it. `config_path` is where it was fetched from."""

    document: Mapping[str, Any]
    dialect: str
    swagger: bool
    legacy: bool
    config_path: str
    is_pattern: Callable[[str], bool]
    inputs: Definitions = field(default_factory=Definitions)
    outputs: Definitions = field(default_factory=Definitions)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """One operation as it stands. `path` holds plain templates; `templates` says which values may hold slashes."""

    prefix: str
    path: str
    templates: Mapping[str, bool]
    method: str
    operation: Mapping[str, Any]
    shared: tuple[Any, ...]
    operation_id: str
    short_name: str

    @property
    def shown(self) -> str:
        return f"{self.method.upper()} {text.line(self.prefix + self.path, 120)}"


def read(document: object, config: OpenAPIConfig, *, is_pattern: Callable[[str], bool] = lambda _: True) -> Reading:
    """The document's tools under this configuration. `is_pattern` says which regular expressions can be checked.

    Raises:
        DescribeError: the document is not an OpenAPI document, or describes more than can be read.
    """
    source = _check_document(document, config, is_pattern)
    left_out: list[str] = []
    said: list[str] = []
    repairs: dict[str, list[str]] = {}
    every = list(islice(_operations(source, left_out), MAX_DESCRIBED + 1))
    if len(every) > MAX_DESCRIBED:
        raise DescribeError("Invalid", f"The OpenAPI document describes more than {MAX_DESCRIBED} operations.")
    found = _wanted(every, config)
    if len(found) > MAX_OPERATIONS:
        message = f"The OpenAPI document describes {len(found)} operations and at most {MAX_OPERATIONS} are read."
        raise DescribeError("Invalid", f"{message} Choose some by include, exclude or tags of backend.openAPI.")
    short_names = Counter(entry.short_name for entry in found)
    tools: dict[str, ToolSpec] = {}
    for entry in found:
        identity = f"{entry.method} {entry.prefix}{entry.path}"
        unique = short_names[entry.short_name] == 1
        name = catalogue.tool_name(entry.short_name if unique else entry.operation_id, identity)
        taken = name in tools
        if taken:
            name = catalogue.with_suffix(name, identity)
        try:
            tools[name] = _tool(source, entry, name, every, said, repairs)
        except SchemaError as error:
            left_out.append(f"{entry.shown} is not published: {error}.")
        else:
            if taken:
                said.append(f"{entry.shown} shares its name with another operation, so its tool is {name!r}.")
    notes = (*left_out, *said, *_repair_notes(repairs))
    if not tools and not notes:
        notes = ("The document describes no operation that is published.",)
    return Reading(tools=tuple(tools.values()), notes=notes, dialect=source.dialect)


def _check_document(document: object, config: OpenAPIConfig, is_pattern: Callable[[str], bool]) -> _Source:
    if not isinstance(document, dict):
        raise DescribeError("Invalid", "The OpenAPI document is not a JSON object.")
    version = document.get("openapi", document.get("swagger"))
    is_swagger = "openapi" not in document and "swagger" in document
    if version is None:
        raise DescribeError("NotRecognised", "The JSON document there has no `openapi` field, so it is not OpenAPI.")
    version = str(version)
    if not version.startswith("2." if is_swagger else "3."):
        known = "OpenAPI 3 and Swagger 2.0 are"
        raise DescribeError("Invalid", f"OpenAPI {text.line(version, 20)} is not understood; {known}.")
    if not isinstance(document.get("paths", {}), dict):
        raise DescribeError("Invalid", "`paths` of the OpenAPI document is not an object.")
    return _Source(
        document=document,
        dialect=f"{'Swagger' if is_swagger else 'OpenAPI'} {text.line(version, 20)}",
        swagger=is_swagger,
        legacy=is_swagger or version.startswith("3.0"),
        config_path=config.path,
        is_pattern=is_pattern,
    )


def _operations(source: _Source, notes: list[str]) -> Iterator[_Found]:
    for path, raw_item in source.document.get("paths", {}).items():
        if path.startswith("x-"):
            continue
        try:
            item = _path_item(source, path, raw_item)
        except SchemaError as error:
            notes.append(f"{text.line(path, 120)} is not published: {error}.")
            continue
        templates = {
            name: bool(plus or stars) or modifier in _SEVERAL for plus, name, stars, modifier in _TEMPLATE.findall(path)
        }
        plain = _TEMPLATE.sub(lambda match: "{" + match[2] + "}", path)
        for method in METHODS:
            operation = item.get(method)
            if operation is None:
                continue
            if not isinstance(operation, dict):
                notes.append(f"{method.upper()} {text.line(path, 120)} is not published: it is not an object.")
                continue
            operation_id = operation.get("operationId")
            if not isinstance(operation_id, str) or not operation_id:
                operation_id = f"{method}_{plain.strip('/')}"
            yield _Found(
                prefix=_prefix(source, item, operation),
                path=plain,
                templates=templates,
                method=method,
                operation=operation,
                shared=tuple(_list(item.get("parameters"))),
                operation_id=operation_id,
                short_name=_short_name(operation_id, plain, method),
            )


def _path_item(source: _Source, path: str, raw: Any) -> Mapping[str, Any]:
    """The path item with its reference followed; what stands beside the reference wins."""
    item = follow(source.document, raw)
    if not isinstance(item, dict):
        raise SchemaError("it is not an object")
    if not path.startswith("/"):
        raise SchemaError("its path does not begin with a slash")
    if "?" in path or "#" in path:
        raise SchemaError("its path holds a query or a fragment, which belong into parameters")
    beside = {key: value for key, value in raw.items() if key != "$ref"}
    return {**item, **beside}


def _prefix(source: _Source, item: Mapping[str, Any], operation: Mapping[str, Any]) -> str:
    """The path part of the nearest first server: where the application is mounted. Host and scheme are never followed."""
    if source.swagger:
        base = source.document.get("basePath")
        return "/" + base.strip("/") if isinstance(base, str) and base.strip("/") else ""
    for holder in (operation, item, source.document):
        for server in _list(holder.get("servers"))[:1]:
            url = server.get("url") if isinstance(server, dict) else None
            if isinstance(url, str):
                return _server_path(source, url, server.get("variables"))
    return ""


def _server_path(source: _Source, url: str, variables: Any) -> str:
    for name, variable in variables.items() if isinstance(variables, dict) else ():
        default = variable.get("default") if isinstance(variable, dict) else None
        url = url.replace("{" + name + "}", str(default) if isinstance(default, str | int) else "")
    try:
        path = urlsplit(url if "//" in url or url.startswith("/") else urljoin(source.config_path, url)).path
    except ValueError:
        return ""
    return "" if "{" in path else path.rstrip("/")


def _short_name(operation_id: str, path: str, method: str) -> str:
    """FastAPI makes `predict_predict_post` of a function `predict`; the function's name is what people know."""
    tail = re.sub(r"\W", "_", path) + "_" + method
    return operation_id.removesuffix(tail).strip("_") or operation_id if operation_id.endswith(tail) else operation_id


def _wanted(found: list[_Found], config: OpenAPIConfig) -> list[_Found]:
    """What the configuration chooses; where it chooses nothing, what the document does: `x-mcp`, and not for machines."""
    marked = any(entry.operation.get("x-mcp") is True for entry in found)

    def matches(entry: _Found, patterns: tuple[str, ...]) -> bool:
        names = (entry.operation_id, entry.short_name)
        return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)

    def wanted(entry: _Found) -> bool:
        if matches(entry, config.exclude):
            return False
        tags = {tag for tag in _list(entry.operation.get("tags")) if isinstance(tag, str)}
        if config.tags and not tags.intersection(config.tags):
            return False
        if config.include:
            return matches(entry, config.include)
        flag = entry.operation.get("x-mcp")
        return flag is not False and (flag is True or not marked) and (flag is True or not _is_for_machines(entry.path))

    return [entry for entry in found if wanted(entry)]


def _is_for_machines(path: str) -> bool:
    bare = _VERSION.sub("", path.lower()).rstrip("/")
    return bare in NOT_TOOLS or bare.startswith(_BELOW_NOT_TOOLS)


def _repair_notes(repairs: Mapping[str, list[str]]) -> Iterator[str]:
    """One sentence per repair: a definition that many operations use is repaired once."""
    for what, where in repairs.items():
        others = f" and {len(where) - 1} more" if len(where) > 1 else ""
        yield f"{where[0]}{others}: {what}."


def _tool(
    source: _Source,
    entry: _Found,
    name: str,
    every: list[_Found],
    notes: list[str],
    repairs: dict[str, list[str]],
) -> ToolSpec:
    operation, shared = entry.operation, entry.shared
    if source.swagger:
        operation, shared = swagger.rewritten(source.document, operation, shared), ()
    converter = Converter(
        document=source.document,
        legacy=source.legacy,
        direction="input",
        is_pattern=source.is_pattern,
        shared=source.inputs,
    )
    raw_parameters = [*shared, *_list(operation.get("parameters"))]
    read = openapi_arguments.read(converter, raw_parameters, operation.get("requestBody"), entry.templates)
    notes += [f"{entry.shown}: {note}." for note in read.notes]
    for repair in dict.fromkeys(converter.repairs):
        repairs.setdefault(repair, []).append(entry.shown)
    output_schema, wrap = _output(source, operation, read.schema)
    path = entry.prefix + entry.path
    return ToolSpec(
        name=name,
        operation_id=entry.operation_id,
        title=text.clean(_string(operation.get("summary")), 128) or None,
        description=_description(entry),
        input_schema=read.schema,
        output_schema=output_schema,
        annotations=_annotations(entry.method),
        binding=Operation(
            method=entry.method.upper(),
            path=path,
            target=encode_path(path),
            parameters=read.parameters,
            body=read.body,
            wrap=wrap,
            others=_others(entry, every) if any(entry.templates.values()) else (),
        ),
    )


def _others(entry: _Found, every: list[_Found]) -> tuple[re.Pattern[str], ...]:
    """The document's other paths that a value with slashes could lead to, each as a pattern over encoded paths."""
    own = entry.prefix + entry.path
    start = own.partition("{")[0]
    paths: dict[str, None] = {}
    for other in every:
        path = other.prefix + other.path
        theirs = path.partition("{")[0]
        if path != own and other.method == entry.method and (theirs.startswith(start) or start.startswith(theirs)):
            paths[path] = None
    if len(paths) > _MAX_OTHERS:
        raise SchemaError(f"its path value may hold slashes and could reach {len(paths)} other operations")
    templates = [re.split(r"\{[^{}]*\}", path) for path in paths]
    return tuple(re.compile("[^/]+".join(re.escape(encode_path(part)) for part in parts)) for parts in templates)


def _description(entry: _Found) -> str:
    written = text.clean(_string(entry.operation.get("description"))) or text.clean(
        _string(entry.operation.get("summary"))
    )
    described = written or f"{entry.method.upper()} {text.clean(entry.prefix + entry.path, 200)}"
    return f"(Deprecated) {described}" if entry.operation.get("deprecated") is True else described


def _annotations(method: str) -> dict[str, object]:
    """What HTTP promises about a method; a POST promises nothing, so nothing is said."""
    if method == "get":
        return {"readOnlyHint": True, "idempotentHint": True}
    if method == "put":
        return {"idempotentHint": True}
    return {"destructiveHint": True, "idempotentHint": True} if method == "delete" else {}


def _output(source: _Source, operation: Mapping[str, Any], arguments: Schema) -> tuple[Schema | None, bool]:
    """The output schema, and whether answers are wrapped.

    Only where the one success answer is JSON and nothing else: a tool that declares an output schema must always answer
    with structured content. A caller that can ask for a stream gets none.
    """
    try:
        responses = follow(source.document, operation.get("responses"))
        successes = [raw for code, raw in _items(responses) if str(code).upper().startswith("2")]
        if len(successes) != 1 or _can_stream(arguments):
            return None, False
        answer = follow(source.document, successes[0])
        content = answer.get("content") if isinstance(answer, dict) else None
        if not isinstance(content, dict) or len(content) != 1:
            return None, False
        media, described = next(iter(content.items()))
        schema = described.get("schema") if isinstance(described, dict) else None
        if not schema or openapi_arguments.media_kind(media) != "json" or not isinstance(schema, dict):
            return None, False
        converter = Converter(document=source.document, legacy=source.legacy, direction="output", shared=source.outputs)
        target = object_root(source.document, schema)
        if target is not None:
            root = {"properties": {}, **converter.convert(target), "type": "object"}
        else:
            root = {"type": "object", "properties": {"result": converter.convert(schema)}}
            root["required"] = ["result"]
        definitions = converter.definitions()
    except SchemaError:
        return None, False  # an answer needs no schema; the tool is still worth publishing
    return ({**root, "$defs": definitions} if definitions else root), target is None


def _can_stream(arguments: Schema) -> bool:
    """Whether an argument `stream` can turn the answer into one; Ollama streams even where nobody asked."""
    flag = arguments["properties"].get("stream")
    return isinstance(flag, dict) and "boolean" in str(flag.get("type", flag.get("anyOf")))


def _items(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
