"""A model server that speaks the Open Inference Protocol (V2): Triton, and with less to say MLServer, KServe's and others.

Owns the conversation. These are all the endpoints that are ever asked: the server's metadata and readiness, its list of
models, and per model metadata, config, readiness, `infer` and `generate_stream`. Listing a repository reads and changes
nothing; loading and unloading, shared memory, tracing and logging are never touched, whatever a caller says. Finding out what
there is to call is `v2_look`'s; numpy and gRPC are loaded by the first call that needs them.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from modelservice_api.adapter_config import AdapterConfig, BackendType
from modelservice_sidecar.backends import tensor_tool, triton_grpc, v2_look, v2_parts, v2_ragged
from modelservice_sidecar.backends.base import Answer, CallContext, Description, Progress
from modelservice_sidecar.backends.event_stream import PieceReader, stream_kind
from modelservice_sidecar.backends.http_call import HttpCalls
from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.backends.tensor_tool import Given
from modelservice_sidecar.backends.triton_grpc import GrpcLane
from modelservice_sidecar.backends.v2_look import Look
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import BackendError
from modelservice_sidecar.core.tensors import Signature, Tensor
from modelservice_sidecar.core.v2 import Model, Server
from modelservice_sidecar.upstream import Pool, Reply

READY_TIMEOUT: Final = 2.0
READY_MODELS: Final = 8
"""Models that are asked whether they are ready, where the server says that not all are."""
GRPC_FROM: Final = 1024 * 1024
"""Bytes of input that go over gRPC where that is configured."""
GRPC_BEFORE_JSON: Final = 64 * 1024
"""The same where a server takes JSON only over HTTP: writing and reading so many numbers costs more than gRPC."""
OFF_LOOP_JSON: Final = 64 * 1024
"""Bytes from which writing or reading JSON leaves the event loop."""


class V2Backend:
    """Implements `Backend` over HTTP on one pool, and over gRPC where that port is configured."""

    kind: BackendType = "V2"

    def __init__(self, pool: Pool, config: AdapterConfig) -> None:
        self._pool = pool
        self._calls = HttpCalls(pool)
        self._server = Server(name="", version="")
        self._described: Description | None = None
        self._is_loaded = False
        port = config.backend.v2.grpc_port
        self._grpc = GrpcLane(pool.host, port, lambda: pool.credential) if port and triton_grpc.is_installed() else None
        self._look = Look(pool, config, has_grpc=self._grpc is not None)

    async def describe(self) -> Description:
        """Ask the server, and each model that is ready, what it is."""
        found = await self._look.take()
        self._server = found.server
        known = self._described
        if known is None or known.fingerprint != found.fingerprint:
            known = await asyncio.to_thread(v2_look.description_of, found)
        self._described = known = replace(known, unsettled=found.unsettled)
        return known

    async def ready(self) -> bool:
        """Whether a call would be taken. While one model is unloaded, Triton says of itself that it is not ready."""
        paths = ["/v2/health/ready"]
        if self._described is not None:
            paths += [f"{spec.binding.path}/ready" for spec in self._described.tools[:READY_MODELS]]
        for path in paths:
            with suppress(BackendError, TimeoutError):
                async with asyncio.timeout(READY_TIMEOUT):
                    if (await self._pool.request(v2_look.get(path), limit=v2_look.MAX_METADATA)).status == 200:
                        return True
        return False

    async def warm_up(self) -> None:
        """Have one connection open before the first call wants it."""
        await self._pool.probe()

    async def call(self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext) -> Answer:
        """Send the call and read its answer whole."""
        await self._load()
        model: Model = spec.binding
        signature = _signature(spec)
        rows = None if model.decoupled else v2_ragged.cut(signature, arguments)
        if rows is not None:
            outputs = await self._infer_rows(model, signature, rows, context)
            return await tensor_tool.answer(signature, Given(tensors={}, unbatched=False), outputs, context)
        given = await tensor_tool.read(signature, arguments)
        if model.decoupled:
            parts = v2_parts.Parts(spec, given, context)
            async with aclosing(self._answers(model, given, _controls(signature, arguments), context)) as answers:
                async for part in answers:
                    await parts.add(part)
            return parts.whole()
        outputs = await self._infer(model, given.tensors, _controls(signature, arguments), context)
        return await tensor_tool.answer(signature, given, outputs, context)

    async def stream(
        self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext
    ) -> AsyncGenerator[Progress | Answer, None]:
        """Send the call; a model that answers in parts is told part by part."""
        model: Model = spec.binding
        if not model.decoupled:
            yield await self.call(spec, arguments, context)
            return
        await self._load()
        signature = _signature(spec)
        given = await tensor_tool.read(signature, arguments)
        parts = v2_parts.Parts(spec, given, context)
        async with aclosing(self._answers(model, given, _controls(signature, arguments), context)) as answers:
            async for part in answers:
                yield await parts.add(part)
        yield parts.whole()

    async def cancel(self, request_id: str) -> None:
        """Cancel the call; its connection or gRPC call ends, at which the server cancels the model's work."""
        self._calls.cancel(request_id)

    async def aclose(self) -> None:
        """End what runs."""
        self._calls.cancel_all()
        if self._grpc is not None:
            await self._grpc.aclose()

    async def _load(self) -> None:
        """numpy takes a quarter of a second to load; the first call has that done without holding up the others."""
        if not self._is_loaded:
            await asyncio.to_thread(import_module, "modelservice_sidecar.backends.v2_call")
            self._is_loaded = True

    async def _infer_rows(
        self, model: Model, signature: Signature, rows: Sequence[dict[str, Any]], context: CallContext
    ) -> Mapping[str, Tensor]:
        """All rows at once, each as a request of its own."""
        given = [await tensor_tool.read(signature, row) for row in rows]
        controls = [_controls(signature, row) for row in rows]
        calls = [
            asyncio.ensure_future(self._infer(model, row.tensors, beside, context))
            for row, beside in zip(given, controls, strict=True)
        ]
        try:
            return v2_ragged.join(await asyncio.gather(*calls))
        finally:
            for call in calls:
                call.cancel()

    async def _infer(
        self, model: Model, tensors: Mapping[str, Tensor], controls: Mapping[str, Any], context: CallContext
    ) -> Mapping[str, Tensor]:
        from modelservice_sidecar.backends import v2_call

        size = sum(memoryview(tensor.data).nbytes for tensor in tensors.values())
        binary = self._server.binary
        large = size >= (GRPC_FROM if binary else GRPC_BEFORE_JSON)
        if self._grpc is not None and (large or (model.needs_bytes and not binary)):
            with self._calls.running(context):
                return await self._grpc.infer(model, tensors, controls, context)

        def build() -> HttpRequest:
            return v2_call.build(model, tensors, controls, binary=binary, request_id=context.ids.request_id)

        request = build() if binary or size < OFF_LOOP_JSON else await asyncio.to_thread(build)
        reply = await self._calls.send(request, context)

        def read() -> Mapping[str, Tensor]:
            return v2_call.read(model, reply.status, reply.headers, reply.body)

        is_quick = binary and not any(spec.datatype == "BYTES" for spec in model.signature.outputs)
        return read() if is_quick or len(reply.body) < OFF_LOOP_JSON else await asyncio.to_thread(read)

    async def _answers(
        self, model: Model, given: Given, controls: Mapping[str, Any], context: CallContext
    ) -> AsyncGenerator[Mapping[str, Tensor], None]:
        """What a model that answers in parts says, as it says it."""
        if self._grpc is None:
            async with aclosing(self._generated(model, given, context)) as parts:
                async for part in parts:
                    yield part
            return
        with self._calls.running(context):
            async with aclosing(self._grpc.stream(model, given.tensors, controls, context)) as parts:
                async for part in parts:
                    yield part

    async def _generated(
        self, model: Model, given: Given, context: CallContext
    ) -> AsyncGenerator[Mapping[str, Tensor], None]:
        """The parts of an answer over HTTP, as they come."""
        from modelservice_sidecar.backends import v2_call, v2_generate

        pieces = _Pieces()
        request = v2_generate.build(model, given.tensors)
        sending = asyncio.ensure_future(self._calls.send(request, context, on_head=pieces.on_head))
        sending.add_done_callback(lambda _: pieces.arrived.set())
        told = 0
        try:
            done = False
            while not done:
                await pieces.arrived.wait()
                pieces.arrived.clear()
                done = sending.done()  # read first: the last pieces come with the end and are told like the others
                while told < len(pieces.texts):
                    told += 1
                    yield v2_generate.read_part(model, pieces.texts[told - 1])
            reply = await sending
            if reply.status != 200:
                raise v2_call.failure(model, reply.status, reply.headers, reply.body)
            for piece in pieces.rest(reply):
                yield v2_generate.read_part(model, piece)
        finally:
            if not sending.done():
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending


class _Pieces:
    """Collects the events of a streamed answer; the pool's bound on its size bounds this too."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.texts: list[str] = []
        self._reader: PieceReader | None = None

    def on_head(self, status: int, headers: dict[str, str]) -> Callable[[bytes], None] | None:
        kind = stream_kind(headers.get("content-type", "")) if status == 200 else None
        if kind is None:
            return None
        self._reader = PieceReader(kind)
        return self._feed

    def rest(self, reply: Reply) -> list[str]:
        """What the end of the stream completes, or a body that is one event and no stream."""
        return [reply.body.decode("utf-8", "replace")] if self._reader is None else self._reader.finish()

    def _feed(self, chunk: bytes) -> None:
        assert self._reader is not None
        found = self._reader.feed(chunk)
        if found:
            self.texts += found
            self.arrived.set()


def _signature(spec: ToolSpec) -> Signature:
    assert spec.signature is not None
    return spec.signature


def _controls(signature: Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are no tensors; 5.0 is an integer to JSON Schema, and to no model server."""
    given = {one.name: arguments[one.name] for one in signature.controls if one.name in arguments}
    return {name: int(value) if isinstance(value, float) else value for name, value in given.items()}
