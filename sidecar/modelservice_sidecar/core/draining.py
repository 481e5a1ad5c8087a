"""When a stopping adapter has served long enough. Pure.

Owns the rule alone; the clock, the signal and the sockets are `server`'s.
"""

from typing import Final

QUIET: Final = 2.0
"""Seconds without a request after which every node has learned that this pod leaves."""


def end_of_drain(*, began: float, last_request: float, least: float, most: float) -> float:
    """The moment to stop serving, as it looks now: later whenever a request comes, but never past `most`.

    Args:
        began: When draining began. All moments are seconds on one clock.
        last_request: When the last request came since then; anything earlier than `began` for none.
        least: Seconds to serve in any case: clients learn late, and some only with their next request.
        most: Seconds to serve at most.
    """
    return min(max(began + least, last_request + QUIET), began + most)
