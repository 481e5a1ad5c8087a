"""Stage `batch`: lets calls of one tensor model that come together be one call of several rows.

Owns the gathering: when a batch is sent, and who gets which part of what comes back. Joining and cutting tensors is
`core.batching`'s, converting them `backends.tensor_tool`'s. A model server that batches by itself is left to it.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from modelservice_sidecar.backends import tensor_tool
from modelservice_sidecar.backends.base import Answer, CallContext
from modelservice_sidecar.backends.tensor_tool import Given
from modelservice_sidecar.core import batching
from modelservice_sidecar.core.batching import Row
from modelservice_sidecar.core.errors import BackendFailureError, BackendRefusedError, CallError
from modelservice_sidecar.core.tensors import Signature, Tensor
from modelservice_sidecar.metrics import Histogram
from modelservice_sidecar.pipeline.call import Call, Handler
from modelservice_sidecar.steps import Steps

Key = tuple[str, tuple[Row, ...]]


@dataclass(kw_only=True, slots=True, eq=False)
class _Member:
    """One call of a batch. `sent` is the batch that it went with."""

    call: Call
    given: Given
    rows: int
    outputs: "asyncio.Future[dict[str, Tensor]]"
    sent: "_Sent | None" = None
    since: float = field(default_factory=perf_counter)


@dataclass(kw_only=True, slots=True, eq=False)
class _Sent:
    """A batch that is with the model server. It ends with its last caller."""

    task: "asyncio.Task[None] | None" = None
    wanted: int = 0


@dataclass(kw_only=True, slots=True, eq=False)
class _Gathering:
    """Calls that fit together and wait to be sent, and how many batches of their kind are under way."""

    key: Key
    members: list[_Member] = field(default_factory=list)
    rows: int = 0
    running: int = 0
    timer: asyncio.Handle | None = None


class Batch:
    """A call goes at once where no batch of its kind is under way; else it waits for company, at most `max_latency`."""

    __slots__ = ("_gatherings", "_inner", "_max_latency", "_max_rows", "_sizes")

    def __init__(self, inner: Handler, *, max_rows: int, max_latency: float, sizes: Histogram) -> None:
        self._inner = inner
        self._max_rows = max_rows
        self._max_latency = max_latency
        self._sizes = sizes
        self._gatherings: dict[Key, _Gathering] = {}

    def __call__(self, call: Call) -> Awaitable[Answer]:
        spec = call.tool.tool.spec
        signature = spec.signature
        # Arguments beside the tensors, such as the id of a sequence, are for one call alone.
        if signature is None or not signature.batched or signature.controls or spec.batches_itself:
            return self._inner(call)
        if call.context.headers:  # a batch goes out once, and these are one caller's
            return self._inner(call)
        return self._together(call, signature)

    async def _together(self, call: Call, signature: Signature) -> Answer:
        given = await tensor_tool.read(signature, call.arguments)  # what is wrong with one call fails that call alone
        if not given.tensors:
            return await self._inner(call)
        outputs: asyncio.Future[dict[str, Tensor]] = asyncio.get_running_loop().create_future()
        member = _Member(call=call, given=given, rows=batching.count_rows(given.tensors), outputs=outputs)
        gathering = self._gather(member, min(self._max_rows, signature.max_batch))
        try:
            found = await outputs
        except asyncio.CancelledError:
            self._leave(gathering, member)
            raise
        return await tensor_tool.answer(signature, given, found, call.context)

    def _gather(self, member: _Member, most: int) -> _Gathering:
        key = (member.call.tool.name, batching.row_of(member.given.tensors))
        gathering = self._gatherings.get(key)
        if gathering is None:
            gathering = self._gatherings[key] = _Gathering(key=key)
        if gathering.members and gathering.rows + member.rows > most:
            self._send(gathering)
        gathering.members.append(member)
        gathering.rows += member.rows
        if gathering.rows >= most:
            self._send(gathering)
        elif gathering.timer is None:
            loop = asyncio.get_running_loop()
            # Not this very moment: calls that came in together are still on their way here.
            gathering.timer = (
                loop.call_later(self._max_latency, self._send, gathering)
                if gathering.running
                else loop.call_soon(self._send, gathering)
            )
        return gathering

    def _send(self, gathering: _Gathering) -> None:
        if gathering.timer is not None:
            gathering.timer.cancel()
            gathering.timer = None
        members, gathering.members, gathering.rows = gathering.members, [], 0
        if not members:
            return
        gathering.running += 1
        sent = _Sent(wanted=len(members))
        for member in members:
            member.sent = sent
        sent.task = asyncio.create_task(self._run(members))
        sent.task.add_done_callback(lambda _: self._ended(gathering))

    def _ended(self, gathering: _Gathering) -> None:
        gathering.running -= 1
        if not gathering.running:
            self._send(gathering)
        self._forget_if_idle(gathering)

    def _leave(self, gathering: _Gathering, member: _Member) -> None:
        """The caller is gone: its place is free, or its rows come back to nobody."""
        if member.sent is None:
            gathering.members.remove(member)
            gathering.rows -= member.rows
            self._forget_if_idle(gathering)
            return
        member.sent.wanted -= 1
        if not member.sent.wanted and member.sent.task is not None:
            member.sent.task.cancel()

    def _forget_if_idle(self, gathering: _Gathering) -> None:
        """Shapes are the callers' choice, so a gathering is kept only while it is used."""
        if not gathering.members and not gathering.running:
            if gathering.timer is not None:
                gathering.timer.cancel()
                gathering.timer = None
            if self._gatherings.get(gathering.key) is gathering:
                del self._gatherings[gathering.key]

    async def _run(self, members: Sequence[_Member]) -> None:
        """Ask for all of them at once; where one of them may have spoilt it, for each of them alone."""
        try:
            parts = await self._ask(members)
        except CallError as error:
            if len(members) > 1 and _may_be_one_row_s_fault(error, members[0].call):
                await asyncio.gather(*(self._run([member]) for member in members))
                return
            _fail(members, error)
        except Exception as error:  # noqa: BLE001 - every caller gets it, and `Calls` logs it
            _fail(members, error)
        else:
            for member, part in zip(members, parts, strict=True):
                if not member.outputs.done():
                    member.outputs.set_result(part)

    async def _ask(self, members: Sequence[_Member]) -> list[dict[str, Tensor]]:
        first = members[0].call
        signature = first.tool.tool.spec.signature
        assert signature is not None
        for member in members:
            if not member.call.asked:
                member.call.context.steps.waited("batch", member.since)
            member.call.asked = True
        joined = batching.join([member.given.tensors for member in members])
        arguments: dict[str, Any] = {spec.key: joined[spec.name] for spec in signature.inputs if spec.name in joined}
        context = CallContext(
            ids=first.context.ids,
            deadline=max(member.call.context.deadline for member in members),
            wants_tensors=True,
            steps=Steps(recorded=first.context.steps.recorded),
        )
        rows = [member.rows for member in members]
        self._sizes.observe(sum(rows))
        try:
            answer = await self._inner(
                Call(tool=first.tool, arguments=arguments, context=context, backend=first.backend)
            )
        finally:
            for member in members:
                _account(member.call.context, context, sum(rows))
        if answer.tensors is None:
            raise TypeError("the backend answered no tensors although it was asked for them")
        names = {spec.key: spec.name for spec in signature.outputs}
        return batching.split({names[key]: tensor for key, tensor in answer.tensors.items()}, rows)


def _account(own: CallContext, batch: CallContext, rows: int) -> None:
    own.backend_seconds += batch.backend_seconds
    own.backend_status = batch.backend_status
    own.batch_rows = rows
    # What the model server records hangs below the first call's request; the others' are the same stretch of time.
    own.steps += batch.steps if own.ids is batch.ids else [replace(step, span_id="") for step in batch.steps]


def _may_be_one_row_s_fault(error: CallError, call: Call) -> bool:
    """Refused requests did not run; failed ones may have, so they are repeated for idempotent tools only."""
    return isinstance(error, BackendRefusedError) or (isinstance(error, BackendFailureError) and call.tool.idempotent)


def _fail(members: Sequence[_Member], error: Exception) -> None:
    for member in members:
        if not member.outputs.done():
            member.outputs.set_exception(error)
