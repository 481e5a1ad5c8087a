"""What can go wrong with one call or one discovery, and the one table of how each error is told.

Owns the tree and the table. May not import anything of the shell, log, or format for one protocol: `/mcp` and `/rpc` read
the table and word the same error in their own way.

    AdapterError
    ├── CallError                        one call failed; its text is safe to show and says what to do
    │   ├── UnknownToolError             no tool of that name is published
    │   ├── InvalidArgumentsError        the arguments do not fit the tool's schema; the text names the path
    │   ├── AccessError                  the caller may not do this
    │   │   ├── UnauthenticatedError       a token is needed and none came
    │   │   └── NotPermittedError          the token's scopes do not cover it
    │   ├── RateLimitedError             no token is left; nothing was sent
    │   ├── OverloadedError              no slot came free; nothing was sent
    │   ├── DeadlineExceededError        the call's time was up; the model server's work was cancelled
    │   ├── InternalError                a fault of ours; the detail is in the log under the request id
    │   └── BackendError                 the model server's side
    │       ├── CircuitOpenError           it keeps failing and is not asked for now; nothing was sent
    │       ├── BackendUnreachableError    no connection; nothing was sent
    │       ├── BackendDisconnectedError   the connection ended after the request was sent; it may have run
    │       ├── BackendRefusedError        4xx: the request is at fault
    │       ├── BackendToolGoneError       what the tool stands for is no longer there, such as a model that was unloaded
    │       ├── BackendDeniedError         401/403: the adapter may not, the caller cannot help
    │       ├── BackendBusyError           429/503
    │       ├── BackendFailureError        5xx, redirects and other statuses that are no answer
    │       ├── BackendAnswerInvalidError  the answer is not what its media type or the OpenAPI document says
    │       └── BackendAnswerTooLargeError
    └── DescribeError                    the model server could not be described; carries the report's state

Programming errors are not in the tree: the pipeline turns them into `InternalError` at one place.
"""

import re
from dataclasses import dataclass
from typing import Final

from modelservice_api.adapter_config import BackendState


class AdapterError(Exception):
    """Root of every error that the adapter raises on purpose."""


class CallError(AdapterError):
    """One call failed. `str(error)` is shown to the caller: no internals, no text of the model server unless cleaned.

    `retry_after` is how many seconds from now the same call is worth sending again, where that is known.
    """

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnknownToolError(CallError):
    """No tool of that name is published."""


class InvalidArgumentsError(CallError):
    """The arguments do not fit; nothing was sent to the model server."""


class AccessError(CallError):
    """The caller may not do this; `scope` says which one would do. Told by its HTTP status in every era."""

    def __init__(self, message: str, scope: str = "") -> None:
        super().__init__(message)
        self.scope = scope


class UnauthenticatedError(AccessError):
    """A token is needed and none came."""


class NotPermittedError(AccessError):
    """The caller is known and may not do this; nothing was sent."""


class RateLimitedError(CallError):
    """The user's, the tool's or the service's tokens are used up; nothing was sent."""


class OverloadedError(CallError):
    """No slot came free in time; nothing was sent."""


class DeadlineExceededError(CallError):
    """The call's time was up."""


class InternalError(CallError):
    """A fault of the adapter itself."""


class BackendError(CallError):
    """The model server's side failed."""


class CircuitOpenError(BackendError):
    """The model server kept failing, so it is not asked for a while; nothing was sent."""


class BackendUnreachableError(BackendError):
    """No connection could be made; nothing was sent."""


class BackendDisconnectedError(BackendError):
    """The connection ended before the answer did; the request may have been executed."""


class BackendRefusedError(BackendError):
    """The model server answered 4xx: it does not want this request."""


class BackendToolGoneError(BackendError):
    """The model server no longer has what the tool stands for; the tools are worth reading again."""


class BackendDeniedError(BackendError):
    """The model server wants credentials that the adapter has not."""


class BackendBusyError(BackendError):
    """The model server asks to come back later."""


class BackendFailureError(BackendError):
    """The model server failed."""


class BackendAnswerInvalidError(BackendError):
    """The answer cannot be understood or contradicts the model server's own document."""


class BackendAnswerTooLargeError(BackendError):
    """The answer exceeds the adapter's bound."""


class DescribeError(AdapterError):
    """The model server could not be described.

    `state` and the text (one sentence) go into the adapter's report.
    """

    def __init__(self, state: BackendState, message: str) -> None:
        super().__init__(message)
        self.state: BackendState = state


@dataclass(frozen=True, kw_only=True, slots=True)
class Telling:
    """How one class of error is told.

    `outcome` is the word in log lines and metrics. `code` and `status` are the JSON-RPC code and HTTP status where the error
    is a JSON-RPC error; `tool_error` says that `/mcp` tells it as a result with `isError` instead, so that a model can
    correct itself. `retryable`: sending the same call again can succeed and cannot double it.
    """

    outcome: str
    code: int
    status: int
    tool_error: bool
    retryable: bool


# JSON-RPC reserves -32768..-32000 and MCP allots within it, so our own codes are outside.
TABLE: Final[dict[type[CallError], Telling]] = {
    UnknownToolError: Telling(outcome="unknown_tool", code=-32602, status=400, tool_error=False, retryable=False),
    InvalidArgumentsError: Telling(
        outcome="invalid_arguments", code=-32602, status=400, tool_error=True, retryable=False
    ),
    UnauthenticatedError: Telling(outcome="unauthenticated", code=1401, status=401, tool_error=False, retryable=False),
    NotPermittedError: Telling(outcome="not_permitted", code=1403, status=403, tool_error=False, retryable=False),
    RateLimitedError: Telling(outcome="rate_limited", code=1429, status=429, tool_error=True, retryable=True),
    CircuitOpenError: Telling(outcome="circuit_open", code=1012, status=503, tool_error=True, retryable=True),
    OverloadedError: Telling(outcome="overloaded", code=1001, status=503, tool_error=True, retryable=True),
    DeadlineExceededError: Telling(outcome="deadline", code=1002, status=504, tool_error=True, retryable=False),
    BackendUnreachableError: Telling(outcome="unreachable", code=1003, status=503, tool_error=True, retryable=True),
    BackendDisconnectedError: Telling(outcome="disconnected", code=1004, status=502, tool_error=True, retryable=False),
    BackendRefusedError: Telling(outcome="backend_refused", code=1005, status=422, tool_error=True, retryable=False),
    BackendToolGoneError: Telling(outcome="tool_gone", code=1011, status=404, tool_error=True, retryable=False),
    BackendDeniedError: Telling(outcome="backend_denied", code=1006, status=502, tool_error=True, retryable=False),
    BackendBusyError: Telling(outcome="backend_busy", code=1007, status=503, tool_error=True, retryable=True),
    BackendFailureError: Telling(outcome="backend_failed", code=1008, status=502, tool_error=True, retryable=False),
    BackendAnswerInvalidError: Telling(
        outcome="answer_invalid", code=1009, status=502, tool_error=True, retryable=False
    ),
    BackendAnswerTooLargeError: Telling(
        outcome="answer_too_large", code=1010, status=502, tool_error=True, retryable=False
    ),
    InternalError: Telling(outcome="internal", code=-32603, status=500, tool_error=True, retryable=False),
}


_OWN_WORDS: Final = frozenset(
    {
        UnauthenticatedError,
        NotPermittedError,
        RateLimitedError,
        OverloadedError,
        CircuitOpenError,
        DeadlineExceededError,
        BackendUnreachableError,
        BackendDisconnectedError,
        BackendBusyError,
        BackendAnswerTooLargeError,
        InternalError,
    }
)
"""Their texts are ours alone. All others may go on with what a caller sent or a model server said."""


def own_words(error: CallError) -> str:
    """What logs and spans say of the error: no more of its text than was written here."""
    words = str(error)
    return words if type(error) in _OWN_WORDS else re.split("[:(]", words, maxsplit=1)[0].rstrip(" .") + "."


def telling(error: CallError) -> Telling:
    """The row for an error; every leaf of the tree has its own."""
    return TABLE[type(error)]
