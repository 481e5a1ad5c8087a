"""A queue of names to look at: one entry per name, one worker per name, delays and back-off per name.

Owns when a name is handed out. The contract is that of client-go's workqueue, which Python has no library for: a name
added while it waits is one entry; a name added while it is being worked on is handed out again afterwards; a failed name
comes back after a growing delay. Knows nothing of what the names mean.
"""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 60.0


class WorkQueue(Generic[Key]):
    """The queue. All methods belong to one event loop.

    Args:
        clock: Monotonic seconds, for delays.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """An empty, open queue."""
        self._clock = clock
        self._ready: OrderedDict[Key, None] = OrderedDict()
        self._active: set[Key] = set()
        self._again: set[Key] = set()
        self._later: list[tuple[float, int, Key]] = []
        self._due: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._sequence = 0
        self._closed = False
        self._changed = asyncio.Event()

    def add(self, key: Key) -> None:
        """`key` wants a look now. A look planned for later is not needed then."""
        self._due.pop(key, None)
        if key in self._active:
            self._again.add(key)
        else:
            self._ready.setdefault(key)
        self._changed.set()

    def add_after(self, key: Key, delay: float) -> None:
        """`key` wants a look in `delay` seconds; the earliest of several wishes counts."""
        due = self._clock() + delay
        if key in self._ready or self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._later, (due, self._sequence, key))
        self._changed.set()

    async def get(self) -> Key | None:
        """The next name, which is then active until `done`; None once the queue is closed."""
        while not self._closed:
            if (key := self.take()) is not None:
                return key
            self._changed.clear()
            timeout = max(0.0, self._later[0][0] - self._clock()) if self._later else None
            try:
                await asyncio.wait_for(self._changed.wait(), timeout)
            except TimeoutError:
                continue
        return None

    def take(self) -> Key | None:
        """The next name that is ready now, which is then active until `done`; None when none is."""
        self._promote()
        if self._closed or not self._ready:
            return None
        key, _ = self._ready.popitem(last=False)
        self._active.add(key)
        return key

    def done(self, key: Key, *, look_again_after: float | None) -> None:
        """`key` was looked at with success."""
        self._failures.pop(key, None)
        self._finish(key, look_again_after)

    def failed(self, key: Key) -> float:
        """`key` was looked at without success; it comes back after the returned seconds."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay = min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(count, 16))
        self._finish(key, delay)
        return delay

    def close(self) -> None:
        """Hands out nothing more; what is active may finish."""
        self._closed = True
        self._changed.set()

    def _finish(self, key: Key, delay: float | None) -> None:
        self._active.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)
        elif delay is not None:
            self.add_after(key, delay)

    def _promote(self) -> None:
        while self._later and self._later[0][0] <= self._clock():
            due, _, key = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
