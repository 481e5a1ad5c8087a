"""uvicorn's HTTP protocol with the bounds it lacks: header size, count and time, idle and slow bodies, slow readers.

Owns what may arrive on a socket before the application sees a request. uvicorn with httptools is the fastest server there is
for this and the laxest: it takes 100 MB of endless header and keeps half a request open for ever.

The clock is the loop's. One timer per connection looks once per `tick`, so a request costs no timer of its own.
"""

import asyncio
import re
import select
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Final, cast

import httptools

from modelservice_sidecar.uvicorn_parts import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds per connection; times in seconds, sizes in bytes.

    `first_byte`: from connecting to the first byte. `head`: from a head's first byte to its last. `body`: for a whole body,
    which must also come at `body_rate` bytes per second after `body_grace`. `stalled`: how long a reader may take nothing.
    `linger`: how long an idle connection may still send a request when the server stops. `pipelined` and `waiting`: how many
    requests may wait behind one another on one connection, and on all of them: a few bytes each cost kilobytes.
    """

    head_bytes: int = 32 * 1024
    headers: int = 100
    first_byte: float = 10.0
    head: float = 5.0
    body: float = 30.0
    body_rate: int = 1024
    body_grace: float = 5.0
    stalled: float = 30.0
    linger: float = 0.5
    tick: float = 1.0
    connections: int = 2048
    framing_overhead: int = 64 * 1024
    pipelined: int = 256
    waiting: int = 4096


class _Phase(IntEnum):
    IDLE = 0  # between requests; before the first one, `first_byte` applies, later uvicorn's keep-alive timer does
    HEAD = 1
    BODY = 2
    BUSY = 3  # the request is whole and being answered


_VERSIONS: Final = frozenset({"1.1", "1.0"})
"""HTTP/1.0 stays: nginx speaks it to its upstreams by default."""


_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")
"""What a Host can be. Anything else is read differently by whoever stands in front of us."""


class _HeadWithBody:
    """A transport for one answer that holds back its head until the body's first piece: one segment, one wake-up at the
    client, one system call. uvicorn writes them apart."""

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        if self._head is None:
            if data.startswith(b"HTTP/1.1 100 "):
                self._transport.write(data)
            else:
                self._head = data
        elif self._head:
            self._transport.writelines((self._head, data))  # joined by the kernel, not by a copy
            self._head = b""
        else:
            self._transport.write(data)

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class _Line:
    """How many requests wait behind others on all connections of one port."""

    length = 0


class _RefusedError(Exception):
    """Raised inside a parser callback to stop the parser."""


class LimitedProtocol(HttpToolsProtocol):
    """One connection. Subclassed by `limited` to carry its limits."""

    limits: ClassVar[Limits] = Limits()
    line: ClassVar[_Line] = _Line()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._phase = _Phase.IDLE
        self._since = 0.0
        self._first = True
        self._raw = 0
        self._head_size = 0
        self._body_size = 0
        self._stalled_since: float | None = None
        self._refusal: tuple[int, str] | None = None
        self._leaving = False
        self._unparsed = 0
        self._answering: RequestResponseCycle | None = None
        """The request that is being answered while others wait behind it; uvicorn only knows the newest."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "Too many connections")
            return
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        self.line.length -= len(self.pipeline)
        self.pipeline.clear()
        answering = self._answering
        if answering is not None and not answering.response_complete:
            answering.disconnected = True
            answering.message_event.set()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            return
        self._raw += len(data)
        if self._unparsed:
            self._take_unparsed(data)
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # No other protocol is spoken here. The request is answered in HTTP/1.1 (Java's client asks for h2c with
            # every first POST), then the connection ends, for the parser stopped at the head and takes no more.
            if self._current is not None:
                self._current.keep_alive = False
            self._take_unparsed(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self._refuse(*(self._refusal or (400, "Not a valid HTTP request")))
            return
        if self._phase is _Phase.HEAD and self._raw > self.limits.head_bytes:
            self._refuse(431, "The request's headers are too large")
        elif self._phase is _Phase.BODY and self._raw > self.limits.framing_overhead + 8 * self._body_size:
            self._refuse(400, "The body's framing is larger than the body")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = _Phase.HEAD
        self._since = self.loop.time()
        self._first = False
        # What else is in this chunk is not known here. A fresh count lets at most one chunk more through than the limit.
        self._raw = 0
        self._head_size = 0
        self._body_size = 0

    def on_url(self, url: bytes) -> None:
        self._head_size += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value) + 4
        if self._head_size > self.limits.head_bytes or len(self.headers) >= self.limits.headers:
            self._stop(431, "The request's headers are too large or too many")
        if self._phase is _Phase.HEAD:  # else a trailer, which is no header: no one in front of us has looked at it
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if version not in _VERSIONS:
            self._stop(505, "Only HTTP/1.1 is spoken here")
        if self._head_size > self.limits.head_bytes:
            self._stop(431, "The request's headers are too large")
        self._check_framing(version)
        self._phase = _Phase.BODY
        self._since = self.loop.time()
        self._raw = 0
        before = self._current
        super().on_headers_complete()
        if self.pipeline:
            self._note_waiting(before)
        if self.scope["method"] != "HEAD":  # whose answer has no body to wait for
            self.cycle.transport = cast("asyncio.Transport", _HeadWithBody(self.transport))
        if self._leaving:
            self.cycle.keep_alive = False
        if self.parser.should_upgrade():
            declared = next((value for name, value in self.headers if name == b"content-length"), b"0")
            self._unparsed = int(declared)  # the parser has checked that it is a number

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._unparsed:
            return  # the parser ends at the head of a request that asks for an upgrade; its body is still to come
        self._phase = _Phase.BUSY
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._phase is _Phase.BODY and not self.transport.is_closing():
            # Answered before the body was whole (a refusal): the rest would be taken for the next request.
            self.transport.close()
        if self._phase is _Phase.BUSY and not self.pipeline:
            self._phase = _Phase.IDLE
        if self.pipeline and not self.transport.is_closing():
            self._answering = self.pipeline[-1][0]
            self.line.length -= 1
        super().on_response_complete()

    def shutdown(self) -> None:
        """Close gracefully. An idle connection stays a moment: its next request may be on the wire already."""
        if self._unanswered is None:
            self._leaving = True
            self.loop.call_later(self.limits.linger, self._close_if_idle)
        else:
            self._unanswered.keep_alive = False

    def pause_writing(self) -> None:
        self._stalled_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled_since = None
        super().resume_writing()

    def _close_if_idle(self) -> None:
        if self._unanswered is None:
            self.transport.close()
        else:
            self._unanswered.keep_alive = False

    @property
    def _current(self) -> RequestResponseCycle | None:
        """The newest request; uvicorn declares `cycle` as never absent, and it is until the first one."""
        return self.cycle

    @property
    def _unanswered(self) -> RequestResponseCycle | None:
        """The newest request if its answer is not complete."""
        cycle = self._current
        return None if cycle is None or cycle.response_complete else cycle

    def _tick(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        limits, now = self.limits, self.loop.time()
        late = now - self._due
        if late > limits.tick:
            # Our own process stood still: what the peer sent meanwhile is not read yet, so that time is not the peer's.
            self._since += late
        waited = now - self._since
        if self._stalled_since is not None and now - self._stalled_since > limits.stalled:
            self.transport.abort()
            return
        if self.flow.read_paused:  # then nobody hears that the peer has gone
            if self._has_left():
                self.transport.abort()
                return
        else:
            if self._phase is _Phase.IDLE and self._first and waited > limits.first_byte:
                self.transport.close()
                return
            if self._phase is _Phase.HEAD and waited > limits.head:
                self._refuse(408, "The request's headers took too long")
                return
            slow = waited > limits.body_grace and self._body_size < limits.body_rate * waited
            if self._phase is _Phase.BODY and (slow or waited > limits.body):
                self._refuse(408, "The request's body took too long")
                return
        self._look_again()

    def _note_waiting(self, before: RequestResponseCycle | None) -> None:
        """The newest request waits behind others; `before` is the one that came just before it."""
        if len(self.pipeline) == 1:
            self._answering = before
        self.line.length += 1
        if len(self.pipeline) > self.limits.pipelined or self.line.length > self.limits.waiting:
            self._stop(503, "Too many requests wait on this connection")

    def _has_left(self) -> bool:
        """Whether the peer has closed its side; asked of the kernel, for there may be unread bytes before the end."""
        poller = select.poll()
        poller.register(self.transport.get_extra_info("socket").fileno(), select.POLLRDHUP | select.POLLHUP)
        return bool(poller.poll(0))

    def _look_again(self) -> None:
        self._due = self.loop.time() + self.limits.tick
        self._timer = self.loop.call_later(self.limits.tick, self._tick)

    def _take_unparsed(self, data: bytes) -> None:
        """The body of a request that asked for an upgrade."""
        if not self._unparsed:
            return
        piece = data[: self._unparsed]
        self._unparsed -= len(piece)
        self.on_body(piece)
        if not self._unparsed:
            self.on_message_complete()

    def _check_framing(self, version: str) -> None:
        """Stop at what says in two ways where the request goes or where it ends."""
        host: bytes | None = None
        for name, value in self.headers:
            if name == b"host":
                if host is not None:
                    self._stop(400, "A request has exactly one Host")
                host = value.strip(b" \t")
                if not _HOST.fullmatch(host):
                    self._stop(400, "The Host is not a name or an address with a port")
            elif name == b"transfer-encoding" and (value.lower() != b"chunked" or version == "1.0"):
                self._stop(400, "The only Transfer-Encoding is chunked, in HTTP/1.1")
        if host is None and version == "1.1":
            self._stop(400, "A request has exactly one Host")
        if not (self.url.startswith(b"/") or self.url == b"*") or b"#" in self.url:
            self._stop(400, "A request names a path, not a URL")

    def _stop(self, status: int, message: str) -> None:
        self._refusal = (status, message)
        raise _RefusedError

    def _refuse(self, status: int, message: str) -> None:
        """Answer and close; where another answer is under way on this connection, only close."""
        cycle = self._unanswered
        if cycle is not None and (cycle.response_started or self.pipeline):
            self.transport.close()
            return
        body = b'{"error":"%s"}' % message.encode("ascii")
        retry = b"retry-after: 1\r\n" if status == 503 else b""
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + retry + b"\r\n" + body)
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


def limited(limits: Limits) -> type[asyncio.Protocol]:
    """A protocol class with these limits, as uvicorn wants it: a class, not an instance."""
    return cast(
        "type[asyncio.Protocol]", type("LimitedProtocol", (LimitedProtocol,), {"limits": limits, "line": _Line()})
    )
