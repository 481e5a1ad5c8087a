"""A model server of tensors inside the test's process, put behind a real adapter: it echoes, adds, and fails as it is told."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, get_args

import adapter_harness
from adapter_harness import Running
from modelservice_api.adapter_config import AdapterConfig, BackendType, Datatype
from modelservice_sidecar.backends import tensor_tool
from modelservice_sidecar.backends.base import Answer, CallContext, Description, Progress
from modelservice_sidecar.core import codec, tensors
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import BackendUnreachableError
from modelservice_sidecar.core.tensors import Control, Signature, Tensor, TensorSpec

DATATYPES = get_args(Datatype)


def _spec(name: str, datatype: Datatype, *shape: int, optional: bool = False) -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=shape, optional=optional)


def _batched(*specs: TensorSpec) -> tuple[TensorSpec, ...]:
    return tuple(tensors.batch_axis(spec, 16) for spec in specs)


def signatures() -> dict[str, Signature]:
    """`echo_DATATYPE` gives back `x` as `y`; `add` is batched; `null` lets NaN through; `steps` has a control."""
    found = {
        f"echo_{datatype.lower()}": Signature(
            inputs=(_spec("x", datatype, -1, -1),), outputs=(_spec("y", datatype, -1, -1),)
        )
        for datatype in DATATYPES
    }
    found["add"] = Signature(
        inputs=_batched(_spec("a", "FP32", 2), _spec("in/b", "FP32", 2, optional=True)),
        outputs=_batched(_spec("sum", "FP32", 2), _spec("rows", "INT64", 1)),
        max_batch=16,
    )
    found["null"] = Signature(inputs=(_spec("x", "FP32", -1),), outputs=(_spec("y", "FP32", -1),), nulls=True)
    found["steps"] = Signature(
        inputs=(_spec("x", "INT32", 1),),
        outputs=(_spec("y", "INT32", 1),),
        controls=(Control(name="step", schema={"type": "integer", "minimum": 1}, required=True),),
    )
    return found


class TensorBackend:
    """Counts what reaches it. While `gone` is set, nothing does; while `hangs`, nothing is answered."""

    kind: BackendType = "V2"

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.gone = False
        self.hangs = False
        self.entered = asyncio.Event()

    async def describe(self) -> Description:
        made = [
            tensor_tool.spec_of(name, signature, identity=name, description=f"Model {name}.", binding=name)
            for name, signature in signatures().items()
        ]
        schema: dict[str, Any] = {"type": "object", "properties": {"q": {}}}
        plain = ToolSpec(
            name="plain", operation_id="plain", description="No tensors.", input_schema=schema, binding=None
        )
        return Description(kind="V2", fingerprint="1", tools=(*made, plain))

    async def ready(self) -> bool:
        return True

    async def warm_up(self) -> None:
        pass

    async def call(self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext) -> Answer:
        if self.gone:
            raise BackendUnreachableError("The model server cannot be reached.")
        self.calls.append((spec.name, arguments))
        self.entered.set()
        if self.hangs:
            await asyncio.Event().wait()
        if spec.signature is None:
            return Answer(content=[{"type": "text", "text": "{}"}], structured={"q": 1}, has_structured=True)
        given = await tensor_tool.read(spec.signature, arguments)
        return await tensor_tool.answer(spec.signature, given, _outputs(spec.name, given.tensors), context)

    async def stream(
        self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext
    ) -> AsyncGenerator[Progress | Answer, None]:
        yield await self.call(spec, arguments, context)

    async def cancel(self, request_id: str) -> None:
        pass

    async def aclose(self) -> None:
        pass


def _outputs(name: str, given: dict[str, Tensor]) -> dict[str, Tensor]:
    if name != "add":
        return {"y": given["x"]}
    total = codec.array(given["a"])
    if "in/b" in given:
        total = total + codec.array(given["in/b"])
    rows = total[:, :1].astype("<i8")
    return {"sum": codec.from_array(total), "rows": codec.from_array(rows)}


@contextlib.asynccontextmanager
async def adapter(
    backend: TensorBackend, config: AdapterConfig | None = None, *, binary: bool = True
) -> AsyncIterator[Running]:
    """A real adapter in front of it, with the binary lanes open."""
    config = config or AdapterConfig()
    config = config.model_copy(update={"mcp": config.mcp.model_copy(update={"binary_transfer": binary})})
    # Nothing listens on port 1, so discovery finds nothing and publishes nothing over what is published here.
    async with adapter_harness.adapter(1, config, wait=False) as running:
        app = running.adapter
        await app.discovery.until_looked(5)
        app.discovery.tell(await app._publish(backend, await backend.describe()))
        yield running
