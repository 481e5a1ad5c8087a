"""Every promise of tests/promises.toml is exercised by a test that names it, or says in writing what it waits for.

Marks are read from the test files' syntax, so that a promise counts however the tests are selected in a run. Every
reason with which something is refused must have its promise too.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from modelservice_api.conditions import Reasons

TESTS = Path(__file__).resolve().parents[1]
PROMISES: dict[str, dict[str, str]] = tomllib.loads((TESTS / "promises.toml").read_text())

REFUSALS = [
    Reasons.NOT_SUPPORTED_YET,
    Reasons.INVALID_SPEC,
    Reasons.UNKNOWN_ISSUER,
    Reasons.WORKLOAD_NOT_FOUND,
    Reasons.UNSUPPORTED_KIND,
    Reasons.WORKLOAD_BEING_DELETED,
    Reasons.CONTROLLED_BY_OTHER,
    Reasons.HOST_NETWORK,
    Reasons.WINDOWS_NODES,
    Reasons.OPTED_OUT,
    Reasons.WORKLOAD_TAKEN,
    Reasons.NAME_CONFLICT,
    Reasons.PORT_CONFLICT,
    Reasons.SERVICE_NAME_TAKEN,
    Reasons.CONFIG_MAP_NAME_TAKEN,
    Reasons.DEPLOYMENT_NAME_TAKEN,
    Reasons.BACKEND_SERVICE_NOT_FOUND,
    Reasons.FIELD_CONFLICT,
    Reasons.AMBIGUOUS_BACKEND,
    Reasons.BACKEND_CONTAINER_NOT_FOUND,
    Reasons.BACKEND_PORT_UNKNOWN,
    Reasons.TEMPLATE_REJECTED,
    Reasons.NOT_PERMITTED,
    Reasons.MODEL_SPEC_CONFLICT,
    Reasons.NO_DEVICE_TO_SURGE,
    Reasons.VOLUME_HELD_BY_ONE_POD,
    Reasons.HOST_PORT_HELD,
    Reasons.ANTI_AFFINITY_BLOCKS_SURGE,
    Reasons.CLAIM_HELD_BY_ONE_POD,
    Reasons.SLOW_START,
    Reasons.MODEL_IN_POD_ONLY,
]
TOLD_OTHERWISE = [
    # What is said when all is well, or still under way.
    Reasons.ACCEPTED,
    Reasons.NO_CONFLICT,
    Reasons.NO_ROLLOUT_RISK,
    Reasons.WAITING_FOR_COMMIT,  # manual
    Reasons.GPU_SET,
    Reasons.GPU_MANAGED_BY_USER,  # gpu
    Reasons.GPU_MANAGED_BY_DRA,  # gpu
    Reasons.ENV_MANAGED_BY_USER,  # gpu
    Reasons.VISIBLE_DEVICE_OUT_OF_RANGE,  # gpu
    Reasons.INJECTED,
    Reasons.DISCOVERED,
    Reasons.VERIFIED,
    Reasons.CONFIGURED,
    Reasons.CONFIG_PENDING,
    Reasons.CONFIG_REJECTED,  # config-live
    Reasons.ROLLOUT_COMPLETE,
    Reasons.READY,
    Reasons.NOT_READY,
    Reasons.RELEASED,
    Reasons.WAITING_FOR_ADAPTER,
    Reasons.AUTH_NOT_ENFORCED,
    Reasons.DISCOVERING,
    Reasons.WARMING_UP,
    Reasons.TOOL_DEFINITION_CHANGED,  # tools-watched
    Reasons.ROLLING_OUT,
    Reasons.ROLLOUT_PAUSED,
    Reasons.ROLLOUT_STALLED,
    Reasons.HANDSHAKE_FAILED,
    # Each under a promise of its own.
    Reasons.SUSPENDED,  # suspend
    Reasons.PAUSED,  # pause
    Reasons.DRIFT_REPAIRED,  # drift-repaired
    Reasons.RELEASE_FAILED,  # release-bounded
    Reasons.BACKEND_UNREACHABLE,  # backend-states
    Reasons.BACKEND_NOT_RECOGNISED,  # backend-states
    Reasons.BACKEND_SCHEMA_INVALID,  # backend-states
    Reasons.NO_TOOLS,  # backend-states
]


def marks_in(source: str) -> Iterator[str]:
    """The ids that `pytest.mark.promise(...)` names anywhere in a file: on tests, classes, modules and parameters."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "promise"
            and ast.unparse(node.func.value) == "pytest.mark"
        ):
            yield from (str(argument.value) for argument in node.args if isinstance(argument, ast.Constant))


def exercised() -> dict[str, list[str]]:
    """Promise ids to the test files that name them."""
    found: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for name in marks_in(file.read_text()):
            found.setdefault(name, []).append(str(file.relative_to(TESTS)))
    return found


def test_marks_are_found_wherever_they_stand() -> None:
    source = """
pytestmark = pytest.mark.promise("module")
@pytest.mark.promise("function")
def test(): ...
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.promise("parameter"))])
def test_two(x): ...
@other.mark.promise("not ours")
def test_three(): ...
"""
    assert sorted(marks_in(source)) == ["function", "module", "parameter"]


def test_no_test_names_a_promise_that_nobody_made() -> None:
    assert {name: files for name, files in exercised().items() if name not in PROMISES} == {}


def test_every_promise_is_exercised_or_says_what_it_waits_for() -> None:
    marks = exercised()
    assert [name for name, entry in PROMISES.items() if name not in marks and "deferred" not in entry] == []


def test_no_promise_is_called_deferred_once_a_test_exercises_it() -> None:
    marks = exercised()
    assert {name: marks[name] for name, entry in PROMISES.items() if "deferred" in entry and name in marks} == {}


def test_every_entry_is_one_id_and_one_sentence_and_nothing_unknown() -> None:
    wrong = [
        name
        for name, entry in PROMISES.items()
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name)
        or not set(entry) <= {"promise", "source", "deferred"}
        or not re.fullmatch(r"[A-Z`].*\.", entry.get("promise", ""))
        or not re.fullmatch(r"[A-Z`].*\.", entry.get("deferred", "None."))
    ]
    assert wrong == []


def test_every_reason_to_refuse_has_a_promise() -> None:
    def promise_of(reason: str) -> str:
        return "refuse" + re.sub(r"([A-Z])", lambda letter: "-" + letter[1].lower(), reason)

    assert [reason.name for reason in REFUSALS if promise_of(reason.name) not in PROMISES] == []


def test_every_reason_is_sorted_into_refusals_and_others() -> None:
    assert sorted(reason.name for reason in REFUSALS + TOLD_OTHERWISE) == sorted(
        reason.name for reason in Reasons.all()
    )
