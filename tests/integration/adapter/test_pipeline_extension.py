"""A stage from somebody else's package: installed, found by its entry point, put in its place, and held to the rules."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from adapter_harness import Running, adapter, run
from faulty_model import faulty_model
from modelservice_api.adapter_config import AdapterConfig, CacheConfig, StageConfig

pytestmark = pytest.mark.promise("limits")

SOURCE = '''
"""A stage that refuses words, counts what it sees, and breaks on request."""

from modelservice_sidecar.core.errors import InvalidArgumentsError

made = []


class Redact:
    before = "cache"

    def __init__(self, config):
        if "words" not in config:
            raise ValueError("words are missing")
        self.words = config["words"]
        self.before = config.get("before", "cache")
        self.seen = []
        made.append(self)

    async def handle(self, call, proceed):
        self.seen.append(call.tool.name)
        said = str(call.arguments)
        if any(word in said for word in self.words):
            raise InvalidArgumentsError("That word is not for this model.")
        if "break" in said:
            raise ZeroDivisionError
        if "nonsense" in said:
            return "nonsense"
        answer = await proceed(call)
        return answer._replace(content=[*answer.content, {"type": "text", "text": "seen"}])
'''


def wheel(folder: Path) -> Path:
    """The package as it would be published."""
    path = folder / "acme_stages-1.0-py3-none-any.whl"
    info = "acme_stages-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("acme_stages.py", SOURCE)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: acme-stages\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(
            f"{info}/entry_points.txt",
            "[modelservice.pipeline_stages]\nredact = acme_stages:Redact\ngone = acme_no:X\n",
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel in a folder on the path, put there as docs/howto/write-a-pipeline-stage.md does it in an image."""
    target = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel(tmp_path), target], check=True)
    monkeypatch.syspath_prepend(str(target))
    monkeypatch.delitem(sys.modules, "acme_stages", raising=False)
    return target


def with_stage(**config: Any) -> AdapterConfig:
    return AdapterConfig(stages=(StageConfig(name="redact", config=config),), cache=CacheConfig(ttl=3600))


async def call(running: Running, tool: str, **arguments: Any) -> dict[str, Any]:
    reply = await running.rpc("call_tool", {"name": tool, "arguments": arguments})
    return dict(reply.json)


@pytest.mark.usefixtures("installed")
def test_an_installed_stage_sees_every_call_in_its_place_with_its_own_configuration() -> None:
    async def test() -> None:
        async with echo() as model, adapter(model.port, with_stage(words=["secret"])) as running:
            import acme_stages  # type: ignore[import-not-found]

            [stage] = acme_stages.made
            assert stage.words == ["secret"]
            for _ in range(2):  # before the cache: it sees what the cache answers
                found = (await running.call("look"))["content"]
                assert found[-1] == {"type": "text", "text": "seen"}
            assert model.calls["/look"] == 1
            refused = await call(running, "look", q="a secret thing")
            assert refused["error"]["message"] == "That word is not for this model."
            assert refused["error"]["data"]["outcome"] == "invalid_arguments"
            assert stage.seen == ["look"] * 3
            assert model.calls["/look"] == 1
            # The same configuration makes no new stage; another one does, and calls go through that.
            await running.adapter.reconfigure(with_stage(words=["secret"]).model_copy(update={"cache": None}))
            assert len(acme_stages.made) == 1
            await running.adapter.reconfigure(with_stage(words=["other"], before="backend"))
            assert len(acme_stages.made) == 2
            for _ in range(2):  # behind the cache: it sees only what the model server is asked
                await running.call("look")
            assert acme_stages.made[1].seen == ["look"]

    run(test)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("word", ["break", "nonsense"])
def test_a_fault_in_a_stage_is_an_internal_error_with_the_detail_in_the_log(word: str) -> None:
    async def test() -> None:
        async with echo() as model, adapter(model.port, with_stage(words=[])) as running:
            failed = await call(running, "look", q=word)
            assert failed["error"]["data"]["outcome"] == "internal"
            assert "ZeroDivision" not in failed["error"]["message"]
            line = await running.lines.wait_for("call", outcome="internal")
            assert {"break": "ZeroDivisionError", "nonsense": "TypeError"}[word] in line["error"]
            assert not (await running.call("look"))["isError"]

    run(test)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (StageConfig(name="unknown"), "no installed package has a stage 'unknown'"),
        (StageConfig(name="gone"), "ModuleNotFoundError"),
        (StageConfig(name="redact"), "words are missing"),
        (StageConfig(name="redact", config={"words": [], "before": "nowhere"}), "it stands before 'nowhere'"),
    ],
)
def test_a_stage_that_cannot_be_had_lets_no_call_through_and_says_why(stage: StageConfig, says: str) -> None:
    async def test() -> None:
        async with echo() as model, adapter(model.port, AdapterConfig(stages=(stage,))) as running:
            failed = await call(running, "look")
            assert failed["error"]["data"]["outcome"] == "internal"
            assert f"The stage '{stage.name}' of this adapter cannot be used" in failed["error"]["message"]
            line = await running.lines.wait_for("stage_rejected")
            assert says in line["message"]
            assert model.calls["/look"] == 0
            assert len(running.adapter.catalogue.tools) == 1  # what there is can still be seen
            await running.adapter.reconfigure(AdapterConfig())
            assert not (await running.call("look"))["isError"]

    run(test)


def echo() -> Any:
    """A model server with one read-only tool that takes any text."""
    return faulty_model(
        {
            "/look": {
                "get": {
                    "operationId": "look",
                    "parameters": [{"name": "q", "in": "query", "schema": {"type": "string"}}],
                    "responses": {"200": {"description": "fine"}},
                }
            }
        }
    )
