"""What could go wrong when a workload's pods are replaced, seen before the pod template is changed.

Owns the rules. Adding the adapter changes the template, so that every pod is replaced once. Where a new pod cannot start
beside an old one and no old one may go first, the rollout hangs for ever, with a model that nobody can update any more
(LLMKube#192, ai-runway#400); where all old ones go first and the new ones need long, the model is away. Pure.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from modelservice_api import wellknown
from modelservice_api.conditions import Reason, Reasons
from modelservice_operator.core import devices, workload

SLOW_START_SECONDS = 600
"""From this long a start is an outage rather than a pause, where pods are replaced without a successor being ready."""


@dataclass(frozen=True, kw_only=True)
class Risk:
    """One way in which a change of the template could leave the workload without a running replica."""

    reason: Reason
    message: str


@dataclass(frozen=True, kw_only=True)
class Room:
    """How a workload's own strategy replaces pods.

    `needs_surge`: a new pod must be ready before an old one may go. `takes_all_down`: at some moment no old and no new pod
    need be ready.
    """

    needs_surge: bool
    takes_all_down: bool


ClaimModes = Mapping[str, tuple[str, ...]]
"""Access modes by the name of a PersistentVolumeClaim; a claim that was not found is absent."""


def risks(target: workload.KubeObject, claims: ClaimModes) -> tuple[Risk, ...]:
    """Every risk of replacing the workload's pods now, in a fixed order. A workload without replicas has none."""
    if target.get("kind") != "DaemonSet" and (target.get("spec") or {}).get("replicas") == 0:
        return ()
    room = room_of(target)
    template = workload.pod_template(target)
    found: list[Risk] = []
    if room.needs_surge:
        for rule in _BLOCKING:
            found += rule(template, claims)
    if room.takes_all_down:
        found += [*_slow_start(template), *_model_in_pod(template)]
    return tuple(found)


def room_of(target: workload.KubeObject) -> Room:
    """How the strategy of this workload replaces pods (Kubernetes API, apps/v1; percentages of surge are rounded up, of
    unavailability down, and both rounding to nothing lets one pod go)."""
    spec: Mapping[str, Any] = target.get("spec") or {}
    replicas = int(spec.get("replicas", 1))
    if target.get("kind") != "Deployment":
        # StatefulSets and DaemonSets stop a pod before they start its successor, unless told otherwise.
        surge = ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get("maxSurge", 0)
        surges = target.get("kind") == "DaemonSet" and surge not in (0, "0", "0%")
        return Room(
            needs_surge=surges, takes_all_down=not surges and (target.get("kind") == "DaemonSet" or replicas == 1)
        )
    strategy: Mapping[str, Any] = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return Room(needs_surge=False, takes_all_down=True)
    rolling: Mapping[str, Any] = strategy.get("rollingUpdate") or {}
    surge = _amount(rolling.get("maxSurge", "25%"), replicas, math.ceil)
    unavailable = _amount(rolling.get("maxUnavailable", "25%"), replicas, math.floor)
    if surge == unavailable == 0:
        unavailable = 1
    return Room(needs_surge=unavailable == 0, takes_all_down=unavailable >= replicas)


@dataclass(frozen=True, kw_only=True)
class StrategyWrite:
    """A Deployment's update strategy for one rollout of ours, or the owner's own given back.

    `saved` is what the annotation then holds: the owner's strategy as JSON, or `None` once it was given back.
    """

    strategy: Mapping[str, Any]
    saved: str | None


Lent = Literal["SurgeZero", "Recreate"]

_STRATEGIES: Mapping[Lent, Mapping[str, Any]] = {
    "SurgeZero": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
    "Recreate": {"type": "Recreate"},
}


def is_lent(target: workload.KubeObject) -> bool:
    """Whether the workload's strategy is one of ours at the moment."""
    return wellknown.SAVED_STRATEGY_ANNOTATION in workload.annotations(target)


def borrow(target: workload.KubeObject, lent: Lent) -> StrategyWrite | None:
    """The write that makes room for a rollout, `None` where it was made already or the kind knows no such strategy."""
    if target.get("kind") != "Deployment" or is_lent(target):
        return None
    own = (target.get("spec") or {}).get("strategy") or {}
    return StrategyWrite(strategy=_STRATEGIES[lent], saved=json.dumps(own, sort_keys=True, separators=(",", ":")))


def give_back(target: workload.KubeObject) -> StrategyWrite | None:
    """The write that gives the owner's strategy back; `None` where it is not lent.

    What somebody else wrote meanwhile stays: then only the annotation goes.
    """
    if not is_lent(target):
        return None
    current: Mapping[str, Any] = (target.get("spec") or {}).get("strategy") or {}
    if current not in _STRATEGIES.values():
        return StrategyWrite(strategy=current, saved=None)
    try:
        own = json.loads(workload.annotations(target)[wellknown.SAVED_STRATEGY_ANNOTATION])
    except ValueError:
        own = None
    return StrategyWrite(strategy=own if isinstance(own, dict) else {}, saved=None)


def _amount(value: Any, replicas: int, rounded: Callable[[float], int]) -> int:
    text = str(value)
    return rounded(int(text[:-1]) * replicas / 100) if text.endswith("%") and text[:-1].isdigit() else int(text)


def _devices(template: Mapping[str, Any], _: ClaimModes) -> Iterator[Risk]:
    asked = sorted({str(request) for request in devices.requests(template)})
    if asked:
        yield Risk(
            reason=Reasons.NO_DEVICE_TO_SURGE,
            message=f"A new pod needs {', '.join(asked)} while the old pods hold theirs, and none of them may stop first.",
        )


def _volumes(template: Mapping[str, Any], claims: ClaimModes) -> Iterator[Risk]:
    for volume in workload.pod_spec(template).get("volumes") or []:
        claim = volume.get("persistentVolumeClaim")
        if not claim or claim.get("readOnly"):
            continue
        name = str(claim.get("claimName"))
        modes = claims.get(name, ("ReadWriteOnce",))
        if not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
            yield Risk(
                reason=Reasons.VOLUME_HELD_BY_ONE_POD,
                message=f"PersistentVolumeClaim {name!r} is {', '.join(modes)}: a new pod on another node waits for it as "
                "long as an old one holds it.",
            )


def _host_ports(template: Mapping[str, Any], _: ClaimModes) -> Iterator[Risk]:
    taken = sorted(
        int(port["hostPort"])
        for container in workload.all_containers(template)
        for port in container.get("ports") or []
        if port.get("hostPort")
    )
    if taken:
        yield Risk(
            reason=Reasons.HOST_PORT_HELD,
            message=f"Host port {', '.join(map(str, taken))} is free on a node only when the old pod there has gone.",
        )


def _anti_affinity(template: Mapping[str, Any], _: ClaimModes) -> Iterator[Risk]:
    labels = (template.get("metadata") or {}).get("labels") or {}
    affinity = (workload.pod_spec(template).get("affinity") or {}).get("podAntiAffinity") or {}
    for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []:
        if _selects(term.get("labelSelector"), labels):
            yield Risk(
                reason=Reasons.ANTI_AFFINITY_BLOCKS_SURGE,
                message=f"Required anti-affinity keeps a new pod off every {term.get('topologyKey')} that an old one is on.",
            )
            return


def _shared_claims(template: Mapping[str, Any], _: ClaimModes) -> Iterator[Risk]:
    for name in devices.shared_claims(template):
        yield Risk(
            reason=Reasons.CLAIM_HELD_BY_ONE_POD,
            message=f"ResourceClaim {name!r} is one for all pods; a new pod waits for it as long as an old one holds it.",
        )


def _slow_start(template: Mapping[str, Any]) -> Iterator[Risk]:
    for container in workload.containers(template):
        seconds = _start_seconds(container)
        if seconds >= SLOW_START_SECONDS:
            yield Risk(
                reason=Reasons.SLOW_START,
                message=f"Container {container.get('name')!r} may take {seconds // 60} min to start, and no other pod need "
                "be ready in that time.",
            )


def _model_in_pod(template: Mapping[str, Any]) -> Iterator[Risk]:
    """An init container that fills a volume of the pod's own, which a container then reads, is how models are fetched."""
    spec = workload.pod_spec(template)
    own = {str(volume.get("name")) for volume in spec.get("volumes") or [] if "emptyDir" in volume}
    filled = own & _mounted(spec.get("initContainers") or [])
    for name in sorted(filled & _mounted(workload.containers(template))):
        yield Risk(
            reason=Reasons.MODEL_IN_POD_ONLY,
            message=f"Volume {name!r} is filled by an init container when a pod starts, and no other pod need be ready "
            "in that time.",
        )


def _mounted(containers: list[Mapping[str, Any]]) -> set[str]:
    return {str(mount.get("name")) for container in containers for mount in container.get("volumeMounts") or []}


def _start_seconds(container: Mapping[str, Any]) -> int:
    """What its own probes allow the container until it must be up."""
    probe: Mapping[str, Any] = container.get("startupProbe") or {}
    allowed = 0
    if probe:
        allowed = int(probe.get("periodSeconds", 10)) * int(probe.get("failureThreshold", 3))
    waits = [
        int((container.get(name) or {}).get("initialDelaySeconds") or 0)
        for name in ("startupProbe", "readinessProbe", "livenessProbe")
    ]
    return allowed + max(waits)


def _selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches (Kubernetes API, LabelSelector): an absent one matches nothing, an empty one all."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(expression, labels) for expression in selector.get("matchExpressions") or [])


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = str(expression.get("key")), expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return True  # an operator that is not known here: expect the worse


_BLOCKING: tuple[Callable[[Mapping[str, Any], ClaimModes], Iterator[Risk]], ...] = (
    _devices,
    _volumes,
    _host_ports,
    _anti_affinity,
    _shared_claims,
)
