"""Rollouts that would take the model away are seen before the pod template is changed."""

import copy
import json
from typing import Any

import pytest

from kube_objects import adopted, deployment, model_service, modified, observed, with_annotation, with_spec, with_value
from modelservice_api import wellknown
from modelservice_api.conditions import ConditionType
from modelservice_operator.core import devices, plan, rollout, summary
from modelservice_operator.core.observed import Observed

UID = "6217c01a-db50"
GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
DEFAULT = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}


def workload(
    *,
    kind: str = "Deployment",
    replicas: int = 1,
    strategy: dict[str, Any] | None = None,
    container: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    **pod: Any,
) -> dict[str, Any]:
    found = copy.deepcopy(deployment())
    found["kind"] = kind
    found["spec"]["replicas"] = replicas
    found["spec"]["strategy" if kind == "Deployment" else "updateStrategy"] = strategy or DEFAULT
    found["spec"]["template"]["spec"].update(pod)
    found["spec"]["template"]["spec"]["containers"][0].update(container or {})
    if labels:
        found["spec"]["template"]["metadata"]["labels"] = labels
    return found


def rolling(surge: object, unavailable: object) -> dict[str, Any]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def volume(claim: str = "weights", **more: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "weights", "persistentVolumeClaim": {"claimName": claim, **more}}]}


APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "fraud"}}}
        ]
    }
}
SLOW = {"startupProbe": {"periodSeconds": 10, "failureThreshold": 60}}
FETCHED = {
    "initContainers": [{"name": "fetch", "image": "x", "volumeMounts": [{"name": "model", "mountPath": "/model"}]}],
    "volumes": [{"name": "model", "emptyDir": {}}],
}
READS_MODEL = {"volumeMounts": [{"name": "model", "mountPath": "/model"}]}

RISKY: list[tuple[str, dict[str, Any], str]] = [
    ("one GPU and no room", workload(container=GPU), "NoDeviceToSurge"),
    ("three GPUs and no room", workload(replicas=3, container=GPU), "NoDeviceToSurge"),
    ("a MIG slice", workload(container={"resources": {"limits": {"nvidia.com/mig-1g.5gb": 1}}}), "NoDeviceToSurge"),
    ("an AMD GPU", workload(container={"resources": {"limits": {"amd.com/gpu": "1"}}}), "NoDeviceToSurge"),
    ("a Gaudi", workload(container={"resources": {"limits": {"habana.ai/gaudi": 8}}}), "NoDeviceToSurge"),
    ("a TPU", workload(container={"resources": {"limits": {"google.com/tpu": 4}}}), "NoDeviceToSurge"),
    ("a Neuron device", workload(container={"resources": {"limits": {"aws.amazon.com/neuron": 1}}}), "NoDeviceToSurge"),
    ("an Intel GPU", workload(container={"resources": {"limits": {"gpu.intel.com/xe": 1}}}), "NoDeviceToSurge"),
    ("a device claim", workload(container={"resources": {"claims": [{"name": "gpu"}]}}), "NoDeviceToSurge"),
    ("a GPU of an init container", workload(initContainers=[{"name": "i", **GPU}]), "NoDeviceToSurge"),
    ("one claim for all", workload(resourceClaims=[{"name": "g", "resourceClaimName": "one"}]), "ClaimHeldByOnePod"),
    ("a volume of one node", workload(**volume()), "VolumeHeldByOnePod"),
    ("a host port", workload(container={"ports": [{"containerPort": 8000, "hostPort": 80}]}), "HostPortHeld"),
    ("pods kept apart", workload(labels={"app": "fraud"}, affinity=APART), "AntiAffinityBlocksSurge"),
    ("a slow start under Recreate", workload(strategy={"type": "Recreate"}, container=SLOW), "SlowStart"),
    ("a slow StatefulSet of one", workload(kind="StatefulSet", container=SLOW), "SlowStart"),
    (
        "a model fetched at start",
        workload(strategy={"type": "Recreate"}, container=READS_MODEL, **FETCHED),
        "ModelInPodOnly",
    ),
]
SAFE: list[tuple[str, dict[str, Any]]] = [
    ("no device", workload()),
    ("a GPU under Recreate", workload(strategy={"type": "Recreate"}, container=GPU)),
    ("four replicas, of which one may go", workload(replicas=4, container=GPU)),
    ("a strategy without surge", workload(strategy=rolling(0, 1), container=GPU)),
    ("surge and unavailable both nothing", workload(strategy=rolling("0%", "0%"), container=GPU)),
    ("no replicas", workload(replicas=0, container=GPU)),
    ("an amount of nothing", workload(container={"resources": {"limits": {"nvidia.com/gpu": "0"}}})),
    ("a StatefulSet", workload(kind="StatefulSet", container=GPU)),
    ("a DaemonSet", workload(kind="DaemonSet", strategy=rolling(0, 1), container=GPU)),
    ("a volume that is only read", workload(**volume(readOnly=True))),
    ("other pods kept apart", workload(labels={"app": "other"}, affinity=APART)),
    ("a slow start with a successor", workload(container=SLOW)),
    ("memory and storage", workload(container={"resources": {"limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}}})),
]


@pytest.mark.parametrize(("target", "reason"), [pytest.param(*rest, id=name) for name, *rest in RISKY])
@pytest.mark.promise("refuse-no-device-to-surge")
@pytest.mark.promise("refuse-claim-held-by-one-pod")
@pytest.mark.promise("refuse-volume-held-by-one-pod")
@pytest.mark.promise("refuse-host-port-held")
@pytest.mark.promise("refuse-anti-affinity-blocks-surge")
@pytest.mark.promise("refuse-slow-start")
@pytest.mark.promise("refuse-model-in-pod-only")
def test_a_risky_workload_is_not_changed_until_somebody_says_how(target: dict[str, Any], reason: str) -> None:
    decided = plan.decide(observed(workload=target))
    assert decided.refusal is not None
    assert (decided.refusal.reason.name, decided.refusal.condition) == (reason, ConditionType.ROLLOUT_RISK)
    assert "set spec.rollout.onRisk" in decided.refusal.message
    assert (decided.workload, decided.owned, decided.strategy, decided.add_finalizer) == (None, (), None, False)
    asked = model_service("fraud", with_spec(rollout={"onRisk": "Proceed"}))
    proceeding = plan.decide(observed(service=asked, workload=target))
    assert (proceeding.refusal, proceeding.strategy) == (None, None)
    assert proceeding.workload is not None
    assert [risk.reason.name for risk in proceeding.risks] == [reason]


@pytest.mark.parametrize("target", [pytest.param(target, id=name) for name, target in SAFE])
def test_a_workload_with_room_is_changed_without_a_question(target: dict[str, Any]) -> None:
    decided = plan.decide(observed(workload=target))
    assert decided.refusal is None
    assert decided.risks == ()
    assert decided.workload is not None


def test_a_volume_that_many_nodes_share_is_no_risk_and_an_unknown_one_is() -> None:
    target = workload(**volume("weights"))
    assert rollout.risks(target, {"weights": ("ReadWriteMany",)}) == ()
    assert rollout.risks(target, {"weights": ("ReadOnlyMany", "ReadWriteOnce")}) == ()
    assert [risk.reason.name for risk in rollout.risks(target, {"weights": ("ReadWriteOncePod",)})] == [
        "VolumeHeldByOnePod"
    ]
    assert len(rollout.risks(target, {})) == 1


def test_the_refusal_is_told_under_its_own_condition_and_on_both_objects() -> None:
    seen = observed(workload=workload(container=GPU))
    decided = plan.decide(seen)
    told = summary.summarise(seen, decided, summary.Result(workload=seen.workload))
    found = {each["type"]: (each["status"], each["reason"]) for each in told.status["conditions"]}
    assert found["RolloutRisk"] == ("True", "NoDeviceToSurge")
    assert found["Injected"] == ("False", "NoDeviceToSurge")
    assert found["Accepted"][0] == "True"
    assert [(event.reason.name, event.warning, event.on_workload) for event in told.events] == [
        ("NoDeviceToSurge", True, True)
    ]


def lending(target: dict[str, Any], on_risk: str = "SurgeZero", **changes: Any) -> Observed:
    service = model_service("fraud", with_spec(rollout={"onRisk": on_risk}))
    return observed(service=service, workload=target, **changes)


def written(target: dict[str, Any], write: rollout.StrategyWrite) -> dict[str, Any]:
    """The workload after the write."""
    annotated = modified(target, with_value("spec.strategy", write.strategy))
    if write.saved is None:
        del annotated["metadata"]["annotations"][wellknown.SAVED_STRATEGY_ANNOTATION]
        return annotated
    return modified(annotated, with_annotation(wellknown.SAVED_STRATEGY_ANNOTATION, write.saved))


@pytest.mark.promise("strategy-lent")
@pytest.mark.parametrize(("on_risk", "strategy"), [("SurgeZero", rolling(0, 1)), ("Recreate", {"type": "Recreate"})])
def test_a_strategy_is_lent_for_the_rollout_and_given_back_after_it(on_risk: str, strategy: dict[str, Any]) -> None:
    target = workload(container=GPU)
    first = plan.decide(lending(target, on_risk))
    assert first.strategy is not None
    assert first.strategy.strategy == strategy
    assert json.loads(first.strategy.saved or "") == DEFAULT
    assert first.rendered is not None

    lent = adopted(written(target, first.strategy), first.rendered, uid=UID)
    rolling_out = plan.decide(lending(lent, on_risk))
    assert (rolling_out.injected, rolling_out.strategy) == (True, None)

    done = {"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1, "replicas": 1}
    complete = modified(lent, with_value("status", done))
    after = plan.decide(lending(complete, on_risk))
    assert after.strategy == rollout.StrategyWrite(strategy=DEFAULT, saved=None)
    returned = written(complete, after.strategy)
    assert returned["spec"]["strategy"] == DEFAULT
    assert plan.decide(lending(returned, on_risk)).strategy is None


@pytest.mark.promise("strategy-lent")
def test_a_release_borrows_the_strategy_again_and_waits_for_its_rollout_before_it_is_over() -> None:
    target = workload(container=GPU)
    first = plan.decide(lending(target))
    assert first.rendered is not None
    standing = adopted(target, first.rendered, uid=UID)
    releasing = plan.decide_release(lending(standing))
    assert releasing.strategy is not None
    assert releasing.strategy.strategy == rolling(0, 1)
    assert releasing.awaits_rollout
    assert releasing.releases

    released = written(target, releasing.strategy)
    waiting = plan.decide_release(lending(released))
    assert (waiting.releases, waiting.strategy, waiting.awaits_rollout) == ((), None, True)

    done = {"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1, "replicas": 1}
    over = plan.decide_release(lending(modified(released, with_value("status", done))))
    assert (over.strategy, over.awaits_rollout) == (rollout.StrategyWrite(strategy=DEFAULT, saved=None), False)


def test_a_strategy_that_somebody_set_meanwhile_stays() -> None:
    target = modified(
        workload(container=GPU, strategy=rolling(2, 0)),
        with_annotation(wellknown.SAVED_STRATEGY_ANNOTATION, json.dumps(DEFAULT)),
    )
    assert rollout.give_back(target) == rollout.StrategyWrite(strategy=rolling(2, 0), saved=None)


def test_a_kind_without_such_a_strategy_is_refused_by_name() -> None:
    target = workload(kind="DaemonSet", strategy=rolling(1, 0), container=GPU)
    decided = plan.decide(lending(target))
    assert decided.refusal is not None
    assert "onRisk: SurgeZero needs a Deployment" in decided.refusal.message


def test_device_files_that_many_pods_may_open_are_no_devices() -> None:
    assert not devices.is_device("devices.kubevirt.io/kvm")
    assert not devices.is_device("requests.kubernetes.io/x")
    assert not devices.is_device("memory")
    assert devices.is_device("example.com/accelerator")
