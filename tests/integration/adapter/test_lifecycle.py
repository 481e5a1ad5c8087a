"""Finding the model server, losing it, finding it again; configuration that changes; nothing lost on bad input."""

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse

from adapter_harness import FAST, adapter, request, run
from model_apps import SlowModel, model_server, named_app
from modelservice_api.adapter_config import AdapterConfig, BackendConfig, LimitsConfig, OpenAPIConfig, ToolsConfig
from modelservice_sidecar.config_file import ConfigFile
from modelservice_sidecar.discovery import Pace
from modelservice_sidecar.server import bind

ONCE = Pace(first=60, slowest=60, steady=60)


def answering(body: Any) -> FastAPI:
    """A server whose only answer to /openapi.json is this response."""
    app = FastAPI(openapi_url=None)
    app.get("/openapi.json")(lambda: body)
    return app


NOT_A_MODEL_SERVER = [
    (HTMLResponse("<html>hello</html>"), "NotRecognised", "HTML page"),
    (JSONResponse({"detail": "no"}, status_code=404), "NotRecognised", "HTTP 404"),
    (JSONResponse({}, status_code=500), "NotRecognised", "HTTP 500"),
    (RedirectResponse("http://169.254.169.254/"), "NotRecognised", "a redirect (HTTP 307), which is not followed"),
    (JSONResponse({"hello": "world"}), "NotRecognised", "no `openapi` field"),
    (JSONResponse(["list"]), "Invalid", "not a JSON object"),
    (JSONResponse({"swagger": "1.2"}), "Invalid", "OpenAPI 1.2 is not understood; OpenAPI 3 and Swagger 2.0 are"),
    (
        Response("openapi: 3.1.0\npaths: {}\n", media_type="application/yaml"),
        "Invalid",
        "is YAML and only JSON is read",
    ),
    (Response("[" * 2000 + "]" * 2000, media_type="application/json"), "Invalid", "nested deeper than 1,024"),
    (JSONResponse({"openapi": "4.0.0", "paths": {}}), "Invalid", "OpenAPI 4.0.0"),
    (JSONResponse({"openapi": "3.1.0", "paths": []}), "Invalid", "`paths`"),
    (Response("{nope", media_type="application/json"), "Invalid", "not valid JSON"),
    (Response(b"x" * (6 * 1024 * 1024), media_type="application/json"), "Invalid", "larger than 5 MB"),
    (JSONResponse({"openapi": "3.1.0", "paths": {}}), "NoTools", "no operation"),
]


@pytest.mark.promise("backend-states")
@pytest.mark.promise("openapi-tools")
@pytest.mark.parametrize(
    ("body", "state", "said"), NOT_A_MODEL_SERVER, ids=[f"{state} {said}" for _, state, said in NOT_A_MODEL_SERVER]
)
def test_what_answers_but_is_no_usable_model_server_is_reported_in_a_sentence(body: Any, state: str, said: str) -> None:
    async def test() -> None:
        with model_server(answering(body)) as port:
            async with adapter(port, wait=False, pace=ONCE) as running:
                await running.lines.wait_for("backend", state=state)
                report = (await running.report())["backend"]
                assert (report["state"], said in report["message"]) == (state, True), report
                assert report["message"].endswith(".")
                listed = await running.modern("tools/list")
                assert listed.json["result"]["tools"] == []

    run(test)


@pytest.mark.promise("backend-states")
def test_a_port_that_nothing_listens_on_is_unreachable_and_the_adapter_is_ready_all_the_same() -> None:
    async def test() -> None:
        async with adapter(1, wait=False) as running:
            await running.lines.wait_for("backend", state="Unreachable")
            assert (await request(running.admin_port, "GET", "/readyz")).status == 200
            result = await running.call("predict")
            assert result["isError"]
            assert "not been found yet" in result["content"][0]["text"]

    run(test)


@pytest.mark.promise("nothing-lost")
def test_tools_outlive_the_model_server_and_their_calls_come_back_with_it() -> None:
    async def test() -> None:
        port = free_port()
        async with adapter(port, wait=False) as running:
            await running.lines.wait_for("backend", state="Unreachable")
            with model_server(named_app("one", "two"), port):
                await running.ready()
                assert (await running.call("one"))["structuredContent"] == {"ok": True}
            running.lines.all.clear()
            running.adapter.discovery.look_now()
            await running.lines.wait_for("backend", state="Unreachable")
            result = await running.call("one")
            assert result["isError"] is True
            assert "cannot be reached" in result["content"][0]["text"]
            assert (await running.report())["tools"]["names"] == ["one", "two"]
            running.lines.all.clear()
            with model_server(named_app("one", "three"), port):
                await running.ready()
                assert (await running.report())["tools"]["names"] == ["one", "three"]
                assert (await running.call("one"))["structuredContent"] == {"ok": True}

    run(test)


@pytest.mark.promise("config-live")
@pytest.mark.promise("nothing-lost")
def test_a_changed_configuration_file_is_obeyed_and_a_bad_one_is_refused_with_its_field(tmp_path: Path) -> None:
    async def test() -> None:
        mounted = ConfigMapVolume(tmp_path)
        mounted.swap(AdapterConfig().to_json())
        file = ConfigFile(mounted.path)
        assert file.read() == AdapterConfig()
        with model_server(named_app("one", "two")) as port:
            async with adapter(port, config_file=file, config_poll=0.01) as running:
                only_one = AdapterConfig(tools=ToolsConfig(filter=("one",)))
                mounted.swap(only_one.to_json())
                await running.lines.wait_for("config_loaded", digest=only_one.digest())
                assert (await running.report())["tools"]["names"] == ["one"]
                mounted.swap(json.dumps({"version": "v1", "limits": {"timeout": -1}, "surprise": 1}))
                line = await running.lines.wait_for("config_rejected")
                assert "limits.timeout" in line["message"]
                assert "surprise" in line["message"]
                report = await running.report()
                assert (report["tools"]["names"], report["configDigest"]) == (["one"], only_one.digest())
                mounted.path.unlink()
                excluded = AdapterConfig(backend=BackendConfig(open_api=OpenAPIConfig(exclude=("o*",))))
                mounted.swap(excluded.to_json())
                await running.lines.wait_for("config_loaded", digest=excluded.digest())
                while (await running.report())["tools"]["names"] != ["two"]:
                    running.adapter.discovery.look_now()

    run(test)


@pytest.mark.promise("nothing-lost")
def test_calls_in_flight_finish_on_the_configuration_they_began_with() -> None:
    async def test() -> None:
        model = SlowModel()
        with model_server(model.app()) as port:
            async with adapter(port) as running:
                call = asyncio.ensure_future(running.call("slow"))
                await asyncio.to_thread(model.entered.acquire)
                await running.adapter.reconfigure(
                    AdapterConfig(limits=LimitsConfig(timeout=0.001), tools=ToolsConfig(filter=("quick",)))
                )
                assert (await running.report())["tools"]["names"] == ["quick"]
                model.release()
                assert (await call)["structuredContent"] == {"call": 1}

    run(test)


@pytest.mark.promise("nothing-lost")
def test_a_post_is_never_sent_twice_and_a_get_is_when_its_reused_connection_died() -> None:
    async def test() -> None:
        with RudeServer() as rude:
            async with adapter(rude.port, wait=False, pace=FAST) as running:
                await running.ready()
                rude.drop_next = 1
                posted = await running.call("post")
                assert posted["isError"] is True
                assert "may or may not have run" in posted["content"][0]["text"]
                assert rude.requests.count("POST /post") == 1
                await running.call("post")
                rude.drop_next = 1
                assert (await running.call("get"))["structuredContent"] == {"ok": True}
                assert rude.requests.count("GET /get") == 2

    run(test)


@pytest.mark.promise("hostile")
@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999999999\r\n\r\n",
            "larger than 16 MiB",
        ),
        (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{", "during its answer"),
        (b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{"a": NaN}', "NaN"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n{", "not"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000, "too large headers"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx", "compresses"),
        (b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", "server"),
        (b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n", "redirect"),
        (b"nonsense\r\n\r\n", "not HTTP"),
        (b"", "without an answer"),
    ],
    ids=[
        "too large",
        "cut short",
        "NaN",
        "broken JSON",
        "large headers",
        "gzip",
        "upgrade",
        "redirect",
        "garbage",
        "closed",
    ],
)
def test_a_hostile_answer_is_one_error_with_a_sentence_and_the_next_call_works(raw: bytes, said: str) -> None:
    async def test() -> None:
        with RudeServer() as rude:
            async with adapter(rude.port) as running:
                rude.raw_next = raw
                result = await running.call("post")
                assert result["isError"] is True
                assert said in result["content"][0]["text"]
                assert "169.254" not in str(result)
                assert (await running.call("post"))["structuredContent"] == {"ok": True}

    run(test)


def test_bodies_by_chunks_and_by_end_of_connection_are_read_whole() -> None:
    async def test() -> None:
        json_type = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        with RudeServer() as rude:
            async with adapter(rude.port) as running:
                rude.raw_next = json_type + b'transfer-encoding: chunked\r\n\r\n3\r\n{"a\r\n5\r\n": 1}\r\n0\r\n\r\n'
                assert (await running.call("post"))["structuredContent"] == {"a": 1}
                rude.raw_next = json_type + b'\r\n{"b": 2}'
                assert (await running.call("post"))["structuredContent"] == {"b": 2}
                rude.raw_next = (
                    b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + json_type + b'content-length: 8\r\n\r\n{"c": 3}'
                )
                assert (await running.call("post"))["structuredContent"] == {"c": 3}

    run(test)


def test_an_answer_against_its_own_document_is_an_error_that_still_shows_it() -> None:
    async def test() -> None:
        with RudeServer() as rude:
            async with adapter(rude.port) as running:
                body = b'{"ok": "perhaps"}'
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
                rude.raw_next = head + body
                result = await running.call("post")
                assert result["isError"] is True
                assert "$.ok" in result["content"][0]["text"]
                assert "perhaps" in result["content"][0]["text"]

    run(test)


def free_port() -> int:
    sock = bind("127.0.0.1", 0)[0]
    port = int(sock.getsockname()[1])
    sock.close()
    return port


class ConfigMapVolume:
    """A directory as the kubelet mounts a ConfigMap: the file is a link through a link that is swapped at once."""

    def __init__(self, root: Path) -> None:
        self.path = root / "config.json"
        self._root = root
        self._version = 0

    def swap(self, content: str) -> None:
        self._version += 1
        version = self._root / f"..{self._version}"
        version.mkdir()
        (version / "config.json").write_text(content, encoding="utf-8")
        staged = self._root / "..staged"
        staged.symlink_to(version)
        os.replace(staged, self._root / "..data")
        if not self.path.is_symlink():
            self.path.symlink_to(Path("..data") / "config.json")


class RudeServer:
    """A model server on a bare socket that answers well until it is told not to."""

    DOCUMENT: ClassVar[dict[str, Any]] = {
        "openapi": "3.1.0",
        "paths": {
            f"/{name}": {
                name: {
                    "operationId": name,
                    "responses": {
                        "200": {
                            "content": {
                                "application/json": {
                                    "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}
                                }
                            }
                        }
                    },
                }
            }
            for name in ("get", "post")
        },
    }

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.drop_next = 0
        self.raw_next: bytes | None = None
        self._loop = asyncio.new_event_loop()
        self._socket = bind("127.0.0.1", 0)[0]
        self.port = int(self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._run)
        self._stop: asyncio.Event | None = None
        self._up = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._up.wait()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, sock=self._socket)
        self._up.set()
        await self._stop.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line = " ".join(head.split(b"\r\n")[0].decode().split()[:2])
                if length := [part for part in head.lower().split(b"\r\n") if part.startswith(b"content-length:")]:
                    await reader.readexactly(int(length[0].split(b":")[1]))
                is_call = "openapi" not in line
                if is_call:
                    self.requests.append(line)
                if is_call and self.drop_next:
                    self.drop_next -= 1
                    break
                if is_call and self.raw_next is not None:
                    raw, self.raw_next = self.raw_next, None
                    writer.write(raw)
                    break
                body = json.dumps({"ok": True} if is_call else self.DOCUMENT).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
