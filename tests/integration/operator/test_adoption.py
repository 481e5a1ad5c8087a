"""Adoption, drift and release against a real API server, with exact oracles: generation, ReplicaSets, managed fields.

The operator's passes run in this process, one at a time, so each test knows what a pass wrote. Events, restarts and pods
are the business of the e2e tests.
"""

import copy
from typing import Any

import pytest

from crashing_api import CrashingApi
from kube_harness import IMAGE, Harness
from kube_objects import deployment, model_service, with_annotation, with_container, with_spec, with_value
from modelservice_operator import kube_errors, reconcile
from modelservice_operator.core import injection, naming, plan
from modelservice_operator.core.workload import ADOPTABLE
from modelservice_operator.gather import gather

ADAPTER = "mcp-adapter"


def adopt(harness: Harness, workload: dict[str, Any] | None = None, **blocks: Any) -> dict[str, Any]:
    """A workload and its ModelService, after the passes it takes; the workload as it was before."""
    before = harness.create(workload or deployment("fraud", namespace=harness.namespace))
    harness.create(model_service("fraud", with_spec(**blocks), namespace=harness.namespace))
    harness.reconcile("fraud")
    return before


def containers(obj: dict[str, Any]) -> list[str]:
    return [found["name"] for found in obj["spec"]["template"]["spec"]["containers"]]


def manager_of(harness: Harness, name: str = "fraud") -> str:
    return naming.field_manager(harness.get("modelservices", name)["metadata"]["uid"])


def reasons(status: Any) -> dict[str, str]:
    return {found["type"]: found["reason"] for found in status["conditions"]}


@pytest.mark.promise("one-rollout")
def test_adoption_is_one_change_of_the_template_however_often_it_is_looked_at(harness: Harness) -> None:
    before = adopt(harness)
    for _ in range(5):
        harness.reconcile("fraud")
    after = harness.get("deployments", "fraud")
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert containers(after) == ["server", ADAPTER]


@pytest.mark.promise("no-touch")
def test_everything_but_our_entries_is_what_it_was(harness: Harness) -> None:
    before = adopt(harness)
    after = harness.get("deployments", "fraud")
    ours = {"f:metadata", "f:spec"}
    (entry,) = [found for found in after["metadata"]["managedFields"] if found["manager"] == manager_of(harness)]
    assert set(entry["fieldsV1"]) == ours
    template = entry["fieldsV1"]["f:spec"]["f:template"]
    assert list(entry["fieldsV1"]["f:spec"]) == ["f:template"]
    assert list(template["f:spec"]["f:containers"]) == ['k:{"name":"mcp-adapter"}']
    assert list(template["f:spec"]["f:volumes"]) == ['k:{"name":"modelservice-config"}']
    assert set(template["f:metadata"]["f:annotations"]) == {
        "f:kubectl.kubernetes.io/default-container",
        "f:modelservice.dev/adapter-hash",
    }
    assert after["spec"]["template"]["spec"]["containers"][0] == before["spec"]["template"]["spec"]["containers"][0]
    assert {key: value for key, value in after["spec"].items() if key != "template"} == {
        key: value for key, value in before["spec"].items() if key != "template"
    }


def test_the_api_servers_merge_is_what_inject_says(harness: Harness) -> None:
    before = adopt(harness)
    seen = gather(harness.sources(), harness.get("modelservices", "fraud"))
    decided = plan.decide(seen)
    assert decided.rendered is not None
    meta = injection.template_metadata("fraud", decided.rendered, default_container="server")
    merged = harness.get("deployments", "fraud")["spec"]["template"]
    assert injection.covers(merged, injection.inject(before["spec"]["template"], meta=meta, rendered=decided.rendered))
    assert injection.eject(merged, meta=meta) == before["spec"]["template"]


@pytest.mark.promise("release")
@pytest.mark.parametrize("kind", [kind for _, kind in ADOPTABLE])
def test_deleting_the_model_service_gives_the_template_back_byte_for_byte(harness: Harness, kind: str) -> None:
    workload = {**deployment("fraud", namespace=harness.namespace), "kind": kind}
    if kind == "StatefulSet":
        workload["spec"]["serviceName"] = "fraud"
    if kind == "DaemonSet":
        del workload["spec"]["replicas"]
    plural = ADOPTABLE[("apps/v1", kind)]
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": "fraud"}
    before = adopt(harness, workload, workloadRef=reference)
    assert containers(harness.get(plural, "fraud")) == ["server", ADAPTER]
    harness.delete("modelservices", "fraud")
    harness.reconcile("fraud")
    after = harness.get(plural, "fraud")
    assert after["spec"] == before["spec"]
    assert "modelservice.dev/owner" not in (after["metadata"].get("annotations") or {})
    assert not [found for found in after["metadata"]["managedFields"] if "modelservice" in found["manager"]]
    for plural_of_ours, name in (
        ("modelservices", "fraud"),
        ("services", "fraud-mcp"),
        ("configmaps", "fraud-mcp-config"),
    ):
        assert harness.find(plural_of_ours, name) is None


def test_a_user_who_applies_again_keeps_the_adapter_and_meets_no_conflict(harness: Harness) -> None:
    workload = deployment("fraud", namespace=harness.namespace)
    before = harness.apply_as_user(workload, manager="helm")
    harness.create(model_service("fraud", namespace=harness.namespace))
    harness.reconcile("fraud")
    again = harness.apply_as_user(workload, manager="helm")
    assert again["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert containers(again) == ["server", ADAPTER]


@pytest.mark.promise("drift-repaired")
@pytest.mark.promise("adopt")
def test_a_replaced_template_gets_the_adapter_back_once_with_one_event(harness: Harness) -> None:
    before = adopt(harness)
    harness.reconcile("fraud")
    harness.replace(deployment("fraud", namespace=harness.namespace))
    assert containers(harness.get("deployments", "fraud")) == ["server"]
    for _ in range(3):
        harness.reconcile("fraud")
    after = harness.get("deployments", "fraud")
    assert containers(after) == ["server", ADAPTER]
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 3
    repaired = [found for found in harness.list("events") if found["reason"] == "DriftRepaired"]
    assert sorted(found["involvedObject"]["kind"] for found in repaired) == ["Deployment", "ModelService"]


def test_a_paused_workload_is_not_repaired(harness: Harness) -> None:
    adopt(harness)
    paused = deployment("fraud", with_annotation("modelservice.dev/pause", "true"), namespace=harness.namespace)
    replaced = harness.replace(paused)
    status = harness.reconcile("fraud")
    assert reasons(status)["Injected"] == "Paused"
    assert harness.get("deployments", "fraud")["metadata"]["generation"] == replaced["metadata"]["generation"]


def test_an_image_that_somebody_set_on_our_container_is_put_back_once_with_one_event(harness: Harness) -> None:
    adopt(harness)
    patch = {"spec": {"template": {"spec": {"containers": [{"name": ADAPTER, "image": "example/wrong:1"}]}}}}
    harness.strategic_merge_as_user("deployments", "fraud", patch)
    for _ in range(3):
        harness.reconcile("fraud")
    live = harness.get("deployments", "fraud")
    assert live["spec"]["template"]["spec"]["containers"][1]["image"] == IMAGE
    assert live["metadata"]["generation"] == 4
    repaired = [found for found in harness.list("events") if found["reason"] == "DriftRepaired"]
    assert len(repaired) == 2


@pytest.mark.promise("one-writer")
@pytest.mark.parametrize("image", ["example/own:1", IMAGE], ids=["another image", "our image"])
def test_a_foreign_container_of_our_name_is_never_written(harness: Harness, image: str) -> None:
    own = with_container({"name": ADAPTER, "image": image})
    before = adopt(harness, deployment("fraud", own, namespace=harness.namespace))
    status = harness.reconcile("fraud")
    assert reasons(status)["Injected"] == "NameConflict"
    after = harness.get("deployments", "fraud")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert not [found for found in after["metadata"]["managedFields"] if "modelservice" in found["manager"]]
    assert harness.find("services", "fraud-mcp") is None


@pytest.mark.promise("one-writer")
@pytest.mark.parametrize(
    ("kind", "name", "body", "reason"),
    [
        ("Service", "fraud-mcp", {"spec": {"ports": [{"port": 1}]}}, "ServiceNameTaken"),
        ("ConfigMap", "fraud-mcp-config", {"data": {"a": "b"}}, "ConfigMapNameTaken"),
    ],
)
def test_a_name_that_is_taken_is_left_to_its_owner(
    harness: Harness, kind: str, name: str, body: dict[str, Any], reason: str
) -> None:
    metadata = {"name": name, "namespace": harness.namespace}
    harness.create({"apiVersion": "v1", "kind": kind, "metadata": metadata, **body})
    before = adopt(harness)
    assert reasons(harness.reconcile("fraud"))["Injected"] == reason
    assert harness.get("deployments", "fraud")["metadata"]["generation"] == before["metadata"]["generation"]
    harness.delete(f"{kind.lower()}s", name)
    assert reasons(harness.reconcile("fraud"))["Injected"] == "Injected"


def test_ports_and_port_names_avoid_those_of_the_pod_and_stay(harness: Harness) -> None:
    neighbour = {"name": "istio-proxy", "image": "example/p:1", "ports": [{"containerPort": 9000, "name": "mcp"}]}
    workload = deployment(
        "fraud",
        with_value("spec.template.spec.containers.0.ports", [{"containerPort": 8931}]),
        with_container(neighbour),
        namespace=harness.namespace,
    )
    adopt(harness, workload)
    status = harness.reconcile("fraud")
    assert (status["injection"]["port"], status["injection"]["adminPort"]) == (8932, 8933)
    live = harness.get("deployments", "fraud")["spec"]["template"]["spec"]["containers"][2]
    names = [port["name"] for port in live["ports"]]
    assert names[0].startswith("mcp-")
    assert len(set(names)) == 2
    harness.merge_as_user("modelservices", "fraud", {"spec": {"mcp": {"port": 8931}}})
    assert reasons(harness.reconcile("fraud"))["Conflict"] == "PortConflict"
    assert harness.get("deployments", "fraud")["metadata"]["generation"] == 2


@pytest.mark.promise("one-writer")
def test_two_model_services_on_one_workload_never_both_write(harness: Harness) -> None:
    harness.create(deployment("fraud", namespace=harness.namespace))
    reference = {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "fraud"}}
    first = harness.create(model_service("a", with_spec(**reference), namespace=harness.namespace))
    second = harness.create(model_service("b", with_spec(**reference), namespace=harness.namespace))
    winner, loser = sorted(
        (first, second), key=lambda found: (found["metadata"]["creationTimestamp"], found["metadata"]["uid"])
    )
    winner_name, loser_name = winner["metadata"]["name"], loser["metadata"]["name"]
    for name in (loser_name, winner_name, loser_name):
        harness.reconcile(name)
    adopted = harness.get("deployments", "fraud")
    assert adopted["metadata"]["annotations"]["modelservice.dev/owner"].split("/")[1] == winner_name
    assert adopted["metadata"]["generation"] == 2
    assert reasons(harness.get("modelservices", loser_name)["status"])["Conflict"] == "WorkloadTaken"
    harness.delete("modelservices", winner_name)
    harness.reconcile(winner_name)
    harness.reconcile(loser_name)
    taken = harness.get("deployments", "fraud")
    assert taken["metadata"]["annotations"]["modelservice.dev/owner"].split("/")[1] == loser_name
    assert taken["metadata"]["generation"] == 4


def test_a_second_adopter_that_missed_the_first_is_stopped_by_the_api_server(harness: Harness) -> None:
    adopt(harness)
    live = harness.get("deployments", "fraud")
    document = injection.release_document(live)
    document["metadata"]["annotations"] = {"modelservice.dev/owner": "ml/other/00000000"}
    with pytest.raises(kube_errors.ConflictError) as caught:
        harness.apply_as_user(document, manager=naming.field_manager("00000000"))
    assert caught.value.fields


def test_an_adapter_whose_model_service_was_force_removed_is_taken_over(harness: Harness) -> None:
    adopt(harness)
    harness.delete_if_there("modelservices", "fraud")
    harness.create(model_service("fraud", namespace=harness.namespace))
    harness.reconcile("fraud")
    live = harness.get("deployments", "fraud")
    uid = harness.get("modelservices", "fraud")["metadata"]["uid"]
    assert live["metadata"]["annotations"]["modelservice.dev/owner"].endswith(uid)
    ours = [found["manager"] for found in live["metadata"]["managedFields"] if "modelservice" in found["manager"]]
    assert ours == [naming.field_manager(uid)]
    assert live["metadata"]["generation"] <= 4


@pytest.mark.promise("release")
def test_an_adapter_whose_model_service_was_force_removed_is_released(harness: Harness) -> None:
    before = adopt(harness)
    harness.delete_if_there("modelservices", "fraud")
    harness.reconcile("fraud")
    after = harness.get("deployments", "fraud")
    assert after["spec"] == before["spec"]
    assert "modelservice.dev/owner" not in (after["metadata"].get("annotations") or {})


def test_letting_go_of_a_live_model_service_leaves_its_workload_serving(harness: Harness) -> None:
    adopt(harness)
    reconcile.let_go(harness.sources(), harness.namespace, "fraud")
    assert not harness.get("modelservices", "fraud")["metadata"].get("finalizers")
    assert containers(harness.get("deployments", "fraud")) == ["server", ADAPTER]
    assert harness.find("services", "fraud-mcp") is not None


def test_letting_go_of_one_in_deletion_finishes_its_release(harness: Harness) -> None:
    before = adopt(harness)
    harness.delete("modelservices", "fraud")
    reconcile.let_go(harness.sources(), harness.namespace, "fraud")
    assert harness.find("modelservices", "fraud") is None
    assert harness.get("deployments", "fraud")["spec"] == before["spec"]


def test_a_model_service_before_its_workload_writes_nothing_and_adopts_when_it_appears(harness: Harness) -> None:
    harness.create(model_service("fraud", namespace=harness.namespace))
    status = harness.reconcile("fraud")
    assert reasons(status)["Accepted"] == "WorkloadNotFound"
    version = harness.get("modelservices", "fraud")["metadata"]["resourceVersion"]
    harness.reconcile("fraud")
    assert harness.get("modelservices", "fraud")["metadata"]["resourceVersion"] == version
    harness.create(deployment("fraud", namespace=harness.namespace))
    assert reasons(harness.reconcile("fraud"))["Injected"] == "Injected"


def test_a_workload_that_was_deleted_and_came_back_is_adopted_anew(harness: Harness) -> None:
    adopt(harness)
    harness.delete("deployments", "fraud")
    assert reasons(harness.reconcile("fraud"))["Accepted"] == "WorkloadNotFound"
    harness.create(deployment("fraud", namespace=harness.namespace))
    assert reasons(harness.reconcile("fraud"))["Injected"] == "Injected"
    assert containers(harness.get("deployments", "fraud")) == ["server", ADAPTER]


def test_a_model_service_goes_although_its_workload_went_first(harness: Harness) -> None:
    adopt(harness)
    harness.delete("deployments", "fraud")
    harness.delete("modelservices", "fraud")
    harness.reconcile("fraud")
    assert harness.find("modelservices", "fraud") is None


def test_the_longest_names_work(harness: Harness) -> None:
    long = ("m" * 60 + ".") * 4 + "m" * 9
    harness.create(
        deployment(
            "x" * 253,
            with_value("spec.selector.matchLabels", {"app": "x"}),
            with_value("spec.template.metadata.labels", {"app": "x"}),
            namespace=harness.namespace,
        )
    )
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x" * 253}
    harness.create(model_service(long, with_spec(workloadRef=reference), namespace=harness.namespace))
    assert reasons(harness.reconcile(long))["Injected"] == "Injected"
    assert harness.find("services", naming.service(long)) is not None


def test_a_model_service_restored_from_its_own_yaml_is_adopted(harness: Harness) -> None:
    adopt(harness)
    saved = copy.deepcopy(harness.get("modelservices", "fraud"))
    harness.delete("modelservices", "fraud")
    harness.reconcile("fraud")
    for key in ("resourceVersion", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        saved["metadata"].pop(key, None)
    harness.create(saved)
    assert reasons(harness.reconcile("fraud"))["Injected"] == "Injected"


@pytest.mark.promise("refuse-template-rejected")
def test_a_template_that_admission_refuses_is_told_and_nothing_is_left_behind(harness: Harness) -> None:
    """A port name of the adapter that the API server cannot take: refused in the dry run."""
    before = adopt(harness, adapter={"resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Mi"}}})
    status = harness.reconcile("fraud")
    assert reasons(status)["Injected"] == "TemplateRejected"
    message = next(found["message"] for found in status["conditions"] if found["type"] == "Injected")
    assert "memory" in message
    assert harness.get("deployments", "fraud")["metadata"]["generation"] == before["metadata"]["generation"]
    assert harness.find("services", "fraud-mcp") is None
    assert not harness.get("modelservices", "fraud")["metadata"].get("finalizers")


def test_a_settled_pass_makes_no_write(harness: Harness) -> None:
    adopt(harness)
    harness.wait_for(
        "deployments",
        "fraud",
        lambda found: found["status"].get("observedGeneration") == 2 and found["status"].get("updatedReplicas") == 1,
    )
    harness.reconcile("fraud")
    harness.reconcile("fraud", CrashingApi(harness.api, writes=0, after=False))
