"""Answers that are busy, in pieces or not what they call themselves, and documents that come in a bad way."""

import asyncio
import base64
import copy
import re
from typing import Any

import pytest
from fastapi import FastAPI

from adapter_harness import adapter, run
from model_apps import AnswersModel, model_server, torture_app
from modelservice_api.adapter_config import AdapterConfig, LimitsConfig
from modelservice_sidecar.discovery import Pace
from modelservice_sidecar.exchange import Timing

ONCE = Pace(first=60, slowest=60, steady=60)


def texts(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"]]


@pytest.mark.promise("openapi-tools")
def test_a_busy_model_server_that_says_for_how_long_is_asked_again_within_the_call_s_time() -> None:
    async def test() -> None:
        model = AnswersModel()
        with model_server(model.app()) as port:
            async with adapter(port) as running:
                assert (await running.call("loading"))["structuredContent"] == {"ok": True}
                assert model.asked["loading"] == 3
                always = await running.call("always_loading")
                assert texts(always) == ["The model server is busy (HTTP 503); try again in 1 s."]
                assert model.asked["always_loading"] == 4
                assert texts(await running.call("no_idea")) == ["The model server is busy (HTTP 503); try again later."]
                assert model.asked["no_idea"] == 1
                tomorrow = await running.call("tomorrow")
                assert re.search(r"busy \(HTTP 429\); try again in 8\d{4} s\.", texts(tomorrow)[0])
                assert model.asked["tomorrow"] == 1

    run(test)


@pytest.mark.promise("limits-basic")
def test_a_wait_that_the_model_server_asks_for_ends_with_the_call_s_deadline() -> None:
    async def test() -> None:
        model = AnswersModel()
        with model_server(model.app()) as port:
            async with adapter(port, AdapterConfig(limits=LimitsConfig(timeout=0.05))) as running:
                assert texts(await running.call("always_loading"))[0].startswith("The model server ")
                assert model.asked.get("always_loading", 0) <= 1

    run(test)


@pytest.mark.promise("openapi-tools")
@pytest.mark.parametrize(
    ("name", "said", "pieces"),
    [
        ("chunks", "é one two", "two"),
        ("lines", '{"n": 1}\n{"n": 2}', '{"n": 2}'),
        ("events", "a\nb\nc", "[DONE]"),
    ],
)
def test_an_answer_in_pieces_is_told_as_it_comes_and_whole_at_the_end(name: str, said: str, pieces: str) -> None:
    async def test() -> None:
        with model_server(AnswersModel().app()) as port:
            async with adapter(port, timing=Timing(throttle=0.0)) as running:
                assert texts(await running.call(name)) == [said]
                reply = await running.modern("tools/call", {"name": name, "_meta": {"progressToken": 1}})
                *progress, answer = reply.events
                assert texts(answer["result"]) == [said]
                assert progress[-1]["params"]["message"] == pieces

    run(test)


@pytest.mark.promise("openapi-tools")
def test_answers_of_other_kinds_come_as_what_they_are() -> None:
    async def test() -> None:
        with model_server(AnswersModel().app()) as port:
            async with adapter(port) as running:
                sound = (await running.call("sound"))["content"]
                assert sound == [{"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/wav"}]
                assert texts(await running.call("latin")) == ["é"]
                lines = await running.call("mislabelled")
                assert (lines["isError"], texts(lines)) == (False, ['{"n": 1}\n{"n": 2}'])

    run(test)


@pytest.mark.promise("openapi-tools")
def test_a_path_value_with_slashes_arrives_where_the_document_allows_them() -> None:
    async def test() -> None:
        app = AnswersModel().app()
        document = copy.deepcopy(app.openapi())
        with model_server(app) as port:
            async with adapter(port) as running:
                refused = await running.call("files", {"name": "a/b"})
                assert "may not hold a slash" in texts(refused)[0]
            document["paths"]["/files/{name:path}"] = document["paths"].pop("/files/{name}")
            app.openapi = lambda: document  # type: ignore[method-assign]
            async with adapter(port) as running:
                assert (await running.call("files", {"name": "a/b c"}))["structuredContent"] == {"name": "a/b c"}

    run(test)


@pytest.mark.promise("openapi-tools")
def test_an_application_described_in_swagger_2_is_called_the_same() -> None:
    swagger = {
        "swagger": "2.0",
        "paths": {
            "/plain": {"post": {"operationId": "plain", "parameters": [
                {"name": "body", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Features"}}]}},
            "/form": {"post": {"operationId": "form", "parameters": [
                {"name": "text", "in": "formData", "type": "string", "required": True},
                {"name": "times", "in": "formData", "type": "integer", "default": 1}]}},
            "/upload": {"post": {"operationId": "upload", "parameters": [
                {"name": "file", "in": "formData", "type": "file", "required": True}]}},
            "/picture": {"get": {"operationId": "picture", "produces": ["image/png"]}},
        },
        "definitions": {"Features": {"type": "object", "required": ["features"], "properties": {
            "features": {"type": "array", "items": {"type": "number"}}}}},
    }  # fmt: skip

    async def test() -> None:
        app = torture_app()
        app.openapi = lambda: swagger  # type: ignore[method-assign]
        with model_server(app) as port:
            async with adapter(port) as running:
                report = await running.report()
                assert report["tools"]["names"] == ["form", "picture", "plain", "upload"]
                assert (
                    report["backend"]["message"] == "Recognised as OpenAPI: GET /openapi.json answers with Swagger 2.0."
                )
                assert (await running.call("plain", {"features": [1, 2]}))["structuredContent"]["score"] == 3
                assert (await running.call("form", {"text": "ab", "times": 2}))["structuredContent"] == {"said": "abab"}
                sent = {"file": {"filename": "f", "data": base64.b64encode(b"12345").decode()}}
                assert (await running.call("upload", sent))["structuredContent"]["size"] == 5
                assert (await running.call("picture"))["content"][0]["type"] == "image"

    run(test)


@pytest.mark.promise("input-checked")
def test_a_key_that_the_document_does_not_name_is_refused_and_nothing_is_sent() -> None:
    async def test() -> None:
        with model_server(torture_app()) as port:
            async with adapter(port) as running:
                result = await running.call("plain", {"features": [1], "topk": 2})
                assert result["isError"] is True
                assert "topk" in texts(result)[0]
                assert "backend_status" not in await running.lines.wait_for("call", tool="plain")

    run(test)


LIES = [
    (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{}", "closed the connection before the end"),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}{}{}", "no `openapi` field"),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{", "larger than 5 MB"),
    (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}", "compresses its answers unasked"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", "does not answer in HTTP"),
    (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffff\r\n", "closed the connection before the end"),
]


@pytest.mark.promise("backend-states")
@pytest.mark.parametrize(("answer", "said"), LIES, ids=[said for _, said in LIES])
def test_a_document_that_does_not_come_whole_is_a_sentence(answer: bytes, said: str) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        async with server, adapter(server.sockets[0].getsockname()[1], wait=False, pace=ONCE) as running:
            while (await running.report())["backend"]["state"] == "Discovering":
                await running.lines.wait_for("backend")
            report = (await running.report())["backend"]
            assert said in report["message"], report
            assert report["message"].endswith(".")
            assert report["state"] in {"NotRecognised", "Invalid"}

    run(test)


@pytest.mark.promise("document-repaired")
def test_a_faulty_document_publishes_what_is_sound_and_says_what_is_not() -> None:
    app = FastAPI()
    good: dict[str, Any] = {"get": {"operationId": "good"}}
    bad = {"get": {"operationId": "bad", "parameters": [{"$ref": "elsewhere.json"}]}}
    document = {"openapi": "3.1.0", "paths": {"/good": good, "/bad": bad}}
    app.get("/good")(lambda: {"ok": True})
    app.openapi = lambda: document  # type: ignore[method-assign]

    async def test() -> None:
        with model_server(app) as port:
            async with adapter(port) as running:
                report = await running.report()
                assert report["tools"]["names"] == ["good"]
                assert (
                    "GET /bad is not published: the reference 'elsewhere.json' leaves" in report["backend"]["message"]
                )
                assert (await running.call("good"))["structuredContent"] == {"ok": True}

    run(test)
