"""What the endpoint does over time: progress, keep-alives, cancellation, change notifications, paging."""

import asyncio
import contextlib
from typing import Any

import pytest
from mcp.client import Client

from adapter_harness import VERSION, Reply, adapter, encode, modern_body, modern_headers, next_event, read_reply, run
from model_apps import SlowModel, model_server, named_app
from modelservice_api.adapter_config import (
    AdapterConfig,
    BackendConfig,
    LimitsConfig,
    OpenAPIConfig,
    ServerConfig,
    ToolOverride,
    ToolsConfig,
)
from modelservice_sidecar.exchange import Timing
from modelservice_sidecar.subscriptions import Subscriptions

EAGER = Timing(watch_after=0.0, progress_after=0.01, commit_after=0.01, beat=0.01, throttle=0.0)
SLOW = {"name": "slow"}
WITH_TOKEN = {"name": "slow", "_meta": {"progressToken": "p"}}


async def entered(model: SlowModel) -> None:
    await asyncio.to_thread(model.entered.acquire)


@pytest.mark.promise("mcp-eras")
@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
def test_the_official_client_lists_and_calls_in_every_mode(torture: int, mode: Any) -> None:
    async def test() -> None:
        config = AdapterConfig(server=ServerConfig(name="fraud", version="1.1", instructions="Score rows."))
        async with adapter(torture, config) as running, Client(running.url, mode=mode) as client:
            assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
            if mode != VERSION:  # a client that is told the version asks for nothing else
                assert client.server_info is not None
                assert (client.server_info.name, client.server_info.version) == ("fraud", "1.1")
                assert client.instructions == "Score rows."
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == sorted(names)
            assert "plain" in names
            result = await client.call_tool("plain", {"features": [1.5, 2]})
            assert result.structured_content == {"score": 3.5, "label": "ok"}

    run(test)


def test_a_silent_call_shows_rising_progress_to_who_gave_a_token_and_the_answer_comes_last() -> None:
    async def test() -> None:
        model = SlowModel()
        with model_server(model.app()) as port:
            async with adapter(port, timing=EAGER) as running:
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(
                    encode("POST", "/mcp", modern_body("tools/call", WITH_TOKEN), modern_headers("tools/call", SLOW))
                )
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                assert "text/event-stream" in head
                assert "x-accel-buffering: no" in head
                values = [(await next_event(reader))["params"]["progress"] for _ in range(3)]
                assert values == sorted(set(values))
                await entered(model)
                model.release()
                event = await next_event(reader)
                while event.get("method") == "notifications/progress":
                    assert event["params"]["progressToken"] == "p"
                    event = await next_event(reader)
                assert event["result"]["structuredContent"] == {"call": 1}
                with pytest.raises(EOFError):
                    await next_event(reader)
                writer.close()

    run(test)


def test_a_silent_call_without_a_token_gets_comments_and_a_json_only_caller_gets_json() -> None:
    async def test() -> None:
        model = SlowModel()
        with model_server(model.app()) as port:
            async with adapter(port, timing=EAGER) as running:
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(
                    encode("POST", "/mcp", modern_body("tools/call", SLOW), modern_headers("tools/call", SLOW))
                )
                await reader.readuntil(b": ping")
                await entered(model)
                plain = asyncio.ensure_future(running.modern("tools/call", WITH_TOKEN, accept="application/json"))
                await entered(model)
                model.release()
                assert (await next_event(reader))["result"]["structuredContent"]["call"] >= 1
                assert (await plain).headers["content-type"] == "application/json"
                writer.close()

    run(test)


def test_a_streamed_answer_is_told_piece_by_piece(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture, timing=Timing(throttle=0.0)) as running:
            params = {"name": "tokens", "arguments": {"count": 4}}
            reply = await running.modern("tools/call", {**params, "_meta": {"progressToken": 0}})
            *progress, answer = reply.events
            assert progress[-1]["params"]["message"] == "token 3"
            assert [event["params"]["progressToken"] for event in progress] == [0] * len(progress)
            assert answer["result"]["content"][0]["text"] == "token 0\ntoken 1\ntoken 2\ntoken 3"
            async with Client(running.url) as client:
                heard = asyncio.Event()

                async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                    heard.set()

                result = await client.call_tool("tokens", {"count": 4}, progress_callback=on_progress)
                await heard.wait()
                assert result.content[0].text == answer["result"]["content"][0]["text"]  # type: ignore[union-attr]

    run(test)


@pytest.mark.promise("hostile")
@pytest.mark.parametrize("call", [SLOW, WITH_TOKEN], ids=["json", "stream"])
def test_a_caller_that_leaves_cancels_the_model_s_work_and_frees_its_slot(call: dict[str, Any]) -> None:
    async def test() -> None:
        model = SlowModel()
        config = AdapterConfig(limits=LimitsConfig(max_concurrency=1))
        with model_server(model.app()) as port:
            async with adapter(port, config, timing=EAGER) as running:
                _, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(
                    encode("POST", "/mcp", modern_body("tools/call", call), modern_headers("tools/call", SLOW))
                )
                await entered(model)
                writer.close()
                line = await running.lines.wait_for("call", outcome="cancelled")
                assert line["status"] == 499
                await asyncio.to_thread(model.left.wait)
                assert running.adapter.calls.in_flight == 0
                assert (await running.call("quick"))["structuredContent"] == {"ok": True}
                assert not running.lines.of("fault")

    run(test)


@pytest.mark.promise("limits-basic")
def test_a_call_past_its_deadline_is_told_and_the_model_sees_it_end() -> None:
    async def test() -> None:
        model = SlowModel()
        config = AdapterConfig(limits=LimitsConfig(timeout=0.2))
        with model_server(model.app()) as port:
            async with adapter(port, config) as running:
                result = await running.call("slow")
                assert result["isError"] is True
                assert "did not answer within 0.2 s" in result["content"][0]["text"]
                await asyncio.to_thread(model.left.wait)
                assert (await running.lines.wait_for("call"))["outcome"] == "deadline"

    run(test)


@pytest.mark.promise("limits-basic")
def test_calls_beyond_the_limit_wait_in_line_and_beyond_the_line_are_refused() -> None:
    async def test() -> None:
        model = SlowModel()
        config = AdapterConfig(limits=LimitsConfig(max_concurrency=1))
        with model_server(model.app()) as port:
            async with adapter(port, config) as running:
                calls = [asyncio.ensure_future(running.rpc("call_tool", SLOW)) for _ in range(6)]
                first, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                refused = first.pop().result()
                assert (refused.status, refused.json["error"]["data"]["outcome"]) == (503, "overloaded")
                await entered(model)
                assert model.calls == 1
                model.release()
                replies = await asyncio.gather(*calls)
                assert sorted(reply.status for reply in replies) == [200] * 5 + [503]
                assert model.calls == 5

    run(test)


@pytest.mark.promise("mcp-eras")
def test_a_listener_hears_first_an_acknowledgement_then_changes_then_the_end() -> None:
    async def test() -> None:
        with model_server(named_app("one")) as port:
            async with adapter(port) as running:
                reader, writer = await listening(running.port, {"toolsListChanged": True, "promptsListChanged": True})
                stamp = {"io.modelcontextprotocol/subscriptionId": 9}
                assert await next_event(reader) == {
                    "jsonrpc": "2.0",
                    "method": "notifications/subscriptions/acknowledged",
                    "params": {"notifications": {"toolsListChanged": True}, "_meta": stamp},
                }
                tools = ToolsConfig(overrides={"one": ToolOverride(description="Another text")})
                await running.adapter.reconfigure(AdapterConfig(tools=tools))
                changed = await next_event(reader)
                assert (changed["method"], changed["params"]) == ("notifications/tools/list_changed", {"_meta": stamp})
                running.adapter.subscriptions.close()
                last = await next_event(reader)
                assert (last["id"], last["result"]["resultType"]) == (9, "complete")
                assert last["result"]["_meta"].items() >= stamp.items()
                with pytest.raises(EOFError):
                    await next_event(reader)
                writer.close()

    run(test)


def test_the_official_client_hears_of_changed_tools() -> None:
    async def test() -> None:
        with model_server(named_app("one")) as port:
            async with adapter(port) as running, Client(running.url) as client:
                async with client.listen(tools_list_changed=True) as events:
                    tools = ToolsConfig(overrides={"one": ToolOverride(name="uno")})
                    await running.adapter.reconfigure(AdapterConfig(tools=tools))
                    assert type(await anext(aiter(events))).__name__ == "ToolsListChanged"
                assert [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools] == ["uno"]

    run(test)


def test_listen_streams_are_capped_and_a_departed_listener_gives_its_place_back(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            running.adapter.subscriptions._limit = 1
            reader, writer = await listening(running.port, {})
            await next_event(reader)
            refused = await running.modern("subscriptions/listen", {"notifications": {}})
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            writer.close()
            await running.adapter.subscriptions.emptied()
            reader, writer = await listening(running.port, {})
            assert (await next_event(reader))["method"].endswith("acknowledged")
            writer.close()

    run(test)


def test_a_hub_that_is_closed_opens_nothing_more() -> None:
    async def test() -> None:
        hub = Subscriptions()
        async with hub.open() as stream:
            hub.close()
            assert stream.closed
        with contextlib.suppress(Exception):
            async with hub.open():
                raise AssertionError("opened")
        assert hub.count == 0

    run(test)


@pytest.mark.promise("openapi-tools")
def test_a_long_list_comes_in_pages_and_the_official_client_collects_them_all() -> None:
    async def test() -> None:
        chosen = tuple(f"tool{number:03}" for number in range(230))
        with model_server(named_app(*chosen)) as port:
            config = AdapterConfig(tools=ToolsConfig(filter=chosen))
            async with adapter(port, config) as running, Client(running.url) as client:
                names: list[str] = []
                cursor = None
                pages = 0
                while pages == 0 or cursor is not None:
                    page = await client.list_tools(cursor=cursor)
                    names += [tool.name for tool in page.tools]
                    cursor, pages = page.next_cursor, pages + 1
                assert (names, pages) == (list(chosen), 3)
                for cursor in ("garbage", "bjp4", "", "é"):
                    reply = await running.modern("tools/list", {"cursor": cursor})
                    expected = (200, None) if cursor == "bjp4" else (400, -32602)
                    assert (reply.status, reply.json.get("error", {}).get("code")) == expected

    run(test)


@pytest.mark.promise("tools-curated")
def test_more_tools_than_a_model_can_choose_from_are_published_only_once_somebody_chose_them() -> None:
    async def test() -> None:
        names = [f"tool{number:03}" for number in range(65)]
        with model_server(named_app(*names)) as port:
            async with adapter(port, wait=False) as running:
                await running.lines.wait_for("backend", state="NoTools")
                report = await running.report()
                assert report["tools"]["count"] == 0
                assert "65 tools were found and none is published" in report["backend"]["message"]
                assert "tools.filter" in report["backend"]["message"]
                config = AdapterConfig(backend=BackendConfig(open_api=OpenAPIConfig(exclude=("tool000",))))
                await running.adapter.reconfigure(config)
                await running.ready()
                assert (await running.report())["tools"]["names"] == names[1:]
                await running.adapter.reconfigure(AdapterConfig(tools=ToolsConfig(filter=tuple(names))))
                while (await running.report())["tools"]["count"] != 65:
                    running.adapter.discovery.look_now()

    run(test)


async def listening(port: int, wanted: dict[str, bool]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """An open stream whose head has been read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = modern_body("subscriptions/listen", {"notifications": wanted}, message_id=9)
    writer.write(encode("POST", "/mcp", body, modern_headers("subscriptions/listen")))
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return reader, writer


def test_a_keep_alive_connection_carries_many_calls(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            replies: list[Reply] = []
            for number in range(20):
                params = {"name": "double", "arguments": {"body": number}}
                writer.write(
                    encode("POST", "/mcp", modern_body("tools/call", params), modern_headers("tools/call", params))
                )
                replies.append(await read_reply(reader))
            assert [reply.json["result"]["structuredContent"]["result"] for reply in replies] == list(range(0, 40, 2))
            assert running.adapter._pool.connections <= 2
            writer.close()

    run(test)


def test_a_ping_is_answered_with_nothing_but_an_empty_result(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            assert (await running.legacy("ping")).json == {"jsonrpc": "2.0", "id": 1, "result": {}}

    run(test)
