"""Pure reader of the JSON-RPC 2.0 endpoint: one decoded message in; a request or a rejection out.

Owns the method table and the shape of parameters. Does no I/O. Follows the JSON-RPC 2.0 specification: parameters by name or
by position, batches, notifications.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

Method = Literal["list_tools", "call_tool", "get_tool_info"]

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602

MAX_BATCH: Final = 32

PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "list_tools": (),
    "call_tool": ("name", "arguments"),
    "get_tool_info": ("name",),
}
"""Parameters of each method in the order that positional calls use; `_meta` may stand beside them by name."""

STATUS: Final = {INVALID_REQUEST: 400, METHOD_NOT_FOUND: 404, INVALID_PARAMS: 400}

MessageId = int | float | str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One call. `wants_answer` is false for a notification."""

    method: str
    params: dict[str, Any]
    id: MessageId
    wants_answer: bool

    @property
    def meta(self) -> dict[str, Any]:
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejection:
    """Why a message is no request."""

    code: int
    message: str
    id: MessageId = None

    @property
    def status(self) -> int:
        return STATUS[self.code]


def read(body: object) -> Request | Rejection:
    """The request in a decoded message. Never raises."""
    if not isinstance(body, dict):
        return Rejection(code=INVALID_REQUEST, message="A request must be an object")
    message_id = body.get("id")
    if not isinstance(message_id, int | float | str | None) or isinstance(message_id, bool) or _too_long(message_id):
        return Rejection(
            code=INVALID_REQUEST, message='"id" must be a string of at most 512 characters, a number or null'
        )
    method = body.get("method")
    if body.get("jsonrpc") != "2.0" or not isinstance(method, str):
        message = 'A request needs "jsonrpc": "2.0" and a "method"'
        return Rejection(code=INVALID_REQUEST, message=message, id=message_id)
    if method not in PARAMETERS:
        known = ", ".join(PARAMETERS)
        return Rejection(code=METHOD_NOT_FOUND, message=f"Unknown method; there are {known}", id=message_id)
    params = _named(method, body.get("params"))
    problem = _problem(method, params)
    if params is None or problem is not None:
        return Rejection(code=INVALID_PARAMS, message=problem or "", id=message_id)
    return Request(method=method, params=params, id=message_id, wants_answer="id" in body)


def _named(method: str, params: object) -> dict[str, Any] | None:
    if params is None:
        return {}
    if isinstance(params, list):
        names = PARAMETERS[method]
        return dict(zip(names, params, strict=False)) if len(params) <= len(names) else None
    return params if isinstance(params, dict) else None


def _problem(method: str, params: dict[str, Any] | None) -> str | None:
    names = PARAMETERS[method]
    if params is None:
        return f'"params" must be an object or a list of at most {len(names)}'
    unknown = [key for key in params if key not in names and key != "_meta"]
    if unknown:
        return f"Unknown parameter {unknown[0][:64]!r}; there are {', '.join(names) or 'none'}"
    if "name" in names and not isinstance(params.get("name"), str):
        return '"name" must be a string'
    arguments = params.get("arguments")
    return None if arguments is None or isinstance(arguments, dict) else '"arguments" must be an object'


def _too_long(value: MessageId) -> bool:
    return isinstance(value, str) and len(value) > 512
