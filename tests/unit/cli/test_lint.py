"""`modelservice tools lint`: what it reads, what it prints, how it ends."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, Query
from pydantic import BaseModel

from adapter_harness import adapter, run
from model_apps import model_server, named_app, torture_app
from modelservice_api.adapter_config import AdapterConfig, ToolOverride, ToolsConfig
from modelservice_cli.__main__ import main
from openai_servers import scripted


class Score(BaseModel):
    score: float


def good_app() -> FastAPI:
    """An application that nothing is to better about."""
    app = FastAPI()

    @app.get("/score", operation_id="score")
    def score(word: Annotated[str, Query(max_length=5, description="A word.")]) -> Score:
        """Score one word by how often fraudsters use it."""
        return Score(score=len(word))

    return app


@pytest.fixture(scope="module")
def torture() -> Iterator[str]:
    with model_server(torture_app()) as port:
        yield f"http://127.0.0.1:{port}"


def lint(*arguments: str) -> int:
    return main(["tools", "lint", *arguments])


@pytest.mark.promise("tools-lint")
def test_findings_are_lines_and_the_exit_code_says_that_there_are_some(
    torture: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lint(torture) == 1
    *lines, summary = capsys.readouterr().out.splitlines()
    assert "plain: $.features: the list has no maxItems; say how many the model takes" in lines
    assert summary.endswith(f"tokens: {len(lines)} findings.")
    assert lint(f"{torture}/openapi.json", "--format", "json") == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["tools"], len(report["findings"])) == (int(summary.split()[0]), len(lines))
    assert set(report["findings"][0]) == {"tool", "path", "rule", "problem", "advice"}


@pytest.mark.promise("tools-lint")
def test_a_server_without_findings_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    with model_server(good_app()) as port:
        assert lint(f"127.0.0.1:{port}") == 0
    assert capsys.readouterr().out.endswith("nothing to better.\n")


@pytest.mark.promise("tools-lint")
def test_a_file_is_a_document_or_a_list_of_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tools"
    path.write_text(json.dumps(torture_app().openapi()), encoding="utf-8")
    assert lint(str(path)) == 1
    assert "plain: $.features" in capsys.readouterr().out
    for listed in ({"tools": [{"name": "x"}]}, {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "x"}]}}):
        path.write_text(json.dumps(listed), encoding="utf-8")
        assert lint(str(path)) == 1
        assert "x: description: there is no description" in capsys.readouterr().out
    faulty = {"openapi": "3.1.0", "paths": {"/a": {"get": {"parameters": [{}]}}}}
    path.write_text(json.dumps(faulty), encoding="utf-8")
    assert lint(str(path)) == 1
    assert "*: document: GET /a is not published: a parameter has no name;" in capsys.readouterr().out


@pytest.mark.promise("tools-lint")
def test_filter_and_overrides_are_applied_first_and_the_cap_is_only_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    override = ToolOverride(description="Says that all is well, in one word and at once.")
    config = AdapterConfig(tools=ToolsConfig(filter=("tool7",), overrides={"tool7": override}))
    path = tmp_path / "config.json"
    path.write_text(config.to_json(), encoding="utf-8")
    with model_server(named_app(*(f"tool{number}" for number in range(70)))) as port:
        assert lint(f"http://127.0.0.1:{port}") == 1
        assert "*: tools: there are 70 tools" in capsys.readouterr().out
        assert lint(f"http://127.0.0.1:{port}", "--config", str(path)) == 0
        assert capsys.readouterr().out.startswith("1 tool, ")


@pytest.mark.promise("tools-lint")
def test_an_mcp_endpoint_is_read_page_by_page(capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(f"tool{number:03}" for number in range(130))

    async def test() -> None:
        with model_server(named_app(*names)) as port:
            async with adapter(port, AdapterConfig(tools=ToolsConfig(filter=names))) as running:
                assert await asyncio.to_thread(lint, running.url) == 1

    run(test)
    assert "there are 130 tools" in capsys.readouterr().out


@pytest.mark.promise("tools-lint")
def test_other_kinds_of_model_servers_are_recognised_and_read(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted() as (_, port):
        assert lint(f"http://127.0.0.1:{port}") == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("chat: ") for line in lines)
    app = FastAPI(openapi_url=None)
    v2: dict[str, Any] = {"name": "s", "version": "1", "extensions": ["model_repository"]}
    tensors = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
    }

    def ready() -> dict[str, bool]:
        return {"ready": True}

    app.get("/v2")(lambda: v2)
    app.get("/v2/health/ready")(ready)
    app.post("/v2/repository/index")(lambda: [{"name": "m", "version": "1", "state": "READY"}])
    app.get("/v2/models/m")(lambda: {"name": "m", "versions": ["1"], "platform": "p", **tensors})
    app.get("/v2/models/m/ready")(ready)
    with model_server(app) as port:
        lint(f"http://127.0.0.1:{port}")
    assert "1 tool, about" in capsys.readouterr().out


@contextmanager
def handshake_server() -> Iterator[int]:
    """An MCP server of the initialize era, which answers in event streams and insists on its session."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            known = self.headers.get("mcp-session-id") == "s1"
            if message["method"] == "initialize":
                result: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}
                self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})
            elif not known:
                self.answer(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no session"}})
            elif message["method"] == "tools/list":
                self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": [{"name": "old"}]}})
            else:
                self.answer(202, None)

        def answer(self, status: int, message: Any) -> None:
            body = b"" if message is None else b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"
            self.send_response(status)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(body)))
            self.send_header("mcp-session-id", "s1")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.promise("tools-lint")
def test_an_mcp_server_with_a_handshake_and_a_session_is_read_too(capsys: pytest.CaptureFixture[str]) -> None:
    with handshake_server() as port:
        assert lint(f"http://127.0.0.1:{port}/mcp") == 1
    assert "old: description: there is no description" in capsys.readouterr().out


def test_where_there_are_no_tools_to_read_it_says_what_to_name(
    torture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, html = tmp_path / "a.json", tmp_path / "b"
    text.write_text("openapi: 3.1.0", encoding="utf-8")
    html.write_text(json.dumps({"hello": 1}), encoding="utf-8")
    for target, said in {
        "http://127.0.0.1:1": "Nothing accepts connections on 127.0.0.1:1",
        "https://127.0.0.1:1": "speaks http only",
        f"{torture}/mcp": "is no MCP endpoint: it answers HTTP 404",
        f"{torture}/nothing.json": "answers HTTP 404 instead of an OpenAPI document",
        "nothing.json": "There is no file nothing.json",
        str(text): "is not JSON",
        str(html): "no `openapi` field",
        str(tmp_path): "cannot be read",
    }.items():
        assert lint(target) == 2, target
        assert said in capsys.readouterr().err
    assert lint(torture, "--config", str(tmp_path / "none.json")) == 2
    assert "write one or leave --config out" in capsys.readouterr().err
    for arguments in ([], ["lint"], ["lint", torture, "--format", "xml"]):
        with pytest.raises(SystemExit) as exit_info:
            main(["tools", *arguments])
        assert exit_info.value.code == 2
