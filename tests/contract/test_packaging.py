"""The distribution: what the wheel holds, that it is built the same twice, and that it harms nobody's Python.

The folder `operator/` lies at the repository's root and the standard library has a module of that name; these tests hold
that no way to install us ever lets the one hide the other.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
PACKAGES = ["modelservice_api", "modelservice_operator", "modelservice_sidecar", "modelservice_cli"]
# A virtual environment's Python that starts with nothing of ours on its path, whatever this one's variables say.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "UV_"))}
STDLIB_OPERATOR = "import operator, os; assert operator.add(1, 2) == 3; print(os.path.dirname(operator.__file__))"


def run(*command: str | Path, cwd: Path = REPOSITORY) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=CLEAN, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def build_wheel(source: Path, target: Path) -> Path:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", target, source)
    [wheel] = target.glob("*.whl")
    return wheel


def copy_sources(target: Path) -> Path:
    """What the wheel is made of as git has it, without anything else that lies about in this folder."""
    parts = ["crds", "operator", "sidecar", "cli", "pyproject.toml", "README.md", "LICENSE"]
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *parts)
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, target / name)
    return target


def make_environment(folder: Path) -> Path:
    """A virtual environment that has our dependencies, but not this project, from the one that runs the tests."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    [target] = (folder / "lib").glob("python3.*/site-packages")
    [source] = Path(sys.prefix, "lib").glob("python3.*/site-packages")
    for entry in source.iterdir():
        if not entry.name.startswith(("modelservice", "_modelservice")):
            (target / entry.name).symlink_to(entry)
    return python


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(REPOSITORY, tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_four_packages_and_nothing_beside_them(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        top = {name.split("/")[0] for name in archive.namelist()}
    assert top == {*PACKAGES, f"modelservice-{PROJECT['version']}.dist-info"}


def test_the_wheel_marks_every_package_as_typed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert {f"{package}/py.typed" for package in PACKAGES} <= set(archive.namelist())


@pytest.mark.promise("reproducible-wheel")
def test_the_same_sources_in_another_folder_give_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    other = build_wheel(copy_sources(tmp_path / "elsewhere"), tmp_path / "out")
    assert hashlib.sha256(other.read_bytes()).hexdigest() == hashlib.sha256(wheel.read_bytes()).hexdigest()


@pytest.mark.promise("stdlib-safe")
def test_an_installed_wheel_brings_the_packages_and_leaves_the_standard_library_alone(
    wheel: Path, tmp_path: Path
) -> None:
    python = make_environment(tmp_path / "venv")
    run(sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps", "--python", python, wheel)
    stdlib = run(sys.executable, "-c", STDLIB_OPERATOR, cwd=tmp_path).strip()
    assert run(python, "-c", STDLIB_OPERATOR, cwd=tmp_path).strip() == stdlib
    for package in PACKAGES:
        where = run(python, "-c", f"import {package}; print({package}.__file__)", cwd=tmp_path).strip()
        assert Path(where).is_relative_to(tmp_path)


@pytest.mark.promise("stdlib-safe")
def test_an_editable_installation_leaves_the_standard_library_alone(tmp_path: Path) -> None:
    sources = copy_sources(tmp_path / "sources")
    python = make_environment(tmp_path / "venv")
    run(
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--offline",
        "--no-deps",
        "--no-build-isolation",
        "--python",
        python,
        "--editable",
        sources,
    )
    stdlib = run(sys.executable, "-c", STDLIB_OPERATOR, cwd=tmp_path).strip()
    assert run(python, "-c", STDLIB_OPERATOR, cwd=tmp_path).strip() == stdlib
    where = run(python, "-c", "import modelservice_operator as o; print(o.__file__)", cwd=tmp_path).strip()
    assert Path(where) == sources / "operator" / "modelservice_operator" / "__init__.py"


@pytest.mark.promise("stdlib-safe")
def test_python_started_at_the_repository_root_has_its_own_operator_module() -> None:
    stdlib = run(sys.executable, "-c", STDLIB_OPERATOR, cwd=Path("/")).strip()
    assert run(sys.executable, "-c", STDLIB_OPERATOR, cwd=REPOSITORY).strip() == stdlib


@pytest.mark.promise("stdlib-safe")
def test_no_folder_that_could_hide_a_module_is_a_package() -> None:
    places = [REPOSITORY / name for name in ("operator", "sidecar", "crds", "cli")]
    found = [place / "__init__.py" for place in places if (place / "__init__.py").exists()]
    found += (REPOSITORY / "tests").rglob("__init__.py")
    assert found == []


def locked(name: str) -> dict[str, str]:
    text = (REPOSITORY / "requirements" / f"{name}.txt").read_text()
    return {
        canonicalize_name(found[1]): found[2] for found in re.finditer(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE)
    }


@pytest.mark.parametrize("extra", ["operator", "sidecar", "dev"])
def test_the_locked_requirements_are_what_the_project_asks_for(extra: str) -> None:
    wanted = [Requirement(text) for text in PROJECT["dependencies"] + PROJECT["optional-dependencies"][extra]]
    pinned = locked(extra)
    wrong = [
        str(requirement)
        for requirement in wanted
        if canonicalize_name(requirement.name) != "modelservice"
        and not requirement.specifier.contains(pinned.get(canonicalize_name(requirement.name), "0"), prereleases=True)
    ]
    assert wrong == [], "run: make lock"


@pytest.mark.parametrize("extra", ["operator", "sidecar"])
def test_an_image_runs_the_very_versions_that_the_tests_ran(extra: str) -> None:
    tested = locked("dev")
    assert {name: version for name, version in locked(extra).items() if tested.get(name) != version} == {}


@pytest.mark.parametrize("name", ["bootstrap", "dev", "operator", "sidecar"])
def test_every_locked_requirement_names_its_hashes(name: str) -> None:
    text = (REPOSITORY / "requirements" / f"{name}.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert [line for line in lines if "--hash=sha256:" not in line] == []


def test_the_operator_image_gets_nothing_of_the_adapter_and_the_other_way_round() -> None:
    heavy = {"torch", "tritonclient", "apache-tvm", "onnxruntime"}
    assert set(locked("operator")) & (heavy | {"numpy", "uvicorn", "httptools", "orjson", "mcp", "fastapi"}) == set()
    assert set(locked("sidecar")) & (heavy | {"kopf", "kubernetes", "mcp", "fastapi", "starlette"}) == set()
