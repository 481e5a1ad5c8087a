"""One HTTP request on its way through the middleware, and the one way to answer it.

Owns what the layers share about a request: its headers read once, its ids, its body, and the headers that every answer to
it carries. Knows no MCP.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import orjson

from modelservice_sidecar.core.authorization import Identity
from modelservice_sidecar.core.mcp import Headers
from modelservice_sidecar.core.trace import Ids, Wanted

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

KEY = "modelservice.inbound"
"""Where the request's `Inbound` stands in its ASGI scope."""


@dataclass(kw_only=True, slots=True)
class Inbound:
    """One request. `received` is when its last byte came; `answer_headers` go with every answer.

    `identity` is who sent it, `None` where nobody has to say. `credentials` is the Authorization header that proved it, for
    another adapter of the same Service and nobody else. `user` is how log lines name it. `challenge` begins every
    WWW-Authenticate header of this server. `content_type` is that of whole answers. `plain_errors`: this caller reads
    `{"error": text}`, not JSON-RPC.
    """

    headers: Headers
    ids: Ids
    wanted: Wanted
    received: float
    body: bytes = b""
    answer_headers: RawHeaders = field(default_factory=list)
    started: bool = False
    identity: Identity | None = None
    credentials: str | None = field(default=None, repr=False)
    user: str = ""
    challenge: str = ""
    content_type: bytes = b"application/json"
    plain_errors: bool = False

    def start(self, status: int, content_type: bytes, length: int | None, extra: RawHeaders | None = None) -> Message:
        """The ASGI message that begins an answer; made only to be sent."""
        self.started = True
        headers = [
            (b"content-type", content_type),
            (b"x-request-id", self.ids.request_id.encode("ascii")),
            (b"trace-id", self.ids.trace_id.encode("ascii")),
        ]
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        headers += self.answer_headers
        if extra:
            headers += extra
        return {"type": "http.response.start", "status": status, "headers": headers}


def of(scope: Scope) -> Inbound:
    """The request's `Inbound`, which the outermost layer made."""
    inbound: Inbound = scope[KEY]
    return inbound


async def answer(
    inbound: Inbound,
    send: Send,
    status: int,
    body: bytes,
    extra: RawHeaders | None = None,
) -> None:
    """Answer with a whole body."""
    await send(inbound.start(status, inbound.content_type, len(body), extra))
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def answer_empty(inbound: Inbound, send: Send, status: int, extra: RawHeaders | None = None) -> None:
    """Answer without a body."""
    inbound.started = True
    ids = inbound.ids
    headers = [(b"x-request-id", ids.request_id.encode("ascii")), (b"trace-id", ids.trace_id.encode("ascii"))]
    headers += [*inbound.answer_headers, *(extra or ())]
    if status != 204:
        headers.append((b"content-length", b"0"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def rpc_error(code: int, message: str, message_id: Any = None, data: Any = None) -> dict[str, Any]:
    """A JSON-RPC error answer; refusals of the HTTP layer have this form too, so that clients show their text."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": message_id, "error": error}


async def refuse(
    inbound: Inbound, send: Send, status: int, message: str, *, code: int = -32600, extra: RawHeaders | None = None
) -> None:
    """Refuse a request below its protocol with an HTTP status and an error body that its clients read."""
    body = {"error": message} if inbound.plain_errors else rpc_error(code, message)
    inbound.content_type = b"application/json"
    await answer(inbound, send, status, orjson.dumps(body), extra=extra)


def say_when(inbound: Inbound, seconds: float | None) -> None:
    """Let the answer say when to come back, if that is known, in whole seconds (RFC 9110, `Retry-After`)."""
    if seconds is not None:
        others = [header for header in inbound.answer_headers if header[0] != b"retry-after"]
        inbound.answer_headers = [*others, (b"retry-after", b"%d" % ceil(seconds))]


def ask_for_scope(inbound: Inbound, scope: str) -> None:
    """Let the answer say which scope would do (RFC 6750): for a call that was refused for want of it."""
    if (
        not inbound.challenge
        or inbound.started
        or any(name == b"www-authenticate" for name, _ in inbound.answer_headers)
    ):
        return
    error = 'error="insufficient_scope", ' if inbound.identity is not None else ""
    challenge = f'{inbound.challenge}, {error}scope="{scope}"'
    inbound.answer_headers.append((b"www-authenticate", challenge.encode("latin-1")))


async def disconnected(receive: Receive) -> None:
    """Return when the caller has gone."""
    message = await receive()
    while message["type"] != "http.disconnect":
        message = await receive()
