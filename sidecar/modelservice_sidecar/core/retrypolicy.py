"""Whether a failed call is sent again, and when.

Owns the three questions: may this error of this tool be repeated, is there budget left, and how long to wait. Pure: chance
is passed in.
"""

from typing import Final

from modelservice_sidecar.core.errors import (
    BackendBusyError,
    BackendDisconnectedError,
    BackendError,
    BackendFailureError,
    BackendUnreachableError,
)

FIRST_BACKOFF: Final = 0.05
LONGEST_BACKOFF: Final = 1.0
"""Seconds. Each wait is drawn evenly between nothing and a bound that doubles: calls that failed together must not come back
together."""

RESERVE: Final = 10
"""Retries that may be saved up, and that are there at the start: a quiet service would otherwise have none."""


class Budget:
    """Retries as a share of calls, so that they cannot become the load that keeps a model server down.

    Every call pays in `percent` hundredths of a retry, every retry takes out one.
    """

    def __init__(self, percent: int) -> None:
        self._percent = percent
        self._hundredths = RESERVE * 100 if percent else 0

    def configure(self, percent: int) -> None:
        """Another share from the next call on; what is saved up stays, unless there are to be no retries."""
        self._percent = percent
        if not percent:
            self._hundredths = 0

    def pay_in(self) -> None:
        """A call was made."""
        self._hundredths = min(RESERVE * 100, self._hundredths + self._percent)

    def take(self) -> bool:
        """Whether a retry may be made; it is paid for then."""
        if self._hundredths < 100:
            return False
        self._hundredths -= 100
        return True


def may_repeat(error: BackendError, *, idempotent: bool, status: int) -> bool:
    """Whether sending the call again can help and cannot do its work twice.

    Args:
        error: how the call failed.
        idempotent: whether the tool is marked so.
        status: the HTTP status that the model server answered, 0 where there was none.
    """
    if isinstance(error, BackendUnreachableError):
        return True  # nothing was sent
    if isinstance(error, BackendBusyError) and error.retry_after is not None:
        return True  # who says when to come back has done nothing
    if not idempotent:
        return False
    if isinstance(error, BackendFailureError):
        return not 300 <= status < 400  # a redirect is the same the next time
    return isinstance(error, BackendDisconnectedError | BackendBusyError)


def backoff(attempt: int, chance: float, retry_after: float | None) -> float:
    """Seconds to wait after the failed attempt of that number, from 1. `chance` is drawn evenly from 0 to 1.

    A model server that says when to come back is not asked before.
    """
    # The exponent is bounded, not only the result: 2 to a large power is no float.
    bound: float = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(attempt - 1, 16))
    return max(retry_after or 0.0, bound * chance)
