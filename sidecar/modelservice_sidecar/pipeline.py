"""The chain that every tool call goes through, from `/mcp` and `/rpc` alike, as one visible list.

Owns the order of the layers and what each of them does with a call. Knows neither protocol: a `Call` comes in, an `Answer`
or a `CallError` comes out. Layers are added to `build` in the place where they belong and nowhere else.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from modelservice_api.adapter_config import LimitsConfig
from modelservice_sidecar.backends.base import Answer, Backend, CallContext
from modelservice_sidecar.core.errors import (
    BackendAnswerInvalidError,
    BackendUnreachableError,
    DeadlineExceededError,
    InvalidArgumentsError,
    OverloadedError,
)
from modelservice_sidecar.peers import Peers
from modelservice_sidecar.published import PublishedTool

WAITING_PER_SLOT: Final = 4
"""How many calls may wait for each running one; more would only wait for their deadline."""
_SHOWN_ANSWER: Final = 4096


@dataclass(kw_only=True, slots=True)
class Call:
    """One call on its way. `credentials` is the caller's Authorization header, for a hand-over and nothing else."""

    tool: PublishedTool
    arguments: dict[str, Any]
    context: CallContext
    backend: Backend | None
    credentials: str | None = field(default=None, repr=False)


Handler = Callable[[Call], Awaitable[Answer]]


def build(limits: LimitsConfig, limiter: "Limiter", peers: Peers | None = None) -> Handler:
    """The chain under these limits, outermost first."""
    layers: list[Callable[[Handler], Handler]] = [
        check_arguments,  # first: what cannot be answered takes no slot
        lambda inner: deadline(inner, limits.timeout),  # its time includes the wait for a slot
        lambda inner: concurrency(inner, limiter),
        lambda inner: hand_over(inner, peers),  # a peer has checked the answer already
        check_answer,
    ]
    chain: Handler = ask_backend
    for layer in reversed(layers):
        chain = layer(chain)
    return chain


def check_arguments(inner: Handler) -> Handler:
    """Refuse arguments that the tool's schema refuses; nothing is sent."""

    async def handle(call: Call) -> Answer:
        problem = call.tool.check_arguments(call.arguments)
        if problem is not None:
            raise InvalidArgumentsError(f"Invalid arguments for {call.tool.name}: {problem}")
        return await inner(call)

    return handle


def deadline(inner: Handler, seconds: float) -> Handler:
    """End the call when its time is up; the backend sees a cancellation."""

    async def handle(call: Call) -> Answer:
        # asyncio.timeout does the same and costs a tenth of a whole call.
        task = asyncio.current_task()
        assert task is not None
        expired = False

        def expire() -> None:
            nonlocal expired
            expired = True
            task.cancel()

        timer = asyncio.get_running_loop().call_at(call.context.deadline, expire)
        try:
            return await inner(call)
        except asyncio.CancelledError:
            # Cancelled from outside as well: then who cancelled is owed the cancellation.
            if not expired or task.uncancel() > 0:
                raise
            raise DeadlineExceededError(
                f"The model server did not answer within {seconds:g} s; the call was stopped."
            ) from None
        finally:
            timer.cancel()

    return handle


def concurrency(inner: Handler, limiter: "Limiter") -> Handler:
    """Let only so many calls run at once; the rest wait in line."""

    async def handle(call: Call) -> Answer:
        await limiter.acquire()
        try:
            return await inner(call)
        finally:
            limiter.release()

    return handle


def hand_over(inner: Handler, peers: Peers | None) -> Handler:
    """Let another pod answer what this pod's model server did not even receive."""
    if peers is None:
        return inner

    async def handle(call: Call) -> Answer:
        if call.context.handed_over:
            return await inner(call)
        if peers.come_first:
            try:
                return await peers.call(call.tool.name, call.arguments, call.context, call.credentials)
            except BackendUnreachableError:
                return await inner(call)
        try:
            return await inner(call)
        except BackendUnreachableError:
            return await peers.call(call.tool.name, call.arguments, call.context, call.credentials)

    return handle


def check_answer(inner: Handler) -> Handler:
    """Hold the model server to its own document: clients refuse an answer that breaks a declared output schema.

    The caller still gets what was answered, inside the error: it may be right where the document is wrong.
    """

    async def handle(call: Call) -> Answer:
        answer = await inner(call)
        check = call.tool.check_answer
        if check is None:
            return answer
        problem = check(answer.structured) if answer.has_structured else "it is not JSON"
        if problem is None:
            return answer
        shown = next((block["text"] for block in answer.content if block.get("type") == "text"), "")[:_SHOWN_ANSWER]
        raise BackendAnswerInvalidError(
            f"The model server's answer does not match its own OpenAPI document ({problem}). It answered: {shown}"
        )

    return handle


async def ask_backend(call: Call) -> Answer:
    """The end of the chain: the model server, piece by piece where the caller wants progress."""
    if call.backend is None:
        raise BackendUnreachableError("The model server has not been found yet; try again in a moment.")
    on_progress = call.context.on_progress
    if on_progress is None:
        return await call.backend.call(call.tool.tool.spec, call.arguments, call.context)
    async with aclosing(call.backend.stream(call.tool.tool.spec, call.arguments, call.context)) as items:
        async for item in items:
            if isinstance(item, Answer):
                return item
            on_progress(item)
    raise BackendAnswerInvalidError("The model server's stream ended without an answer.")


class Limiter:
    """Slots for running calls and a bounded line for waiting ones, first come first served."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.running = 0
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._line)

    def resize(self, slots: int) -> None:
        """Change the number of slots; running calls keep theirs."""
        self._slots = slots
        self._admit()

    async def acquire(self) -> None:
        """Take a slot, waiting in line for it.

        Raises:
            OverloadedError: the line is full.
        """
        if self.running < self._slots and not self._line:
            self.running += 1
            return
        if len(self._line) >= self._slots * WAITING_PER_SLOT:
            raise OverloadedError("Too many calls are waiting for the model server; try again in a moment.")
        place = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()  # admitted in the same moment as cancelled: pass the slot on
            else:
                self._line.remove(place)
            raise

    def release(self) -> None:
        """Give a slot back."""
        self.running -= 1
        self._admit()

    def _admit(self) -> None:
        while self._line and self.running < self._slots:
            place = self._line.popleft()
            if not place.done():
                self.running += 1
                place.set_result(None)
