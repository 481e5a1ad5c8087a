"""From a tool's arguments to an HTTP request, by the binding that discovery made. Pure.

Owns serialisation: parameter styles, encoding of path values, JSON, form and multipart bodies. Arguments have passed the
tool's schema before they come here; what is checked here is what a schema cannot say (a path value that would reach
another path, bytes that are not base64, a header value that is not one line).
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus

import orjson

from modelservice_sidecar.core.errors import InvalidArgumentsError
from modelservice_sidecar.core.openapi_binding import Body, Operation, Parameter, encode_path

RawHeaders = list[tuple[bytes, bytes]]

_NOT_IN_HEADERS: Final = re.compile(r"[^\t\x20-\x7e]")
_LIST_SEPARATOR: Final = {"spaceDelimited": "%20", "tabDelimited": "%09", "pipeDelimited": "|"}
_HEADER_SEPARATOR: Final = {"spaceDelimited": " ", "tabDelimited": "\t", "pipeDelimited": "|"}


class HttpRequest(NamedTuple):
    """What goes to the model server. `target` is the path with its query; framing headers are the pool's business.

    `tail` are buffers that follow `body` and are sent without being copied into one.
    """

    method: str
    target: str
    headers: RawHeaders
    body: bytes
    tail: tuple[bytes | bytearray | memoryview, ...] = ()


def build(operation: Operation, arguments: dict[str, Any], boundary: str) -> HttpRequest:
    """The request for these arguments; `boundary` separates the parts of a multipart body.

    Raises:
        InvalidArgumentsError: a value cannot be sent where the operation wants it; the text names its path.
    """
    headers: RawHeaders = [(b"accept", operation.accept.encode())]
    target = operation.target
    if not operation.parameters:
        body = _body(operation.body, arguments, arguments, headers, boundary)
        return HttpRequest(method=operation.method, target=target, headers=headers, body=body)
    path, query, cookies = operation.path, list[str](), list[str]()
    rest = dict(arguments)
    for parameter in operation.parameters:
        found, value = _take(parameter, rest, arguments)
        if not found or value is None:
            continue
        where = _where(parameter)
        if parameter.as_json:
            value = orjson.dumps(value).decode()
        if parameter.location == "path":
            path = path.replace("{" + parameter.name + "}", _path_value(parameter, value, where))
        elif parameter.location == "query":
            query += _query_values(parameter, value)
        elif parameter.location == "cookie":
            cookies.append(f"{quote(parameter.name)}={_flat(parameter, value, lambda item: quote(item, safe=''))}")
        else:
            line = _flat(parameter, value, str)
            if _NOT_IN_HEADERS.search(line):
                raise InvalidArgumentsError(f"{where}: a header value must be one line of ASCII text")
            headers.append((parameter.name.lower().encode("ascii", "ignore"), line.encode("ascii")))
    if cookies:
        headers.append((b"cookie", "; ".join(cookies).encode("ascii")))
    target = encode_path(path)
    if operation.others and any(other.fullmatch(target) for other in operation.others):
        raise InvalidArgumentsError("$: these values lead to the path of another operation, which is a tool of its own")
    if query:
        target += "?" + "&".join(query)
    body = _body(operation.body, rest, arguments, headers, boundary)
    return HttpRequest(method=operation.method, target=target, headers=headers, body=body)


def _take(parameter: Parameter, rest: dict[str, Any], arguments: Mapping[str, Any]) -> tuple[bool, Any]:
    if parameter.group is None:
        return (True, rest.pop(parameter.argument)) if parameter.argument in rest else (False, None)
    group = arguments.get(parameter.group)
    rest.pop(parameter.group, None)
    return (
        (True, group[parameter.argument]) if isinstance(group, dict) and parameter.argument in group else (False, None)
    )


def _where(parameter: Parameter) -> str:
    return f"$.{parameter.group}.{parameter.argument}" if parameter.group else f"$.{parameter.argument}"


def _text(value: Any) -> str:
    """A scalar as OpenAPI writes it: `true`, not `True`; objects and lists inside as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return orjson.dumps(value).decode()


def _flat(parameter: Parameter, value: Any, encode: Callable[[str], str]) -> str:
    """One string for a value in a path, header or cookie."""
    if isinstance(value, list):
        separators = _HEADER_SEPARATOR if parameter.location == "header" else _LIST_SEPARATOR
        return separators.get(parameter.style, ",").join(encode(_text(item)) for item in value)
    if isinstance(value, dict):
        if parameter.explode:
            return ",".join(f"{encode(key)}={encode(_text(item))}" for key, item in value.items())
        return ",".join(encode(_text(part)) for pair in value.items() for part in pair)
    return encode(_text(value))


def _path_value(parameter: Parameter, value: Any, where: str) -> str:
    """One path segment. Refused rather than encoded where a server could read it as more than one.

    Many servers decode `%2F` before they choose the route, so `x%2Fadmin` would reach another operation than this tool's.
    """
    if parameter.slashes and isinstance(value, str):
        segments = value.split("/")
        if any(part in {"", ".", ".."} for part in segments):
            raise InvalidArgumentsError(f"{where}: a path value may hold no empty segment, '.' or '..'")
        single = replace(parameter, slashes=False)
        return "/".join(_path_value(single, part, where) for part in segments)

    def encode(part: str) -> str:
        if "/" in part or "\\" in part or any(ord(character) < 0x20 or ord(character) == 0x7F for character in part):
            raise InvalidArgumentsError(f"{where}: a path value may not hold a slash, backslash or control character")
        return quote(part, safe="")

    segment = _flat(parameter, value, encode)
    if segment in {"", ".", ".."}:
        raise InvalidArgumentsError(f"{where}: a path value may not be empty, '.' or '..'")
    if parameter.style == "label":
        return "." + segment
    return f";{parameter.name}={segment}" if parameter.style == "matrix" else segment


def _query_values(parameter: Parameter, value: Any) -> list[str]:
    name = quote(parameter.name, safe="")
    if isinstance(value, list):
        if parameter.explode:
            return [f"{name}={quote(_text(item), safe='')}" for item in value]
        return [f"{name}={_flat(parameter, value, lambda item: quote(item, safe=''))}"] if value else []
    if isinstance(value, dict):
        if parameter.style == "deepObject":
            return list(_deep(name, value))
        if parameter.explode:
            return [f"{quote(key, safe='')}={quote(_text(item), safe='')}" for key, item in value.items()]
        return [f"{name}={_flat(parameter, value, lambda item: quote(item, safe=''))}"] if value else []
    return [f"{name}={quote(_text(value), safe='')}"]


def _deep(prefix: str, value: Any) -> list[str]:
    """`filter[size][min]=1`; lists repeat the key."""
    pairs: list[str] = []
    stack: list[tuple[str, Any]] = [(prefix, value)]
    while stack:
        name, node = stack.pop(0)
        if isinstance(node, dict):
            stack = [(f"{name}[{quote(key, safe='')}]", item) for key, item in node.items()] + stack
        elif isinstance(node, list):
            stack = [(name, item) for item in node] + stack
        elif node is not None:
            pairs.append(f"{name}={quote(_text(node), safe='')}")
    return pairs


def _body(
    body: Body | None, rest: dict[str, Any], arguments: Mapping[str, Any], headers: RawHeaders, boundary: str
) -> bytes:
    if body is None:
        return b""
    if body.argument is None and (rest or not body.optional):
        value: Any = rest
        where = "$"
    elif body.argument is not None and body.argument in arguments:
        value, where = arguments[body.argument], f"$.{body.argument}"
    else:
        return b""
    media_type = body.media_type
    if body.kind == "json":
        encoded = _json(value, where)
    elif body.kind == "multipart":
        encoded = _multipart(body, value, where, boundary)
        media_type = f"multipart/form-data; boundary={boundary}"
    elif body.kind == "form":
        encoded = "&".join(_form_pairs(value, body.joined)).encode()
    elif body.kind == "text":
        encoded = str(value).encode("utf-8", "replace")
        media_type = media_type if "charset" in media_type else f"{media_type}; charset=utf-8"
    else:
        encoded = _decode_base64(value, where)
    headers.append((b"content-type", media_type.encode("ascii", "ignore")))
    return encoded


def _json(value: Any, where: str) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError as error:  # surrogates and integers beyond 64 bits
        raise InvalidArgumentsError(f"{where}: cannot be written as JSON") from error


def _form_pairs(fields: Mapping[str, Any], joined: Mapping[str, str]) -> list[str]:
    pairs: list[str] = []
    for name, value in fields.items():
        items = _form_values(name, value, joined)
        pairs += [f"{quote_plus(name)}={quote_plus(_text(item))}" for item in items if item is not None]
    return pairs


def _form_values(name: str, value: Any, joined: Mapping[str, str]) -> list[Any]:
    """The values that one field has in the request: a list is several, unless the document says they are one."""
    if not isinstance(value, list):
        return [value]
    return [joined[name].join(_text(item) for item in value)] if name in joined else value


def _multipart(body: Body, fields: Mapping[str, Any], where: str, boundary: str) -> bytes:
    parts: list[bytes] = []
    for name, value in fields.items():
        items = _form_values(name, value, body.joined)
        for index, item in enumerate(items):
            if item is None:
                continue
            here = f"{where}.{name}[{index}]" if isinstance(value, list) else f"{where}.{name}"
            disposition = f'form-data; name="{_quoted(name)}"'
            kind, content = body.part_types.get(name, ""), b""
            if name in body.files and isinstance(item, dict):
                disposition += f'; filename="{_quoted(str(item.get("filename") or "file"))}"'
                kind = _media_type(item.get("mimeType") or kind)
                content = _decode_base64(item.get("data"), f"{here}.data")
            else:
                content = _text(item).encode("utf-8", "replace")
                kind = kind or ("application/json" if isinstance(item, dict | list) else "")
            head = f"--{boundary}\r\ncontent-disposition: {disposition}\r\n"
            if kind:
                head += f"content-type: {kind}\r\n"
            parts.append(head.encode("utf-8", "replace") + b"\r\n" + content + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode()


def _quoted(value: str) -> str:
    """A name inside quotes, escaped as browsers do (WHATWG HTML, multipart/form-data)."""
    return value.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _media_type(value: object) -> str:
    usable = isinstance(value, str) and re.fullmatch(r"[\w.+-]{1,64}/[\w.+-]{1,64}", value, re.ASCII)
    return str(value) if usable else "application/octet-stream"


def _decode_base64(value: object, where: str) -> bytes:
    try:
        return base64.b64decode(value.encode("ascii"), validate=True) if isinstance(value, str) else b""
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise InvalidArgumentsError(f"{where}: not valid base64") from error
