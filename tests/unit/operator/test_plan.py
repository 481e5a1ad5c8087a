"""What one pass decides to write, and that it decides nothing twice."""

import dataclasses
import json
from typing import Any

import pytest

from kube_objects import (
    IMAGE,
    adopted,
    deployment,
    model_service,
    modified,
    observed,
    with_annotation,
    with_container,
    with_spec,
    with_value,
)
from modelservice_api import wellknown
from modelservice_api.adapter_config import AdapterConfig
from modelservice_operator.core import plan, workload
from modelservice_operator.core.observed import Observed

UID = "6217c01a-db50"
INJECTED = {"type": "Injected", "status": "True", "reason": "Injected"}


def settled(first: Observed, **changes: Any) -> Observed:
    """The cluster after a first pass was carried out."""
    decided = plan.decide(first)
    assert decided.rendered is not None
    assert first.workload is not None
    documents = {document["kind"]: document for document in decided.owned}
    live = modified(dict(first.model_service), with_value("metadata.finalizers", [wellknown.FINALIZER]))
    values: dict[str, Any] = {
        "model_service": live,
        "workload": adopted(dict(first.workload), decided.rendered, uid=UID),
        "service": documents["Service"],
        "config_map": documents["ConfigMap"],
    }
    return dataclasses.replace(first, **{**values, **changes})


@pytest.mark.promise("one-rollout")
def test_a_second_pass_over_a_settled_workload_writes_nothing() -> None:
    decided = plan.decide(settled(observed()))
    assert decided.refusal is None
    assert decided.injected
    assert decided.workload is None
    assert decided.owned == ()
    assert not decided.add_finalizer


def test_an_operator_with_another_default_image_rolls_nothing() -> None:
    decided = plan.decide(settled(observed(), adapter_image="modelservice/adapter:next"))
    assert decided.workload is None
    assert decided.rendered is not None
    assert decided.rendered.image == IMAGE


def test_an_image_in_the_spec_wins_over_the_pinned_one() -> None:
    changed = model_service("fraud", with_spec(adapter={"image": "example/adapter:2"}))
    after = settled(observed())
    live = modified(dict(after.model_service), with_value("spec", changed["spec"]))
    decided = plan.decide(dataclasses.replace(after, model_service=live))
    assert decided.workload is not None
    assert decided.workload.document["spec"]["template"]["spec"]["containers"][0]["image"] == "example/adapter:2"
    assert decided.workload.force


def test_the_first_apply_never_forces() -> None:
    decided = plan.decide(observed())
    assert decided.workload is not None
    assert not decided.workload.force


@pytest.mark.promise("adopt")
def test_a_template_that_lost_the_adapter_gets_it_back_with_the_image_it_had() -> None:
    status = {"conditions": [INJECTED], "injection": {"image": "modelservice/adapter:pinned"}}
    live = modified(model_service(), with_value("status", status))
    decided = plan.decide(observed(service=live))
    assert decided.repairs_drift
    assert decided.rendered is not None
    assert decided.rendered.image == "modelservice/adapter:pinned"


def test_a_copied_model_service_brings_no_pin_of_its_own() -> None:
    live = modified(model_service(), with_value("status", {"injection": {"image": "modelservice/adapter:elsewhere"}}))
    decided = plan.decide(observed(service=live))
    assert not decided.repairs_drift
    assert decided.rendered is not None
    assert decided.rendered.image == IMAGE


@pytest.mark.promise("suspend")
@pytest.mark.promise("pause")
@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (observed(service=model_service("fraud", with_spec(suspend=True))), "Suspended"),
        (observed(workload=deployment("fraud", with_annotation("modelservice.dev/pause", "true"))), "Paused"),
    ],
    ids=["suspended", "paused"],
)
def test_a_held_back_workload_is_not_written_while_the_rest_is_kept(first: Observed, reason: str) -> None:
    decided = plan.decide(first)
    assert decided.workload is None
    assert decided.held_back is not None
    assert decided.held_back.reason.name == reason
    assert [document["kind"] for document in decided.owned] == ["ConfigMap", "Service"]


def test_an_abandoned_adapter_is_released_under_its_old_manager_before_it_is_adopted() -> None:
    first = observed()
    decided = plan.decide(first)
    assert decided.rendered is not None
    abandoned = adopted(deployment(), decided.rendered, uid="00000000-dead")
    taken = plan.decide(dataclasses.replace(first, workload=abandoned))
    assert [write.manager for write in taken.take_over] == ["modelservice-operator.00000000"]
    assert taken.take_over[0].document == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "fraud", "namespace": "ml"},
    }
    assert taken.workload is not None
    assert not taken.workload.force


def test_the_service_selects_only_pods_that_hold_the_adapter() -> None:
    documents = {document["kind"]: document for document in plan.decide(observed()).owned}
    service = documents["Service"]
    assert service["metadata"]["name"] == "fraud-mcp"
    assert service["spec"] == {
        "type": "ClusterIP",
        "selector": {"modelservice.dev/name": "fraud"},
        "ports": [{"name": "mcp", "port": 8931, "targetPort": 8931, "protocol": "TCP", "appProtocol": "http"}],
    }


@pytest.mark.promise("tool-overrides")
def test_the_config_document_carries_what_the_spec_says() -> None:
    blocks = {
        "model": {"version": "1.1"},
        "backend": {"openAPI": {"path": "/api/openapi.json", "include": ["predict*"]}},
        "tools": {"overrides": {"predict": {"name": "fraud-score", "annotations": {"readOnlyHint": True}}}},
        "limits": {"timeout": "500ms", "maxConcurrency": 3},
        "mcp": {"path": "/model", "allowedOrigins": ["https://app.example"]},
    }
    documents = plan.decide(observed(service=model_service("fraud", with_spec(**blocks)))).owned
    config = AdapterConfig.model_validate(json.loads(documents[0]["data"]["config.json"]))
    assert (config.server.name, config.server.version) == ("fraud", "1.1")
    assert config.backend.open_api.path == "/api/openapi.json"
    assert config.backend.open_api.include == ("predict*",)
    assert config.tools.overrides["predict"].name == "fraud-score"
    assert config.limits.timeout == 0.5
    assert config.mcp.path == "/model"


def test_a_list_of_allowed_hosts_keeps_the_services_own_names_in() -> None:
    listed = model_service("fraud", with_spec(mcp={"allowedHosts": ["models.example"]}))
    config = json.loads(plan.decide(observed(service=listed)).owned[0]["data"]["config.json"])
    assert config["mcp"]["allowedHosts"] == [
        "models.example",
        "fraud-mcp",
        "fraud-mcp.ml",
        "fraud-mcp.ml.svc",
        "fraud-mcp.ml.svc.cluster.local",
    ]
    open_to_all = json.loads(plan.decide(observed()).owned[0]["data"]["config.json"])
    assert open_to_all["mcp"]["allowedHosts"] == []


@pytest.mark.parametrize("field", ["metadata.labels", "spec.ports.0.appProtocol", "spec.selector"])
def test_a_changed_service_is_put_right(field: str) -> None:
    after = settled(observed())
    assert after.service is not None
    changed = modified(dict(after.service), with_value(field, {"a": "b"} if "." not in field[5:] else "x"))
    decided = plan.decide(dataclasses.replace(after, service=changed))
    assert [document["kind"] for document in decided.owned] == ["Service"]


def test_a_leftover_service_of_a_deleted_namesake_is_taken_over() -> None:
    after = settled(observed())
    assert after.service is not None
    leftover = modified(dict(after.service), with_value("metadata.ownerReferences.0.uid", "00000000-dead"))
    decided = plan.decide(dataclasses.replace(after, service=leftover))
    assert decided.refusal is None
    assert [document["kind"] for document in decided.owned] == ["Service"]


def test_ports_that_were_chosen_once_stay_although_lower_ones_come_free() -> None:
    neighbour = {"name": "istio-proxy", "image": "i", "ports": [{"containerPort": 8931, "name": "mcp"}]}
    first = observed(workload=deployment("fraud", with_container(neighbour)))
    decided = plan.decide(first)
    assert decided.rendered is not None
    assert (decided.rendered.ports.mcp, decided.rendered.ports.admin) == (8932, 8933)
    assert decided.rendered.ports.mcp_name.startswith("mcp-")
    live = adopted(deployment(), decided.rendered, uid=UID)
    assert plan.decide(dataclasses.replace(first, workload=live)).rendered == dataclasses.replace(
        decided.rendered,
        container=plan.decide(dataclasses.replace(first, workload=live)).rendered.container,  # type: ignore[union-attr]
        ports=dataclasses.replace(decided.rendered.ports, mcp_name="mcp"),
        hash=plan.decide(dataclasses.replace(first, workload=live)).rendered.hash,  # type: ignore[union-attr]
    )


def test_a_pod_that_runs_as_root_still_gets_a_rootless_adapter() -> None:
    first = observed(workload=deployment("fraud", with_value("spec.template.spec.securityContext", {"runAsUser": 0})))
    decided = plan.decide(first)
    assert decided.rendered is not None
    assert decided.rendered.container["securityContext"]["runAsUser"] == 65532
    ordinary = plan.decide(observed()).rendered
    assert ordinary is not None
    assert "runAsUser" not in ordinary.container["securityContext"]


@pytest.mark.parametrize(("grace", "drain", "most"), [(None, 5, 20), (30, 5, 20), (90, 5, 60), (6, 2, 4), (0, 0, 0)])
def test_the_drain_leaves_calls_in_flight_a_third_of_the_grace_period(grace: int | None, drain: int, most: int) -> None:
    modifiers = [] if grace is None else [with_value("spec.template.spec.terminationGracePeriodSeconds", grace)]
    rendered = plan.decide(observed(workload=deployment("fraud", *modifiers))).rendered
    assert rendered is not None
    assert rendered.container["args"][-2:] == [f"--drain-seconds={drain}", f"--drain-most-seconds={most}"]


def test_a_users_default_container_is_left_alone() -> None:
    chosen = {"kubectl.kubernetes.io/default-container": "server"}
    first = observed(workload=deployment("fraud", with_value("spec.template.metadata.annotations", chosen)))
    decided = plan.decide(first)
    assert decided.workload is not None
    annotations = decided.workload.document["spec"]["template"]["metadata"]["annotations"]
    assert list(annotations) == ["modelservice.dev/adapter-hash"]


class TestRelease:
    """A ModelService that is being deleted lets go, in order."""

    def test_releases_the_template_and_then_deletes_what_its_pods_used(self) -> None:
        decided = plan.decide_release(settled(observed()))
        assert [(write.manager, write.document["metadata"]) for write in decided.releases] == [
            ("modelservice-operator.6217c01a", {"name": "fraud", "namespace": "ml"})
        ]
        assert decided.delete == ("services", "configmaps")
        assert decided.remove_finalizer

    def test_a_missing_workload_is_already_released(self) -> None:
        decided = plan.decide_release(dataclasses.replace(settled(observed()), workload=None))
        assert decided.releases == ()
        assert decided.remove_finalizer

    def test_a_workload_it_never_touched_is_not_written(self) -> None:
        assert plan.decide_release(dataclasses.replace(settled(observed()), workload=deployment())).releases == ()

    def test_objects_of_somebody_else_are_not_deleted(self) -> None:
        foreign = {"metadata": {"name": "fraud-mcp", "uid": "1"}}
        decided = plan.decide_release(dataclasses.replace(settled(observed()), service=foreign))
        assert decided.delete == ("configmaps",)


@pytest.mark.parametrize(
    ("kind", "status", "complete"),
    [
        ("Deployment", {"observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 1, "replicas": 1}, True),
        ("Deployment", {"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1, "replicas": 1}, False),
        ("Deployment", {"observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 1, "replicas": 2}, False),
        ("Deployment", {"observedGeneration": 2, "updatedReplicas": 0, "availableReplicas": 1, "replicas": 1}, False),
        ("StatefulSet", {"observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 1, "replicas": 1}, True),
        (
            "DaemonSet",
            {"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2},
            True,
        ),
        (
            "DaemonSet",
            {"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 2},
            False,
        ),
    ],
)
def test_a_rollout_is_complete_by_the_rules_of_kubectl(kind: str, status: dict[str, Any], complete: bool) -> None:
    target = deployment("fraud", with_value("status", status), with_value("metadata.generation", 2))
    assert workload.progress({**target, "kind": kind}).complete is complete
