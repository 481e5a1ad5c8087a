"""The two clocks the adapter reads, handed in so that tests can hold them.

Owns nothing else. Deadlines are on the running loop's own clock, since only that one can wake a task.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """`wall` is seconds since the epoch, for log lines; `monotonic` measures durations."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.perf_counter
