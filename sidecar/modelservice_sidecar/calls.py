"""Running one tool call for either protocol: find the tool, go through the pipeline, account for it.

Owns the step from a tool's name and arguments to an `Answer` or a `CallError`, and what is recorded about it. The protocols
word the outcome.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Final

from modelservice_api.adapter_config import AdapterConfig
from modelservice_sidecar import log
from modelservice_sidecar.backends.base import Answer, Backend, CallContext, Progress
from modelservice_sidecar.core import errors
from modelservice_sidecar.core.authorization import Access, Identity
from modelservice_sidecar.core.errors import (
    BackendToolGoneError,
    BackendUnreachableError,
    CallError,
    InternalError,
    InvalidArgumentsError,
    UnknownToolError,
)
from modelservice_sidecar.core.mcp import Headers
from modelservice_sidecar.core.redaction import Redactor
from modelservice_sidecar.core.tensors import Tensor
from modelservice_sidecar.core.trace import Ids
from modelservice_sidecar.pipeline.call import Call, Handler
from modelservice_sidecar.published import Published, PublishedTool
from modelservice_sidecar.steps import Steps
from modelservice_sidecar.telemetry import CallRecord, Telemetry

NOT_FOUND_YET: Final = "The model server has not been found yet; try again in a moment."


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All that a call needs, as it was when the call came: replaced as a whole when configuration or tools change."""

    config: AdapterConfig
    published: Published
    pipeline: Handler
    backend: Backend | None
    list_ttl_ms: int
    access: Access = field(default_factory=Access)
    for_anonymous: Published = field(default_factory=Published)
    """What of it is shown to who may not see everything."""
    redactor: Redactor | None = None
    """What shows arguments and results to the log, where that is wanted."""
    why_not: str = NOT_FOUND_YET
    """What callers read while there is no backend."""

    def seen_by(self, identity: Identity | None) -> "Snapshot":
        """The same, with the tools that this caller may see."""
        return self if self.access.sees_all(identity) else replace(self, published=self.for_anonymous)


_NO_HEADERS: Final[dict[str, str]] = {}

FIRST_WAIT: Final = 5.0
"""Seconds that a call waits for a model server that was never seen: a pod can get calls in the moment it comes up."""


LIST_WAIT: Final = 1.0
"""Seconds that a list of tools waits for one more look: a client that is told of none may never ask again."""


@dataclass(kw_only=True, slots=True)
class Calls:
    """Runs calls against the snapshot of the moment.

    `until_found` and `until_looked` wait, at most so many seconds, for the first tools and for one more look for them;
    `look_now` has the tools read again without waiting.
    """

    snapshot: Callable[[], Snapshot]
    telemetry: Telemetry
    monotonic: Callable[[], float]
    until_found: Callable[[float], Awaitable[None]]
    until_looked: Callable[[float], Awaitable[None]]
    look_now: Callable[[], None]
    in_flight: int = 0
    running: "Counter[Backend]" = field(default_factory=Counter)
    """How many calls are with each model server's backend."""
    _leaving: dict[Backend, asyncio.Event] = field(default_factory=dict)

    async def run(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        record: CallRecord,
        on_progress: Callable[[Progress], None] | None = None,
        handed_over: bool = False,
        identity: Identity | None = None,
        credentials: str | None = None,
        wants_tensors: bool = False,
        headers: Headers | None = None,
    ) -> Answer:
        """Run the tool; `record` learns what happened. The caller finishes the record with `finish`.

        Of `headers`, the request's, go on to the model server those that the configuration names.
        `identity` and `credentials` are the request's (`Inbound`); the latter only ever goes to another pod's adapter. With
        `wants_tensors`, arguments may be tensors, and a tool whose results are tensors answers with them.

        Raises:
            CallError: the call failed; the text is safe to show.
        """
        tracing = self.telemetry.tracing
        record.ids = tracing.decide(record.ids)
        record.steps = Steps(recorded=tracing.records(record.ids))
        if self.snapshot().backend is None:
            came = perf_counter()
            await self.until_found(FIRST_WAIT)
            record.steps.waited("discovery", came)
        now = self.snapshot()
        record.variant = now.config.server.version
        if now.backend is None:  # which tools there are is not known, so neither is that this one is not among them
            record.outcome = errors.TABLE[BackendUnreachableError].outcome
            raise BackendUnreachableError(now.why_not)
        tool = now.published.tools.get(name)
        if tool is None:
            refusal = now.access.may_call(identity, name)
            if refusal is not None:  # who may not call it does not learn whether it exists
                record.outcome = errors.telling(refusal).outcome
                raise refusal
            record.outcome = errors.TABLE[UnknownToolError].outcome
            raise UnknownToolError(f"Unknown tool: {_shown(name)}")
        record.tool = name
        deadline = asyncio.get_running_loop().time() + now.config.limits.timeout
        context = CallContext(
            ids=record.ids,
            deadline=deadline,
            on_progress=on_progress,
            handed_over=handed_over,
            identity=identity,
            wants_tensors=wants_tensors,
            steps=record.steps,
            headers=_forwarded(now.config.backend.forward_headers, headers),
        )
        if now.redactor is not None:
            record.input = now.redactor.show(arguments)
        self.in_flight += 1
        self.running[now.backend] += 1
        try:
            if wants_tensors:
                _refuse_tensors(tool, arguments)
            answer = await now.pipeline(
                Call(tool=tool, arguments=arguments, context=context, backend=now.backend, credentials=credentials)
            )
            if now.redactor is not None:
                record.output = now.redactor.show(_told(answer))
            return answer
        except CallError as error:
            record.outcome = errors.telling(error).outcome
            record.error = errors.own_words(error) if now.redactor is None else now.redactor.text(str(error))
            if isinstance(error, BackendToolGoneError):
                self.look_now()
            raise
        except asyncio.CancelledError:
            record.outcome = "cancelled"
            raise
        except Exception as error:
            record.outcome = errors.TABLE[InternalError].outcome
            record.error = log.fault(error)
            raise InternalError(
                f"Internal error; the adapter's log has the detail under request id {record.ids.request_id}"
            ) from error
        finally:
            self.in_flight -= 1
            self.running[now.backend] -= 1
            if now.backend in self._leaving and not self.running[now.backend]:
                self._leaving[now.backend].set()
            record.backend_seconds = context.backend_seconds
            record.backend_status = context.backend_status
            record.tokens_in = context.tokens_in
            record.tokens_out = context.tokens_out
            record.cache = context.cache
            record.retries = context.retries
            record.batch_rows = context.batch_rows

    async def until_left(self, backend: Backend, seconds: float) -> None:
        """Wait, at most so many seconds, until no call is with a backend that gets no new ones."""
        if self.running[backend]:
            event = self._leaving[backend] = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()
            del self._leaving[backend]
        del self.running[backend]

    def finish(self, record: CallRecord, received: float, status: int, bytes_out: int) -> None:
        """Account for a call that is about to be answered, or never will be."""
        record.seconds = self.monotonic() - received
        record.status = status
        record.bytes_out = bytes_out
        self.telemetry.call(record)

    def finish_other(self, method: str, received: float) -> None:
        """Account for a request of MCP that is no call and is about to be answered."""
        self.telemetry.operation(method, self.monotonic() - received)


def _refuse_tensors(tool: PublishedTool, arguments: dict[str, Any]) -> None:
    """Bytes are for tools of tensors; any other is told in its own words."""
    if tool.tool.spec.signature is not None:
        return
    given = next((name for name, value in arguments.items() if isinstance(value, Tensor)), None)
    if given is not None:
        raise InvalidArgumentsError(f"Invalid arguments for {tool.name}: $.{given}: this tool takes no tensors")


def _told(answer: Answer) -> object:
    """What of an answer is worth a look: its value where it has one, else its blocks."""
    if answer.has_structured:
        return answer.structured if answer.structured is not None or answer.raw is None else answer.raw
    return [block.get("text", block.get("type")) for block in answer.content]


def new_record(ids: Ids, era: str, bytes_in: int) -> CallRecord:
    """The record of a call that begins now."""
    return CallRecord(ids=ids, era=era, bytes_in=bytes_in)


def _forwarded(names: tuple[str, ...], headers: Headers | None) -> dict[str, str]:
    if not names or headers is None:
        return _NO_HEADERS
    return {name: value for name in names if (value := headers.get(name)) is not None}


def _shown(name: str) -> str:
    return name if len(name) <= 128 else name[:128] + "…"
