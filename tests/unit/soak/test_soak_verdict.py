"""The soak's verdict sees what it is there for: each fault alone is enough, and a clean course is none."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

SOAK = Path(__file__).resolve().parents[2] / "soak"


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    sys.path.insert(0, str(SOAK))
    try:
        spec = importlib.util.spec_from_file_location("soak_run", SOAK / "run.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["soak_run"] = module  # its dataclasses look themselves up by name
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SOAK))
    return module


def look(resident: float = 50.0, descriptors: int = 20, tasks: int = 9) -> SimpleNamespace:
    return SimpleNamespace(resident=resident, descriptors=descriptors, tasks=tasks)


def found(soak: ModuleType, **changes: Any) -> list[str]:
    given: dict[str, Any] = {
        "answered": {1, 2},
        "lost": [],
        "complaints": [],
        "last": look(),
        "rising": 0.0,
        "runs": Counter({1: 1, 2: 1, 3: 1}),
        "done": Counter(dict.fromkeys(soak.KINDS, 1)),
        **changes,
    }
    account = SimpleNamespace(done=given["done"], answered=given["answered"], lost=given["lost"])
    looks = [(float(second), look(50.0 + given["rising"] * max(0, second - 300) / 300)) for second in range(601)]
    course = SimpleNamespace(
        seconds=600,
        traffic=SimpleNamespace(account=account),
        adapter=SimpleNamespace(complaints=given["complaints"]),
        looks=looks,
    )
    return list(soak.problems(course, (look(), given["last"]), given["runs"]))


def test_a_clean_course_has_no_problem_though_memory_breathes(soak: ModuleType) -> None:
    assert found(soak, rising=0.9) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lost": ["call 7: TimeoutError()"]}, "lost: call 7"),
        ({"runs": Counter({1: 1})}, "1 calls were answered and never ran, such as [2]"),
        ({"runs": Counter({1: 1, 2: 1, 3: 2})}, "1 calls ran more than once, such as [3]"),
        ({"complaints": ["Traceback (most recent call last):"]}, "the adapter said: Traceback"),
        ({"last": look(descriptors=21)}, "descriptors grew from 20 to 21"),
        ({"last": look(tasks=10)}, "tasks grew from 9 to 10"),
        ({"rising": 1.1}, "memory grew by 1.1"),
    ],
    ids=["lost", "never ran", "doubled", "traceback", "descriptors", "tasks", "memory"],
)
def test_each_fault_alone_fails_it(soak: ModuleType, changes: dict[str, Any], said: str) -> None:
    [problem] = found(soak, **changes)
    assert problem.startswith(said)


def test_what_did_not_happen_is_not_called_proven(soak: ModuleType) -> None:
    kinds = dict.fromkeys(soak.KINDS, 1) | {"streams": 0}
    assert found(soak, done=Counter(kinds)) == ["no streams, so nothing was shown of them"]
