"""Models that the adapter runs itself, whatever runtime they need: one worker process and one tool for each.

Owns what TVM, PyTorch and ONNX have in common: starting workers when their files are there, noticing changed files, and the way
of a call. What a file says is read by the kind's own module; what runs it is in `worker`.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson

from modelservice_api.adapter_config import ArtifactConfig, BackendType
from modelservice_sidecar.backends import tensor_tool
from modelservice_sidecar.backends.base import Answer, CallContext, Description, Progress
from modelservice_sidecar.core import devices, signature_file, tensors
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import BackendError, DescribeError
from modelservice_sidecar.core.signature_file import SignatureFile
from modelservice_sidecar.core.tensors import Signature, Tensor, TensorSpec
from modelservice_sidecar.upstream import MAX_ANSWER
from modelservice_sidecar.worker.process import Launch
from modelservice_sidecar.worker.supervised import UnusableModelError, Worker
from modelservice_sidecar.worker.wire import Facts, Load, Told

Identity = tuple[tuple[int, ...], ...]
"""Equal while a file is the same: device, inode, size and time of change of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """What the files of one model say. `model` is watched: a change starts another worker. `weights` is loaded again when it
    changes, by the worker that runs. `absent` would say more if they came. Without a signature, the worker's word counts."""

    model: tuple[Path, ...]
    weights: Path | None = None
    absent: tuple[Path, ...] = ()
    signature: Signature | None = None
    description: str = ""
    expected: dict[str, Any] | None = None


ReadFiles = Callable[[ArtifactConfig], Files]
"""Raises `UnusableModelError`. May block."""


@dataclass(kw_only=True, slots=True)
class _Place:
    """Where a published tool finds its worker, which is exchanged when the file changes and the signature does not."""

    worker: Worker


@dataclass(kw_only=True, slots=True)
class _Served:
    """A model with its worker, and the files that it was started with."""

    place: _Place
    files: Files
    signature: Signature
    spec: ToolSpec
    model: Identity
    weights: Identity
    notes: list[str] = field(default_factory=list)
    problem: str = ""


class ArtifactBackend:
    """Implements `Backend` for files. `runtime` is a module of `worker.runtimes`."""

    def __init__(
        self, kind: BackendType, runtime: str, configs: Sequence[ArtifactConfig], read_files: ReadFiles, *, nulls: bool
    ) -> None:
        self.kind: BackendType = kind
        self._runtime = runtime
        self._configs = tuple(configs)
        self._read_files = read_files
        self._nulls = nulls
        self._served: dict[int, _Served] = {}
        self._retired: list[Worker] = []
        self._running: dict[str, asyncio.Task[Any]] = {}

    async def describe(self) -> Description:
        """Start what does not run yet, exchange what has changed."""
        if not self._configs:
            raise DescribeError("Invalid", f"No model is named; set spec.backend.{self._runtime}.artifact to its file.")
        wrong = devices.problem(
            [
                devices.Assignment(
                    model=config.name or config.artifact,
                    devices=config.devices,
                    shared=config.shared,
                    memory_fraction=config.memory_fraction,
                )
                for config in self._configs
            ]
        )
        if wrong is not None:
            raise DescribeError("Invalid", wrong)
        # It brings numpy, which takes a tenth of a second: not in the first call, and not on the loop.
        await asyncio.to_thread(import_module, "modelservice_sidecar.core.codec")
        # What was replaced one look ago has no published tool any more.
        while self._retired:
            await self._retired[0].retire()
            del self._retired[0]
        try:
            # A group ends only when each of its tasks has ended: no process is left behind by one that was cancelled.
            async with asyncio.TaskGroup() as group:
                looks = [group.create_task(self._look(number)) for number in range(len(self._configs))]
        except BaseException:
            await self.aclose()
            raise
        problems = [problem for problem in (look.result() for look in looks) if problem]
        if not self._served:
            raise DescribeError("Invalid", problems[0])
        served = [self._served[number] for number in sorted(self._served)]
        notes = [note for one in served for note in one.notes] + problems
        specs = tuple(one.spec for one in served)
        # With the whole signature: a tool whose worker was exchanged for one of another signature must be published anew.
        told = [[spec.name, spec.description, repr(spec.signature)] for spec in specs]
        fingerprint = hashlib.sha256(orjson.dumps([told, notes])).hexdigest()
        return Description(kind=self.kind, fingerprint=fingerprint, tools=specs, notes=tuple(notes))

    async def ready(self) -> bool:
        """Whether any model has a process for calls."""
        return any(served.place.worker.ready for served in self._served.values())

    async def warm_up(self) -> None:
        """Run each model once on zeros of its smallest shapes: runtimes prepare more on the first call than on any other."""
        for served in list(self._served.values()):
            inputs = {spec.name: _zeros(spec) for spec in served.signature.inputs if not spec.optional}
            try:
                await served.place.worker.call(inputs)
            except BackendError:
                continue

    async def call(self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext) -> Answer:
        """Run the model in its process."""
        place: _Place = spec.binding
        assert spec.signature is not None
        given = await tensor_tool.read(spec.signature, arguments)
        step = context.steps.ask()
        task = asyncio.current_task()
        assert task is not None
        request_id = context.ids.request_id
        self._running[request_id] = task
        try:
            outputs = await place.worker.call(given.tensors)
        except BaseException as error:
            step.error = type(error).__name__
            raise
        finally:
            # Two calls may carry one request id; the later one owns the entry.
            if self._running.get(request_id) is task:
                del self._running[request_id]
            step.ended = perf_counter()
            context.backend_seconds += step.ended - step.began
        return await tensor_tool.answer(spec.signature, given, outputs, context)

    async def stream(
        self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext
    ) -> AsyncGenerator[Progress | Answer, None]:
        """The answer alone: these models give nothing in pieces."""
        yield await self.call(spec, arguments, context)

    async def cancel(self, request_id: str) -> None:
        """Stop waiting for the call; see `worker.supervised` for what its process does then."""
        task = self._running.get(request_id)
        if task is not None:
            task.cancel()

    async def aclose(self) -> None:
        """End every process."""
        served, self._served = list(self._served.values()), {}
        retired, self._retired = self._retired, []
        await asyncio.gather(*(worker.aclose() for worker in [*(one.place.worker for one in served), *retired]))

    def workers(self) -> dict[str, Worker]:
        """The workers by their tools' names."""
        return {served.spec.name: served.place.worker for served in self._served.values()}

    async def _look(self, number: int) -> str:
        """Bring one model up to its files; what is wrong with them, if anything. A model that runs goes on in any case."""
        config, served = self._configs[number], self._served.get(number)
        try:
            files, model, weights = await asyncio.to_thread(self._read, config, served)
            if served is not None and served.model == model:
                if served.weights != weights:
                    # Noted first: a file that is refused is not read again until it changes.
                    served.weights = weights
                    served.problem = await served.place.worker.load_weights()
                return served.problem or served.place.worker.failure
            if served is not None:
                served.model = model
            await self._serve(number, files, model, weights)
        except UnusableModelError as error:
            if served is not None:
                served.problem = f"{error} The model that was loaded before is still served."
                return served.problem
            return str(error)
        return ""

    def _read(self, config: ArtifactConfig, served: _Served | None) -> tuple[Files, Identity, Identity]:
        """What the files say, and which ones they are. What is known is not read again: some files take long to read."""
        if served is not None and not any(path.exists() for path in served.files.absent):
            with suppress(UnusableModelError):  # one is gone; to read it says it better
                if _identities(served.files) == (served.model, served.weights):
                    return served.files, served.model, served.weights
        files = self._read_files(config)
        return files, *_identities(files)

    async def _serve(self, number: int, files: Files, model: Identity, weights: Identity) -> None:
        config, before = self._configs[number], self._served.get(number)
        worker = Worker(self._launch(config, files), overtime=config.overtime, spare=config.spare)
        facts = await worker.start()
        try:
            signature = replace(files.signature or signature_of(facts), nulls=self._nulls)
        except UnusableModelError as error:
            await worker.aclose()
            raise UnusableModelError(f"{config.artifact}: {error}") from error
        if before is not None and before.signature == signature:
            # Calls that are in line for the old worker are answered by it; the next one goes to the new one.
            before.place.worker, old = worker, before.place.worker
            before.files, before.weights, before.notes, before.problem = files, weights, list(facts.notes), ""
            self._retired.append(old)  # first, so that whoever closes this backend meanwhile closes it too
            await old.retire()
            self._retired.remove(old)
            return
        if before is not None:
            self._retired.append(before.place.worker)
        place = _Place(worker=worker)
        name = config.name or Path(config.artifact).name.partition(".")[0]
        spec = tensor_tool.spec_of(
            name,
            signature,
            identity=f"{self.kind} {config.artifact} {config.function}",
            description=files.description or f"Run the model {name}.",
            binding=place,
        )
        self._served[number] = _Served(
            place=place,
            files=files,
            signature=signature,
            spec=spec,
            model=model,
            weights=weights,
            notes=list(facts.notes),
        )

    def _launch(self, config: ArtifactConfig, files: Files) -> Launch:
        return Launch(
            runtime=self._runtime,
            python=config.python,
            devices=config.devices,
            load=Load(
                artifact=config.artifact,
                function=config.function,
                threads=config.threads,
                max_answer=MAX_ANSWER,
                has_device=bool(config.devices),
                memory_fraction=config.memory_fraction,
                weights=str(files.weights) if files.weights is not None else "",
                expected=files.expected,
            ),
        )


def must_exist(config: ArtifactConfig) -> Path:
    """The model's file.

    Raises:
        UnusableModelError: it is not there or cannot be read.
    """
    path = Path(config.artifact)
    if not path.is_file():
        raise UnusableModelError(
            f"There is no file {config.artifact}; check the path and the volume that should hold it."
        )
    if not os.access(path, os.R_OK):
        raise UnusableModelError(f"{config.artifact} cannot be read by user {os.getuid()}; change its permissions.")
    return path


def read_signature_file(path: Path, function: str) -> tuple[SignatureFile, dict[str, Any]] | None:
    """The signature file beside a model, and its content as JSON values; nothing where there is none.

    Raises:
        UnusableModelError: it cannot be read, or is about another function.
    """
    beside = path.with_suffix(".json")
    if not beside.exists():
        return None
    try:
        said = signature_file.read(beside.read_bytes())
    except OSError as error:
        raise UnusableModelError(f"The signature file {beside} cannot be read: {error.strerror}.") from error
    except signature_file.BadSignatureError as error:
        raise UnusableModelError(f"The signature file {beside} is not valid: {error}.") from error
    if said.function != function:
        raise UnusableModelError(
            f"The signature file {beside} is about the function {said.function}, and {function} is to be served."
        )
    return said, said.document()


def signature_of(facts: Facts) -> Signature:
    """The signature that the worker told.

    Raises:
        UnusableModelError: it could not tell.
    """
    if facts.inputs is None or facts.outputs is None:
        raise UnusableModelError("The model does not say what it takes and gives; write a signature file beside it.")
    return Signature(
        inputs=tuple(_spec(told) for told in facts.inputs), outputs=tuple(_spec(told) for told in facts.outputs)
    )


def _spec(told: Told) -> TensorSpec:
    if told.datatype not in tensors.ITEM_SIZES or told.shape is None:
        raise UnusableModelError(
            f"{told.name} is {told.datatype} of {'a known' if told.shape else 'no known'} shape, which callers cannot be told; "
            "write a signature file beside the model."
        )
    return TensorSpec(
        name=told.name,
        datatype=told.datatype,
        shape=tuple(told.shape),
        bounds={axis: (least, most if most >= 0 else None) for axis, least, most in told.bounds},
    )


def _identities(files: Files) -> tuple[Identity, Identity]:
    try:
        return _identity(files.model), _identity((files.weights,) if files.weights is not None else ())
    except OSError as error:
        raise UnusableModelError(f"{error.filename} cannot be looked at: {error.strerror}.") from error


def _identity(paths: Sequence[Path]) -> Identity:
    found = [path.stat() for path in paths]
    return tuple((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in found)


def _zeros(spec: TensorSpec) -> Tensor:
    shape = tuple(max(spec.range_of(axis)[0], 1) if size < 0 else size for axis, size in enumerate(spec.shape))
    size = prod(shape) * (tensors.ITEM_SIZES[spec.datatype] or 4)  # an empty string is its length of four bytes
    return Tensor(datatype=spec.datatype, shape=shape, data=bytes(size))
