"""OpenAI-compatible servers through the whole adapter: the real `transformers serve`, and a scripted one for what goes wrong.

What works is asked of both, so the scripted one is held to the real one.
"""

import asyncio
import base64
import json
from array import array
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import jsonschema
import pytest
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from mcp.client import Client

from adapter_harness import Reply, adapter, encode, modern_body, modern_headers, next_event, request, run
from modelservice_api.adapter_config import AdapterConfig, BackendConfig, OpenAIConfig
from modelservice_sidecar.exchange import Timing
from openai_servers import MODEL, USAGE, Scripted, TransformersServe, chunk, events, scripted, transformers_serve

EAGER = Timing(watch_after=0.0, throttle=0.0)
HELLO = {"prompt": "hello", "max_tokens": 3, "temperature": 0, "seed": 1}
THREE = {"text": "one two three", "finish_reason": "stop", "model": MODEL, "usage": USAGE}

Server = tuple[Scripted | TransformersServe, int]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The real server, started once."""
    with transformers_serve(tmp_path_factory.mktemp("transformers")) as server:
        yield server, server.port


@pytest.fixture(params=["scripted", "transformers"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Each of the two."""
    if request.param == "scripted":
        with scripted(statuses={"embed": 404}) as found:
            yield found
    else:
        found = request.getfixturevalue("real")
        found[0].generations()
        yield found


async def told(running: Any, name: str, arguments: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """The progress messages of a call and its result."""
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": "p"}}
    reply: Reply = await running.modern("tools/call", params)
    *progress, answer = reply.events if "event-stream" in reply.headers["content-type"] else [reply.json]
    return [event["params"].get("message", "") for event in progress], answer["result"]


@pytest.mark.promise("openai-tools")
def test_a_server_is_recognised_and_its_tasks_become_tools_without_a_token_spent(server: Server) -> None:
    async def test() -> None:
        async with adapter(server[1]) as running:
            tools = {tool["name"]: tool for tool in (await running.modern("tools/list")).json["result"]["tools"]}
            assert set(tools) == {"chat", "complete"}
            for tool in tools.values():
                root = tool["inputSchema"]
                jsonschema.Draft202012Validator.check_schema(root)
                assert (root["type"], root["additionalProperties"]) == ("object", False)
                assert not root.keys() & {"$ref", "oneOf", "anyOf", "allOf"}
                assert root["properties"]["model"]["enum"] == [MODEL]
                assert "model" not in root.get("required", [])
            assert (await running.report())["backend"]["type"] == "OpenAI"
            assert server[0].generations() == 0

    run(test)


@pytest.mark.promise("openai-tools")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("chat", HELLO),
        ("chat", {**HELLO, "system": "be short", "top_p": 0.9, "stop": ["~~~~"]}),
        ("complete", HELLO),
    ],
)
def test_text_is_answered_whole_or_piece_by_piece_with_its_tokens_counted(
    server: Server, name: str, arguments: dict[str, Any]
) -> None:
    async def test() -> None:
        async with adapter(server[1], timing=EAGER) as running:
            plain = await running.call(name, arguments)
            assert plain["isError"] is False, plain
            found = plain["structuredContent"]
            assert plain["content"] == [{"type": "text", "text": found["text"]}]
            assert (found["finish_reason"], found["model"]) == ("length", MODEL)
            usage = found["usage"]
            assert usage["completion_tokens"] == 3
            assert usage["total_tokens"] == usage["prompt_tokens"] + 3
            progress, streamed = await told(running, name, arguments)
            assert streamed["structuredContent"] == found
            assert any(progress)
            assert all(piece in found["text"] for piece in progress)
            metrics = (await request(running.admin_port, "GET", "/metrics")).body.decode()
            read = usage["prompt_tokens"] * 2
            assert f'modelservice_tokens_total{{tool="{name}",type="input"}} {float(read)}' in metrics
            assert f'modelservice_tokens_total{{tool="{name}",type="output"}} 6.0' in metrics
            line = await running.lines.wait_for("call", tool=name)
            assert (line["tokens_in"], line["tokens_out"]) == (usage["prompt_tokens"], 3)

    run(test)


@pytest.mark.promise("openai-tools")
def test_a_caller_that_leaves_in_the_middle_of_a_stream_stops_the_model(server: Server) -> None:
    async def test() -> None:
        if isinstance(server[0], Scripted):
            server[0].pause = True
        async with adapter(server[1], timing=EAGER) as running:
            params = {
                "name": "chat",
                "arguments": {**HELLO, "max_tokens": 60_000},
                "_meta": {"progressToken": "p"},
            }
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            body = modern_body("tools/call", params)
            writer.write(encode("POST", "/mcp", body, modern_headers("tools/call", params)))
            assert (await next_event(reader))["params"]["message"]
            writer.close()
            await asyncio.to_thread(server[0].until_stopped)
            assert (await running.lines.wait_for("call", tool="chat"))["outcome"] == "cancelled"
            if isinstance(server[0], Scripted):
                server[0].pause = False
            assert (await running.call("chat", HELLO))["isError"] is False

    run(test)


@pytest.mark.promise("openai-tools")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_official_client_hears_the_text_as_it_is_written(server: Server, mode: Any) -> None:
    async def test() -> None:
        heard: list[str | None] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            heard.append(message)

        async with adapter(server[1], timing=EAGER) as running, Client(running.url, mode=mode) as client:
            result = await client.call_tool("chat", {**HELLO, "max_tokens": 40}, progress_callback=on_progress)
            assert result.is_error is False
            assert result.structured_content is not None
            assert result.content[0].text == result.structured_content["text"]  # type: ignore[union-attr]
            assert any(heard)

    run(test)


def test_a_model_of_the_config_that_the_server_does_not_list_is_named(server: Server) -> None:
    async def test() -> None:
        config = AdapterConfig(backend=BackendConfig(open_ai=OpenAIConfig(models=("ghost",))))
        async with adapter(server[1], config, wait=False) as running:
            await running.lines.wait_for("backend", state="NoTools")
            message = (await running.report())["backend"]["message"]
            assert "openAI.models names 'ghost', which the model server does not list." in message

    run(test)


# Only the scripted server from here on


def test_its_own_openapi_document_is_ignored_and_why_it_was_recognised_is_said() -> None:
    async def test() -> None:
        with scripted() as (server, port):
            async with adapter(port) as running:
                assert (await request(port, "GET", "/openapi.json")).status == 200
                assert running.adapter.catalogue.names == ("chat", "complete", "embed")
                backend = running.adapter.snapshot().backend
                assert backend is not None
                assert await backend.ready()
                described = await backend.describe()
                assert described.because == "Recognised as OpenAI: GET /v1/models lists 1 model."
                # Asked once: what is offered is not asked again with every look at the list.
                assert server.probes == ["chat", "complete", "embed"]

    run(test)


def test_several_models_are_a_choice_and_the_config_narrows_it() -> None:
    async def test() -> None:
        listed = [{"id": name, "object": "model", "max_model_len": 4096} for name in ("base", "lora", "other\u202e")]
        with scripted(models=listed) as (server, port):
            async with adapter(port) as running:
                chat = running.adapter.catalogue.by_name["chat"].definition["inputSchema"]
                assert (chat["properties"]["model"]["enum"], chat["required"]) == (["base", "lora"], ["model"])
                assert chat["properties"]["max_tokens"]["maximum"] == 4096
                assert "left out" in (await running.report())["backend"]["message"]
                result = await running.call("chat", {"prompt": "x", "model": "lora"})
                assert result["structuredContent"]["model"] == "lora"
                refused = await running.call("chat", {"prompt": "x"})
                assert '"model" is a required property' in refused["content"][0]["text"]
                server.models.pop(0)
                await running.lines.wait_for("backend", state="Ready")
            config = AdapterConfig(backend=BackendConfig(open_ai=OpenAIConfig(models=("lora",))))
            async with adapter(port, config) as running:
                chat = running.adapter.catalogue.by_name["chat"].definition["inputSchema"]
                assert chat["properties"]["model"] == {
                    "type": "string",
                    "enum": ["lora"],
                    "default": "lora",
                    "description": "Which model answers.",
                }

    run(test)


def test_a_model_that_is_loaded_later_changes_the_tools() -> None:
    async def test() -> None:
        with scripted() as (server, port):
            async with adapter(port) as running:
                before = running.adapter.catalogue.hash
                server.models.append({"id": "later", "object": "model"})
                while running.adapter.catalogue.hash == before:
                    running.adapter.discovery.look_now()
                    await asyncio.sleep(0)
                assert "later" in json.dumps(running.adapter.catalogue.by_name["chat"].definition)

    run(test)


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({}, "$: give either messages or prompt"),
        ({"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, "$: give either messages or prompt"),
        ({"messages": [{"role": "user", "content": "x"}], "system": "y"}, "$.system"),
        ({"messages": []}, "$.messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "$.messages[0].role"),
        ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, "$.messages[0]"),
        ({"prompt": "x", "model": "ghost"}, "$.model"),
        ({"prompt": "x", "max_tokens": 0}, "$.max_tokens"),
        ({"prompt": "x", "temperature": 3}, "$.temperature"),
        ({"prompt": "x", "top_p": 0}, "$.top_p"),
        ({"prompt": "x", "stop": ["a", "b", "c", "d", "e"]}, "$.stop"),
        ({"prompt": "x", "response_format": {"type": "xml"}}, "$.response_format.type"),
        ({"prompt": "x", "n": 2}, "n"),
        ({"prompt": "x", "stream": True}, "stream"),
    ],
)
def test_a_wrong_argument_never_reaches_the_server(arguments: dict[str, Any], path: str) -> None:
    async def test() -> None:
        with scripted() as (server, port):
            async with adapter(port) as running:
                for result in (await running.call("chat", arguments), (await told(running, "chat", arguments))[1]):
                    assert result["isError"] is True
                    assert path in result["content"][0]["text"]
                assert server.requests == []

    run(test)


def test_what_the_caller_gave_is_what_the_server_gets() -> None:
    async def test() -> None:
        schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
        given = {"max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "stop": ["."], "seed": 7, "response_format": schema}
        said = [{"role": "user", "content": "hi"}]
        ids = {"x-request-id": "req-1", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "v=1"}
        with scripted() as (server, port):
            async with adapter(port) as running:
                params = {"name": "chat", "arguments": {"messages": said, **given}}
                assert (await running.modern("tools/call", params, **ids)).status == 200
                await running.call("chat", {"prompt": "hi", "system": "short"})
                first, second = server.requests
                assert first[2] == {"model": MODEL, "messages": said, **given}
                assert (first[1]["x-request-id"], first[1]["tracestate"]) == ("req-1", "v=1")
                assert first[1]["traceparent"].split("-")[1] == "a" * 32
                assert second[2]["messages"] == [{"role": "system", "content": "short"}, *said]

    run(test)


BROKEN = [
    ("whole", events(chunk("one two three", finish_reason="stop"), chunk(usage=USAGE)), THREE),
    (
        "comments, several lines of data, an event name",
        b": ping\r\n\r\nevent: message\r\nid: 1\r\ndata: "
        + json.dumps(chunk("one two three", finish_reason="stop", usage=USAGE), indent=1)
        .replace("\n", "\r\ndata: ")
        .encode()
        + b"\r\n\r\ndata:[DONE]\r\n\r\n",
        THREE,
    ),
    (
        "no [DONE], no last blank line",
        events(chunk("one two three", finish_reason="stop", usage=USAGE), done=False).rstrip(),
        THREE,
    ),
    (
        "usage after everything, without choices",
        events(chunk("one two three", finish_reason="stop"), {**chunk(), "choices": [], "usage": USAGE}),
        THREE,
    ),
    (
        "chunks after [DONE]",
        events(chunk("one two three", finish_reason="stop", usage=USAGE)) + events(chunk("x")),
        THREE,
    ),
    (
        "a choice that was not asked for",
        events(
            chunk("one two"),
            {**chunk(), "choices": [{"index": 1, "delta": {"content": "x"}}]},
            chunk(" three", finish_reason="stop", usage=USAGE),
        ),
        THREE,
    ),
    ("no text at all", events({**chunk(), "choices": []}), "holds no text"),
    ("nothing", b"", "holds no text"),
    ("cut off", events(chunk("half a"), done=False), "ended in the middle of its answer. It had written: half a"),
    ("an error inside", events(chunk("x"), {"error": {"message": "secret path", "code": 500}}), "failed in the middle"),
    ("an error that is not escaped", events(chunk("x"), '{"error": "no "such" thing"}'), "failed in the middle"),
    (
        "a refusal inside",
        events({"error": {"message": "the prompt is too long", "code": 400}}),
        "refuses the request (HTTP 400): the prompt is too long",
    ),
    ("an older vLLM's refusal", events({"object": "error", "message": "no such model", "code": 404}), "no such model"),
    ("no JSON", events("hello"), "holds an event that is no JSON"),
    ("no choices", events({"id": 1}), "no list of choices"),
    ("a list", events([1]), "no JSON object"),
]


@pytest.mark.parametrize(("stream", "expected"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_streams_are_read_as_servers_really_write_them(stream: bytes, expected: Any) -> None:
    async def test() -> None:
        with scripted(stream=stream) as (_, port):
            async with adapter(port) as running:
                _, result = await told(running, "chat", {"prompt": "x"})
                if isinstance(expected, str):
                    assert result["isError"] is True
                    assert expected in result["content"][0]["text"]
                    assert "secret" not in result["content"][0]["text"]
                else:
                    assert result["isError"] is False, result
                    assert result["structuredContent"] == expected

    run(test)


def test_a_server_that_dies_in_the_middle_of_a_stream_is_one_error_and_is_asked_anew_when_it_is_back() -> None:
    async def test() -> None:
        with scripted(breaks=True) as (server, port):
            async with adapter(port) as running:
                _, result = await told(running, "chat", {"prompt": "x"})
                assert result["isError"] is True
                assert "closed the connection during its answer" in result["content"][0]["text"]
                assert (await running.lines.wait_for("call", tool="chat"))["outcome"] == "disconnected"
                server.breaks = False
                server.statuses = {"embed": 404}
                while running.adapter.catalogue.names != ("chat", "complete"):
                    running.adapter.discovery.look_now()
                    await asyncio.sleep(0)
                assert (await told(running, "chat", {"prompt": "x"}))[1]["structuredContent"]["text"] == "one two three"

    run(test)


def test_a_server_that_streams_unasked_or_answers_whole_instead_is_understood_too() -> None:
    async def test() -> None:
        whole = {"choices": [{"message": {"content": "one two three"}, "finish_reason": "stop"}], "model": MODEL}
        with scripted() as (server, port):
            async with adapter(port) as running:
                server.reply = JSONResponse({**whole, "usage": USAGE})
                assert (await told(running, "chat", {"prompt": "x"}))[1]["structuredContent"] == THREE
                stream = events(chunk("one two three", finish_reason="stop", usage=USAGE))
                server.reply = Response(stream, media_type="text/event-stream")
                assert (await running.call("chat", {"prompt": "x"}))["structuredContent"] == THREE

    run(test)


def test_a_server_that_does_not_know_stream_options_is_asked_without_them_from_then_on() -> None:
    async def test() -> None:
        with scripted(knows_stream_options=False) as (server, port):
            async with adapter(port) as running:
                for _ in range(2):
                    _, result = await told(running, "chat", {"prompt": "x"})
                    assert result["structuredContent"]["text"] == "one two three"
                    assert "usage" not in result["structuredContent"]
                asked = ["stream_options" in body for body in server.bodies]
                assert asked == [True, False, False]

    run(test)


def test_a_refusal_of_something_else_is_not_asked_for_ever() -> None:
    async def test() -> None:
        with scripted() as (server, port):
            async with adapter(port) as running:
                await told(running, "chat", {"prompt": "x"})
                server.reply = JSONResponse({"error": {"message": "too long"}}, status_code=400)
                _, result = await told(running, "chat", {"prompt": "x"})
                assert "too long" in result["content"][0]["text"]
                # It took the option before, so this time it was asked once.
                assert len(server.requests) == 2

    run(test)


@pytest.mark.parametrize(
    ("reply", "outcome", "said"),
    [
        (JSONResponse({"error": {"message": "context of 16 tokens"}}, 400), "backend_refused", "context of 16 tokens"),
        (JSONResponse({"error": "a\u202eb"}, 404), "backend_refused", "(HTTP 404): ab"),
        (JSONResponse({"error": {"message": "key hunter2"}}, 401), "backend_denied", "its owner must allow it"),
        (JSONResponse({"error": {"message": "hunter2"}}, 403), "backend_denied", "HTTP 403"),
        (JSONResponse({}, 429, headers={"retry-after": "3"}), "backend_busy", "try again in 3 s"),
        (JSONResponse({}, 503), "backend_busy", "try again later"),
        (JSONResponse({"error": {"message": "hunter2"}}, 500), "backend_failed", "HTTP 500"),
        (Response(status_code=307, headers={"location": "http://169.254.169.254/"}), "backend_failed", "redirect"),
        (PlainTextResponse("hello"), "answer_invalid", "is no JSON"),
        (Response('{"choices": [NaN]}', media_type="application/json"), "answer_invalid", "NaN"),
        (JSONResponse({"choices": []}), "answer_invalid", "holds no text"),
        (JSONResponse([]), "answer_invalid", "no JSON object"),
        (JSONResponse({"error": {"message": "hunter2"}}), "backend_failed", "failed"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_what_the_server_refuses_or_breaks_is_one_sentence_without_its_secrets(
    reply: Response, outcome: str, said: str, streamed: bool
) -> None:
    async def test() -> None:
        with scripted(reply=reply) as (_, port):
            async with adapter(port) as running:
                arguments = {"prompt": "x"}
                result = (
                    (await told(running, "chat", arguments))[1] if streamed else await running.call("chat", arguments)
                )
                assert result["isError"] is True
                text = result["content"][0]["text"]
                assert said in text
                assert "hunter2" not in text
                assert (await running.lines.wait_for("call", tool="chat"))["outcome"] == outcome

    run(test)


def test_a_caller_that_leaves_while_a_whole_answer_is_awaited_closes_the_connection() -> None:
    async def test() -> None:
        with scripted(pause=True) as (server, port):
            async with adapter(port, timing=EAGER) as running:
                call = asyncio.ensure_future(running.call("complete", {"prompt": "x"}))
                assert await asyncio.to_thread(server.entered.wait, 10)
                call.cancel()
                with suppress(asyncio.CancelledError):
                    await call
                await asyncio.to_thread(server.until_stopped)

    run(test)


def test_small_embeddings_are_numbers_in_the_order_of_the_texts() -> None:
    async def test() -> None:
        with scripted() as (server, port):
            async with adapter(port) as running:
                one = await running.call("embed", {"input": "four"})
                assert one["structuredContent"] == {
                    "vectors": [[4, 0.5]],
                    "dimensions": 2,
                    "model": MODEL,
                    "usage": {"prompt_tokens": 4, "total_tokens": 4},
                }
                assert one["content"] == [{"type": "text", "text": "1 vector of 2 numbers."}]
                # The scripted server answers them in the reverse order.
                progress, many = await told(running, "embed", {"input": ["a", "bb"]})
                assert (progress, many["structuredContent"]["vectors"]) == ([], [[1, 0.5], [2, 0.5]])
                assert (await running.lines.wait_for("call", tool="embed"))["tokens_in"] == 4
                wrong = await running.call("embed", {"input": []})
                assert "$.input" in wrong["content"][0]["text"]
                assert len(server.requests) == 2

    run(test)


def test_large_embeddings_are_bytes_beside_their_shape() -> None:
    async def test() -> None:
        vector = [0.25] * 9000
        data = [{"index": place, "embedding": vector} for place in range(2)]
        with scripted(vectors=data) as (_, port):
            async with adapter(port) as running:
                result = await running.call("embed", {"input": ["a", "b"]})
                vectors = result["structuredContent"]["vectors"]
                assert (vectors["dtype"], vectors["shape"]) == ("FP32", [2, 9000])
                resource = result["content"][1]["resource"]
                assert resource["uri"] == vectors["resource"]
                assert array("f", base64.b64decode(resource["blob"])).tolist() == vector * 2

    run(test)


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        ([], "0 vectors for 2 texts"),
        ("AAAA", "no list of vectors"),
        ([{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}], "which text"),
        ([{"index": "a", "embedding": [1]}, {"index": 0, "embedding": [1]}], "which text"),
        ([{"embedding": [1]}, {"embedding": [1, 2]}], "one length"),
        ([{"embedding": []}, {"embedding": []}], "one length"),
        ([{"embedding": "AAAA"}, {"embedding": "AAAA"}], "one length"),
        ([{"embedding": [1]}, {"embedding": [True]}], "something else than numbers"),
    ],
)
def test_embeddings_that_lie_are_refused(vectors: Any, said: str) -> None:
    async def test() -> None:
        with scripted(vectors=vectors) as (_, port):
            async with adapter(port) as running:
                result = await running.call("embed", {"input": ["a", "b"]})
                assert result["isError"] is True
                assert said in result["content"][0]["text"]

    run(test)


@pytest.mark.promise("backend-states")
@pytest.mark.parametrize(
    ("script", "state", "said"),
    [
        ({"listing": JSONResponse({}, 404)}, "NotRecognised", "HTTP 404 instead of a model list"),
        ({"listing": JSONResponse({"error": "Unauthorized"}, 401)}, "Invalid", "wants credentials (HTTP 401)"),
        ({"listing": JSONResponse({"detail": "Unauthorized"}, 401)}, "NotRecognised", "HTTP 401"),
        ({"listing": JSONResponse({}, 503)}, "Unreachable", "loads its model"),
        ({"listing": PlainTextResponse("hi")}, "NotRecognised", "something else than JSON"),
        ({"listing": JSONResponse({"models": []})}, "NotRecognised", "no model list"),
        ({"listing": JSONResponse({"data": [{"id": "x"}]})}, "NotRecognised", "something else than models"),
        ({"listing": JSONResponse({"data": [{"name": "x"}], "object": "list"})}, "NotRecognised", "something else"),
        ({"listing": Response(b"[" * 2_000_000, media_type="application/json")}, "NotRecognised", "more than 1024 KiB"),
        ({"statuses": {"chat": 404, "complete": 405, "embed": 501}}, "NotRecognised", "is served"),
        ({"statuses": {"chat": 503}}, "Unreachable", "loads its model"),
        ({"models": []}, "NoTools", "lists no model"),
    ],
)
def test_what_is_no_usable_server_is_reported_in_a_sentence(script: dict[str, Any], state: str, said: str) -> None:
    async def test() -> None:
        with scripted(**script) as (_, port):
            config = AdapterConfig(backend=BackendConfig(type="OpenAI"))
            async with adapter(port, config, wait=False) as running:
                await running.lines.wait_for("backend", state=state)
                report = (await running.report())["backend"]
                assert (report["state"], said in report["message"]) == (state, True), report
                assert report["message"].endswith(".")

    run(test)


def test_a_guarded_server_s_openapi_document_is_not_taken_instead() -> None:
    async def test() -> None:
        with scripted(listing=JSONResponse({"error": "Unauthorized"}, 401)) as (_, port):
            async with adapter(port, wait=False) as running:
                await running.lines.wait_for("backend", state="Invalid")
                assert running.adapter.catalogue.names == ()

    run(test)


def test_tasks_are_offered_by_what_their_paths_answer() -> None:
    async def test() -> None:
        with scripted(statuses={"chat": 404, "complete": 501}) as (_, port):
            async with adapter(port) as running:
                assert running.adapter.catalogue.names == ("embed",)

    run(test)
