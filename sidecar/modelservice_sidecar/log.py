"""JSON lines on standard output: one per call, and few about the adapter's own life.

Owns the writer. Not the standard library's logging: a line there costs 8 µs, here less than one, and it can block the loop
when nobody reads the pipe. Here lines wait in memory, and when they are too many the oldest are dropped and counted.
"""

import asyncio
import os
import select
import stat
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Final

import orjson

FLUSH_AFTER: Final = 0.05
MAX_WAITING: Final = 2 * 1024 * 1024
_PIPE_CHUNK: Final = 4096
"""A pipe that polls writable takes at least PIPE_BUF bytes without blocking."""


class LineWriter:
    """Writes lines to a file descriptor without ever blocking the loop."""

    def __init__(self, fd: int = 1, now: Callable[[], float] = time.time) -> None:
        self._fd = fd
        self._now = now
        self._waiting: deque[bytes] = deque()
        self._begun = b""
        self._size = 0
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None
        self._never_blocks = _is_regular_file(fd)

    def event(self, event: str, **fields: object) -> None:
        """A line about the adapter's life, written at once where it can be."""
        self.line({"event": event, **fields})
        self.flush()

    def line(self, fields: dict[str, object]) -> None:
        """Add a line; it is written within `FLUSH_AFTER` seconds."""
        encoded = orjson.dumps({"time": round(self._now(), 3), **fields}, default=str, option=orjson.OPT_APPEND_NEWLINE)
        self._waiting.append(encoded)
        self._size += len(encoded)
        while self._size > MAX_WAITING:
            self._size -= len(self._waiting.popleft())
            self._dropped += 1
        if self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER, self._on_timer)
            except RuntimeError:  # no loop yet, or no more
                self.flush()

    def flush(self, *, patience: float = 0.0) -> None:
        """Write what can be written now, waiting at most `patience` seconds for a slow reader."""
        while (self._begun or self._waiting) and (self._never_blocks or _is_writable(self._fd, patience)):
            if not self._begun:
                self._begun = self._take()
            try:
                written = os.write(self._fd, self._begun if self._never_blocks else self._begun[:_PIPE_CHUNK])
            except OSError:  # the reader is gone: there is nobody to tell
                written = len(self._begun)
            self._begun = self._begun[written:]

    def _take(self) -> bytes:
        """The next lines, about as many as are written at once. What is begun is never dropped: half a line is no JSON."""
        taken = bytearray()
        if self._dropped:
            taken += orjson.dumps({"event": "log_lines_dropped", "count": self._dropped}) + b"\n"
            self._dropped = 0
        while self._waiting and (self._never_blocks or len(taken) < _PIPE_CHUNK):
            line = self._waiting.popleft()
            self._size -= len(line)
            taken += line
        return bytes(taken)

    def _on_timer(self) -> None:
        self._timer = None
        self.flush()
        if self._begun or self._waiting:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER, self._on_timer)


def fault(error: BaseException) -> str:
    """Where a fault of ours happened and of what type it is. Not its message: that may hold what a caller sent."""
    told: list[str] = []
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen and len(seen) < 8:
        seen.add(id(now))
        told.append("".join(traceback.format_tb(now.__traceback__)) + type(now).__qualname__)
        now = now.__cause__ or (None if now.__suppress_context__ else now.__context__)
    return "\nthe cause of\n".join(reversed(told))[-8000:]


def _is_writable(fd: int, patience: float) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return bool(poller.poll(patience * 1000))


def _is_regular_file(fd: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:
        return True
