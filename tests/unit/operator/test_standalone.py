"""Standalone mode: the workload is not touched; the adapter is a Deployment of its own before the workload's Service."""

import dataclasses
from typing import Any

import pytest

from kube_objects import (
    adopted,
    deployment,
    model_service,
    modified,
    observed,
    with_annotation,
    with_spec,
    with_value,
)
from modelservice_operator.core import plan, summary
from modelservice_operator.core.observed import Observed

UID = "6217c01a-db50"


def service(name: str = "fraud", **port: Any) -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": 8000, **port}]
    return {"metadata": {"name": name, "labels": {}}, "spec": {"selector": {"app": "fraud"}, "ports": ports}}


def alone(
    *services: dict[str, Any],
    workload: dict[str, Any] | None = None,
    own: dict[str, Any] | None = None,
    **blocks: Any,
) -> Observed:
    target = modified(workload or deployment(), with_value("spec.template.metadata.labels", {"app": "fraud"}))
    asked = model_service("fraud", with_spec(injection={"mode": "Standalone"}, **blocks))
    return observed(service=asked, workload=target, services=services or (service(),), own_deployment=own)


def own_deployment(decided: plan.Plan) -> dict[str, Any]:
    return dict(next(document for document in decided.owned if document["kind"] == "Deployment"))


def running(decided: plan.Plan) -> dict[str, Any]:
    """The Deployment as it stands once its pod is ready."""
    status = {"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1, "replicas": 1}
    return modified(own_deployment(decided), with_value("metadata.generation", 1), with_value("status", status))


def conditions(seen: Observed, decided: plan.Plan) -> dict[str, tuple[str, str]]:
    result = summary.Result(workload=seen.workload, own_deployment=seen.own_deployment)
    told = summary.summarise(seen, decided, result)
    return {each["type"]: (each["status"], each["reason"]) for each in told.status["conditions"]}


@pytest.mark.promise("standalone")
def test_the_adapter_is_a_deployment_of_its_own_and_nothing_is_written_to_the_workload() -> None:
    seen = alone()
    decided = plan.decide(seen)
    assert (decided.refusal, decided.workload, decided.gpu_settings, decided.strategy) == (None, None, (), None)
    assert [document["kind"] for document in decided.owned] == ["ConfigMap", "Service", "Deployment"]
    own = own_deployment(decided)
    assert own["metadata"]["name"] == "fraud-mcp"
    assert own["metadata"]["ownerReferences"][0]["uid"] == UID
    pod = own["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    [container] = pod["containers"]
    assert "--backend-host=fraud.ml.svc" in container["args"]
    assert "--backend-port=80" in container["args"]
    selector = next(document for document in decided.owned if document["kind"] == "Service")["spec"]["selector"]
    assert selector.items() <= own["spec"]["template"]["metadata"]["labels"].items()
    assert own["spec"]["selector"]["matchLabels"] == own["spec"]["template"]["metadata"]["labels"]


@pytest.mark.promise("standalone")
def test_it_stands_when_its_deployment_does() -> None:
    first = plan.decide(alone())
    seen = alone(own=running(first))
    again = plan.decide(seen)
    assert again.injected
    assert [document["kind"] for document in again.owned] == ["ConfigMap", "Service"]
    assert conditions(seen, again)["Injected"] == ("True", "Injected")
    assert conditions(seen, again)["RolloutComplete"] == ("True", "RolloutComplete")
    released = plan.decide_release(seen)
    assert (released.releases, released.delete) == ((), ("deployments",))


@pytest.mark.promise("standalone")
@pytest.mark.parametrize(
    "modifier",
    [
        with_value(
            "metadata.ownerReferences", [{"kind": "InferenceService", "name": "f", "controller": True, "uid": "2"}]
        ),
        with_value("spec.template.spec.hostNetwork", True),
        with_value("spec.template.spec.nodeSelector", {"kubernetes.io/os": "windows"}),
        with_value("spec.template.spec.containers.0.resources", {"limits": {"nvidia.com/gpu": 1}}),
        with_value("spec.template.spec.containers.0.name", "mcp-adapter"),
    ],
    ids=[
        "another controller's",
        "on the node's network",
        "on Windows",
        "with the last GPU",
        "with a container of our name",
    ],
)
def test_what_could_not_be_changed_can_be_served_all_the_same(modifier: Any) -> None:
    assert plan.decide(alone(workload=deployment("fraud", modifier))).refusal is None


@pytest.mark.parametrize(
    ("seen", "reason", "says"),
    [
        (
            alone(service("other", targetPort=1) | {"spec": {"selector": {}, "ports": []}}),
            "BackendServiceNotFound",
            "none",
        ),
        (alone(service("a"), service("b")), "AmbiguousBackend", "a:80, b:80"),
        (alone(service(), backend={"service": "x"}), "BackendServiceNotFound", "those that do: fraud"),
        (
            alone(own={"metadata": {"name": "fraud-mcp", "uid": "1"}, "spec": {}}),
            "DeploymentNameTaken",
            'Deployment "fraud-mcp" exists',
        ),
        (
            alone(workload=deployment("fraud", with_annotation("modelservice.dev/inject", "false"))),
            "OptedOut",
            "inject",
        ),
        (alone(gpu={"manage": True, "count": 1}), "NotSupportedYet", "spec.gpu.manage"),
    ],
    ids=["no Service", "two Services", "a name that is none", "a taken name", "an owner's no", "GPU settings"],
)
@pytest.mark.promise("refuse-backend-service-not-found")
@pytest.mark.promise("refuse-deployment-name-taken")
def test_what_cannot_be_served_is_refused_with_its_reason(seen: Observed, reason: str, says: str) -> None:
    decided = plan.decide(seen)
    assert decided.refusal is not None
    assert decided.refusal.reason.name == reason
    assert says in decided.refusal.message
    assert decided.owned == ()


def test_a_name_or_a_port_in_the_spec_chooses() -> None:
    chosen = plan.decide(alone(service("a"), service("b"), backend={"service": "b"}))
    assert "--backend-host=b.ml.svc" in own_deployment(chosen)["spec"]["template"]["spec"]["containers"][0]["args"]
    ports = [
        {"name": "http", "port": 80, "targetPort": 8000},
        {"name": "grpc", "port": 81, "targetPort": 8001},
        {"name": "more", "port": 82, "targetPort": 8002},
    ]
    several = modified(service(), with_value("spec.ports", ports))
    by_target = plan.decide(alone(several, backend={"port": 8002}))
    assert "--backend-port=82" in own_deployment(by_target)["spec"]["template"]["spec"]["containers"][0]["args"]
    two = modified(service(), with_value("spec.ports", ports[:2]))
    by_name = plan.decide(alone(two))
    assert "--backend-port=80" in own_deployment(by_name)["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.promise("nothing-lost")
def test_the_way_from_one_mode_to_the_other_never_leaves_clients_without_an_adapter() -> None:
    workload_mode = plan.decide(observed())
    assert workload_mode.rendered is not None
    injected = adopted(deployment(), workload_mode.rendered, uid=UID)
    first = plan.decide(alone(workload=injected))
    assert first.workload is None, "the injected adapter goes on until the other one serves"
    serving = plan.decide(alone(workload=injected, own=running(first)))
    assert serving.workload is not None
    assert "spec" not in serving.workload.document, "a release"

    back = observed(workload=injected, own_deployment=running(first))
    assert plan.decide(back).remove == ()
    done = {"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1, "replicas": 1}
    complete = observed(workload=modified(injected, with_value("status", done)), own_deployment=running(first))
    assert plan.decide(complete).remove == ("deployments",)


def test_a_newer_operator_leaves_the_image_of_its_deployment_as_it_is() -> None:
    first = plan.decide(dataclasses.replace(alone(), adapter_image="modelservice/adapter:older"))
    again = plan.decide(alone(own=running(first)))
    assert again.injected
    assert again.rendered is not None
    assert again.rendered.image == "modelservice/adapter:older"
    named = plan.decide(alone(own=running(first), adapter={"image": "modelservice/adapter:named"}))
    assert not named.injected
