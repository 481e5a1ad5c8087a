"""Dynamic batching in front of a real Triton: for the model that has none of its own, and not for the one that has."""

import asyncio
import json
from typing import Any

import pytest

from adapter_harness import adapter, request, run
from modelservice_api.adapter_config import AdapterConfig, BackendConfig, BatcherConfig, V2Config
from triton_server import Triton

pytestmark = pytest.mark.promise("limits")


async def executed(server: Triton, model: str) -> tuple[int, int]:
    """How many rows Triton has seen, and in how many executions."""
    reply = await request(server.port, "GET", f"/v2/models/{model}/stats")
    [stats] = json.loads(reply.body)["model_stats"]
    return int(stats["inference_count"]), int(stats["execution_count"])


@pytest.mark.parametrize("lane", ["http", "grpc"])
def test_calls_that_come_together_are_few_executions_and_each_gets_its_own_answer(
    triton_server: Triton, lane: str
) -> None:
    async def test() -> None:
        v2 = V2Config(grpc_port=triton_server.grpc_port if lane == "grpc" else 0)
        batcher = BatcherConfig(max_batch_size=8, max_latency=5)
        config = AdapterConfig(backend=BackendConfig(type="V2", v2=v2), batcher=batcher)
        async with adapter(triton_server.port, config) as running:

            async def call(tool: str, **arguments: Any) -> Any:
                result = await running.call(tool, arguments)
                assert not result.get("isError"), result
                return result["structuredContent"]

            rows, executions = await executed(triton_server, "twice")
            found = await asyncio.gather(*(call("twice", x=[[number, 1, 0]]) for number in range(40)))
            assert found == [{"y": [[4 * number, 4, 0]]} for number in range(40)]  # an ensemble that doubles twice
            rows_after, executions_after = await executed(triton_server, "twice")
            assert rows_after - rows == 40
            assert executions_after - executions <= 20
            sizes = [line["batch_rows"] for line in running.lines.of("call")]
            assert max(sizes) > 1
            await asyncio.gather(*(call("add", a=[[number, 1.0]]) for number in range(8)))
            assert all("batch_rows" not in line for line in running.lines.of("call") if line["tool"] == "add")

    run(test)
