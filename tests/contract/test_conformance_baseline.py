"""No finding of the official conformance suite is expected without a reason in words, and the suite is pinned.

The suite itself runs by `make conformance`; what is held here is that its baselines cannot silently become a bin.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "conformance"


def load(name: str) -> ModuleType:
    """A module of the conformance command, which is no package and not on the path."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def baseline(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("suite", "baseline"):
        monkeypatch.setitem(sys.modules, name, load(name))
    return sys.modules["baseline"]


@pytest.mark.parametrize("file", sorted((FOLDER / "baseline").glob("*.toml")), ids=lambda file: file.stem)
def test_every_expected_finding_has_a_reason_in_words(baseline: ModuleType, file: Path) -> None:
    reasons = baseline.read(file)
    assert reasons
    assert [name for name, reason in reasons.items() if not reason.endswith(".")] == []


@pytest.mark.parametrize(
    "text",
    [
        'checks = ["a:b"]',
        'reason = "n/a"\nchecks = ["a:b"]',
        'reason = "A reason in some words."\nchecks = []',
        'reason = "A reason in some words."\nchecks = ["a"]',
        'reason = "A reason in some words."\nchecks = ["a:b", "a:b"]',
    ],
)
def test_an_entry_without_a_reason_or_a_check_is_refused(baseline: ModuleType, tmp_path: Path, text: str) -> None:
    (tmp_path / "x.toml").write_text(f"[x]\n{text}\n")
    with pytest.raises(baseline.BaselineError):
        baseline.read(tmp_path / "x.toml")


def test_a_run_is_judged_by_what_is_unexpected_stale_and_missing(baseline: ModuleType) -> None:
    check = sys.modules["suite"].Check
    checks = [
        check(scenario="a", id="1", status="SUCCESS"),
        check(scenario="a", id="2", status="FAILURE"),
        check(scenario="a", id="3", status="WARNING"),
        check(scenario="b", id="1", status="SKIPPED"),
        check(scenario="b", id="2", status="INFO"),
    ]
    verdict = baseline.judge(checks, {"a:2": "r", "a:1": "r", "gone:1": "r"}, ["a", "b"])
    assert (verdict.passed, verdict.expected, verdict.skipped, verdict.failures) == (1, 1, 1, 4)
    assert [found.name for found in verdict.unexpected] == ["a:3"]
    assert (verdict.stale, verdict.missing) == (("a:1", "gone:1"), ("b",))


def test_a_run_without_any_check_fails(baseline: ModuleType) -> None:
    assert baseline.judge([], {}, ["tools-list"]).failures == 1


def test_the_suite_and_its_node_are_pinned_and_the_lock_names_no_registry() -> None:
    manifest = json.loads((FOLDER / "package.json").read_text())
    wanted = manifest["dependencies"] | manifest["optionalDependencies"]
    packages = json.loads((FOLDER / "package-lock.json").read_text())["packages"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert [name for name, entry in packages.items() if name and "integrity" not in entry] == []
    assert [name for name, entry in packages.items() if "resolved" in entry] == []
