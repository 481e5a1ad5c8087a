"""Stage `deadline`: ends a call when its time is up.

Owns the timer. The time itself stands in `CallContext.deadline`: stages plan by it, and the model server is told what is left.
"""

import asyncio
from typing import Any

from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.core.errors import DeadlineExceededError
from modelservice_sidecar.pipeline.call import Call, Handler


class Deadline:
    """Outermost: waiting in line, back-offs and batching are part of a call's time."""

    __slots__ = ("_inner", "_seconds")

    def __init__(self, inner: Handler, *, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds

    async def __call__(self, call: Call) -> Answer:
        # asyncio.timeout does the same and costs a tenth of a whole call.
        task = asyncio.current_task()
        assert task is not None
        timer = asyncio.get_running_loop().call_at(call.context.deadline, _expire, call, task)
        try:
            return await self._inner(call)
        except asyncio.CancelledError:
            # Cancelled from outside as well: then who cancelled is owed the cancellation.
            if not call.expired or task.uncancel() > 0:
                raise
            raise DeadlineExceededError(
                f"The model server did not answer within {self._seconds:g} s; the call was stopped."
            ) from None
        finally:
            timer.cancel()


def _expire(call: Call, task: asyncio.Task[Any]) -> None:
    call.expired = True
    task.cancel()
