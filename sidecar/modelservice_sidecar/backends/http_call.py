"""Calls over HTTP that can be found again by their request id, for every kind of model server that speaks HTTP.

Owns what such calls have in common: the ids they carry, how long the model server took, and their cancellation. Knows no
kind of model server.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

from modelservice_sidecar.backends.base import CallContext
from modelservice_sidecar.backends.http_failure import BUSY, asked_to_wait
from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.steps import Step
from modelservice_sidecar.upstream import MAX_ANSWER, OnHead, Pool, Reply

MAX_AGAIN: Final = 3
SHORTEST_WAIT: Final = 0.1
"""Seconds between two requests of one call, whatever the server asks for."""


_FIRST_ERROR: Final = 400
TIME_LEFT: Final = b"x-envoy-expected-rq-timeout-ms"
"""What Envoy tells a server of how long its caller waits: milliseconds. HTTP has no standard header for it."""


def time_left_ms(deadline: float, now: float) -> int:
    """At least one: nothing would read as "without end"."""
    return max(1, int((deadline - now) * 1000))


class HttpCalls:
    """The calls of one backend on its pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._running: dict[str, asyncio.Task[Any]] = {}

    async def send(
        self,
        request: HttpRequest,
        context: CallContext,
        *,
        on_head: OnHead | None = None,
        limit: int = MAX_ANSWER,
        patient: bool = False,
    ) -> Reply:
        """Send a request with the call's ids and wait for the whole answer. Raises what `Pool.request` raises.

        `patient`: where the server is busy and says for how long, wait so long and send again while the call has time,
        unless a stage of the pipeline sees to that.
        """
        ids = context.ids
        request.headers.append((b"x-request-id", ids.request_id.encode("ascii")))
        request.headers.append((TIME_LEFT, b"%d" % time_left_ms(context.deadline, asyncio.get_running_loop().time())))
        if context.headers:
            given = {name for name, _ in request.headers}  # an argument of that name was meant
            forwarded = ((name.encode("ascii"), value.encode("latin-1")) for name, value in context.headers.items())
            request.headers.extend(header for header in forwarded if header[0] not in given)
        if ids.state:
            request.headers.append((b"tracestate", ids.state.encode("ascii")))
        with self.running(context) as step:
            request.headers.append((b"traceparent", context.traceparent(step).encode("ascii")))
            step.attributes["http.request.method"] = request.method
            reply = await self._pool.request(request, on_head=on_head, limit=limit)
            if patient and not context.retried and reply.status in BUSY:
                clock = asyncio.get_running_loop().time
                for _ in range(MAX_AGAIN):
                    wait = asked_to_wait(reply.headers)
                    if wait is None or clock() + max(wait, SHORTEST_WAIT) >= context.deadline:
                        break
                    await asyncio.sleep(max(wait, SHORTEST_WAIT))
                    reply = await self._pool.request(request, on_head=on_head, limit=limit)
                    if reply.status not in BUSY:
                        break
            context.backend_status = step.attributes["http.response.status_code"] = reply.status
            if reply.status >= _FIRST_ERROR:
                step.error = str(reply.status)
            return reply

    @contextmanager
    def running(self, context: CallContext) -> Iterator[Step]:
        """The current task is this call, waiting for the model server: it can be cancelled, and its time is counted."""
        ids = context.ids
        step = context.steps.ask()
        task = asyncio.current_task()
        assert task is not None
        self._running[ids.request_id] = task
        try:
            yield step
        except BaseException as error:
            step.error = type(error).__name__
            raise
        finally:
            # Two calls may carry one request id; the later one owns the entry.
            if self._running.get(ids.request_id) is task:
                del self._running[ids.request_id]
            step.ended = perf_counter()  # the loop's own clock only has milliseconds
            context.backend_seconds += step.ended - step.began

    def cancel(self, request_id: str) -> None:
        """Cancel that call, if it runs; its connection is closed, which is how HTTP/1.1 says stop."""
        task = self._running.get(request_id)
        if task is not None:
            task.cancel()

    def cancel_all(self) -> None:
        """Cancel every call; the pool is shared with other kinds and closed by its owner."""
        for task in list(self._running.values()):
            task.cancel()
