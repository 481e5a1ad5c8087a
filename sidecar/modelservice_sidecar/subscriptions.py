"""Open `subscriptions/listen` streams: who hears that the tools changed.

Owns their number and their end. A stream holds one flag, not a queue: "the list changed" said twice says nothing more, so a
reader that stops reading costs nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

MAX_STREAMS: Final = 256


class TooManyStreamsError(Exception):
    """No further stream is served now."""


@dataclass(eq=False, kw_only=True, slots=True)
class Stream:
    """One open stream. `changed` and `closed` are read after every wake-up."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    changed: bool = False
    closed: bool = False


class Subscriptions:
    """The hub; publishing never waits for anybody."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self._limit = limit
        self._streams: set[Stream] = set()
        self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def count(self) -> int:
        return len(self._streams)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Stream]:
        """A stream for the time of the block.

        Raises:
            TooManyStreamsError: the cap is reached, or the adapter is stopping.
        """
        if self._closed or len(self._streams) >= self._limit:
            raise TooManyStreamsError
        stream = Stream()
        self._streams.add(stream)
        self._empty.clear()
        try:
            yield stream
        finally:
            self._streams.discard(stream)
            if not self._streams:
                self._empty.set()

    async def emptied(self) -> None:
        """Return when no stream is open."""
        await self._empty.wait()

    def tools_changed(self) -> None:
        """Tell every stream."""
        for stream in self._streams:
            stream.changed = True
            stream.wake.set()

    def refuse_new(self) -> None:
        """Serve no further stream; those that are open stay."""
        self._closed = True

    def close(self) -> None:
        """End every stream with its final frame; serve no further one."""
        self._closed = True
        for stream in self._streams:
            stream.closed = True
            stream.wake.set()
