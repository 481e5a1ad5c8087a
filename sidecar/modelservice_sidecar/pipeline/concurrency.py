"""Stage `concurrency`: lets only so many calls be with the model server at once; the rest wait in a bounded line.

Owns the line: first come first served, no longer than can be served in time, so that what is too much is told at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import Final

from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.core.errors import OverloadedError
from modelservice_sidecar.pipeline.call import Call, Handler

WAITING_PER_SLOT: Final = 4
"""How many calls may wait for each running one; more would only wait for their deadline."""

_NEWEST: Final = 0.1
"""The share of the newest call in the average of how long slots are held."""


class Concurrency:
    """Inside `retry`, so that a call that waits to be sent again holds no slot."""

    __slots__ = ("_inner", "_limiter", "_monotonic")

    def __init__(self, inner: Handler, *, limiter: "Limiter", monotonic: Callable[[], float]) -> None:
        self._inner = inner
        self._limiter = limiter
        self._monotonic = monotonic

    async def __call__(self, call: Call) -> Answer:
        limiter = self._limiter
        if not limiter.take():
            left = call.context.deadline - asyncio.get_running_loop().time()
            came = perf_counter()
            await limiter.acquire(left)
            call.context.steps.waited("concurrency", came)
        began = self._monotonic()
        try:
            return await self._inner(call)
        finally:
            limiter.release(self._monotonic() - began)


class Limiter:
    """Slots for running calls and a bounded line for waiting ones, first come first served."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.running = 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._held = 0.0

    @property
    def waiting(self) -> int:
        return len(self._line)

    def resize(self, slots: int) -> None:
        """Change the number of slots; running calls keep theirs."""
        self._slots = slots
        self._admit()

    def take(self) -> bool:
        """Take a slot if one is free and nobody waits for it."""
        if self.running < self._slots and not self._line:
            self.running += 1
            return True
        return False

    async def acquire(self, seconds: float = inf) -> None:
        """Take a slot, waiting in line for it, at most about so many seconds.

        Raises:
            OverloadedError: the line is full, or so slow that the call's time would be up before its turn.
        """
        if self.take():
            return
        turn = self._held * (len(self._line) + 1) / self._slots
        if len(self._line) >= self._slots * WAITING_PER_SLOT or turn > seconds:
            raise OverloadedError(
                "Too many calls are waiting for the model server; try again in a moment.", retry_after=max(1.0, turn)
            )
        place = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()  # admitted in the same moment as cancelled: pass the slot on
            else:
                self._line.remove(place)
            raise

    def release(self, held: float | None = None) -> None:
        """Give a slot back that was held so many seconds."""
        if held is not None:
            self._held += (held - self._held) * (_NEWEST if self._held else 1.0)
        self.running -= 1
        self._admit()

    def _admit(self) -> None:
        while self._line and self.running < self._slots:
            place = self._line.popleft()
            if not place.done():
                self.running += 1
                place.set_result(None)
