"""Reads a POST's body once, within its bound, before anything looks at it.

Owns the bounds on bytes, of one body and of all that are held at once, and the refusal of encodings. How long a body may take
is the protocol's business, since only it sees bytes arrive.
"""

from collections.abc import Callable
from typing import Final

from modelservice_sidecar import inbound as requests
from modelservice_sidecar.inbound import ASGIApp, Inbound, RawHeaders, Receive, Scope, Send

_MAX_PARTS = 1024
"""Kept before they are joined: a body that comes byte by byte would take forty times its size."""
_CLOSE: RawHeaders = [(b"connection", b"close")]
"""The rest of a refused body is not read, so the connection cannot be used again."""


HELD: Final = 48 * 1024 * 1024
"""Bytes of all bodies that are coming or being answered. Every one may be within its own limit and a few dozen still be more
than the container's memory. Two of the largest size are always taken."""
_RETRY: Final[RawHeaders] = [*_CLOSE, (b"retry-after", b"1")]


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
        self._held = 0

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
        if size > limit:
            await self._refuse_size(inbound, send, limit)
            return
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            await self._read_on(bytearray(body), inbound, scope, receive, send)  # which alone keeps it
        elif len(body) > limit:
            await self._refuse_size(inbound, send, limit)
        else:
            inbound.body = body
            inbound.received = self._monotonic()
            await self._app(scope, receive, send)

    async def _read_on(self, parts: bytearray, inbound: Inbound, scope: Scope, receive: Receive, send: Send) -> None:
        """The rest of a body that did not come at once, which counts as held until it is answered."""
        limit = self._limit()
        most = max(HELD, 2 * limit)
        size = len(parts)
        self._held += size
        try:
            more = True
            while more and size <= limit and self._held <= most:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                piece: bytes = message.get("body", b"")
                more = message.get("more_body", False)
                size += len(piece)
                self._held += len(piece)
                parts += piece
            if size <= limit and self._held <= most:
                inbound.body = bytes(parts)
                del parts
                inbound.received = self._monotonic()
                await self._app(scope, receive, send)
                return
            del parts  # what is refused is not kept while the refusal is written
            if size > limit:
                await self._refuse_size(inbound, send, limit)
            else:
                self._on_reject("bodies_held")
                busy = "Too many large bodies are being read and answered; try again"
                await requests.refuse(inbound, send, 503, busy, extra=_RETRY)
        finally:
            self._held -= size

    async def _refuse_size(self, inbound: Inbound, send: Send, limit: int) -> None:
        self._on_reject("body_size")
        message = f"The body is larger than {limit} bytes; see spec.limits.maxBodyBytes"
        await requests.refuse(inbound, send, 413, message, extra=_CLOSE)
