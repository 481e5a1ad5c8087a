"""A gRPC model server is told how long the caller still waits."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from adapter_harness import run
from modelservice_sidecar.backends.base import CallContext
from modelservice_sidecar.backends.triton_grpc import GrpcLane
from modelservice_sidecar.core import trace
from modelservice_sidecar.core.errors import BackendRefusedError
from modelservice_sidecar.core.tensors import Signature
from modelservice_sidecar.core.v2 import Model
from modelservice_sidecar.middleware.context import new_hex

pytestmark = pytest.mark.promise("limits")


class Clock(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Notes how long each call may take and refuses it."""

    def __init__(self) -> None:
        self.left: list[float] = []

    def service(self, details: Any) -> Any:
        if details.method.endswith("ModelStreamInfer"):
            return grpc.stream_stream_rpc_method_handler(self._streamed)
        return grpc.unary_unary_rpc_method_handler(self._single)

    async def _single(self, request: bytes, context: Any) -> bytes:
        self.left.append(context.time_remaining())
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "noted")
        raise AssertionError

    async def _streamed(self, requests: Any, context: Any) -> AsyncIterator[bytes]:
        self.left.append(context.time_remaining())
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "noted")
        yield b""


def test_a_grpc_call_carries_the_time_that_is_left_and_a_second_to_spare() -> None:
    async def test() -> None:
        clock = Clock()
        server = grpc.aio.server(handlers=[clock])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        lane = GrpcLane("127.0.0.1", port)
        model = Model(name="m", path="/", platform="", signature=Signature(inputs=(), outputs=()))
        ids = trace.choose(trace.Wanted(), trace.Wanted(), new_hex)
        try:
            context = CallContext(ids=ids, deadline=asyncio.get_running_loop().time() + 20)
            with pytest.raises(BackendRefusedError):
                await lane.infer(model, {}, {}, context)
            with pytest.raises(BackendRefusedError):
                async for _ in lane.stream(model, {}, {}, context):
                    pass
            assert len(clock.left) == 2
            assert all(1 < left <= 21 for left in clock.left)
        finally:
            await lane.aclose()
            await server.stop(None)

    run(test)
