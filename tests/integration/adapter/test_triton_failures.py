"""A real Triton in trouble: its queue is full, its model is away, loads or is unloaded under a call, and it dies."""

import asyncio
import base64
import shutil
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from adapter_harness import Running, adapter, encode, modern_body, modern_headers, run
from modelservice_api.adapter_config import AdapterConfig, BackendConfig, LimitsConfig, V2Config
from modelservice_sidecar.discovery import Pace
from triton_server import MODELS, Triton, appears, triton

LANES = pytest.mark.parametrize("lane", ["http", "grpc"])
X = {"x": [21]}
LARGE = base64.b64encode(bytes(1024 * 1024)).decode()
SLOW = Pace(first=0.02, slowest=0.1, steady=60)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    """A server of its own, since these tests end it or load and unload what it has."""
    with triton(tmp_path_factory.mktemp("triton"), ["queued", "count"]) as started:
        yield started


def config(server: Triton, lane: str = "http") -> AdapterConfig:
    v2 = V2Config(grpc_port=server.grpc_port if lane == "grpc" else 0)
    return AdapterConfig(backend=BackendConfig(v2=v2), limits=LimitsConfig(max_concurrency=64))


def said(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def listed(running: Running) -> list[str]:
    return [one["name"] for one in (await running.modern("tools/list")).json["result"]["tools"]]


async def looked(running: Running) -> None:
    """Return when the adapter has looked at the model server once more."""
    event = running.adapter.discovery._looked
    event.clear()
    await event.wait()


def test_forty_calls_on_a_queue_of_eight_are_answered_or_told_to_come_back(server: Triton) -> None:
    async def test() -> None:
        async with adapter(server.port, config(server)) as running:
            calls = [asyncio.ensure_future(running.call("queued", X)) for _ in range(40)]
            # One runs and eight wait, so these are all that are refused.
            for coming in islice(asyncio.as_completed(calls), 31):
                assert said(await coming) == "The model server is busy (HTTP 503); try again later."
            (server.events / "release").touch()
            results = await asyncio.gather(*calls)
            right = [result for result in results if not result["isError"]]
            assert [result["structuredContent"] for result in right] == [{"y": [42]}] * 9
            outcomes = [line["outcome"] for line in running.lines.of("call")]
            assert (outcomes.count("backend_busy"), outcomes.count("ok")) == (31, 9)
            assert running.adapter.calls.in_flight == 0

    run(test)


@pytest.mark.promise("survives")
def test_a_server_that_dies_in_a_call_is_one_error_and_is_found_again(
    server: Triton, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def test() -> None:
        async with adapter(server.port, config(server)) as running:
            call = asyncio.ensure_future(running.call("queued", X))
            await appears(server.events / "entered")
            await asyncio.to_thread(server.kill)
            assert said(await call) == (
                "The model server closed the connection without an answer; the call may or may not have run."
            )
            # The tools stay, and each call says what is wrong.
            await running.lines.wait_for("backend", state="Unreachable")
            assert await listed(running) == ["count", "queued"]
            assert "cannot be reached" in said(await running.call("queued", X))
            with triton(tmp_path_factory.mktemp("again"), ["queued"], port=server.port) as again:
                (again.events / "release").touch()
                while "count" in await listed(running):
                    await looked(running)
                assert (await running.call("queued", X))["structuredContent"] == {"y": [42]}

    run(test)


@pytest.mark.promise("survives")
def test_a_server_that_dies_in_a_streamed_call_over_grpc_is_one_error(server: Triton) -> None:
    async def test() -> None:
        async with adapter(server.port, config(server, "grpc")) as running:
            call = asyncio.ensure_future(running.call("count", {"n": [40], "pause_at": [2]}))
            await appears(server.events / "told")
            await asyncio.to_thread(server.kill)
            assert said(await call) == (
                "The connection to the model server ended before its answer; the call may or may not have run."
            )
            assert "Nothing accepts gRPC connections" in said(await running.call("count", {"n": [1]}))

    run(test)


@pytest.mark.promise("hostile")
def test_a_caller_that_leaves_stops_a_model_that_is_called_over_grpc(server: Triton) -> None:
    async def test() -> None:
        async with adapter(server.port, config(server, "grpc")) as running:
            # Large enough for gRPC: over HTTP, Triton does not tell the model.
            filler = {"dtype": "UINT8", "shape": [1024 * 1024], "encoding": "base64", "data": LARGE}
            params = {"name": "queued", "arguments": {**X, "filler": filler}}
            _, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(
                encode("POST", "/mcp", modern_body("tools/call", params), modern_headers("tools/call", params))
            )
            await appears(server.events / "entered")
            writer.close()
            assert (await running.lines.wait_for("call"))["outcome"] == "cancelled"
            await appears(server.events / "cancelled")

    run(test)


@LANES
@pytest.mark.promise("triton-tools")
def test_a_model_that_is_unloaded_under_its_callers_says_so_and_its_tool_goes(server: Triton, lane: str) -> None:
    async def test() -> None:
        # Looks so rarely that only the call itself can have it look again.
        async with adapter(server.port, config(server, lane), pace=SLOW) as running:
            assert (await running.call("count", {"n": [1]}))["isError"] is False
            await asyncio.to_thread(server.unload, "count")
            result = await running.call("count", {"n": [1]})
            assert said(result) == "The model server no longer has the model count; list the tools again."
            assert (await running.lines.wait_for("call", outcome="tool_gone"))["status"] == 200
            while await listed(running) != ["queued"]:
                await looked(running)

    run(test)


@pytest.mark.promise("triton-tools")
def test_a_call_that_runs_while_its_model_is_unloaded_is_answered(server: Triton) -> None:
    async def test() -> None:
        async with adapter(server.port, config(server)) as running:
            call = asyncio.ensure_future(running.call("queued", X))
            await appears(server.events / "entered")
            await asyncio.to_thread(server.unload, "queued")
            while await listed(running) != ["count"]:
                await looked(running)
            (server.events / "release").touch()
            assert (await call)["structuredContent"] == {"y": [42]}
            assert (await running.modern("tools/call", {"name": "queued", "arguments": X})).json["error"][
                "code"
            ] == -32602

    run(test)


@pytest.mark.promise("triton-tools")
def test_a_model_is_a_tool_from_when_it_is_loaded_and_not_before(server: Triton) -> None:
    async def test() -> None:
        shutil.copytree(MODELS / "slow_start", server.repository / "slow_start")
        async with adapter(server.port, config(server)) as running:
            loading = asyncio.ensure_future(asyncio.to_thread(server.load, "slow_start"))
            await appears(server.events / "loading")
            await looked(running)  # while the model is being loaded
            assert await listed(running) == ["count", "queued"]
            (server.events / "go").touch()
            await loading
            while "slow_start" not in await listed(running):
                await looked(running)
            assert (await running.call("slow_start", {"x": [1]}))["structuredContent"] == {"y": [1]}

    run(test)
