"""Stage `cache`: answers a call with the answer that the same call had, and lets equal calls under way be one.

Owns which tools and answers may be kept, and the flights. What "the same call" is and how much is kept is `core.cachekey`'s.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Final

import orjson

from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.core import cachekey
from modelservice_sidecar.core.cachekey import Store
from modelservice_sidecar.core.errors import BackendDisconnectedError, BackendUnreachableError
from modelservice_sidecar.metrics import Counter
from modelservice_sidecar.pipeline.call import Call, Handler

_OVERHEAD: Final = 1024
"""Bytes that an answer takes besides its texts and tensors: objects, keys, its place in the store."""


@dataclass(kw_only=True, slots=True)
class _Flight:
    """One call under way for all callers that ask the same. It ends with its last caller."""

    call: Call
    task: asyncio.Task[Answer] | None = None
    waiting: int = 0


@dataclass(kw_only=True)
class Answers:
    """What is kept for one set of tools, one model and one configuration; another set begins with a new, empty one."""

    store: Store[Answer]
    flights: dict[bytes, _Flight] = field(default_factory=dict)


class Cache:
    """Only for tools marked `readOnlyHint` and `idempotentHint`. Errors are never kept."""

    __slots__ = ("_answers", "_asked", "_inner", "_monotonic", "_per_user", "_version")

    def __init__(
        self,
        inner: Handler,
        *,
        answers: Answers,
        version: str,
        per_user: bool,
        monotonic: Callable[[], float],
        asked: Counter,
    ) -> None:
        self._inner = inner
        self._answers = answers
        self._version = version
        self._per_user = per_user
        self._monotonic = monotonic
        self._asked = asked

    def __call__(self, call: Call) -> Awaitable[Answer]:
        # A header that goes on to the model server may change what it answers.
        return self._answer(call) if call.tool.cacheable and not call.context.headers else self._inner(call)

    async def _answer(self, call: Call) -> Answer:
        key = cachekey.key(
            call.tool.name,
            call.arguments,
            version=self._version,
            scope=call.user if self._per_user else "",
            wants_tensors=call.context.wants_tensors,
        )
        if key is None:
            return await self._inner(call)
        kept = self._answers.store.get(key, self._monotonic())
        if kept is not None:
            self._tell(call, "hit")
            return kept
        flight = self._answers.flights.get(key)
        self._tell(call, "miss" if flight is None else "joined")
        if flight is None:
            flight = self._answers.flights[key] = _Flight(call=call)
            # A task of its own: who asked first may leave while others wait for the same answer.
            flight.task = asyncio.create_task(self._fly(key, flight))
        assert flight.task is not None
        flight.waiting += 1
        came = perf_counter()
        try:
            return await asyncio.shield(flight.task)
        finally:
            if flight.call is not call:
                call.context.steps.waited("cache", came)
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                flight.call.expired = flight.call.expired or call.expired
                self._land(key, flight)
                flight.task.cancel()

    async def _fly(self, key: bytes, flight: _Flight) -> Answer:
        try:
            answer = await self._inner(flight.call)
        except (BackendUnreachableError, BackendDisconnectedError):
            self._answers.store.clear()  # what comes back may be another model
            raise
        finally:
            self._land(key, flight)
        kept, size = to_keep(answer)
        self._answers.store.put(key, kept, size, self._monotonic())
        return answer

    def _land(self, key: bytes, flight: _Flight) -> None:
        if self._answers.flights.get(key) is flight:
            del self._answers.flights[key]

    def _tell(self, call: Call, result: str) -> None:
        call.context.cache = result
        self._asked.add(call.tool.name, result)


def to_keep(answer: Answer) -> tuple[Answer, int]:
    """The answer as it is kept, and how many bytes it takes: as JSON rather than as objects, whose size nobody knows."""
    raw = answer.raw
    if raw is None and answer.has_structured:
        raw = orjson.dumps(answer.structured)
    tensors = answer.tensors
    size = _OVERHEAD + len(raw or b"") + sum(map(_size, answer.content))
    if tensors is not None:
        # Copies: a view would hold the whole message that the tensor came in.
        tensors = {name: replace(tensor, data=bytes(tensor.data)) for name, tensor in tensors.items()}
        size += sum(_OVERHEAD + len(tensor.data) for tensor in tensors.values())
    return answer._replace(raw=raw, structured=None, tensors=tensors), size


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(map(_size, value.values()))
    if isinstance(value, list):
        return sys.getsizeof(value) + sum(map(_size, value))
    return sys.getsizeof(value)
