"""Who may adopt what: each refusal has its reason, its condition and a sentence that says what to do."""

import dataclasses
from typing import Any

import pytest

from kube_objects import deployment, model_service, observed, with_annotation, with_container, with_spec, with_value
from modelservice_api.conditions import ConditionType
from modelservice_operator.core import plan
from modelservice_operator.core.issuers import AuthSettings
from modelservice_operator.core.observed import Observed, Rival

OTHER_UID = "99999999-0000"
OLDER = Rival(name="older", uid=OTHER_UID, created="2026-12-01T10:00:00Z", deleting=False)
YOUNGER = Rival(name="younger", uid=OTHER_UID, created="2026-12-01T11:30:00Z", deleting=False)
FOREIGN = {"metadata": {"name": "fraud-mcp", "uid": "1"}}
CONTROLLER = [{"kind": "InferenceService", "name": "fraud", "controller": True, "uid": "2"}]

ADAPTER_LIKE = {"name": "mcp-adapter", "image": "example/own:1"}


def spec(**blocks: Any) -> Observed:
    return observed(service=model_service("fraud", with_spec(**blocks)))


def target(*modifiers: Any) -> Observed:
    return observed(workload=deployment("fraud", *modifiers))


PLATFORM = AuthSettings.model_validate(
    {
        "issuers": {
            "platform": {"issuer": "https://idp.test", "jwksUri": "https://idp.test/keys"},
            "cluster": {"type": "Kubernetes"},
        }
    }
)

REFUSALS: list[tuple[str, Observed, str, ConditionType, str]] = [
    (
        "a block of a later version",
        spec(canary={"trafficPercent": 1}),
        "NotSupportedYet",
        ConditionType.ACCEPTED,
        "spec.canary",
    ),
    (
        "issuers of tokens that nobody set up",
        spec(auth={"issuers": ["platform", "corp"]}),
        "UnknownIssuer",
        ConditionType.ACCEPTED,
        "spec.auth.issuers names platform, corp; the platform admin's auth.issuers has none.",
    ),
    (
        "one issuer that was set up and one that was not",
        dataclasses.replace(spec(auth={"issuers": ["platform", "corp"]}), auth=PLATFORM),
        "UnknownIssuer",
        ConditionType.ACCEPTED,
        "spec.auth.issuers names corp; the platform admin's auth.issuers has cluster, platform.",
    ),
    (
        "ServiceAccounts of a cluster that does not let the operator see its keys",
        dataclasses.replace(spec(auth={"issuers": ["cluster"]}), auth=PLATFORM),
        "NotPermitted",
        ConditionType.ACCEPTED,
        "/openid/v1/jwks",
    ),
    (
        "two of them",
        spec(canary={"trafficPercent": 1}, autoscaling={"minReplicas": 1}),
        "NotSupportedYet",
        ConditionType.ACCEPTED,
        "spec.canary, spec.autoscaling",
    ),
    ("pod mode", spec(injection={"mode": "Pod"}), "NotSupportedYet", ConditionType.ACCEPTED, "spec.injection.mode"),
    (
        "a model that the adapter would have to run itself",
        spec(backend={"type": "TVM", "tvm": {"artifact": "/models/fraud.so"}}),
        "NotSupportedYet",
        ConditionType.ACCEPTED,
        "spec.backend.type, spec.backend.tvm",
    ),
    (
        "a spec the CRD would refuse",
        spec(limits={"timeout": "fast"}),
        "InvalidSpec",
        ConditionType.ACCEPTED,
        "limits.timeout",
    ),
    ("an unknown field", spec(replicas=3), "InvalidSpec", ConditionType.ACCEPTED, "spec.replicas"),
    (
        "a kind without a pod template to change",
        spec(workloadRef={"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "fraud"}),
        "UnsupportedKind",
        ConditionType.ACCEPTED,
        "Rollout",
    ),
    (
        "a workload in deletion",
        target(with_value("metadata.deletionTimestamp", "2026-12-01T00:00:00Z")),
        "WorkloadBeingDeleted",
        ConditionType.ACCEPTED,
        "being deleted",
    ),
    (
        "an owner who opted out",
        target(with_annotation("modelservice.dev/inject", "false")),
        "OptedOut",
        ConditionType.ACCEPTED,
        "modelservice.dev/inject",
    ),
    (
        "a workload of another controller",
        target(with_value("metadata.ownerReferences", CONTROLLER)),
        "ControlledByOther",
        ConditionType.ACCEPTED,
        "InferenceService",
    ),
    (
        "the node's network",
        target(with_value("spec.template.spec.hostNetwork", True)),
        "HostNetwork",
        ConditionType.ACCEPTED,
        "hostNetwork",
    ),
    (
        "Windows by node selector",
        target(with_value("spec.template.spec.nodeSelector", {"kubernetes.io/os": "windows"})),
        "WindowsNodes",
        ConditionType.ACCEPTED,
        "Linux",
    ),
    (
        "Windows by pod os",
        target(with_value("spec.template.spec.os", {"name": "windows"})),
        "WindowsNodes",
        ConditionType.ACCEPTED,
        "Linux",
    ),
    ("an older ModelService", observed(rivals=(OLDER,)), "WorkloadTaken", ConditionType.CONFLICT, '"older"'),
    (
        "a lock whose holder lives",
        observed(
            workload=deployment("fraud", with_annotation("modelservice.dev/owner", f"ml/other/{OTHER_UID}")),
            live_uids=frozenset({OTHER_UID}),
        ),
        "WorkloadTaken",
        ConditionType.CONFLICT,
        '"other"',
    ),
    (
        "a lock that cannot be read",
        target(with_annotation("modelservice.dev/owner", "someone")),
        "WorkloadTaken",
        ConditionType.CONFLICT,
        "someone",
    ),
    (
        "a container of our name",
        target(with_container(ADAPTER_LIKE)),
        "NameConflict",
        ConditionType.CONFLICT,
        "'mcp-adapter'",
    ),
    (
        "a container of our name and image",
        target(with_container({**ADAPTER_LIKE, "image": "modelservice/adapter:test"})),
        "NameConflict",
        ConditionType.CONFLICT,
        "'mcp-adapter'",
    ),
    (
        "an init container of our name",
        target(with_value("spec.template.spec.initContainers", [ADAPTER_LIKE])),
        "NameConflict",
        ConditionType.CONFLICT,
        "'mcp-adapter'",
    ),
    (
        "a volume of our name",
        target(with_value("spec.template.spec.volumes", [{"name": "modelservice-config"}])),
        "NameConflict",
        ConditionType.CONFLICT,
        "'modelservice-config'",
    ),
    (
        "a foreign Service of our name",
        observed(service_object=FOREIGN),
        "ServiceNameTaken",
        ConditionType.CONFLICT,
        '"fraud-mcp"',
    ),
    (
        "a foreign ConfigMap of our name",
        observed(config_map=FOREIGN),
        "ConfigMapNameTaken",
        ConditionType.CONFLICT,
        '"fraud-mcp"',
    ),
    (
        "a port another container declares",
        observed(
            service=model_service("fraud", with_spec(mcp={"port": 9000})),
            workload=deployment(
                "fraud", with_container({"name": "istio-proxy", "image": "i", "ports": [{"containerPort": 9000}]})
            ),
        ),
        "PortConflict",
        ConditionType.CONFLICT,
        "'istio-proxy'",
    ),
    ("the model server's own port", spec(mcp={"port": 8000}), "PortConflict", ConditionType.CONFLICT, "8000"),
    (
        "two possible servers",
        target(with_container({"name": "other", "image": "i", "ports": [{"containerPort": 9000}]})),
        "AmbiguousBackend",
        ConditionType.INJECTED,
        "server:8000, other:9000",
    ),
    (
        "two ports in one container",
        target(with_value("spec.template.spec.containers.0.ports", [{"containerPort": 8000}, {"containerPort": 8001}])),
        "AmbiguousBackend",
        ConditionType.INJECTED,
        "spec.backend.port",
    ),
    (
        "no declared port",
        target(with_value("spec.template.spec.containers.0.ports", [])),
        "BackendPortUnknown",
        ConditionType.INJECTED,
        "spec.backend.port",
    ),
    (
        "a container that is not there",
        spec(backend={"container": "model"}),
        "BackendContainerNotFound",
        ConditionType.INJECTED,
        "'server'",
    ),
]


@pytest.mark.promise("refuse-not-supported-yet")
@pytest.mark.promise("refuse-invalid-spec")
@pytest.mark.promise("refuse-unknown-issuer")
@pytest.mark.promise("refuse-unsupported-kind")
@pytest.mark.promise("refuse-workload-being-deleted")
@pytest.mark.promise("refuse-opted-out")
@pytest.mark.promise("refuse-controlled-by-other")
@pytest.mark.promise("refuse-host-network")
@pytest.mark.promise("refuse-windows-nodes")
@pytest.mark.promise("refuse-workload-taken")
@pytest.mark.promise("refuse-name-conflict")
@pytest.mark.promise("refuse-service-name-taken")
@pytest.mark.promise("refuse-config-map-name-taken")
@pytest.mark.promise("refuse-port-conflict")
@pytest.mark.promise("refuse-ambiguous-backend")
@pytest.mark.promise("refuse-backend-port-unknown")
@pytest.mark.promise("refuse-backend-container-not-found")
@pytest.mark.promise("refuse")
@pytest.mark.parametrize(
    ("case", "reason", "condition", "says"),
    [pytest.param(*rest, id=sentence) for sentence, *rest in REFUSALS],
)
def test_refuses_before_anything_is_written(case: Observed, reason: str, condition: ConditionType, says: str) -> None:
    decided = plan.decide(case)
    assert decided.refusal is not None
    assert (decided.refusal.reason.name, decided.refusal.condition) == (reason, condition)
    assert says in decided.refusal.message
    assert decided.workload is None
    assert decided.owned == ()
    assert decided.take_over == ()
    assert not decided.add_finalizer


@pytest.mark.promise("refuse-workload-not-found")
def test_waits_quietly_for_a_workload_that_is_not_there() -> None:
    decided = plan.decide(observed(workload=None, missing=True))
    assert decided.refusal is not None
    assert decided.refusal.reason.name == "WorkloadNotFound"


@pytest.mark.parametrize(
    "case",
    [
        observed(rivals=(YOUNGER,)),
        observed(rivals=(Rival(name="older", uid=OTHER_UID, created="2026-12-01T10:00:00Z", deleting=True),)),
        observed(workload=deployment("fraud", with_annotation("modelservice.dev/owner", f"ml/gone/{OTHER_UID}"))),
        observed(workload=deployment("fraud", with_annotation("modelservice.dev/inject", "true"))),
        spec(backend={"container": "server", "port": 9999}),
        spec(canary={}, autoscaling={}),
        target(with_container({"name": "istio-proxy", "image": "i", "ports": [{"containerPort": 15090}]})),
        target(
            with_value(
                "spec.template.spec.containers.0.ports",
                [{"containerPort": 8000}, {"containerPort": 53, "protocol": "UDP"}],
            )
        ),
    ],
    ids=[
        "a younger rival",
        "an older rival that is being deleted",
        "a lock whose holder is gone",
        "an inject annotation that says yes",
        "an explicit port that is not declared",
        "empty blocks of a later version",
        "a mesh proxy beside the server",
        "a UDP port beside the server's",
    ],
)
def test_adopts(case: Observed) -> None:
    decided = plan.decide(case)
    assert decided.refusal is None
    assert decided.workload is not None
    assert [document["kind"] for document in decided.owned] == ["ConfigMap", "Service"]
