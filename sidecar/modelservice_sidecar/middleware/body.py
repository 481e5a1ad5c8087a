"""Reads a POST's body once, within its bound, before anything looks at it.

Owns the bound on bytes and the refusal of encodings. How long a body may take is the protocol's business, since only it sees
bytes arrive.
"""

from collections.abc import Callable

from modelservice_sidecar import inbound as requests
from modelservice_sidecar.inbound import ASGIApp, RawHeaders, Receive, Scope, Send

_MAX_PARTS = 1024
"""Kept before they are joined: a body that comes byte by byte would take forty times its size."""
_CLOSE: RawHeaders = [(b"connection", b"close")]
"""The rest of a refused body is not read, so the connection cannot be used again."""


class Body:
    """Pure ASGI middleware; `limit` is asked for every request, since it can change while the adapter runs."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limit: Callable[[], int],
        on_reject: Callable[[str], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._app = app
        self._limit = limit
        self._on_reject = on_reject
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        inbound = requests.of(scope)
        limit = self._limit()
        if inbound.headers.get("content-encoding") not in {None, "", "identity"}:
            self._on_reject("encoding")
            await requests.refuse(inbound, send, 415, "Send the body without Content-Encoding", extra=_CLOSE)
            return
        declared = inbound.headers.get("content-length") or ""
        size = int(declared) if declared.isdigit() and len(declared) < 19 else 0
        body = await _read(receive, limit) if size <= limit else None
        if body is None:
            self._on_reject("body_size")
            message = f"The body is larger than {limit} bytes; see spec.limits.maxBodyBytes"
            await requests.refuse(inbound, send, 413, message, extra=_CLOSE)
            return
        if body is _GONE:
            return
        inbound.body = body
        inbound.received = self._monotonic()
        await self._app(scope, receive, send)


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The whole body, `None` where it exceeds the limit, `_GONE` where its sender left."""
    message = await receive()
    if message["type"] == "http.disconnect":
        return _GONE
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return body if len(body) <= limit else None
    parts, size = [body], len(body)
    while size <= limit and message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            return _GONE
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if len(parts) == _MAX_PARTS:
            parts = [b"".join(parts)]
    return b"".join(parts) if size <= limit else None


_GONE = bytes(bytearray(b"gone"))
