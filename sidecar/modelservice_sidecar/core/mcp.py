"""Pure classifier of the MCP endpoint: a POST's headers and decoded body in; a route, a notification or a rejection out.

Owns the order of the checks (first failure wins), the JSON-RPC codes and their HTTP statuses. Does no I/O, reads no
clock, knows no tool: whether a tool exists is the catalogue's business. Never raises, whatever the input is.

The order, for a body that is one JSON object:
    1. era          no version header or one of the `initialize` era → handshake; anything else → modern
    2. shape        notification (no `id`), response (handshake era only), request; else -32600
    3. routing      no routing header twice; else -32020
    4. envelope     modern: `_meta` with version and capabilities; else -32602
    5. agreement    modern: headers equal the body, and none names what the body does not; else -32020. Handshake: those
                    that are there do, for a gateway may have routed or permitted by them
    6. version      modern: served; else -32022
    7. method       known in the era; else -32601
    8. parameters   of the shape the method has; else -32602
"""

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from modelservice_sidecar.core import revisions

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022

STATUS: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
    INTERNAL_ERROR: 500,
}
"""HTTP status by JSON-RPC code at a modern revision; a routed handshake-era request is answered with 200."""

PROTOCOL_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO_KEY: Final = "io.modelcontextprotocol/clientInfo"
SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_KEY: Final = "io.modelcontextprotocol/subscriptionId"

MAX_ID_LENGTH: Final = 512
"""Longest string `id`: it is echoed in every answer and in every frame of a stream."""

Era = Literal["modern", "handshake"]
MessageId = int | str

_ROUTING_HEADERS: Final = frozenset({"mcp-protocol-version", "mcp-method", "mcp-name"})
_SENTINEL: Final = re.compile(r"=\?base64\?(?P<payload>.*)\?=")


class Headers(NamedTuple):
    """Request headers with lower-case names and trimmed values; the first of a repeated header counts."""

    values: Mapping[str, str]
    repeated_routing: str | None = None

    def get(self, name: str) -> str | None:
        return self.values.get(name)


class Route(NamedTuple):
    """A request that may be handled. `revision` is one of `revisions.ALL`."""

    id: MessageId
    era: Era
    revision: str
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Notification:
    """A message that is acknowledged with 202 and dropped: nothing outlives a request, so none has anything to act on."""

    method: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejection:
    """The first check that failed, as JSON-RPC error fields and HTTP status."""

    code: int
    message: str
    status: int
    id: MessageId | None = None
    data: dict[str, Any] | None = field(default=None)


Verdict = Route | Notification | Rejection


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers from ASGI's pairs. Values are trimmed here: httptools leaves trailing blanks in place."""
    pairs = list(raw)
    values = {str(name, "latin-1"): str(value, "latin-1").strip(" \t") for name, value in reversed(pairs)}
    repeated: str | None = None
    if len(values) != len(pairs):
        names = Counter(name.decode("latin-1") for name, _ in pairs)
        repeated = next((name for name in names if names[name] > 1 and name in _ROUTING_HEADERS), None)
    return Headers(values=values, repeated_routing=repeated)


def classify(headers: Headers, body: object) -> Verdict:
    """What a POST's decoded body is, by the ladder in this module's docstring."""
    version = headers.get("mcp-protocol-version")
    modern = version is not None and version not in revisions.HANDSHAKE
    if not isinstance(body, dict):
        return _invalid_request("The body must be one JSON-RPC request or notification object")
    if body.get("jsonrpc") != "2.0":
        return _invalid_request('"jsonrpc" must be "2.0"')
    if "id" not in body:
        return _notification(body, version, modern)
    message_id = body["id"]
    if not _is_id(message_id):
        return _invalid_request(f'"id" must be an integer or a string of at most {MAX_ID_LENGTH} characters')
    method = body.get("method")
    if method is None and not modern and ("result" in body or "error" in body):
        return Notification(method="response")
    if not isinstance(method, str):
        return _invalid_request('"method" must be a string')
    params = body.get("params")
    if params is not None and not isinstance(params, dict):
        return _invalid_request('"params" must be an object')
    if modern:
        assert version is not None
        return _modern(headers, message_id, method, params or {})
    return _handshake(headers, message_id, method, params or {})


def parse_error() -> Rejection:
    """The answer to a body that is not JSON (RFC 8259: NaN and Infinity are not)."""
    return Rejection(
        code=PARSE_ERROR,
        message="Parse error: the body is not valid JSON in UTF-8, nested too much, or of too many parts",
        status=400,
    )


def decode_header_value(value: str | None) -> str | None:
    """A routing header's value with the `=?base64?…?=` form decoded; `None` where that form is broken."""
    if value is None or not value.startswith("=?base64?"):
        return value
    match = _SENTINEL.fullmatch(value)
    if match is None:
        return value
    payload = match.group("payload")
    try:
        decoded = base64.b64decode(payload, validate=True)
        # Non-canonical base64 would let two spellings name one tool, and a gateway might read another.
        return decoded.decode("utf-8") if base64.b64encode(decoded).decode() == payload else None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def progress_token(params: Mapping[str, Any]) -> int | str | None:
    """The caller's progress token, or `None` where there is none or it is not a string or integer."""
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if _is_id(token) else None


def _modern(headers: Headers, message_id: MessageId, method: str, params: dict[str, Any]) -> Route | Rejection:
    def reject(code: int, message: str, data: dict[str, Any] | None = None) -> Rejection:
        return Rejection(code=code, message=message, status=STATUS[code], id=message_id, data=data)

    if headers.repeated_routing is not None:
        return reject(HEADER_MISMATCH, f"The {headers.repeated_routing} header appears more than once")
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        return reject(
            INVALID_PARAMS, f"params._meta must be an object with {PROTOCOL_VERSION_KEY} and {CAPABILITIES_KEY}"
        )
    missing = [key for key in (PROTOCOL_VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        return reject(INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")
    version = meta[PROTOCOL_VERSION_KEY]
    if headers.get("mcp-protocol-version") != version:
        return reject(HEADER_MISMATCH, "The mcp-protocol-version header differs from params._meta")
    if headers.get("mcp-method") != method:
        return reject(HEADER_MISMATCH, "The mcp-method header is missing or differs from the body's method")
    name_param = revisions.NAME_HEADER_PARAM.get(method)
    if name_param is not None and params.get(name_param) is not None and headers.get("mcp-name") is None:
        return reject(HEADER_MISMATCH, "The mcp-name header is missing")
    mismatch = _name_mismatch(headers, method, params)
    if mismatch is not None:
        return reject(HEADER_MISMATCH, mismatch)
    if version not in revisions.MODERN:
        data = {"supported": list(revisions.MODERN), "requested": version}
        return reject(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    if method not in revisions.MODERN_METHODS:
        return reject(METHOD_NOT_FOUND, "Method not found")
    problem = _envelope_problem(meta) or _params_problem(method, params)
    if problem is not None:
        return reject(INVALID_PARAMS, problem)
    return Route(id=message_id, era="modern", revision=version, method=method, params=params)


def _name_mismatch(headers: Headers, method: str, params: Mapping[str, Any]) -> str | None:
    """What is wrong with an `Mcp-Name` header that is there. Methods that are not known here may give it a meaning."""
    said = headers.get("mcp-name")
    name_param = revisions.NAME_HEADER_PARAM.get(method)
    if said is None or (name_param is None and method not in revisions.MODERN_METHODS | revisions.HANDSHAKE_METHODS):
        return None
    if name_param is None:
        return "The mcp-name header names something, and the method has no name"
    wanted = params.get(name_param)
    return (
        None if decode_header_value(said) == wanted else f"The mcp-name header differs from the body's {name_param!r}"
    )


def _handshake_mismatch(headers: Headers, method: str, params: Mapping[str, Any]) -> str | None:
    """Where a request of the handshake era contradicts itself. Its clients send no routing headers."""
    if headers.repeated_routing is not None:
        return f"The {headers.repeated_routing} header appears more than once"
    meta = params.get("_meta")
    told = meta.get(PROTOCOL_VERSION_KEY) if isinstance(meta, dict) else None
    if told is not None and told != headers.get("mcp-protocol-version"):
        # A modern message without its header would be run without the checks of its era.
        return "The mcp-protocol-version header is missing or differs from params._meta"
    said = headers.get("mcp-method")
    if said is not None and said != method:
        return "The mcp-method header differs from the body's method"
    return _name_mismatch(headers, method, params)


def _handshake(headers: Headers, message_id: MessageId, method: str, params: dict[str, Any]) -> Route | Rejection:
    revision = headers.get("mcp-protocol-version") or revisions.ASSUMED
    mismatch = _handshake_mismatch(headers, method, params)
    if mismatch is not None:
        return Rejection(code=HEADER_MISMATCH, message=mismatch, status=STATUS[HEADER_MISMATCH], id=message_id)
    if method not in revisions.HANDSHAKE_METHODS:
        return Rejection(code=METHOD_NOT_FOUND, message="Method not found", status=200, id=message_id)
    problem = _params_problem(method, params)
    if problem is not None:
        return Rejection(code=INVALID_PARAMS, message=problem, status=200, id=message_id)
    if method == "initialize":
        asked = params["protocolVersion"]
        revision = asked if asked in revisions.HANDSHAKE else revisions.OFFERED_TO_STRANGERS
    return Route(id=message_id, era="handshake", revision=revision, method=method, params=params)


def _notification(body: dict[str, Any], version: str | None, modern: bool) -> Notification | Rejection:
    method = body.get("method")
    if not isinstance(method, str):
        return _invalid_request('"method" must be a string')
    if not isinstance(body.get("params", {}), dict | None):
        return _invalid_request('"params" must be an object')
    if modern and version not in revisions.MODERN:
        data = {"supported": list(revisions.MODERN), "requested": version}
        return Rejection(code=UNSUPPORTED_VERSION, message="Unsupported protocol version", status=400, data=data)
    return Notification(method=method)


def _envelope_problem(meta: dict[str, Any]) -> str | None:
    if not isinstance(meta[CAPABILITIES_KEY], dict):
        return f"params._meta[{CAPABILITIES_KEY!r}] must be an object"
    client = meta.get(CLIENT_INFO_KEY)
    if client is not None and not _is_implementation(client):
        return f"params._meta[{CLIENT_INFO_KEY!r}] must have a name and a version"
    return None


def _params_problem(method: str, params: dict[str, Any]) -> str | None:
    meta = params.get("_meta")
    if meta is not None:
        if not isinstance(meta, dict):
            return "params._meta must be an object"
        if "progressToken" in meta and not _is_id(meta["progressToken"]):
            return f"params._meta.progressToken must be an integer or a string of at most {MAX_ID_LENGTH} characters"
    check = _PARAM_CHECKS.get(method)
    return check(params) if check is not None else None


def _initialize_problem(params: dict[str, Any]) -> str | None:
    if not isinstance(params.get("protocolVersion"), str):
        return "params.protocolVersion must be a string"
    if not isinstance(params.get("capabilities"), dict):
        return "params.capabilities must be an object"
    if not _is_implementation(params.get("clientInfo")):
        return "params.clientInfo must have a name and a version"
    return None


def _list_problem(params: dict[str, Any]) -> str | None:
    cursor = params.get("cursor")
    return None if cursor is None or isinstance(cursor, str) else "params.cursor must be a string"


def _call_problem(params: dict[str, Any]) -> str | None:
    if not isinstance(params.get("name"), str):
        return "params.name must be a string"
    arguments = params.get("arguments")
    return None if arguments is None or isinstance(arguments, dict) else "params.arguments must be an object"


def _listen_problem(params: dict[str, Any]) -> str | None:
    wanted = params.get("notifications")
    return None if isinstance(wanted, dict) else "params.notifications must be an object"


_PARAM_CHECKS: Final = {
    "initialize": _initialize_problem,
    "tools/list": _list_problem,
    "tools/call": _call_problem,
    "subscriptions/listen": _listen_problem,
}


def _is_implementation(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("version"), str)


def _is_id(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_ID_LENGTH
    return isinstance(value, int) and not isinstance(value, bool)


def _invalid_request(message: str) -> Rejection:
    """JSON-RPC 2.0: what is no valid request is answered with `id: null`, whatever it carried."""
    return Rejection(code=INVALID_REQUEST, message=message, status=400)
