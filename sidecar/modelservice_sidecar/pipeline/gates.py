"""Stages that only let a call through or refuse it: `authorise`, `rate_limit` and `check_arguments`.

Owns the step from a decision to an error; the decisions are made in `core.authorization`, `core.ratelimit` and by the tool's
compiled check. No gate waits for anything, so none costs a task switch.
"""

from collections.abc import Awaitable, Callable
from math import ceil
from typing import Final

from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.core.authorization import Access
from modelservice_sidecar.core.errors import InvalidArgumentsError, RateLimitedError
from modelservice_sidecar.core.ratelimit import BucketName, Buckets, Refused
from modelservice_sidecar.metrics import Counter
from modelservice_sidecar.pipeline.call import Call, Handler

_WHOSE: Final[dict[BucketName, str]] = {
    "per_user": "You have made too many calls",
    "shared": "This service has had too many calls",
    "tool_per_user": "You have called {tool} too often",
    "tool_shared": "{tool} has been called too often",
}


class Authorise:
    """Refuses who may not call the tool, before anything is counted or said about arguments."""

    __slots__ = ("_access", "_inner")

    def __init__(self, inner: Handler, *, access: Access) -> None:
        self._inner = inner
        self._access = access

    def __call__(self, call: Call) -> Awaitable[Answer]:
        refusal = self._access.may_call(call.context.identity, call.tool.name)
        if refusal is not None:
            raise refusal
        return self._inner(call)


class RateLimit:
    """Refuses calls for which no token is left, and says when there is one. Wrong calls count too: they are work."""

    __slots__ = ("_buckets", "_inner", "_monotonic", "_refused")

    def __init__(self, inner: Handler, *, buckets: Buckets, monotonic: Callable[[], float], refused: Counter) -> None:
        self._inner = inner
        self._buckets = buckets
        self._monotonic = monotonic
        self._refused = refused

    def __call__(self, call: Call) -> Awaitable[Answer]:
        refused = self._buckets.take(call.tool.name, call.user, self._monotonic())
        if refused is not None:
            self._refused.add(call.tool.name, refused.bucket)
            raise rate_limited(call, refused)
        return self._inner(call)


class CheckArguments:
    """Refuses arguments that the tool's schema refuses; nothing is sent."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Handler) -> None:
        self._inner = inner

    def __call__(self, call: Call) -> Awaitable[Answer]:
        problem = call.tool.check_arguments(call.arguments)
        if problem is not None:
            raise InvalidArgumentsError(f"Invalid arguments for {call.tool.name}: {problem}")
        return self._inner(call)


def rate_limited(call: Call, refused: Refused) -> RateLimitedError:
    """The error for a bucket without a token."""
    whose = _WHOSE[refused.bucket].format(tool=call.tool.name)
    return RateLimitedError(f"{whose}; try again in {ceil(refused.retry_after)} s.", retry_after=refused.retry_after)
