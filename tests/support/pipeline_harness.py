"""A pipeline over a model server that does what a test tells it, without sockets: for what stages do with a call."""

import asyncio
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from math import inf
from typing import Any

from adapter_harness import Lines
from modelservice_api.adapter_config import AdapterConfig, BackendType, ToolsConfig
from modelservice_sidecar.backends import tensor_tool
from modelservice_sidecar.backends.base import Answer, CallContext, Description, Progress
from modelservice_sidecar.core import trace
from modelservice_sidecar.core.authorization import Access, Identity
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.tensors import Signature, Tensor, TensorSpec, batch_axis
from modelservice_sidecar.middleware.context import new_hex
from modelservice_sidecar.peers import Peers
from modelservice_sidecar.pipeline.call import Call, Handler
from modelservice_sidecar.pipeline.chain import Pipeline
from modelservice_sidecar.published import Published, publish
from modelservice_sidecar.telemetry import Telemetry

READ: dict[str, object] = {"readOnlyHint": True, "idempotentHint": True}

Behave = Callable[[dict[str, Any], CallContext], Awaitable[Answer]]


def text(value: str) -> Answer:
    return Answer(content=[{"type": "text", "text": value}])


class ToldBackend:
    """Does what `behave` says. `calls` holds the arguments of every call that reached it."""

    kind: BackendType = "OpenAPI"

    def __init__(self, behave: Behave) -> None:
        self.behave = behave
        self.calls: list[dict[str, Any]] = []
        self.running = 0
        self.cancelled = 0
        self.entered = asyncio.Event()

    async def describe(self) -> Description:
        return Description(kind=self.kind, fingerprint="1", tools=())

    async def ready(self) -> bool:
        return True

    async def warm_up(self) -> None: ...

    async def call(self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext) -> Answer:
        self.calls.append(arguments)
        self.running += 1
        self.entered.set()
        try:
            return await self.behave(arguments, context)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def stream(
        self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext
    ) -> AsyncGenerator[Progress | Answer, None]:
        yield await self.call(spec, arguments, context)

    async def cancel(self, request_id: str) -> None: ...

    async def aclose(self) -> None: ...


def spec(name: str, **more: Any) -> ToolSpec:
    schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}
    return ToolSpec(name=name, operation_id=name, description="d", input_schema=schema, binding=None, **more)


def tensor_spec(name: str, *, max_batch: int = 64, **more: Any) -> ToolSpec:
    """A model that takes rows of two numbers, `x`, and gives one number a row, `y`."""
    taken = batch_axis(TensorSpec(name="x", datatype="FP32", shape=(2,)), max_batch)
    given = batch_axis(TensorSpec(name="y", datatype="FP32", shape=(1,)), max_batch)
    signature = Signature(inputs=(taken,), outputs=(given,), max_batch=max_batch)
    made = tensor_tool.spec_of(name, signature, identity=name, description="Adds.", binding=None)
    return ToolSpec(**{**{field: getattr(made, field) for field in ToolSpec.__dataclass_fields__}, **more})


class Bench:
    """A pipeline, what it is built from, and a clock that the test moves."""

    def __init__(
        self,
        backend: ToldBackend,
        config: AdapterConfig | None = None,
        *,
        tools: Sequence[ToolSpec] = (),
        access: Access | None = None,
        peers: Peers | None = None,
        chance: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.backend = backend
        self.config = config or AdapterConfig()
        self.now = 1000.0
        self.lines = Lines()
        self.telemetry = Telemetry(writer=self.lines)
        self.published: Published = publish(tools or (spec("act"), spec("look", annotations=READ)), ToolsConfig(), ())
        self.access = access
        self.peers = peers
        self.pipeline = Pipeline(self.config, self.telemetry, monotonic=lambda: self.now, chance=chance)
        self.handler: Handler = self.build()

    def build(self) -> Handler:
        self.handler = self.pipeline.build(self.config, self.published, peers=self.peers, access=self.access)
        return self.handler

    def call_of(
        self, tool: str, *, user: str = "", seconds: float = 30.0, wants_tensors: bool = False, **arguments: Any
    ) -> Call:
        ids = trace.choose(trace.Wanted(), trace.Wanted(), new_hex)
        identity = Identity(subject=user, issuer="one", scopes=frozenset(), expires=0) if user else None
        deadline = asyncio.get_running_loop().time() + seconds
        context = CallContext(ids=ids, deadline=deadline, identity=identity, wants_tensors=wants_tensors)
        return Call(tool=self.published.tools[tool], arguments=arguments, context=context, backend=self.backend)

    async def call(self, tool: str, **more: Any) -> Answer:
        return await self.handler(self.call_of(tool, **more))

    def start(self, tool: str, **more: Any) -> "asyncio.Task[Answer]":
        return asyncio.create_task(self.call(tool, **more))

    def metrics(self) -> str:
        rendered = self.telemetry.render()
        return (rendered[0] if isinstance(rendered, tuple) else rendered).decode()


def floats(*values: float) -> Tensor:
    """Rows of two numbers."""
    return Tensor(datatype="FP32", shape=(len(values) // 2, 2), data=struct.pack(f"<{len(values)}f", *values))


def added(x: Tensor) -> Tensor:
    """What the model of `tensor_spec` answers: the sum of each row."""
    numbers = struct.unpack(f"<{len(x.data) // 4}f", x.data)
    sums = [numbers[place] + numbers[place + 1] for place in range(0, len(numbers), 2)]
    sums = [total if abs(total) < 3.4e38 else inf for total in sums]
    return Tensor(datatype="FP32", shape=(len(sums), 1), data=struct.pack(f"<{len(sums)}f", *sums))
