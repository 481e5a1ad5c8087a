"""Manual mode on a real API server: the patch that the operator offers is one that the API server takes."""

import json

import pytest

from kube_harness import Harness
from kube_objects import deployment, model_service, with_spec


@pytest.mark.promise("manual")
def test_the_owner_commits_the_patch_and_the_operator_never_writes(harness: Harness) -> None:
    before = harness.create(deployment("fraud", namespace=harness.namespace))
    mode = with_spec(injection={"mode": "Manual"})
    harness.create(model_service("fraud", mode, namespace=harness.namespace))
    status = harness.reconcile("fraud")
    assert ("Injected", "WaitingForCommit") in [(each["type"], each["reason"]) for each in status["conditions"]]
    assert harness.get("deployments", "fraud")["metadata"]["generation"] == 1
    patch = json.loads(harness.get("configmaps", "fraud-mcp-config")["data"]["patch.yaml"])
    committed = harness.strategic_merge_as_user("deployments", "fraud", patch)
    assert committed["metadata"]["generation"] == 2
    status = harness.reconcile("fraud")
    assert ("Injected", "True") in [(each["type"], each["status"]) for each in status["conditions"]]
    assert status["injection"]["mode"] == "Manual"
    harness.strategic_merge_as_user("deployments", "fraud", patch)
    harness.delete("modelservices", "fraud")
    harness.reconcile("fraud")
    assert harness.find("modelservices", "fraud") is None
    assert harness.find("configmaps", "fraud-mcp-config") is None
    after = harness.get("deployments", "fraud")
    assert after["metadata"]["generation"] == 2, "the committed adapter is its owner's to take out"
    operators = [entry for entry in after["metadata"]["managedFields"] if "modelservice" in entry["manager"]]
    assert operators == []
    [server] = [each for each in after["spec"]["template"]["spec"]["containers"] if each["name"] == "server"]
    assert server == before["spec"]["template"]["spec"]["containers"][0]
