"""A model server that speaks the Open Inference Protocol (V2): Triton, and with less to say MLServer, KServe's and others.

Owns the conversation. These are all the endpoints that are ever asked: the server's metadata and readiness, its list of
models, and per model metadata, config, readiness, `infer` and `generate_stream`. Listing a repository reads and changes
nothing; loading and unloading, shared memory, tracing and logging are never touched, whatever a caller says. What the answers
mean is in `core.v2`; numpy and gRPC are loaded by the first call that needs them.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final

import orjson

from modelservice_api.adapter_config import AdapterConfig, BackendType
from modelservice_sidecar.backends import tensor_tool, triton_grpc, v2_parts, v2_ragged
from modelservice_sidecar.backends.base import Answer, CallContext, Description, Progress
from modelservice_sidecar.backends.event_stream import PieceReader, stream_kind
from modelservice_sidecar.backends.http_call import HttpCalls
from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.backends.tensor_tool import Given
from modelservice_sidecar.backends.triton_grpc import GrpcLane
from modelservice_sidecar.core import catalogue, text, v2
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import (
    BackendAnswerTooLargeError,
    BackendError,
    BackendUnreachableError,
    DescribeError,
)
from modelservice_sidecar.core.tensors import Signature, Tensor
from modelservice_sidecar.core.v2 import Index, Model, Server, UnusableModelError
from modelservice_sidecar.upstream import Pool, Reply

ASK_TIMEOUTS: Final = (2.0, 8.0)
"""Seconds for an answer, and for one more try on another connection: a thread of Triton that loads a model answers nobody else
on its connections."""
READY_TIMEOUT: Final = 2.0
MAX_METADATA: Final = 1024 * 1024
AT_ONCE: Final = 8
"""Models that are asked about at the same time."""
GRPC_FROM: Final = 1024 * 1024
"""Bytes of input that go over gRPC where that is configured."""
GRPC_BEFORE_JSON: Final = 64 * 1024
"""The same where a server takes JSON only over HTTP: writing and reading so many numbers costs more than gRPC."""
OFF_LOOP_JSON: Final = 64 * 1024
"""Bytes from which writing or reading JSON leaves the event loop."""

_ABSENT: Final = frozenset({400, 404, 405, 501, 503})
"""What servers say of a model that is not there, or not yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """What one look at the server found."""

    server: Server
    models: tuple[Model, ...]
    versions: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]
    unsettled: bool

    @property
    def fingerprint(self) -> str:
        told = repr((self.server, self.models, sorted(self.versions.items()), self.notes))
        return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()


class V2Backend:
    """Implements `Backend` over HTTP on one pool, and over gRPC where that port is configured."""

    kind: BackendType = "V2"

    def __init__(self, pool: Pool, config: AdapterConfig) -> None:
        self._pool = pool
        self._config = config.backend.v2
        self._is_meant = config.backend.type == "V2"
        self._declared = config.model
        self._calls = HttpCalls(pool)
        self._server = Server(name="", version="")
        self._described: Description | None = None
        self._known: dict[str, Model] = {}
        self._is_loaded = False
        port = self._config.grpc_port
        self._grpc = GrpcLane(pool.host, port) if port and triton_grpc.is_installed() else None

    async def describe(self) -> Description:
        """Ask the server, and each model that is ready, what it is."""
        found = await self._look()
        self._server = found.server
        self._known = {model.name: model for model in found.models}
        known = self._described
        if known is None or known.fingerprint != found.fingerprint:
            known = await asyncio.to_thread(self._tell, found)
        self._described = known = replace(known, unsettled=found.unsettled)
        return known

    async def ready(self) -> bool:
        """Whether a call would be taken. While one model is unloaded, Triton says of itself that it is not ready."""
        paths = ["/v2/health/ready"]
        if self._described is not None:
            paths += [f"{spec.binding.path}/ready" for spec in self._described.tools[:AT_ONCE]]
        for path in paths:
            with suppress(BackendError, TimeoutError):
                async with asyncio.timeout(READY_TIMEOUT):
                    if (await self._pool.request(_get(path), limit=MAX_METADATA)).status == 200:
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

    async def _look(self) -> _Found:
        server = v2.read_server(await self._document("/v2"))
        if server is None:
            raise DescribeError(
                "NotRecognised",
                f"/v2 on {self._pool.address} is not the metadata of an Open Inference Protocol server.",
            )
        index = await self._list()
        notes: list[str] = []
        names = [name for name in sorted(index.ready) if v2.is_usable_name(name)]
        if len(names) < len(index.ready):
            notes.append(f"{len(index.ready) - len(names)} models have names that cannot stand in a path.")
        if len(names) > v2.MAX_MODELS:
            notes.append(f"{len(names)} models were found, the first {v2.MAX_MODELS} by name are looked at.")
            names = names[: v2.MAX_MODELS]
        limiter = asyncio.Semaphore(AT_ONCE)
        looks = [
            asyncio.ensure_future(self._model(server, name, limiter, is_ready=bool(index.ready[name])))
            for name in names
        ]
        try:
            results = await asyncio.gather(*looks)
        finally:
            for look in looks:
                look.cancel()
        absent = [name for name, result in zip(names, results, strict=True) if result is None]
        if self._config.models:
            notes += [f"The model {text.clean(name, 128)!r} of spec.backend.v2.models is not ready." for name in absent]
        notes += [result for result in results if isinstance(result, str)]
        if not any(isinstance(result, Model) for result in results) and not notes:
            notes.append("No model of the server is ready.")
        if self._config.grpc_port and self._grpc is None:
            notes.append("spec.backend.v2.grpcPort is set, but this adapter has no gRPC client; calls go over HTTP.")
        return _Found(
            server=server,
            models=tuple(result for result in results if isinstance(result, Model)),
            versions=index.ready,
            notes=tuple(notes),
            unsettled=index.loading or bool(absent),
        )

    async def _list(self) -> Index:
        """The models: those that are configured, else those of the repository index, else those of a plain list."""
        if self._config.models:
            return Index(ready=dict.fromkeys(self._config.models, ()))
        for request in (_index(), _get("/v2/models")):
            reply = await self._ask(request)
            if reply.status == 200 and (index := v2.read_index(_json(reply))) is not None:
                return index
        raise DescribeError(
            "Invalid",
            f"The model server on {self._pool.address} does not list its models (HTTP {reply.status}); "
            "name them in spec.backend.v2.models.",
        )

    async def _model(
        self, server: Server, name: str, limiter: asyncio.Semaphore, *, is_ready: bool
    ) -> Model | str | None:
        """The model, or a note about why it cannot be used, or `None` where it is not there or not ready."""
        path = v2.path_of(name)
        async with limiter:
            try:
                if not is_ready and (await self._ask(_get(path + "/ready"))).status in _ABSENT:
                    return None
                metadata = await self._ask(_get(path))
                if metadata.status in _ABSENT:
                    return None
                config = await self._ask(_get(path + "/config")) if server.has_config else None
                model = v2.read_model(
                    name,
                    _checked_json(metadata, "metadata"),
                    None if config is None or config.status == 404 else _checked_json(config, "config"),
                    self._declared,
                )
                self._check_lane(model, server)
            except UnusableModelError as error:
                return f"The model {text.clean(name, 128)!r} is left out: {error}."
            except _TooLargeError:
                return f"The model {text.clean(name, 128)!r} is left out: what it says of itself is larger than 1 MB."
            except DescribeError as error:
                # The server answered a moment ago: what is known of the model holds until it says otherwise.
                return self._known.get(name) or f"The model {text.clean(name, 128)!r} is left out: {error}"
        return model

    def _check_lane(self, model: Model, server: Server) -> None:
        """Whether its calls can be made at all.

        Raises:
            UnusableModelError: they would need gRPC.
        """
        if self._grpc is not None:
            return
        if model.decoupled and not v2.is_flat(model.signature):
            raise UnusableModelError(
                "it answers in parts and has tensors of more than one dimension, which needs spec.backend.v2.grpcPort"
            )
        if model.needs_bytes and not server.binary:
            raise UnusableModelError(
                "it has FP16 or BF16 tensors, and the server takes JSON only; spec.backend.v2.grpcPort opens another way"
            )

    def _tell(self, found: _Found) -> Description:
        tools: list[ToolSpec] = []
        taken: set[str] = set()
        for model in found.models:
            spec = tensor_tool.spec_of(
                model.name,
                model.signature,
                identity=model.name,
                description=v2.description(model, found.server),
                binding=model,
            )
            # Answers in parts cannot be cut into rows, so such calls are not joined either.
            spec = replace(spec, batches_itself=model.batches_itself or model.decoupled)
            if model.decoupled:
                spec = replace(spec, output_schema=v2_parts.output_schema(_signature(spec)))
            if spec.name in taken:
                spec = replace(spec, name=catalogue.with_suffix(spec.name, model.name))
            taken.add(spec.name)
            tools.append(spec)
        said = f"{found.server.name} {found.server.version}".strip()
        return Description(
            kind="V2",
            fingerprint=found.fingerprint,
            tools=tuple(tools),
            notes=found.notes,
            because=f"Recognised as V2: GET /v2 answers as {said}.",
        )

    async def _document(self, path: str) -> object:
        reply = await self._ask(_get(path))
        where = f"{path} on {self._pool.address}"
        if (
            reply.status in {429, 503} and self._is_meant
        ):  # another kind of server may answer so to a path that it has not
            raise DescribeError("Unreachable", f"{where} is busy or still starting (HTTP {reply.status}).")
        if reply.status != 200:
            raise DescribeError(
                "NotRecognised", f"{where} answers HTTP {reply.status} instead of the server's metadata."
            )
        return _json(reply)

    async def _ask(self, request: HttpRequest) -> Reply:
        where = f"{request.target} on {self._pool.address}"
        try:
            for seconds in ASK_TIMEOUTS:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        return await self._pool.request(request, limit=MAX_METADATA)
        except BackendUnreachableError as error:
            raise DescribeError("Unreachable", f"Nothing accepts connections on {self._pool.address}.") from error
        except BackendAnswerTooLargeError as error:
            raise _TooLargeError("NotRecognised", f"{where} answers more than 1 MB.") from error
        except BackendError as error:
            raise DescribeError("NotRecognised", f"{where} does not answer in HTTP.") from error
        raise DescribeError("Unreachable", f"{where} did not answer within {sum(ASK_TIMEOUTS):.0f} s.")


class _TooLargeError(DescribeError):
    """An answer exceeds the bound of what a server says about itself."""


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


def _get(path: str) -> HttpRequest:
    return HttpRequest(method="GET", target=path, headers=[(b"accept", b"application/json")], body=b"")


def _index() -> HttpRequest:
    """The list of models with their states. It is a POST by the protocol, and changes nothing."""
    headers = [(b"accept", b"application/json"), (b"content-type", b"application/json")]
    return HttpRequest(method="POST", target="/v2/repository/index", headers=headers, body=b"{}")


def _json(reply: Reply) -> object:
    try:
        found: object = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return None
    return found


def _checked_json(reply: Reply, what: str) -> object:
    if reply.status != 200:
        raise UnusableModelError(f"its {what} is refused with HTTP {reply.status}")
    try:
        found: object = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        raise UnusableModelError(f"its {what} is not JSON") from None
    return found
