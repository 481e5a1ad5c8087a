"""What the API server refuses while a plan is carried out: told with its own words, nothing forced, nothing held up.

The API server here is a script: it answers reads from values and every write with the error of the test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from kube_harness import AdaptersInMemory
from kube_objects import IMAGE, NOW, adopted, deployment, model_service, observed, with_value
from modelservice_api import wellknown
from modelservice_api.conditions import ConditionType
from modelservice_operator import apply, kube_errors
from modelservice_operator.core import plan
from modelservice_operator.gather import Sources
from modelservice_operator.kube_api import Resource
from modelservice_operator.reconcile import RELEASE_TIMEOUT_SECONDS, reconcile


@dataclass
class ScriptedApi:
    """`KubeApi` over fixed objects, whose applies fail and whose other writes are remembered."""

    error: kube_errors.KubeError
    objects: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    applies: list[dict[str, Any]] = field(default_factory=list)
    patches: list[Any] = field(default_factory=list)
    events: list[Mapping[str, Any]] = field(default_factory=list)

    def get(self, resource: Resource, namespace: str, name: str) -> Any:
        return self.objects.get((resource.plural, name))

    def list(self, resource: Resource, namespace: str, label_selector: str = "") -> Sequence[Any]:
        return [found for (plural, _), found in self.objects.items() if plural == resource.plural]

    def apply(self, resource: Resource, document: Mapping[str, Any], **options: Any) -> Any:
        self.applies.append({"kind": document["kind"], **options})
        raise self.error

    def json_patch(self, resource: Resource, namespace: str, name: str, operations: Any, subresource: str = "") -> None:
        self.patches.append(operations)

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> None:
        self.events.append(body)

    def delete(self, resource: Resource, namespace: str, name: str, *, uid: str) -> None:
        raise AssertionError("nothing is deleted before the workload is released")


@pytest.mark.promise("refuse-field-conflict")
def test_a_field_that_somebody_else_owns_is_named_with_its_owner_and_never_taken() -> None:
    conflict = kube_errors.FieldConflict(field=".metadata.annotations", message='conflict with "helm"')
    api = ScriptedApi(kube_errors.ConflictError("409", (conflict,)))
    seen = observed()
    result = apply.apply_plan(api, seen, plan.decide(seen))
    assert result.refusal is not None
    assert (result.refusal.condition, result.refusal.reason.name) == (ConditionType.CONFLICT, "FieldConflict")
    assert result.refusal.message == '.metadata.annotations: conflict with "helm".'
    assert [each.get("force", False) for each in api.applies] == [False]
    assert api.patches == []


@pytest.mark.promise("refuse-not-permitted")
def test_a_missing_right_is_told_in_the_api_servers_words_and_nothing_is_written() -> None:
    words = 'deployments.apps "fraud" is forbidden: User "operator" cannot patch resource "deployments"'
    api = ScriptedApi(kube_errors.ForbiddenError(words))
    seen = observed()
    result = apply.apply_plan(api, seen, plan.decide(seen))
    assert result.refusal is not None
    assert (result.refusal.reason.name, result.refusal.message) == ("NotPermitted", words)
    assert api.patches == []


def with_uid(workload: dict[str, Any]) -> dict[str, Any]:
    """As the API server returns it: events name their object by uid."""
    workload["metadata"]["uid"] = "1"
    return workload


def sources_in_deletion(seconds_ago: float) -> tuple[Sources, ScriptedApi]:
    """A ModelService that is being deleted, whose workload cannot be written."""
    since = (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    deleting = [
        with_value("metadata.deletionTimestamp", since),
        with_value("metadata.finalizers", [wellknown.FINALIZER]),
    ]
    before = observed()
    rendered = plan.decide(before).rendered
    assert rendered is not None
    workload = adopted(with_uid(deployment()), rendered, uid=before.uid)
    seen = observed(model_service("fraud", *deleting))
    objects = {("modelservices", "fraud"): seen.model_service, ("deployments", "fraud"): workload}
    api = ScriptedApi(kube_errors.UnavailableError("The API server could not be reached."), objects)
    return Sources(api=api, adapters=AdaptersInMemory(), clock=lambda: NOW, adapter_image=IMAGE), api


@pytest.mark.promise("release-bounded")
def test_a_release_that_fails_is_tried_again_while_there_is_time() -> None:
    sources, api = sources_in_deletion(RELEASE_TIMEOUT_SECONDS - 1)
    with pytest.raises(kube_errors.UnavailableError):
        reconcile(sources, "ml", "fraud")
    assert api.patches == []


@pytest.mark.promise("release-bounded")
def test_a_release_that_failed_for_two_minutes_lets_the_modelservice_go_and_says_what_may_remain() -> None:
    sources, api = sources_in_deletion(RELEASE_TIMEOUT_SECONDS + 1)
    reconcile(sources, "ml", "fraud")
    [operations] = api.patches
    assert operations[-1] == {"op": "replace", "path": "/metadata/finalizers", "value": []}
    assert {(event["involvedObject"]["kind"], event["reason"], event["type"]) for event in api.events} == {
        ("ModelService", "ReleaseFailed", "Warning"),
        ("Deployment", "ReleaseFailed", "Warning"),
    }
