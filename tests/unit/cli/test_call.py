"""The arguments of a call, the small MCP client against a real adapter, and what a person reads."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Body, FastAPI

from adapter_harness import adapter, run
from model_apps import SlowModel, model_server
from modelservice_api.adapter_config import AdapterConfig, AuthConfig, IssuerConfig
from modelservice_cli import call
from modelservice_cli.mcp_client import McpClient
from modelservice_cli.outcome import CommandError
from modelservice_sidecar.exchange import Timing
from token_issuer import RESOURCE, Issuer

EAGER = Timing(watch_after=0.0, progress_after=0.01, commit_after=0.01, beat=0.01, throttle=0.0)


def test_values_are_json_where_they_parse_and_files_where_they_say_so(tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text('{"features": [[1, 2]]}')
    prose = tmp_path / "prose.txt"
    prose.write_text("two\nlines")
    assert call.parse_arguments(
        [f"@{rows}", "n=3", "flag=true", "word=fraud", 'quoted="3"', "empty=", f"text=@{prose}"]
    ) == {
        "features": [[1, 2]],
        "n": 3,
        "flag": True,
        "word": "fraud",
        "quoted": "3",
        "empty": "",
        "text": "two\nlines",
    }


@pytest.mark.parametrize("word", ["word", "=3", "@/not/there", "a=@/not/there"])
def test_what_is_no_argument_says_what_to_write(word: str) -> None:
    with pytest.raises(CommandError, match=r"write key=value|cannot be read") as caught:
        call.parse_arguments([word])
    assert caught.value.code == 2


def test_a_file_with_all_arguments_holds_an_object(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(CommandError, match="holds no JSON object"):
        call.parse_arguments([f"@{tmp_path / 'list.json'}"])


def scoring_app() -> FastAPI:
    app = FastAPI()

    @app.post("/score", operation_id="score")
    def score(word: Annotated[str, Body(embed=True, max_length=5)]) -> dict[str, int]:
        """Score one word."""
        return {"score": len(word)}

    return app


def test_tools_are_listed_and_called_at_a_real_adapter() -> None:
    async def test() -> None:
        with model_server(scoring_app()) as backend:
            async with adapter(backend) as running:
                await running.ready()

                def client(path: str = "/mcp") -> McpClient:
                    return McpClient(port=running.port, host=f"127.0.0.1:{running.port}", path=path, timeout=10)

                (tool,) = await asyncio.to_thread(client().tools)
                assert tool["name"] == "score"
                right = await asyncio.to_thread(client().call, "score", {"word": "card"}, print)
                assert right["structuredContent"] == {"score": 4}
                wrong = await asyncio.to_thread(client().call, "score", {"word": "too long"}, print)
                assert wrong["isError"]
                assert "$.word" in call.as_text(wrong)
                with pytest.raises(CommandError, match="no-such-tool") as caught:
                    await asyncio.to_thread(client().call, "no-such-tool", {}, print)
                assert caught.value.code == 1
                with pytest.raises(CommandError, match="MCP is served at /mcp") as caught:
                    await asyncio.to_thread(client("/other").tools)
                assert caught.value.code == 1

    run(test)


def test_a_call_that_takes_long_tells_progress_and_then_the_answer() -> None:
    async def test() -> None:
        model = SlowModel()
        told: list[str] = []

        def on_progress(text: str) -> None:
            told.append(text)
            model.release()

        with model_server(model.app()) as backend:
            async with adapter(backend, timing=EAGER) as running:
                client = McpClient(port=running.port, host=f"127.0.0.1:{running.port}", path="/mcp", timeout=20)
                result = await asyncio.to_thread(client.call, "slow", {}, on_progress)
        assert result["structuredContent"] == {"call": 1}
        assert told

    run(test)


def test_an_adapter_that_asks_for_a_token_gets_the_one_that_is_given(tmp_path: Path) -> None:
    async def test() -> None:
        issuer = Issuer()
        trusted = IssuerConfig(name="idp", issuer=issuer.url, audiences=(RESOURCE,), jwks=issuer.jwks())
        config = AdapterConfig(auth=AuthConfig(issuers=(trusted,), resource=RESOURCE))
        with model_server(scoring_app()) as backend:
            async with adapter(backend, config) as running:

                def client(token: str = "") -> McpClient:
                    host = f"127.0.0.1:{running.port}"
                    return McpClient(port=running.port, host=host, path="/mcp", token=token, timeout=10)

                with pytest.raises(CommandError, match=r"HTTP 401 .* --token") as caught:
                    await asyncio.to_thread(client().tools)
                assert caught.value.code == 4
                (tool,) = await asyncio.to_thread(client(issuer.token()).tools)
                assert tool["name"] == "score"

    run(test)


def test_a_server_that_is_not_there_is_an_error_in_words() -> None:
    with pytest.raises(CommandError, match="The connection to the adapter broke") as caught:
        McpClient(port=1, host="x", path="/mcp", timeout=2).tools()
    assert caught.value.code == 3


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"structuredContent": {"score": 1}, "content": []}, '{\n  "score": 1\n}'),
        (
            {"content": [{"type": "text", "text": "one"}, {"type": "image", "mimeType": "image/png"}]},
            "one\n[image/png: --output=json has it]",
        ),
        ({"isError": True, "structuredContent": {"x": 1}, "content": [{"type": "text", "text": "no"}]}, "no"),
    ],
)
def test_a_person_reads_the_structured_content_or_the_texts(result: dict[str, Any], text: str) -> None:
    assert call.as_text(result) == text
    json.dumps(result)
