"""The real process: its arguments, its exit codes, and the end that loses no call."""

import asyncio
import signal
import socket
from pathlib import Path

import pytest

from adapter_harness import ACCEPT, encode, modern_body, modern_headers, next_event, read_reply, request, run
from adapter_program import process
from model_apps import SlowModel, model_server, named_app
from modelservice_api.adapter_config import AdapterConfig, ServerConfig
from modelservice_sidecar.__main__ import CLOSED

CALL = {"name": "slow"}


@pytest.mark.promise("nothing-lost")
def test_a_sigterm_loses_no_call_tells_listeners_and_exits_0() -> None:
    async def test() -> None:
        model = SlowModel()
        with model_server(model.app()) as backend:
            async with process("--drain-seconds", "0.5", backend=backend) as adapter:
                await adapter.line("backend", state="Ready")
                listener, listener_writer = await adapter.open(
                    modern_body("subscriptions/listen", {"notifications": {}}), modern_headers("subscriptions/listen")
                )
                await next_event(listener)
                in_flight = [
                    await adapter.open(modern_body("tools/call", CALL), modern_headers("tools/call", CALL))
                    for _ in range(4)
                ]
                await asyncio.to_thread(model.entered.acquire)
                keep_alive = await adapter.open(modern_body("tools/list"), modern_headers("tools/list"))
                assert (await read_reply(keep_alive[0])).status == 200

                adapter.signal()
                await adapter.line("draining")
                assert (await request(adapter.admin_port, "GET", "/readyz")).status == 503
                assert (await request(adapter.admin_port, "GET", "/healthz")).status == 200
                late = await request(
                    adapter.port, "POST", "/mcp", modern_body("tools/list"), modern_headers("tools/list")
                )
                assert (late.status, late.headers["connection"]) == (200, "close")
                keep_alive[1].write(encode("POST", "/mcp", modern_body("tools/list"), modern_headers("tools/list")))
                last = await read_reply(keep_alive[0])
                assert (last.status, last.headers["connection"]) == (200, "close")
                await adapter.line("stopping")
                assert (await next_event(listener))["result"]["resultType"] == "complete"
                model.release()
                for reader, writer in in_flight:
                    reply = await read_reply(reader)
                    assert reply.status == 200
                    assert "structuredContent" in reply.json["result"]
                    writer.close()
                assert await adapter.process.wait() == 0
                listener_writer.close()
                keep_alive[1].close()

    run(test)


@pytest.mark.promise("nothing-lost")
def test_a_second_signal_shortens_the_drain() -> None:
    async def test() -> None:
        async with process("--drain-seconds", "3600") as adapter:
            adapter.signal()
            await adapter.line("draining")
            adapter.signal(signal.SIGINT)
            await adapter.line("stopped")
            assert await adapter.process.wait() == 0

    run(test)


def test_a_taken_port_is_one_clear_sentence_and_exit_code_3() -> None:
    async def test() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for which in ("--mcp-port", "--admin-port"):
                async with process(which, str(port), ready=False) as adapter:
                    line = await adapter.line("port_taken")
                    assert line["message"].startswith(f"Cannot listen on 127.0.0.1 port {port}: ")
                    assert await adapter.process.wait() == 3

    run(test)


@pytest.mark.promise("auth")
def test_without_its_document_or_with_a_bad_one_it_lets_nobody_in_and_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        document = tmp_path / "config.json"
        async with process("--config", str(document), ready=False) as adapter:
            assert str(document) in (await adapter.line("config_missing"))["message"]
            await adapter.line("ready", config_digest=CLOSED.digest())
        document.write_text("{", encoding="utf-8")
        async with process("--config", str(document), ready=False) as adapter:
            assert "Invalid JSON" in (await adapter.line("config_rejected"))["message"]
            port = (await adapter.line("ready", config_digest=CLOSED.digest()))["mcp_port"]
            body = {"jsonrpc": "2.0", "id": 1, "method": "list_tools"}
            assert (await request(port, "POST", "/rpc", body, ACCEPT)).status == 401
            good = AdapterConfig(server=ServerConfig(name="late"))
            document.write_text(good.to_json(), encoding="utf-8")
            await adapter.line("config_loaded", digest=good.digest())

    run(test)


def test_its_log_is_json_lines_and_nothing_else(tmp_path: Path) -> None:
    async def test() -> None:
        with model_server(named_app("one")) as backend:
            async with process(backend=backend) as adapter:
                await adapter.line("backend", state="Ready")
                body, headers = (
                    modern_body("tools/call", {"name": "one"}),
                    modern_headers("tools/call", {"name": "one"}),
                )
                assert (await request(adapter.port, "POST", "/mcp", body, headers)).status == 200
                assert (await request(adapter.port, "POST", "/mcp", b"{", ACCEPT)).status == 400
                await adapter.line("call", tool="one", outcome="ok")
                adapter.signal()
                adapter.signal()
                await adapter.line("stopped")
                assert await adapter.process.wait() == 0
                out, err = await adapter.process.communicate()
                assert (out, err) == (b"", b"")

    run(test)


@pytest.mark.parametrize(
    "arguments", [["--mcp-port", "x"], ["--mcp-port", "70000"], ["--drain-seconds", "-1"], ["--surprise"]]
)
def test_wrong_arguments_are_exit_code_2(arguments: list[str]) -> None:
    async def test() -> None:
        async with process(*arguments, ready=False) as adapter:
            assert await adapter.process.wait() == 2

    run(test)
