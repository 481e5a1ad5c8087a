"""GPU settings on a real API server: what it admits, one ReplicaSet for all changes, and everything given back."""

from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from crashing_api import CrashError, CrashingApi
from kube_harness import Harness
from kube_objects import deployment, model_service, with_spec, with_value

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("an index beyond the count", {"count": 1, "visibleDevices": "1"}, "an index beyond count"),
    ("a device twice", {"count": 2, "visibleDevices": "0,0"}, "names a device twice"),
    ("indexes and UUIDs mixed", {"count": 2, "visibleDevices": "0,GPU-x"}, "indexes such as 0,1, or UUIDs"),
    ("two MIG slices", {"count": 2, "visibleDevices": "MIG-a,MIG-b"}, "one that begins with MIG-"),
    ("more devices than the count", {"count": 1, "visibleDevices": "GPU-a,GPU-b"}, "more devices than count"),
    ("everything", {"count": 1, "visibleDevices": "all"}, "indexes such as 0,1, or UUIDs"),
    ("half a GPU", {"count": 0.5}, "must be of type integer"),
    ("no GPU at all", {"count": 0}, "greater than or equal to 1"),
    ("a resource with a typo", {"count": 1, "resource": "nvidia.com.gpu"}, "should match"),
    (
        "a variable that no vendor has",
        {"count": 1, "resource": "habana.ai/gaudi", "visibleDevices": "0"},
        "others have no known variable",
    ),
]


@pytest.mark.promise("gpu")
@pytest.mark.parametrize(("gpu", "says"), [pytest.param(*rest, id=name) for name, *rest in REFUSED])
def test_settings_that_no_device_could_meet_are_refused_at_admission(
    harness: Harness, gpu: dict[str, Any], says: str
) -> None:
    with pytest.raises(ApiException) as refused:
        harness.create(model_service("fraud", with_spec(gpu={"manage": True, **gpu}), namespace=harness.namespace))
    assert refused.value.status == 422
    assert says in refused.value.body


@pytest.mark.promise("gpu")
@pytest.mark.promise("one-rollout")
@pytest.mark.promise("release")
def test_adapter_and_gpus_are_one_replica_set_and_all_of_it_is_given_back(harness: Harness) -> None:
    before = harness.create(deployment("fraud", namespace=harness.namespace))
    harness.wait_for("deployments", "fraud", lambda found: found.get("status", {}).get("observedGeneration", 0) >= 1)
    gpu = {"manage": True, "count": 2, "visibleDevices": "1"}
    harness.create(model_service("fraud", with_spec(gpu=gpu), namespace=harness.namespace))
    status = harness.reconcile("fraud")
    assert {each["type"]: each["reason"] for each in status["conditions"]}["GPUConfigured"] == "GPUSet"
    adopted = harness.get("deployments", "fraud")
    server, adapter = adopted["spec"]["template"]["spec"]["containers"]
    assert server["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert {"name": "CUDA_VISIBLE_DEVICES", "value": "1"} in server["env"]
    assert not any("gpu" in name for name in adapter["resources"].get("limits", {}))
    assert adapter["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert not adopted["spec"].get("paused")
    generation = adopted["metadata"]["generation"]
    harness.wait_for("deployments", "fraud", lambda found: found["status"]["observedGeneration"] >= generation)
    assert len(harness.list("replicasets")) == 2
    harness.reconcile("fraud")
    assert harness.get("deployments", "fraud")["metadata"]["generation"] == generation
    harness.delete("modelservices", "fraud")
    harness.reconcile("fraud")
    assert harness.find("modelservices", "fraud") is None
    released = harness.get("deployments", "fraud")
    assert released["spec"] == before["spec"]
    ours = [name for name in released["metadata"].get("annotations") or {} if name.startswith("modelservice.dev/")]
    assert ours == []
    generation = released["metadata"]["generation"]
    harness.wait_for("deployments", "fraud", lambda found: found["status"]["observedGeneration"] >= generation)
    assert len(harness.list("replicasets")) == 2


LIMITS = "spec.template.spec.containers.0.resources.limits"

WRITES = 8
"""Finalizer, ConfigMap, Service, GPU settings, adapter, end of the pause, status, first event."""


@pytest.mark.promise("survives")
@pytest.mark.promise("gpu")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(WRITES))
def test_a_deployment_is_never_left_paused_wherever_the_adoption_ends(
    harness: Harness, write: int, after: bool
) -> None:
    harness.create(deployment("fraud", namespace=harness.namespace))
    gpu = {"manage": True, "count": 1}
    harness.create(model_service("fraud", with_spec(gpu=gpu), namespace=harness.namespace))
    with pytest.raises(CrashError):
        harness.reconcile("fraud", CrashingApi(harness.api, writes=write, after=after))
    harness.reconcile("fraud")
    adopted = harness.get("deployments", "fraud")
    assert not adopted["spec"].get("paused")
    assert "modelservice.dev/resume" not in adopted["metadata"]["annotations"]
    containers = adopted["spec"]["template"]["spec"]["containers"]
    assert [container["name"] for container in containers] == ["server", "mcp-adapter"]
    assert containers[0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


@pytest.mark.promise("release")
@pytest.mark.promise("gpu")
@pytest.mark.promise("strategy-lent")
def test_a_model_service_that_was_forced_away_leaves_no_gpu_and_no_borrowed_strategy(harness: Harness) -> None:
    before = harness.create(
        deployment("fraud", with_value(LIMITS, {"example.com/held": 1}), namespace=harness.namespace)
    )
    asked = with_spec(gpu={"manage": True, "visibleDevices": "0"}, rollout={"onRisk": "SurgeZero"})
    harness.create(model_service("fraud", asked, namespace=harness.namespace))
    harness.reconcile("fraud")
    adopted = harness.get("deployments", "fraud")
    annotations = adopted["metadata"]["annotations"]
    assert {"modelservice.dev/gpu", "modelservice.dev/saved-strategy"} <= set(annotations)
    assert adopted["spec"]["strategy"] != before["spec"]["strategy"]
    harness.delete_if_there("modelservices", "fraud")
    harness.wait_until_gone("modelservices", "fraud")
    harness.reconcile("fraud")
    released = harness.get("deployments", "fraud")
    assert released["spec"] == before["spec"]
    assert [name for name in released["metadata"]["annotations"] if name.startswith("modelservice.dev/")] == []
