"""The circuit breaker: whether the model server is asked at all while it keeps failing.

Owns the states and what leads from one to the next. Pure: the time is passed in, on a clock that never steps.

    state      a call comes                         calls fail               a call is answered
    closed     goes through                         the Nth in a row: open   the count begins anew
    open       refused; after `open_seconds`:       nothing (old calls)      nothing (old calls)
               half-open, and it is the probe
    half-open  refused while the probe runs; when   the probe: open          the probe: closed
               the probe is lost, the next probe

A probe is lost when its caller left, when its outcome says nothing, or after `open_seconds`: one that hangs must not keep
all others out for its whole deadline.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

State = Literal["closed", "open", "half_open"]
Event = Literal["tripped", "cooled", "probe_failed", "probe_answered"]
Verdict = Literal["failed", "answered", "unknown"]
"""What a call's outcome says about the model server. `unknown`: it was busy, or the caller left, or it was never asked."""

STATES: Final[tuple[State, ...]] = ("closed", "open", "half_open")

NEXT: Final[Mapping[tuple[State, Event], State]] = {
    ("closed", "tripped"): "open",
    ("open", "cooled"): "half_open",
    ("half_open", "probe_failed"): "open",
    ("half_open", "probe_answered"): "closed",
}
"""The whole table; an event that is not here changes nothing."""


class Refused(NamedTuple):
    """The model server is not asked; in `retry_after` seconds somebody is let through."""

    retry_after: float


class Breaker:
    """One model server's breaker."""

    def __init__(self, *, failures: int, open_seconds: float) -> None:
        self._limit = failures
        self._open_seconds = open_seconds
        self.state: State = "closed"
        self.opened = 0
        """How often it opened."""
        self._failures = 0
        self._since = 0.0
        self._probing = False
        # A call's outcome counts only in the era in which the call was let through.
        self._era = 0

    def configure(self, *, failures: int, open_seconds: float) -> None:
        """Other bounds from the next event on; the state stays."""
        self._limit = failures
        self._open_seconds = open_seconds

    def reset(self) -> None:
        """The model server is another one, or has come back by itself."""
        self.state = "closed"
        self._failures = 0
        self._begin_era()

    def admit(self, now: float) -> int | Refused:
        """Let a call through, with a permit to be given back in `record`, or refuse it."""
        if self.state == "closed":
            return self._era
        left = self._since + self._open_seconds - now
        if self.state == "open":
            if left > 0:
                return Refused(left)
            self._move("cooled", now)
        elif self._probing and left > 0:
            return Refused(left)
        else:  # the probe is lost
            self._begin_era()
        self._since = now
        self._probing = True
        return self._era

    def record(self, permit: int, verdict: Verdict, now: float) -> None:
        """What became of a call that was let through."""
        if permit != self._era:
            return
        if self.state == "half_open":
            self._probing = False
            if verdict == "failed":
                self._move("probe_failed", now)
            elif verdict == "answered":
                self._move("probe_answered", now)
        elif verdict == "answered":
            self._failures = 0
        elif verdict == "failed":
            self._failures += 1
            if self._failures >= self._limit:
                self._move("tripped", now)

    def _move(self, event: Event, now: float) -> None:
        self.state = NEXT[self.state, event]
        self._since = now
        self._failures = 0
        self.opened += self.state == "open"
        self._begin_era()

    def _begin_era(self) -> None:
        self._era += 1
        self._probing = False
