"""A call that reached no model server is answered by another pod of the same ModelService; none is sent twice.

Two real adapters on loopback play two pods: the second stands where the Service would lead.
"""

import asyncio
import contextlib
import itertools
import select
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException

from adapter_harness import adapter, run
from model_apps import model_server
from modelservice_api.adapter_config import AdapterConfig, PeersConfig
from modelservice_sidecar import peers


class Counting:
    """A model server that says who it is and counts its calls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/whoami")
        def whoami() -> dict[str, str]:
            self.calls += 1
            return {"name": self.name}

        return app


def facing(port: int) -> AdapterConfig:
    """A configuration whose Service leads to `port`."""
    return AdapterConfig(peers=PeersConfig(host="127.0.0.1", port=port))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many attempts as in production, without the time between them."""
    monkeypatch.setattr(peers, "PAUSE", 0.001)


def name_in(result: dict[str, Any]) -> str:
    assert not result.get("isError"), result
    return str(result["structuredContent"]["name"])


@pytest.mark.promise("nothing-lost")
def test_a_call_whose_model_server_is_gone_is_answered_by_another_pod() -> None:
    async def test() -> None:
        here, there = Counting("here"), Counting("there")
        with model_server(there.app()) as other_model:
            async with adapter(other_model) as other, contextlib.AsyncExitStack() as pod:
                model = contextlib.ExitStack()
                port = model.enter_context(model_server(here.app()))
                running = await pod.enter_async_context(adapter(port, facing(other.port)))
                assert name_in(await running.call("whoami")) == "here"
                await asyncio.to_thread(model.close)
                assert name_in(await running.call("whoami")) == "there"
                assert (here.calls, there.calls) == (1, 1)
                handed = await other.lines.wait_for("call", era="rpc")
                told = await running.lines.wait_for("call", request_id=handed["request_id"])
                assert (told["trace_id"], told["outcome"]) == (handed["trace_id"], "ok")

    run(test)


@pytest.mark.promise("nothing-lost")
def test_a_pod_that_is_being_stopped_sends_new_calls_on_although_its_model_server_still_answers() -> None:
    async def test() -> None:
        here, there = Counting("here"), Counting("there")
        with model_server(there.app()) as other_model, model_server(here.app()) as model:
            async with adapter(other_model) as other, adapter(model, facing(other.port)) as running:
                running.adapter.begin_drain()
                assert name_in(await running.call("whoami")) == "there"
                assert (here.calls, there.calls) == (0, 1)

    run(test)


def test_the_last_pod_answers_itself_while_it_is_being_stopped() -> None:
    async def test() -> None:
        here = Counting("here")
        with model_server(here.app()) as model:
            async with adapter(model, facing(unused_port())) as running:
                running.adapter.begin_drain()
                assert name_in(await running.call("whoami")) == "here"

    run(test)


def test_a_call_that_was_handed_over_is_not_handed_on() -> None:
    async def test() -> None:
        here = Counting("here")
        model = contextlib.ExitStack()
        port = model.enter_context(model_server(here.app()))
        async with adapter(port) as running:
            # The Service leads back to this very pod, as it does until nodes know that the pod leaves.
            await running.adapter.reconfigure(facing(running.port))
            await asyncio.to_thread(model.close)
            result = await running.call("whoami")
            assert result["isError"]
            assert "in this pod or in another" in result["content"][0]["text"]
            lines = running.lines.of("call")
            assert len(lines) == 1 + peers.ATTEMPTS_WHILE_STAYING
            assert {line["outcome"] for line in lines} == {"unreachable"}

    run(test)


def test_a_service_that_leads_back_here_first_and_elsewhere_then_loses_no_call() -> None:
    async def test() -> None:
        there = Counting("there")
        with model_server(there.app()) as other_model:
            async with adapter(other_model) as other, adapter(unused_port(), wait=False) as broken:
                ports = itertools.chain([broken.port] * 3, itertools.repeat(other.port))
                async with turning(ports) as service, adapter(other_model, facing(service)) as running:
                    running.adapter.begin_drain()
                    assert name_in(await running.call("whoami")) == "there"
                    assert there.calls == 1

    run(test)


def test_an_error_of_the_other_pods_model_is_told_as_it_is_and_not_tried_again() -> None:
    async def test() -> None:
        failing = FastAPI()

        @failing.post("/whoami")
        def whoami() -> None:
            raise HTTPException(status_code=409, detail="no name today")

        with model_server(failing) as other_model, model_server(Counting("here").app()) as model:
            async with adapter(other_model) as other, adapter(model, facing(other.port)) as running:
                running.adapter.begin_drain()
                result = await running.call("whoami")
                assert result["isError"]
                assert "no name today" in result["content"][0]["text"]
                assert len(other.lines.of("call")) == 1

    run(test)


def test_a_call_that_comes_before_the_first_discovery_waits_for_it() -> None:
    async def test() -> None:
        here = Counting("here")
        port = unused_port()
        async with adapter(port, wait=False) as running:
            call = asyncio.ensure_future(running.call("whoami"))
            listing = await running.modern("tools/list")
            assert listing.json["result"]["tools"] == []
            assert not call.done()
            with model_server(here.app(), port):
                assert name_in(await call) == "here"
                assert [tool["name"] for tool in (await running.modern("tools/list")).json["result"]["tools"]] == [
                    "whoami"
                ]

    run(test)


@contextlib.asynccontextmanager
async def turning(ports: Iterator[int]) -> AsyncIterator[int]:
    """A TCP proxy that leads each new connection to the next port, as a Service's endpoints do."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection("127.0.0.1", next(ports))
        await asyncio.gather(pipe(reader, upstream[1]), pipe(upstream[0], writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def unused_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.promise("nothing-lost")
@pytest.mark.parametrize("ending", ["closed with the request unread", "closed before the request came"])
def test_a_request_that_the_model_server_never_read_is_sent_elsewhere(ending: str) -> None:
    async def test() -> None:
        there = Counting("there")
        with model_server(there.app()) as other_model, contextlib.ExitStack() as model:
            port = model.enter_context(model_server(Counting("here").app()))
            async with adapter(other_model) as other, adapter(port, facing(other.port)) as running:
                await asyncio.to_thread(model.close)
                async with unreading(port, ending):
                    assert name_in(await running.call("whoami")) == "there"
                    assert there.calls == 1

    run(test)


@contextlib.asynccontextmanager
async def unreading(port: int, ending: str) -> AsyncIterator[None]:
    """A server that accepts and ends each connection without reading what came."""
    listening = socket.create_server(("127.0.0.1", port))
    listening.setblocking(False)
    loop = asyncio.get_running_loop()

    async def serve() -> None:
        while True:
            accepted, _ = await loop.sock_accept(listening)
            if ending == "closed with the request unread":
                # Until something lies in the kernel's buffer there is nothing unread.
                await loop.run_in_executor(None, select.select, [accepted], [], [], 5)
            accepted.close()

    serving = asyncio.create_task(serve())
    try:
        yield
    finally:
        serving.cancel()
        listening.close()
