"""Workloads whose pods cannot overlap, on a real cluster with pretend GPUs: the deadlock that our own patch would make."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from installation import Installation
from kubectl_access import Namespace
from model_servers import digits, model_service

GPU = "nvidia.com/gpu"
POINTER = "/status/capacity/nvidia.com~1gpu"


@pytest.fixture
def one_gpu(installation: Installation) -> Iterator[None]:
    """One GPU that the node says it has (Kubernetes, "Advertise Extended Resources for a Node")."""
    cluster = installation.cluster
    node = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"][0]["metadata"]["name"]

    def patch(*operations: dict[str, Any]) -> None:
        command = ("patch", "node", node, "--subresource=status", "--type=json", "-p", json.dumps(operations))
        cluster.kubectl(*command)

    patch({"op": "add", "path": POINTER, "value": "1"})
    cluster.kubectl("wait", f"node/{node}", r"--for=jsonpath={.status.allocatable.nvidia\.com/gpu}=1", "--timeout=60s")
    yield
    patch({"op": "remove", "path": POINTER})


def on_a_gpu(name: str) -> dict[str, Any]:
    workload = digits(name)
    container = workload["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["limits"][GPU] = 1
    return workload


def strategy(namespace: Namespace, name: str) -> dict[str, Any]:
    found: dict[str, Any] = namespace.get("deployment", name)["spec"]["strategy"]
    return found


@pytest.mark.promise("refuse-no-device-to-surge")
@pytest.mark.promise("strategy-lent")
@pytest.mark.usefixtures("one_gpu")
def test_the_deadlock_of_the_last_gpu_is_seen_before_the_first_patch_and_avoided_when_asked(
    namespace: Namespace,
) -> None:
    namespace.apply(on_a_gpu("fraud"))
    namespace.wait_for_rollout("deployment/fraud")
    before = namespace.get("deployment", "fraud")
    namespace.apply(model_service("fraud"))
    message = namespace.wait_for_reason("fraud", "RolloutRisk", "NoDeviceToSurge")
    assert "set spec.rollout.onRisk" in message
    untouched = namespace.get("deployment", "fraud")
    assert untouched["metadata"]["generation"] == before["metadata"]["generation"]
    assert not namespace.exists("service", "fraud-mcp")
    assert ("NoDeviceToSurge", message) in namespace.events_of("Deployment", "fraud")

    namespace.kubectl(
        "patch", "modelservice", "fraud", "--type=merge", "-p", '{"spec":{"rollout":{"onRisk":"SurgeZero"}}}'
    )
    namespace.wait_for_condition("modelservice/fraud", "Ready", seconds=180)
    namespace.wait_for_rollout("deployment/fraud")
    namespace.watch(
        "deployment", "fraud", lambda found: found["spec"]["strategy"] == before["spec"]["strategy"], seconds=60
    )
    adopted = namespace.get("deployment", "fraud")
    assert "modelservice.dev/saved-strategy" not in adopted["metadata"]["annotations"]
    limits = {
        each["name"]: each["resources"].get("limits", {}).get(GPU)
        for each in adopted["spec"]["template"]["spec"]["containers"]
    }
    assert limits == {"server": "1", "mcp-adapter": None}
    assert len(namespace.find_all("replicasets")) == 2

    namespace.kubectl("delete", "modelservice", "fraud", "--timeout=180s")
    released = namespace.get("deployment", "fraud")
    assert released["spec"] == before["spec"]
    assert "modelservice.dev/saved-strategy" not in (released["metadata"].get("annotations") or {})
    namespace.wait_for_rollout("deployment/fraud")


@pytest.mark.promise("refuse-no-device-to-surge")
@pytest.mark.usefixtures("one_gpu")
def test_proceed_does_as_the_strategy_says_and_the_deadlock_is_there_to_be_seen(namespace: Namespace) -> None:
    namespace.apply(on_a_gpu("stuck"))
    namespace.wait_for_rollout("deployment/stuck")
    namespace.apply(model_service("stuck", rollout={"onRisk": "Proceed"}))
    namespace.wait_for_reason("stuck", "RolloutComplete", "RollingOut")
    pending = namespace.watch(
        "deployment", "stuck", lambda found: found["status"].get("unavailableReplicas", 0) == 1, seconds=60
    )
    assert pending["status"]["readyReplicas"] == 1, "the old pod goes on serving"
    namespace.kubectl("delete", "modelservice", "stuck", "--timeout=180s")
    namespace.wait_for_rollout("deployment/stuck")
