"""The operator ends after any write and a new one goes on: always the same final state.

The API server is real; only the crash is made, at a chosen write, by a wrapper round the operator's own client.
"""

from typing import Any

import pytest

from crashing_api import CrashError, CrashingApi
from kube_harness import Harness
from kube_objects import deployment, model_service


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
