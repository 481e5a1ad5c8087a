"""Dockerfiles and the way they are built: no network, every hash checked, a numeric user, nothing else in the context.

What the built images do is asked by tests/e2e/test_images.py.
"""

import json
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILES = [REPOSITORY / "operator" / "Dockerfile", REPOSITORY / "sidecar" / "Dockerfile"]
DOCKERFILES += sorted((REPOSITORY / "examples").glob("*/Dockerfile"))
RUNTIMES = sorted((REPOSITORY / "sidecar").glob("*.Dockerfile"))
"""The adapter's image with a model runtime beside it: command and user are the adapter's."""
BASE = "python:3.11-slim-bookworm"


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """(instruction, arguments) with continued lines joined and comments left out."""
    lines = [line for line in dockerfile.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined.splitlines() if line.strip()]


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.promise("images-offline")
@pytest.mark.parametrize("dockerfile", [*DOCKERFILES, *RUNTIMES], ids=name_of)
def test_every_installation_takes_checked_wheels_from_the_context(dockerfile: Path) -> None:
    steps = instructions(dockerfile)
    environment = " ".join(arguments for name, arguments in steps if name == "ENV")
    installs = [
        arguments for name, arguments in steps if name == "RUN" and "pip" in arguments and " install " in arguments
    ]
    assert "PIP_NO_INDEX=1" in environment
    assert installs
    assert [step for step in installs if "--require-hashes" not in step or "--find-links /wheels" not in step] == []


@pytest.mark.promise("images-offline")
@pytest.mark.parametrize("dockerfile", [*DOCKERFILES, *RUNTIMES], ids=name_of)
def test_nothing_is_fetched_and_one_base_image_is_enough(dockerfile: Path) -> None:
    steps = instructions(dockerfile)
    ours = {"modelservice/adapter:${VERSION}"} if dockerfile in RUNTIMES else set()
    assert {arguments.split()[0] for name, arguments in steps if name == "FROM"} == {BASE} | ours
    assert [name for name, _ in steps if name == "ADD"] == []
    runs = " ".join(arguments for name, arguments in steps if name == "RUN")
    assert re.findall(r"\b(curl|wget|apt-get|apt|git|https?://)\b", runs) == []


@pytest.mark.promise("images-offline")
def test_make_builds_every_image_with_the_network_off() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    builds = re.findall(r"docker build (.*)", makefile)
    assert builds
    assert [build for build in builds if "--network none" not in build] == []
    parts = re.search(r"^IMAGE_PARTS := (.*)$", makefile, re.MULTILINE)
    assert parts is not None
    made = [dockerfile.parent.name for dockerfile in DOCKERFILES] + [dockerfile.stem for dockerfile in RUNTIMES]
    assert sorted(parts[1].split()) == sorted(made)
    assert parts[1].index("sidecar") < parts[1].index("tvm"), "an image is built after the one that it starts from"


@pytest.mark.promise("images-restricted")
@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name_of)
def test_the_last_user_is_a_number_that_is_not_root(dockerfile: Path) -> None:
    users = [arguments for name, arguments in instructions(dockerfile) if name == "USER"]
    assert users == ["65532:65532"]


@pytest.mark.parametrize("dockerfile", RUNTIMES, ids=name_of)
def test_a_runtime_changes_neither_the_user_nor_the_command(dockerfile: Path) -> None:
    assert {name for name, _ in instructions(dockerfile)} & {"USER", "ENTRYPOINT", "CMD", "WORKDIR"} == set()


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name_of)
def test_the_command_is_started_without_a_shell_so_that_it_gets_the_signals(dockerfile: Path) -> None:
    [entrypoint] = [arguments for name, arguments in instructions(dockerfile) if name == "ENTRYPOINT"]
    program, *_ = json.loads(entrypoint)
    assert Path(program).name in {"python", "tritonserver"}


def test_the_context_holds_wheels_and_examples_and_nothing_else() -> None:
    lines = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules == ["*", "!build/wheels/*", "!examples/*/*.py", "!examples/*/models"]
