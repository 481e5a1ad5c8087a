"""One look at an Open Inference Protocol server: which models are ready, and what each of them takes and gives.

Owns the questions that discovery asks, within bounds of size and time, and what follows from an answer that does not come or
makes no sense: it costs one model, with a sentence. What the answers mean is in `core.v2`.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import orjson

from modelservice_api.adapter_config import AdapterConfig
from modelservice_sidecar.backends import tensor_tool, v2_parts
from modelservice_sidecar.backends.base import Description
from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.core import catalogue, text, v2
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import (
    BackendAnswerTooLargeError,
    BackendError,
    BackendUnreachableError,
    DescribeError,
)
from modelservice_sidecar.core.v2 import Index, Model, Server, UnusableModelError
from modelservice_sidecar.upstream import Pool, Reply

ASK_TIMEOUTS: Final = (2.0, 8.0)
"""Seconds for an answer, and for one more try on another connection: a thread of Triton that loads a model answers nobody else
on its connections."""
MAX_METADATA: Final = 1024 * 1024
AT_ONCE: Final = 8
"""Models that are asked about at the same time."""

_ABSENT: Final = frozenset({400, 404, 405, 501, 503})
"""What servers say of a model that is not there, or not yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
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


class Look:
    """Looks at one server. What it learned about a model holds until the server says otherwise."""

    def __init__(self, pool: Pool, config: AdapterConfig, *, has_grpc: bool) -> None:
        self._pool = pool
        self._config = config.backend.v2
        self._is_meant = config.backend.type == "V2"
        self._declared = config.model
        self._has_grpc = has_grpc
        self._known: dict[str, Model] = {}

    async def take(self) -> Found:
        """Ask the server, and each model that is ready, what it is.

        Raises:
            DescribeError: it cannot be reached, or is no such server.
        """
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
        if self._config.grpc_port and not self._has_grpc:
            notes.append("spec.backend.v2.grpcPort is set, but this adapter has no gRPC client; calls go over HTTP.")
        models = tuple(result for result in results if isinstance(result, Model))
        self._known = {model.name: model for model in models}
        return Found(
            server=server,
            models=models,
            versions=index.ready,
            notes=tuple(notes),
            unsettled=index.loading or bool(absent),
        )

    async def _list(self) -> Index:
        """The models: those that are configured, else those of the repository index, else those of a plain list."""
        if self._config.models:
            return Index(ready=dict.fromkeys(self._config.models, ()))
        for request in (_index(), get("/v2/models")):
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
                if not is_ready and (await self._ask(get(path + "/ready"))).status in _ABSENT:
                    return None
                metadata = await self._ask(get(path))
                if metadata.status in _ABSENT:
                    return None
                config = await self._ask(get(path + "/config")) if server.has_config else None
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
        if self._has_grpc:
            return
        if model.decoupled and not v2.is_flat(model.signature):
            raise UnusableModelError(
                "it answers in parts and has tensors of more than one dimension, which needs spec.backend.v2.grpcPort"
            )
        if model.needs_bytes and not server.binary:
            raise UnusableModelError(
                "it has FP16 or BF16 tensors, and the server takes JSON only; spec.backend.v2.grpcPort opens another way"
            )

    async def _document(self, path: str) -> object:
        reply = await self._ask(get(path))
        where = f"{path} on {self._pool.address}"
        # Where nobody said that it is one, another kind of server may answer so to a path that it has not.
        if reply.status in {429, 503} and self._is_meant:
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


def description_of(found: Found) -> Description:
    """What is told of it; the tools' schemas are made here, which is work for another thread."""
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
        if model.decoupled and spec.signature is not None:
            spec = replace(spec, output_schema=v2_parts.output_schema(spec.signature))
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


class _TooLargeError(DescribeError):
    """An answer exceeds the bound of what a server says about itself."""


def get(path: str) -> HttpRequest:
    """A question that changes nothing."""
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
