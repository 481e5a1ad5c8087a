"""What a status says to its author, and how it is printed."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kube_objects import model_service, observed
from modelservice_cli import standing, status, waiting
from modelservice_operator.core import plan, summary

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def decided(*, missing: bool = False, **spec: Any) -> dict[str, Any]:
    """A ModelService with the status that the operator's own summary gives it."""
    service = model_service()
    service["spec"].update(spec)
    seen = observed(service, missing=missing)
    given = plan.decide(seen)
    told = summary.summarise(seen, given, summary.Result(workload=seen.workload))
    return {**seen.model_service, "status": told.status}


def test_a_refusal_is_told_once_with_what_to_do() -> None:
    found = standing.read(decided(backend={"container": "other"}))
    assert (found.ready, found.refused, found.held_back, found.current) == (False, True, False, True)
    (problem,) = [each for each in found.problems if each.reason == "BackendContainerNotFound"]
    assert problem.message == "spec.backend.container is 'other'; the pod template has 'server'."
    assert problem.advice == "spec.backend.container names a container the pod template has not."


@pytest.mark.parametrize(
    ("service", "refused", "held_back"),
    [
        (decided(suspend=True), False, True),
        (decided(missing=True), False, True),
        (decided(canary={"a": 1}), True, False),
        (decided(), False, False),
    ],
)
def test_waiting_ends_where_it_can_help_no_more(service: dict[str, Any], refused: bool, held_back: bool) -> None:
    found = standing.read(service)
    assert (found.refused, found.held_back) == (refused, held_back)


def test_what_no_operator_has_seen_says_so() -> None:
    found = standing.read(observed().model_service)
    assert found.reason == "NotSeen"
    assert [each.message for each in found.problems] == [standing.NOT_SEEN]


def test_the_table_has_a_row_each_and_a_paragraph_for_those_with_a_problem() -> None:
    refused = standing.read(decided(backend={"container": "other"}))
    text = status.as_text([refused], NOW, namespaces=False)
    assert text.splitlines()[:2] == [
        "NAME   READY  REASON                    TOOLS  BACKEND  URL  AGE",
        "fraud  no     BackendContainerNotFound  0      -        -    60m",
    ]
    assert "\x1b" not in text
    assert "fraud is not ready:\n  BackendContainerNotFound (Injected): " in text
    assert waiting.as_document(refused)["problems"][0]["reason"] == "BackendContainerNotFound"
