"""Stage `retry`: sends a failed call again where that cannot do its work twice.

Owns the loop. What may be repeated, how often in all and after how long is `core.retrypolicy`'s.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter

from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.core import retrypolicy
from modelservice_sidecar.core.errors import BackendError
from modelservice_sidecar.core.retrypolicy import Budget
from modelservice_sidecar.metrics import Counter
from modelservice_sidecar.pipeline.call import Call, Handler


class Retry:
    """Holds no slot while it waits, and never waits past the call's deadline."""

    __slots__ = ("_attempts", "_budget", "_chance", "_inner", "_retries")

    def __init__(
        self, inner: Handler, *, attempts: int, budget: Budget, chance: Callable[[], float], retries: Counter
    ) -> None:
        self._inner = inner
        self._attempts = attempts
        self._budget = budget
        self._chance = chance
        self._retries = retries

    async def __call__(self, call: Call) -> Answer:
        self._budget.pay_in()
        call.context.retried = True
        attempt = 1
        while True:
            try:
                return await self._inner(call)
            except BackendError as error:
                wait = self._wait(call, error, attempt)
                if wait is None:
                    raise
            failed = perf_counter()
            await asyncio.sleep(wait)
            call.context.steps.waited("retry", failed)
            attempt += 1
            call.context.retries += 1

    def _wait(self, call: Call, error: BackendError, attempt: int) -> float | None:
        """Seconds until the next attempt, or `None` where there is none."""
        if attempt >= self._attempts or not retrypolicy.may_repeat(
            error, idempotent=call.tool.idempotent, status=call.context.backend_status
        ):
            return None
        wait = retrypolicy.backoff(attempt, self._chance(), error.retry_after)
        if asyncio.get_running_loop().time() + wait >= call.context.deadline:
            self._retries.add(call.tool.name, "no_time")
            return None
        if not self._budget.take():
            self._retries.add(call.tool.name, "no_budget")
            return None
        self._retries.add(call.tool.name, "sent")
        return wait
