"""The operator as a process: events, restarts, crashes, orderly ends, and the chart's rights and no others.

A real API server, the real process, a service account bound to the chart's own rules. Every wait is a watch.
"""

import contextlib
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from kube_harness import Harness, api_client
from kube_objects import deployment, model_service
from operator_process import OperatorProcess, grant_chart_rights, running_operator

ADAPTER = "mcp-adapter"


@pytest.fixture(scope="module")
def operator_kubeconfig(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grant_chart_rights(kubeconfig, tmp_path_factory.mktemp("operator"), "--set", "clusterWide=true")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "operator.log"


def is_adopted(found: dict[str, Any]) -> bool:
    return [each["name"] for each in found["spec"]["template"]["spec"]["containers"]] == ["server", ADAPTER]


def is_settled(found: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in (found.get("status") or {}).get("conditions") or []}
    return conditions.get("Injected") == "True"


def adopt(harness: Harness) -> None:
    harness.create(deployment("fraud", namespace=harness.namespace))
    harness.create(model_service("fraud", namespace=harness.namespace))
    harness.wait_for("modelservices", "fraud", is_settled)


@pytest.mark.promise("least-privilege")
def test_adopts_and_releases_with_the_rights_of_the_chart_alone(
    harness: Harness, operator_kubeconfig: Path, log: Path
) -> None:
    with running_operator(operator_kubeconfig, log) as operator:
        adopt(harness)
        assert is_adopted(harness.get("deployments", "fraud"))
        assert operator.is_healthy()
        harness.delete("modelservices", "fraud")
        harness.wait_until_gone("modelservices", "fraud")
        assert harness.find("services", "fraud-mcp") is None
        assert operator.stop() == 0
        assert "forbidden" not in operator.log
        assert "NotPermitted" not in str(harness.list("events"))


@pytest.mark.promise("least-privilege")
def test_works_in_its_namespaces_with_roles_and_sees_no_other(harness: Harness, kubeconfig: Path, log: Path) -> None:
    elsewhere = client.CoreV1Api(api_client(kubeconfig)).create_namespace({"metadata": {"generateName": "other-"}})
    outside = Harness(kubeconfig, elsewhere.metadata.name)
    outside.create(deployment("fraud", namespace=outside.namespace))
    outside.create(model_service("fraud", namespace=outside.namespace))
    rights = ("--set", f"watchNamespaces={{{harness.namespace}}},fullnameOverride={harness.namespace}")
    account = grant_chart_rights(kubeconfig, log.parent, *rights)
    with running_operator(account, log, namespaces=harness.namespace) as operator:
        adopt(harness)
        assert operator.stop() == 0
        assert "forbidden" not in operator.log
    assert outside.get("modelservices", "fraud").get("status") is None
    assert outside.get("deployments", "fraud")["metadata"]["generation"] == 1


@pytest.mark.promise("adopt")
def test_order_of_appearance_does_not_matter(harness: Harness, operator_kubeconfig: Path, log: Path) -> None:
    with running_operator(operator_kubeconfig, log):
        harness.create(model_service("fraud", namespace=harness.namespace))
        harness.wait_for("modelservices", "fraud", lambda found: "status" in found)
        harness.create(deployment("fraud", namespace=harness.namespace))
        harness.wait_for("deployments", "fraud", is_adopted)
        first = harness.get("deployments", "fraud")["metadata"]["uid"]
        harness.delete("deployments", "fraud")
        harness.create(deployment("fraud", namespace=harness.namespace))
        harness.wait_for("deployments", "fraud", lambda found: found["metadata"]["uid"] != first and is_adopted(found))


def test_a_replaced_template_is_repaired_by_its_event_alone(
    harness: Harness, operator_kubeconfig: Path, log: Path
) -> None:
    with running_operator(operator_kubeconfig, log):
        adopt(harness)
        replaced = harness.replace(deployment("fraud", namespace=harness.namespace))
        generation = replaced["metadata"]["generation"]
        harness.wait_for(
            "deployments",
            "fraud",
            lambda found: is_adopted(found) and found["metadata"]["generation"] > generation,
        )
        assert harness.get("deployments", "fraud")["metadata"]["generation"] == generation + 1


def test_a_service_that_somebody_deleted_comes_back(harness: Harness, operator_kubeconfig: Path, log: Path) -> None:
    with running_operator(operator_kubeconfig, log):
        adopt(harness)
        gone = harness.get("services", "fraud-mcp")["metadata"]["uid"]
        harness.delete("services", "fraud-mcp")
        harness.wait_for("services", "fraud-mcp", lambda found: found["metadata"]["uid"] != gone)


def test_a_workload_waits_for_the_operator_and_is_adopted_when_it_comes(
    harness: Harness, operator_kubeconfig: Path, log: Path
) -> None:
    harness.create(deployment("fraud", namespace=harness.namespace))
    harness.create(model_service("fraud", namespace=harness.namespace))
    with running_operator(operator_kubeconfig, log):
        harness.wait_for("deployments", "fraud", is_adopted)


@pytest.mark.promise("survives")
def test_ten_kills_at_random_moments_of_an_adoption_end_in_one_rollout(
    harness: Harness, operator_kubeconfig: Path, log: Path
) -> None:
    harness.create(deployment("fraud", namespace=harness.namespace))
    harness.create(model_service("fraud", namespace=harness.namespace))
    moments = random.Random(20261201)
    for _ in range(10):
        operator = OperatorProcess(operator_kubeconfig, log)
        # The moment is the point of this test: up to a little longer than a start and an adoption take.
        with contextlib.suppress(subprocess.TimeoutExpired):
            operator.process.wait(timeout=moments.uniform(0.2, 2.5))
        operator.kill()
    with running_operator(operator_kubeconfig, log):
        harness.wait_for("modelservices", "fraud", is_settled)
    after = harness.get("deployments", "fraud")
    assert is_adopted(after)
    assert after["metadata"]["generation"] == 2


@pytest.mark.promise("one-rollout")
def test_restarts_change_nothing(harness: Harness, operator_kubeconfig: Path, log: Path) -> None:
    with running_operator(operator_kubeconfig, log):
        adopt(harness)
    before = harness.get("deployments", "fraud")
    for _ in range(2):
        with running_operator(operator_kubeconfig, log) as operator:
            # Another ModelService that settles after this start proves that the pass over the first one is behind us.
            name = f"probe-{operator.port}"
            harness.create(model_service(name, namespace=harness.namespace))
            harness.wait_for("modelservices", name, lambda found: "status" in found)
            assert operator.stop() == 0
    after = harness.get("deployments", "fraud")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


@pytest.mark.promise("release")
@pytest.mark.parametrize("scope", ["cluster-wide", "by roles of that namespace"])
def test_a_namespace_in_deletion_is_not_held_up(
    harness: Harness, operator_kubeconfig: Path, log: Path, kubeconfig: Path, scope: str
) -> None:
    """With roles of its own, the namespace takes the operator's rights away while it is being deleted."""
    account, namespaces = operator_kubeconfig, ""
    if scope != "cluster-wide":
        namespaces = harness.namespace
        account = grant_chart_rights(
            kubeconfig, log.parent, "--set", f"watchNamespaces={{{namespaces}}},fullnameOverride={namespaces}"
        )
    with running_operator(account, log, namespaces=namespaces):
        adopt(harness)
        client.CoreV1Api(api_client(kubeconfig)).delete_namespace(harness.namespace)
        harness.wait_until_gone("modelservices", "fraud")


@pytest.mark.promise("release")
def test_an_adapter_left_behind_while_no_operator_ran_is_released_when_one_comes(
    harness: Harness, operator_kubeconfig: Path, log: Path
) -> None:
    with running_operator(operator_kubeconfig, log):
        adopt(harness)
    harness.delete_if_there("modelservices", "fraud")
    assert is_adopted(harness.get("deployments", "fraud"))
    with running_operator(operator_kubeconfig, log):
        harness.wait_for("deployments", "fraud", lambda found: not is_adopted(found))


@pytest.mark.promise("survives")
def test_a_namespace_without_rights_does_not_blind_the_operator_to_the_others(
    harness: Harness, log: Path, kubeconfig: Path
) -> None:
    """So it is with a watched namespace that was deleted, once a watch of it has to be renewed."""
    account = grant_chart_rights(
        kubeconfig, log.parent, "--set", f"watchNamespaces={{{harness.namespace}}},fullnameOverride={harness.namespace}"
    )
    with running_operator(account, log, namespaces=f"nowhere,{harness.namespace}") as operator:
        operator.wait_for_log("Watching again")
        adopt(harness)
        harness.delete("modelservices", "fraud")
        harness.wait_until_gone("modelservices", "fraud")
        assert operator.is_healthy()
        assert operator.stop() == 0
