"""The operator ends after any write and a new one goes on: always the same final state.

The API server is real; only the crash is made, at a chosen write, by a wrapper round the operator's own client.
"""

import json
from typing import Any

import pytest

from crashing_api import CrashError, CrashingApi
from kube_harness import Harness
from kube_objects import deployment, model_service, with_spec, with_value


def crash_at(harness: Harness, *, write: int, after: bool) -> bool:
    """One pass that ends at a write; whether it got there."""
    try:
        harness.reconcile("fraud", CrashingApi(harness.api, writes=write, after=after))
    except CrashError:
        return True
    return False


def final_state(harness: Harness) -> dict[str, Any]:
    workload = harness.get("deployments", "fraud")
    status = harness.get("modelservices", "fraud")["status"]
    return {
        "generation": workload["metadata"]["generation"],
        "template": workload["spec"]["template"],
        "service": harness.get("services", "fraud-mcp")["spec"]["selector"],
        "config": harness.get("configmaps", "fraud-mcp-config")["data"],
        "conditions": [(found["type"], found["status"], found["reason"]) for found in status["conditions"]],
        "finalizers": harness.get("modelservices", "fraud")["metadata"]["finalizers"],
    }


WRITES_OF_AN_ADOPTION = 6
"""Finalizer, ConfigMap, Service, workload, status, first event: a crash in later events changes nothing."""


@pytest.mark.promise("survives")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(WRITES_OF_AN_ADOPTION))
def test_an_adoption_that_ends_at_any_write_is_finished_by_the_next_pass(
    harness: Harness, write: int, after: bool
) -> None:
    harness.create(deployment("fraud", namespace=harness.namespace))
    harness.create(model_service("fraud", namespace=harness.namespace))
    assert crash_at(harness, write=write, after=after), "the adoption has fewer writes than this test believes"
    harness.reconcile("fraud")
    crashed = final_state(harness)
    harness.reconcile("fraud")
    assert final_state(harness) == crashed
    assert crashed["generation"] == 2
    assert crashed["finalizers"] == ["modelservice.dev/release"]
    assert ("Injected", "True", "Injected") in crashed["conditions"]


WRITES_OF_A_RELEASE = 6
"""Workload, Service, ConfigMap, two events, finalizer."""


@pytest.mark.promise("survives")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(WRITES_OF_A_RELEASE))
def test_a_release_that_ends_at_any_write_is_finished_by_the_next_pass(
    harness: Harness, write: int, after: bool
) -> None:
    before = harness.create(deployment("fraud", namespace=harness.namespace))
    harness.create(model_service("fraud", namespace=harness.namespace))
    harness.reconcile("fraud")
    harness.delete("modelservices", "fraud")
    assert crash_at(harness, write=write, after=after), "the release has fewer writes than this test believes"
    harness.reconcile("fraud")
    assert harness.find("modelservices", "fraud") is None
    workload = harness.get("deployments", "fraud")
    assert workload["spec"] == before["spec"]
    assert workload["metadata"]["generation"] == 3
    assert harness.find("services", "fraud-mcp") is None
    assert harness.find("configmaps", "fraud-mcp-config") is None


WRITES_OF_A_RISKY_ADOPTION = WRITES_OF_AN_ADOPTION + 1
"""The update strategy comes before the workload."""

ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
WITHOUT_SURGE = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


@pytest.mark.promise("survives")
@pytest.mark.promise("strategy-lent")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(WRITES_OF_A_RISKY_ADOPTION))
def test_a_lent_strategy_is_remembered_wherever_the_adoption_ends(harness: Harness, write: int, after: bool) -> None:
    gpu = with_value("spec.template.spec.containers.0.resources", {"limits": {"nvidia.com/gpu": 1}})
    harness.create(deployment("fraud", gpu, namespace=harness.namespace))
    asked = with_spec(rollout={"onRisk": "SurgeZero"})
    harness.create(model_service("fraud", asked, namespace=harness.namespace))
    assert crash_at(harness, write=write, after=after), "the adoption has fewer writes than this test believes"
    for _ in range(2):  # the pass that changes the template tells of the risk, the next one that there is none left
        harness.reconcile("fraud")
    crashed = final_state(harness)
    harness.reconcile("fraud")
    assert final_state(harness) == crashed
    assert crashed["generation"] == 3
    workload = harness.get("deployments", "fraud")
    assert workload["spec"]["strategy"] == WITHOUT_SURGE
    saved = workload["metadata"]["annotations"]["modelservice.dev/saved-strategy"]
    assert json.loads(saved) == ROLLING
    assert ("RolloutRisk", "False", "NoRolloutRisk") in crashed["conditions"]


@pytest.mark.promise("refuse-volume-held-by-one-pod")
def test_the_access_modes_of_a_claim_decide_and_nothing_is_written_where_they_refuse(harness: Harness) -> None:
    volumes = with_value(
        "spec.template.spec.volumes", [{"name": "w", "persistentVolumeClaim": {"claimName": "weights"}}]
    )
    harness.create(deployment("fraud", volumes, namespace=harness.namespace))
    harness.create(claim("weights", "ReadWriteOnce", namespace=harness.namespace))
    harness.create(model_service("fraud", namespace=harness.namespace))
    status = harness.reconcile("fraud")
    conditions = {each["type"]: each["reason"] for each in status["conditions"]}
    assert conditions["RolloutRisk"] == conditions["Injected"] == "VolumeHeldByOnePod"
    assert harness.get("deployments", "fraud")["metadata"]["generation"] == 1
    assert harness.find("services", "fraud-mcp") is None
    harness.delete("persistentvolumeclaims", "weights")
    harness.wait_until_gone("persistentvolumeclaims", "weights")
    harness.create(claim("weights", "ReadWriteMany", namespace=harness.namespace))
    status = harness.reconcile("fraud")
    assert ("Injected", "True") in [(each["type"], each["status"]) for each in status["conditions"]]


def claim(name: str, mode: str, *, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "finalizers": []},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
    }
