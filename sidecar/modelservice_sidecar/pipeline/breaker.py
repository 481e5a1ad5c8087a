"""Stage `breaker`: stops asking a model server that keeps failing, and asks again with one call at a time.

Owns what an outcome says about the model server. The states are `core.breaker`'s.
"""

import asyncio
from collections.abc import Callable
from math import ceil

from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.core.breaker import Breaker, Verdict
from modelservice_sidecar.core.errors import (
    BackendAnswerInvalidError,
    BackendAnswerTooLargeError,
    BackendDeniedError,
    BackendDisconnectedError,
    BackendFailureError,
    BackendRefusedError,
    BackendToolGoneError,
    BackendUnreachableError,
    CircuitOpenError,
)
from modelservice_sidecar.pipeline.call import Call, Handler

_FAILED = (BackendUnreachableError, BackendDisconnectedError, BackendFailureError)
_ANSWERED = (
    BackendRefusedError,
    BackendToolGoneError,
    BackendDeniedError,
    BackendAnswerInvalidError,
    BackendAnswerTooLargeError,
)


class CircuitBreaker:
    """One for the model server, whatever the tool: where it is down, it is down for all of them."""

    __slots__ = ("_breaker", "_inner", "_monotonic")

    def __init__(self, inner: Handler, *, breaker: Breaker, monotonic: Callable[[], float]) -> None:
        self._inner = inner
        self._breaker = breaker
        self._monotonic = monotonic

    async def __call__(self, call: Call) -> Answer:
        permit = self._breaker.admit(self._monotonic())
        if not isinstance(permit, int):
            raise CircuitOpenError(
                f"The model server keeps failing and is not asked for now; try again in {ceil(permit.retry_after)} s.",
                retry_after=permit.retry_after,
            )
        try:
            answer = await self._inner(call)
        except BaseException as error:
            self._breaker.record(permit, verdict(error, call), self._monotonic())
            raise
        self._breaker.record(permit, "answered", self._monotonic())
        return answer


def verdict(error: BaseException, call: Call) -> Verdict:
    """What a failed call says about the model server. The caller's own faults say that it is well."""
    if isinstance(error, BackendFailureError) and 300 <= call.context.backend_status < 400:
        return "answered"
    if isinstance(error, _FAILED):
        return "failed"
    if isinstance(error, _ANSWERED):
        return "answered"
    if isinstance(error, asyncio.CancelledError) and call.expired and call.asked:
        return "failed"  # it had the call and let its time pass
    return "unknown"  # busy, our own line was full, the caller left: nothing that stopping would make better
