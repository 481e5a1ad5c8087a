"""The keep-alive connection pool to the model server: asyncio transports and httptools, nothing between.

Owns connections, framing, bounds and the rule when a request may be sent twice. Knows no OpenAPI and no MCP. It exists
because HTTP client libraries cost ten times the rest of a call here (see docs/explanation/adapter.md).

A request is sent again only if it cannot have been executed. So it is

- where its reused connection died before one byte of an answer *and* the method is safe;
- where the connection was *reset* before one byte of an answer, soon after a small request was sent in one piece: a kernel
  answers so when a socket is closed with bytes that its program never read (RFC 1122, 4.2.2.13). This is what a server
  that stops does to requests that came in the same moment.

Any other POST whose connection died is told as an error. To make that rare, a connection is looked at by the kernel before it
is reused, and not reused after `MAX_IDLE` seconds: servers close idle connections after two or more.
"""

import asyncio
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

import httptools

from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.core.errors import (
    BackendAnswerInvalidError,
    BackendAnswerTooLargeError,
    BackendDisconnectedError,
    BackendUnreachableError,
)

MAX_ANSWER: Final = 16 * 1024 * 1024
MAX_HEAD: Final = 64 * 1024
MAX_IDLE: Final = 1.5
CONNECT_TIMEOUT: Final = 5.0
UNREAD_WITHIN: Final = 1.0
"""Seconds after sending in which a reset means "not read". Later it could be a server that resets what timed out."""
UNREAD_SIZE: Final = 32 * 1024
"""Bytes of a request that a server reads in one piece: half of what the usual ones ask the kernel for."""

_HTTPS: Final = 443
"""Not told in Host: some servers know themselves only without it."""
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})

Tail = tuple[bytes | bytearray | memoryview, ...]

OnHead = Callable[[int, dict[str, str]], Callable[[bytes], None] | None]
"""Called when status and headers are in; a returned function takes the body in pieces instead of it being kept."""


class Reply(NamedTuple):
    """A whole answer. `body` is empty where its pieces went to a function."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(kw_only=True, slots=True)
class _Exchange:
    """One request in flight on one connection."""

    method: str
    on_head: OnHead | None
    limit: int
    done: asyncio.Future[Reply]
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    head_bytes: int = 0
    body: bytearray = field(default_factory=bytearray)
    size: int = 0
    sink: Callable[[bytes], None] | None = None
    started: bool = False
    sent_at: float = 0.0
    size_sent: int = 0


class _DiedError(Exception):
    """The connection ended without one byte of an answer. `unread`: the model server did not read the request."""

    def __init__(self, *, unread: bool) -> None:
        super().__init__()
        self.unread = unread


class _Connection(asyncio.Protocol):
    """One connection and its parser; holds at most one exchange."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.exchange: _Exchange | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self.reusable = True
        self.idle_since = 0.0
        self._reset_after_eof = False
        self._poller = select.poll()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one by behaviour, not by class
        fd: int = transport.get_extra_info("socket").fileno()
        self._poller.register(fd, select.POLLIN | select.POLLHUP | select.POLLERR)

    def is_silent(self) -> bool:
        """Whether the kernel holds nothing for us: neither the connection's end nor bytes that nobody asked for."""
        return not self._poller.poll(0)

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        self._parser = None  # it holds our methods: with it, all that hangs on us would wait for the collector
        exchange = self.exchange
        if exchange is None:
            return
        self.exchange = None
        if exchange.done.done():
            return
        if exchange.status and self._ends_with_connection(exchange) and exc is None:
            self._finish(exchange)
        elif exchange.started:
            exchange.done.set_exception(
                BackendDisconnectedError("The model server closed the connection during its answer.")
            )
        else:
            exchange.done.set_exception(_DiedError(unread=self._was_unread(exchange, exc)))

    def _was_unread(self, exchange: _Exchange, exc: Exception | None) -> bool:
        # After an orderly end that crossed our request, the reset comes second and stands only in the socket's error.
        reset = isinstance(exc, ConnectionError) or self._reset_after_eof
        now = asyncio.get_running_loop().time()
        return reset and exchange.size_sent <= UNREAD_SIZE and now - exchange.sent_at < UNREAD_WITHIN

    def eof_received(self) -> bool:
        self.reusable = False
        if self.transport is not None:
            sock = self.transport.get_extra_info("socket")
            self._reset_after_eof = sock is not None and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
        return False  # the transport closes itself, which ends the exchange

    def send(self, head_and_body: bytes, tail: Tail, exchange: _Exchange) -> None:
        """Write a request in one piece: two writes would be two segments and a wait for an acknowledgement."""
        assert self.transport is not None
        self.exchange = exchange
        exchange.sent_at = asyncio.get_running_loop().time()
        exchange.size_sent = len(head_and_body) + _size(tail)
        self._parser = httptools.HttpResponseParser(self)
        if tail:
            self.transport.writelines((head_and_body, *tail))
        else:
            self.transport.write(head_and_body)

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None or self._parser is None:
            self.close()  # an answer that nobody asked for: never give it to the next request
            return
        exchange.started = True
        try:
            self._parser.feed_data(data)
            if not exchange.status:
                exchange.head_bytes += len(data)
                if exchange.head_bytes > MAX_HEAD:
                    self._fail(exchange, BackendAnswerInvalidError("The model server's answer has too large headers."))
        except httptools.HttpParserUpgrade:
            self._fail(exchange, BackendAnswerInvalidError("The model server tried to change the protocol."))
        except httptools.HttpParserError:
            self._fail(exchange, BackendAnswerInvalidError("The model server's answer is not HTTP."))

    # Called by httptools, in this order, possibly several times for one feed.

    def on_message_begin(self) -> None:
        if self.exchange is None:
            self.close()  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        exchange.head_bytes += len(name) + len(value)
        if exchange.head_bytes > MAX_HEAD:
            self._fail(exchange, BackendAnswerInvalidError("The model server's answer has too large headers."))
            return
        exchange.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1").strip())

    def on_headers_complete(self) -> None:
        exchange, parser = self.exchange, self._parser
        if exchange is None or parser is None:
            return
        status: int = parser.get_status_code()
        if status < 200:
            exchange.headers = {}  # 100 and 103 precede the answer
            return
        exchange.status = status
        declared = exchange.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > exchange.limit:
            self._fail(exchange, _too_large(exchange.limit))
        elif exchange.headers.get("content-encoding", "identity").lower() not in {"", "identity"}:
            self._fail(exchange, BackendAnswerInvalidError("The model server compresses its answers unasked."))
        elif exchange.on_head is not None:
            exchange.sink = exchange.on_head(status, exchange.headers)

    def on_body(self, body: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        exchange.size += len(body)
        if exchange.size > exchange.limit:
            self._fail(exchange, _too_large(exchange.limit))
        elif exchange.sink is not None:
            exchange.sink(body)
        else:
            exchange.body += body

    def on_message_complete(self) -> None:
        exchange = self.exchange
        if exchange is None or not exchange.status:
            return
        self.reusable = self.reusable and self._parser is not None and bool(self._parser.should_keep_alive())
        self.exchange = None
        self._finish(exchange)

    def close(self) -> None:
        self.reusable = False
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()

    def _finish(self, exchange: _Exchange) -> None:
        if not exchange.done.done():
            exchange.done.set_result(Reply(status=exchange.status, headers=exchange.headers, body=bytes(exchange.body)))

    def _fail(self, exchange: _Exchange, error: Exception) -> None:
        if not exchange.done.done():
            exchange.done.set_exception(error)
        self.exchange = None
        self.close()

    def _ends_with_connection(self, exchange: _Exchange) -> bool:
        framed = "content-length" in exchange.headers or "transfer-encoding" in exchange.headers
        return not framed


class Pool:
    """Connections to one host and port. Every request ends by its caller's deadline or cancellation, never by itself."""

    def __init__(self, host: str, port: int, *, max_connections: int = 64, tls: ssl.SSLContext | None = None) -> None:
        self._host = host
        self._tls = tls
        self._port = port
        self._max = max_connections
        self.credential: tuple[str, str] | None = None
        """A header, name and value, that every request carries."""
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def host(self) -> str:
        """The host, for other protocols of the same model server."""
        return self._host

    @property
    def address(self) -> str:
        """Host and port as they stand in a URL."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return host if self._tls is not None and self._port == _HTTPS else f"{host}:{self._port}"

    @property
    def connections(self) -> int:
        """How many connections are open, busy ones included."""
        return len(self._open)

    async def request(self, request: HttpRequest, *, on_head: OnHead | None = None, limit: int = MAX_ANSWER) -> Reply:
        """Send a request and wait for the whole answer.

        Raises:
            BackendUnreachableError: no connection; nothing was sent.
            BackendDisconnectedError: the connection ended before the answer did.
            BackendAnswerInvalidError, BackendAnswerTooLargeError: the answer breaks HTTP or a bound.
        """
        wire = _encode(request, self.address, self.credential)
        connection, reused = await self._acquire()
        try:
            return await self._exchange(connection, request, wire, on_head, limit)
        except _DiedError as died:
            if not (died.unread or (reused and request.method in _SAFE)):
                raise BackendDisconnectedError(
                    "The model server closed the connection without an answer; the call may or may not have run."
                ) from None
        connection = await self._connect()
        try:
            return await self._exchange(connection, request, wire, on_head, limit)
        except _DiedError as died:
            if died.unread:
                raise BackendUnreachableError(
                    "The model server closes connections without reading from them."
                ) from None
            raise BackendDisconnectedError("The model server closes connections without an answer.") from None

    def resize(self, max_connections: int) -> None:
        """Change the number of connections; those that are open stay until they are idle too long."""
        self._max = max_connections
        self._wake_one()

    async def probe(self) -> bool:
        """Whether a connection can be had; it is kept for the next call. Never raises."""
        try:
            connection, _ = await self._acquire()
        except BackendUnreachableError:
            return False
        self._release(connection, asyncio.get_running_loop().time())
        return True

    async def aclose(self) -> None:
        """Close every connection, busy ones too."""
        self._closed = True
        for connection in list(self._open):
            connection.close()
        self._idle.clear()
        self._open.clear()

    async def _exchange(
        self, connection: _Connection, request: HttpRequest, wire: bytes, on_head: OnHead | None, limit: int
    ) -> Reply:
        loop = asyncio.get_running_loop()
        exchange = _Exchange(method=request.method, on_head=on_head, limit=limit, done=loop.create_future())
        try:
            connection.send(wire, request.tail, exchange)
            return await exchange.done
        finally:
            # Cancelled or failed midway, the connection's next bytes belong to this request: it must not be reused.
            if connection.exchange is exchange:
                connection.exchange = None
                connection.close()
            self._release(connection, loop.time())

    async def _acquire(self) -> tuple[_Connection, bool]:
        if self._closed:
            raise BackendUnreachableError("The adapter is stopping.")
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and now - connection.idle_since < MAX_IDLE and connection.is_silent():
                return connection, True
            self._discard(connection)
        while len(self._open) >= self._max:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()
                raise
            if self._idle:
                return await self._acquire()
        return await self._connect(), False

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        connection = _Connection()
        self._open.add(connection)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await loop.create_connection(lambda: connection, self._host, self._port, ssl=self._tls)
        except (OSError, TimeoutError) as error:
            self._discard(connection)
            raise BackendUnreachableError(
                "The model server cannot be reached; it may be starting or stopped."
            ) from error
        except BaseException:
            self._discard(connection)
            raise
        return connection

    def _release(self, connection: _Connection, now: float) -> None:
        if connection.reusable and not self._closed and connection.transport is not None:
            connection.idle_since = now
            self._idle.append(connection)
            self._wake_one()
        else:
            self._discard(connection)

    def _discard(self, connection: _Connection) -> None:
        connection.close()
        self._open.discard(connection)
        self._wake_one()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


def _encode(request: HttpRequest, address: str, credential: tuple[str, str] | None) -> bytes:
    head = [f"{request.method} {request.target} HTTP/1.1\r\nhost: {address}\r\n".encode("ascii")]
    if credential is not None:
        head.append(f"{credential[0]}: {credential[1]}\r\n".encode("latin-1"))
    for name, value in request.headers:
        head += [name, b": ", value, b"\r\n"]
    if request.body or request.method not in _WITHOUT_BODY:
        head.append(b"content-length: %d\r\n" % (len(request.body) + _size(request.tail)))
    head += [b"\r\n", request.body]
    return b"".join(head)


def _size(tail: Tail) -> int:
    return sum(memoryview(part).nbytes for part in tail) if tail else 0


def _too_large(limit: int) -> BackendAnswerTooLargeError:
    return BackendAnswerTooLargeError(f"The model server's answer is larger than {limit // (1024 * 1024)} MiB.")
