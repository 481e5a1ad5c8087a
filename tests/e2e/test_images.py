"""The images as they were built: any user may run them, nothing is written, and they hold what they run and no more."""

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from cluster_fixtures import ClusterAccess

REPOSITORY = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
OPERATOR = f"modelservice/operator:{VERSION}"
ADAPTER = f"modelservice/adapter:{VERSION}"
EXAMPLE = f"modelservice/example-fastapi-digits:{VERSION}"
NOBODY = "1000620000:0"  # such as OpenShift gives: a user id that no passwd file knows, in the root group
RESTRICTED = [
    *("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--user", NOBODY),
]


def docker(cluster: ClusterAccess, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = dict(cluster.environment)
    return subprocess.run(
        ["docker", *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def python_in(cluster: ClusterAccess, image: str, program: str) -> str:
    """What a program prints that runs in the image as the pod would run it."""
    done = docker(cluster, "run", "--rm", *RESTRICTED, "--entrypoint", "python", image, "-c", program)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.promise("images-restricted")
@pytest.mark.parametrize("image", [OPERATOR, ADAPTER, EXAMPLE])
def test_the_user_is_a_number_other_than_root(cluster: ClusterAccess, image: str) -> None:
    [found] = json.loads(docker(cluster, "image", "inspect", image).stdout)
    assert found["Config"]["User"] == "65532:65532"
    assert found["Config"]["Labels"]["org.opencontainers.image.version"] == VERSION


@pytest.mark.promise("images-restricted")
def test_the_operator_starts_as_any_user_and_says_what_it_is_missing(cluster: ClusterAccess) -> None:
    done = docker(cluster, "run", "--rm", *RESTRICTED, OPERATOR)
    assert done.returncode == 2
    assert done.stderr.startswith("Set MODELSERVICE_NAMESPACES")


@pytest.mark.promise("images-restricted")
def test_the_adapter_starts_as_any_user_and_explains_itself(cluster: ClusterAccess) -> None:
    done = docker(cluster, "run", "--rm", *RESTRICTED, ADAPTER, "--help")
    assert done.returncode == 0, done.stderr
    assert "--backend-port" in done.stdout


@pytest.mark.promise("images-restricted")
@pytest.mark.parametrize("image", [OPERATOR, ADAPTER])
def test_a_user_without_a_name_has_one_for_libraries_that_ask(cluster: ClusterAccess, image: str) -> None:
    assert python_in(cluster, image, "import getpass; print(getpass.getuser())") == "modelservice"


@pytest.mark.parametrize(
    ("image", "absent"),
    [
        (OPERATOR, ["pip", "uvicorn", "httptools", "orjson", "mcp", "fastapi", "pytest", "torch"]),
        (ADAPTER, ["pip", "kopf", "kubernetes", "mcp", "fastapi", "starlette", "pytest", "torch"]),
        (EXAMPLE, ["pip", "modelservice_api", "modelservice_sidecar", "mcp", "pytest"]),
    ],
)
def test_an_image_holds_nothing_that_it_does_not_run(cluster: ClusterAccess, image: str, absent: list[str]) -> None:
    program = f"import importlib.util as u; print([n for n in {absent} if u.find_spec(n)])"
    assert python_in(cluster, image, program) == "[]"


@pytest.mark.parametrize(("image", "package"), [(OPERATOR, "modelservice_operator"), (ADAPTER, "modelservice_sidecar")])
def test_bytecode_is_in_the_image_for_every_module(cluster: ClusterAccess, image: str, package: str) -> None:
    program = f"""
import importlib.util, pathlib, {package}
folder = pathlib.Path({package}.__file__).parents[1]
sources = list(folder.rglob("*.py"))
assert len(sources) > 100
print([str(s) for s in sources if not pathlib.Path(importlib.util.cache_from_source(s)).exists()])
"""
    assert python_in(cluster, image, program) == "[]"


def test_no_file_of_ours_in_an_image_can_be_changed_by_the_one_who_runs_it(cluster: ClusterAccess) -> None:
    program = """
import os, pathlib
print([str(p) for p in pathlib.Path("/opt").rglob("*") if not p.is_symlink() and os.access(p, os.W_OK)])
"""
    for image in (OPERATOR, ADAPTER, EXAMPLE):
        done = docker(
            cluster,
            "run",
            "--rm",
            "--network",
            "none",
            "--user",
            NOBODY,
            "--entrypoint",
            "python",
            image,
            "-c",
            program,
        )
        assert done.stdout.strip() == "[]", image


def test_the_example_model_was_trained_well_enough_while_its_image_was_built(cluster: ClusterAccess) -> None:
    program = "import app, pickle; print(pickle.loads(app.MODEL.read_bytes())['accuracy'])"
    assert float(python_in(cluster, EXAMPLE, program)) >= 0.95
