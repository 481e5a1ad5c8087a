"""`modelservice`: what it prints and how it ends."""

import asyncio
import contextlib
import io
import signal
import socket
import sys
from pathlib import Path

import pytest

from model_apps import model_server, torture_app
from modelservice_api.adapter_config import AdapterConfig
from modelservice_cli import dev
from modelservice_cli.__main__ import main
from modelservice_cli.dev import Console
from modelservice_cli.place import Target, UsageError, parse_url
from modelservice_sidecar.config_file import ConfigFile
from modelservice_sidecar.core import catalogue
from modelservice_sidecar.core.catalogue import ToolSpec


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", Target(host="127.0.0.1", port=8000, prefix="")),
        ("localhost:9000/api/", Target(host="127.0.0.1", port=9000, prefix="/api")),
        ("http://[::1]:1", Target(host="::1", port=1, prefix="")),
        ("http://gpu-box", Target(host="gpu-box", port=80, prefix="")),
    ],
)
def test_a_backend_is_a_host_a_port_and_where_its_paths_begin(url: str, expected: Target) -> None:
    assert parse_url(url, "--backend") == expected


@pytest.mark.parametrize("url", ["https://x", "ftp://x", "http://", "http://x:99999", "http://u:p@x", "http://x?a=1"])
def test_a_backend_that_cannot_be_spoken_to_is_answered_with_what_to_write(url: str) -> None:
    with pytest.raises(UsageError, match=r"write for example http://127\.0\.0\.1:8000"):
        parse_url(url, "--backend")


def test_only_loopback_is_local() -> None:
    local = {
        url: parse_url(url, "--backend").is_local
        for url in ("localhost", "http://127.9.9.9", "http://[::1]", "http://10.0.0.1", "x")
    }
    assert list(local.values()) == [True, True, True, False, False]


def test_the_document_comes_from_the_file_or_from_the_backend_s_path(tmp_path: Path) -> None:
    target = parse_url("http://127.0.0.1:1/api", "--backend")
    assert dev.load_config(None, target, None).backend.open_api.path == "/api/openapi.json"
    assert dev.load_config(None, target, "/spec").backend.open_api.path == "/spec"
    with pytest.raises(UsageError, match="slash"):
        dev.load_config(None, target, "spec")
    path = tmp_path / "c.json"
    with pytest.raises(UsageError, match="There is no"):
        dev.load_config(ConfigFile(path), target, None)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match="Invalid JSON"):
        dev.load_config(ConfigFile(path), target, None)
    path.write_text(AdapterConfig().to_json(), encoding="utf-8")
    assert dev.load_config(ConfigFile(path), target, None) == AdapterConfig()


def test_tools_are_a_table_with_how_to_connect() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}
    specs = [
        ToolSpec(name=name, operation_id=name, description=f"{name} it.\nMore.", input_schema=schema, binding=None)
        for name in ("predict", "fit")
    ]
    tools = catalogue.build(specs, dev.AdapterConfig().tools).tools
    assert dev.describe(tools, 8931, "/mcp").splitlines()[1:] == [
        "2 tools at http://127.0.0.1:8931/mcp",
        "",
        "  fit      (a, b?)  fit it.",
        "  predict  (a, b?)  predict it.",
        "",
        'Client configuration: {"mcpServers": {"model": {"type": "http", "url": "http://127.0.0.1:8931/mcp"}}}',
    ]


def test_every_state_that_is_not_ready_comes_with_what_to_do() -> None:
    out = io.StringIO()
    console = Console(out, port=8931)
    for state in ("Unreachable", "NotRecognised", "Invalid", "NoTools"):
        console.event("backend", state=state, message="It is so.")
    console.event("port_taken", message="x")
    said = out.getvalue().splitlines()
    assert len(said) == 5
    assert all(line.startswith("It is so. ") and len(line) > 20 for line in said[:4])
    assert "--port" in said[4]


def test_help_and_version_say_what_they_should(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "dev" in capsys.readouterr().out
    for argument in ("--help", "--version"):
        with pytest.raises(SystemExit) as exit_info:
            main([argument])
        assert exit_info.value.code == 0
    assert "modelservice 0." in capsys.readouterr().out
    assert main(["dev", "--backend", "https://x"]) == 2
    assert "speaks http only" in capsys.readouterr().err


def test_dev_shows_the_tools_serves_them_and_ends_on_ctrl_c() -> None:
    async def test(port: int) -> None:
        child = await start("--backend", f"http://127.0.0.1:{port}", "--port", "0")
        try:
            assert child.stdout is not None
            seen = ""
            while "Client configuration" not in seen:
                line = (await child.stdout.readline()).decode()
                assert line, seen
                seen += line
            assert "double" in seen
            child.send_signal(signal.SIGINT)
            rest = (await child.communicate())[0].decode()
            assert "Stopping." in rest
            assert child.returncode == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()

    with model_server(torture_app()) as port:
        asyncio.run(test(port))


def test_dev_on_a_taken_port_says_so_and_ends_with_3() -> None:
    async def test() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            child = await start("--port", str(taken.getsockname()[1]), "--backend", "http://10.255.255.1:1")
            out = (await child.communicate())[0].decode()
            assert "which is not this machine" in out
            assert "is in use. Say --port with another one" in out
            assert child.returncode == 3

    asyncio.run(test())


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "modelservice_cli", "dev", *arguments, stdout=asyncio.subprocess.PIPE
    )
