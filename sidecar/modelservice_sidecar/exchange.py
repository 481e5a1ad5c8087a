"""One answer under way: JSON if it comes soon, else an event stream; nothing at all if the caller leaves.

Owns the moment when a response commits, heartbeats, and the watch for a caller that hangs up. Knows JSON-RPC frames only as
bytes. A quick call pays for two timer handles and nothing else.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import orjson

from modelservice_sidecar import inbound as requests
from modelservice_sidecar.backends.base import Progress
from modelservice_sidecar.core import text
from modelservice_sidecar.inbound import Inbound, Message, RawHeaders, Receive, Send

EVENT_STREAM: Final = b"text/event-stream"
STREAM_HEADERS: Final[RawHeaders] = [
    (b"cache-control", b"no-cache, no-transform"),  # proxies must neither keep nor compress a stream
    (b"x-accel-buffering", b"no"),  # nginx would hold frames back
]
PING: Final = b": ping\r\n\r\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """When things happen in an answer, in seconds.

    `watch_after`: when the watch for a departed caller starts. `progress_after`: when a caller with a progress token gets
    the first heartbeat. `commit_after`: when a caller without one gets the first byte. `beat`: between heartbeats or
    comments. `throttle`: at least between two progress messages.
    """

    watch_after: float = 0.02
    progress_after: float = 1.0
    commit_after: float = 10.0
    beat: float = 5.0
    throttle: float = 0.1


def frame(message: bytes) -> bytes:
    """One JSON-RPC message as an event. `message` has no line breaks: JSON written by us never does."""
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"


class Exchange:
    """Answers one request. `token` is the caller's progress token; `streams` says whether it accepts an event stream."""

    # What most calls never change stands on the class: they are quick, and setting it would be a part of their cost.
    left = False
    _task: asyncio.Task[object] | None = None
    _watcher: asyncio.Task[None] | None = None
    _streamer: asyncio.Task[None] | None = None
    _wake: asyncio.Event | None = None
    _pending: Progress | None = None
    _value = 0
    _last_progress = 0.0
    _ended = False

    def __init__(
        self,
        inbound: Inbound,
        receive: Receive,
        send: Send,
        *,
        streams: bool,
        token: int | str | None,
        timing: Timing,
    ) -> None:
        self._inbound = inbound
        self._receive = receive
        self._send = send
        self._streams = streams
        self._token = token
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._frames: list[bytes] = []
        self._timers: list[asyncio.TimerHandle] = []

    async def run(self, work: Awaitable[tuple[int, bytes]]) -> None:
        """Do the work and send its status and body; if the caller leaves, cancel the work and send nothing."""
        self._task = asyncio.current_task()
        timing = self._timing
        self._timers.append(self._loop.call_later(timing.watch_after, self._start_watching))
        if self._streams:
            first = timing.commit_after if self._token is None else timing.progress_after
            self._timers.append(self._loop.call_later(first, self._start_streaming))
        try:
            status, body = await work
        except asyncio.CancelledError:
            self._abandon()
            if self.left and self._task is not None:
                self._task.uncancel()
                return
            raise
        except BaseException:
            self._abandon()
            raise
        self._stop_timers()
        await self._finish(status, body)

    def progress(self, progress: Progress) -> None:
        """Tell the caller about progress, if it asked for it; at most one message per `throttle`, the newest wins."""
        if self._token is None or not self._streams or self._ended:
            return
        self._pending = progress
        if self._streamer is None:
            self._start_streaming()  # whose first beat tells it
        elif self._loop.time() - self._last_progress >= self._timing.throttle:
            self._emit_pending()

    async def _finish(self, status: int, body: bytes) -> None:
        self._ended = True
        if self._streamer is None:
            await requests.answer(self._inbound, self._send, status, body)
            return
        if self._pending is not None:
            self._emit_pending()
        self._push(frame(body))
        await self._streamer

    def _abandon(self) -> None:
        self._ended = True
        self._stop_timers()
        if self._streamer is not None:
            self._streamer.cancel()

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None  # its error holds its frame and so us: a cycle for every call that was watched

    def _start_watching(self) -> None:
        self._watcher = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        with suppress(asyncio.CancelledError):
            await requests.disconnected(self._receive)
            if not self._ended and self._task is not None:
                self.left = True
                self._task.cancel()

    def _start_streaming(self) -> None:
        if self._streamer is None and not self._ended:
            self._wake = asyncio.Event()
            self._streamer = self._loop.create_task(self._stream())
            self._beat()

    def _beat(self) -> None:
        """A sign of life: rising progress for who asked, a comment for who did not."""
        if self._ended:
            return
        if self._token is None:
            self._push(PING)
        else:
            if self._pending is None:
                self._pending = Progress(value=self._value)
            self._emit_pending()
        self._timers.append(self._loop.call_later(self._timing.beat, self._beat))
        del self._timers[:-4]  # fired handles; the newest few may still be pending

    def _emit_pending(self) -> None:
        assert self._pending is not None
        pending, self._pending = self._pending, None
        # The value must rise with every message, whatever the backend counts.
        self._value += 1
        self._last_progress = self._loop.time()
        params: dict[str, object] = {"progressToken": self._token, "progress": self._value}
        if pending.message:
            params["message"] = text.clean(pending.message, 200)
        message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        self._push(frame(orjson.dumps(message)))

    def _push(self, data: bytes) -> None:
        self._frames.append(data)
        if self._wake is not None:
            self._wake.set()

    async def _stream(self) -> None:
        """The only writer once the stream is committed; waits for the socket, so frames are joined for a slow reader."""
        assert self._wake is not None
        start: Message = self._inbound.start(200, EVENT_STREAM, None, STREAM_HEADERS)
        await self._send(start)
        while True:
            await self._wake.wait()
            self._wake.clear()
            data, last = b"".join(self._frames), self._ended
            self._frames.clear()
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
            if last:
                return
