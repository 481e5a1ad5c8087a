"""GPU limits and the visibility variable of the model server's container: what to add, what is ours to remove.

Owns the rules of `spec.gpu`. The user's container is never owned by server-side apply: what is added here is written by an
ordinary patch, only where nothing of the kind is there, recorded on the workload, and removed only while it is unchanged.
A value of the user's own always wins. Pure.

Indexes are local to the container and start at 0, whatever the node calls its devices (nvidia-docker#907). A variable in
the pod template comes after what a device plugin sets and overrides it, so it may narrow the count and never widen it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from modelservice_api import v1alpha1, wellknown
from modelservice_api.conditions import Reason, Reasons
from modelservice_operator.core import devices, quantities, workload

Operation = Mapping[str, Any]
"""One operation of a JSON patch (RFC 6902)."""

_VARIABLES: Final = {
    "nvidia.com": "CUDA_VISIBLE_DEVICES",
    "amd.com": "ROCR_VISIBLE_DEVICES",
    "gpu.intel.com": "ZE_AFFINITY_MASK",
}
"""The one variable by which each vendor narrows what a process sees. Two of them at once hide everything (Parsl#3858)."""

_RIVALS: Final[Mapping[str, frozenset[str]]] = {
    "ROCR_VISIBLE_DEVICES": frozenset({"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}),
}


@dataclass(frozen=True, kw_only=True)
class Edits:
    """What stands in one container because of us."""

    container: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not self.env and not self.limits

    def to_json(self) -> str:
        """The record that is kept on the workload."""
        document = {"container": self.container, "env": dict(self.env), "limits": dict(self.limits)}
        return json.dumps(document, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How it stands with `spec.gpu`: whether it holds, and in which words."""

    holds: bool
    reason: Reason
    message: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """`operations` turn the workload into what was decided, in one patch; none where it is so already."""

    operations: tuple[Operation, ...] = ()
    verdict: Verdict | None = None


def decide(target: workload.KubeObject, container: str, spec: v1alpha1.Gpu | None) -> Decision:
    """What to do for a ModelService that is not being deleted; `container` is the model server's."""
    template = workload.pod_template(target)
    before = recorded(target)
    if spec is None or not spec.manage:
        return Decision(operations=_patch(target, before, Edits()), verdict=_look(template, container))
    own = _without(template, container, before)
    verdict = _taken(template, own, spec)
    if verdict is not None:
        # What was ours before goes: two hands on one setting would be worse than none.
        return Decision(operations=_patch(target, before, Edits()), verdict=verdict)
    wanted = Edits(container=container, env=_env(own, spec), limits=_limits(own, spec))
    message = _told(spec)
    held = Verdict(holds=True, reason=Reasons.GPU_SET, message=message)
    return Decision(operations=_patch(target, before, wanted), verdict=held)


def release(target: workload.KubeObject) -> tuple[Operation, ...]:
    """The operations that take away what is ours and unchanged, and the record of it."""
    return _patch(target, recorded(target), Edits())


def recorded(target: workload.KubeObject) -> Edits:
    """What was written before; nothing where there is no record, or one that cannot be read."""
    text = workload.annotations(target).get(wellknown.GPU_ANNOTATION)
    try:
        found = json.loads(text) if text else {}
        return Edits(container=str(found.get("container", "")), env=dict(found["env"]), limits=dict(found["limits"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Edits()


def variable_of(resource: str) -> str | None:
    """The visibility variable of a resource's vendor, `None` where the vendor has none that is known here."""
    return _VARIABLES.get(resource.partition("/")[0])


def _told(spec: v1alpha1.Gpu) -> str:
    parts = [f"{spec.count} {spec.resource}"] if spec.count is not None else []
    if spec.visible_devices is not None:
        parts.append(f"{variable_of(spec.resource)}={spec.visible_devices}")
    return f"{Reasons.GPU_SET.sentence} {', '.join(parts)}." if parts else Reasons.GPU_SET.sentence


def _taken(template: Mapping[str, Any], own: Mapping[str, Any], spec: v1alpha1.Gpu) -> Verdict | None:
    """Why the container's settings are not ours to make. `own` is the container as its owner wrote it."""
    name = own.get("name")
    if (own.get("resources") or {}).get("claims") or workload.pod_spec(template).get("resourceClaims"):
        return Verdict(
            holds=False,
            reason=Reasons.GPU_MANAGED_BY_DRA,
            message=f"The pods get devices by resource claims, so spec.gpu is left aside; container {name!r} is as it was.",
        )
    asked = _device_amounts(own)
    if spec.count is not None and asked and asked != {spec.resource: str(spec.count)}:
        listed = ", ".join(f"{amount} {resource}" for resource, amount in sorted(asked.items()))
        return Verdict(
            holds=False,
            reason=Reasons.GPU_MANAGED_BY_USER,
            message=f"Container {name!r} asks for {listed} itself; that stays. Remove it there, or spec.gpu here.",
        )
    variable = variable_of(spec.resource)
    if spec.visible_devices is not None and variable is not None:
        return _variable_taken(own, variable, spec.visible_devices)
    return None


def _variable_taken(own: Mapping[str, Any], variable: str, wanted: str) -> Verdict | None:
    for entry in own.get("env") or []:
        rival = entry.get("name") in _RIVALS.get(variable, frozenset())
        if rival or (entry.get("name") == variable and entry.get("value") != wanted):
            return _env_by_user(own, f"sets {entry.get('name')} itself")
    for source in own.get("envFrom") or []:
        prefix = str(source.get("prefix") or "")
        if variable.startswith(prefix):
            return _env_by_user(own, f"takes variables from {_source_name(source)}, which may set {variable}")
    return None


def _env_by_user(own: Mapping[str, Any], how: str) -> Verdict:
    return Verdict(
        holds=False,
        reason=Reasons.ENV_MANAGED_BY_USER,
        message=f"Container {own.get('name')!r} {how}; that stays. Remove it there, or spec.gpu.visibleDevices here.",
    )


def _source_name(source: Mapping[str, Any]) -> str:
    for kind, key in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
        if source.get(key):
            return f"{kind} {source[key].get('name')!r}"
    return "another object"


def _look(template: Mapping[str, Any], container: str) -> Verdict | None:
    """What is wrong with the user's own settings, told although they are left alone: an index that no device has."""
    found = workload.container_named(template, container) or {}
    for resource, amount in sorted(_device_amounts(found).items()):
        variable = variable_of(resource)
        value = next((e.get("value") for e in found.get("env") or [] if e.get("name") == variable), None)
        number = quantities.parse(amount)
        if variable is None or not isinstance(value, str) or number is None:
            continue
        beyond = [part for part in value.split(",") if part.strip().isdigit() and int(part) >= number]
        if beyond:
            return Verdict(
                holds=False,
                reason=Reasons.VISIBLE_DEVICE_OUT_OF_RANGE,
                message=f"Container {container!r} sets {variable}={value[:64]} and has {amount} {resource}: "
                f"there is no device {beyond[0]}, indexes within a container start at 0.",
            )
    return None


def _env(own: Mapping[str, Any], spec: v1alpha1.Gpu) -> dict[str, str]:
    variable = variable_of(spec.resource)
    if variable is None or spec.visible_devices is None:
        return {}
    has_it = any(entry.get("name") == variable for entry in own.get("env") or [])
    return {} if has_it else {variable: spec.visible_devices}


def _limits(own: Mapping[str, Any], spec: v1alpha1.Gpu) -> dict[str, str]:
    return {} if spec.count is None or _device_amounts(own) else {spec.resource: str(spec.count)}


def _device_amounts(container: Mapping[str, Any]) -> dict[str, str]:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {
        resource: str(amount)
        for resource, amount in amounts.items()
        if devices.is_device(resource) and quantities.parse(str(amount))
    }


def _without(template: Mapping[str, Any], container: str, edits: Edits) -> dict[str, Any]:
    """The container as its owner wrote it: without what is ours and unchanged."""
    found = dict(workload.container_named(template, container) or {})
    if edits.container != container:
        return found
    found["env"] = [e for e in found.get("env") or [] if edits.env.get(str(e.get("name"))) != e.get("value")]
    resources = dict(found.get("resources") or {})
    limits = resources.get("limits") or {}
    resources["limits"] = {key: value for key, value in limits.items() if edits.limits.get(key) != str(value)}
    found["resources"] = resources
    return found


def _patch(target: workload.KubeObject, before: Edits, wanted: Edits) -> tuple[Operation, ...]:
    """From what was recorded to what is wanted. Every container is named by its place, which the patch tests."""
    if before == wanted or (before.empty and wanted.empty and not _has_record(target)):
        return ()
    containers = workload.containers(workload.pod_template(target))
    operations: list[Operation] = []
    for index, container in enumerate(containers):
        name = str(container.get("name"))
        old = before if before.container == name else Edits()
        new = wanted if wanted.container == name else Edits()
        if old.empty and new.empty:
            continue
        root = f"/spec/template/spec/containers/{index}"
        operations.append({"op": "test", "path": f"{root}/name", "value": name})
        operations += _env_operations(root, container, old.env, new.env)
        operations += _limit_operations(root, container, old.limits, new.limits)
    return (*operations, *_record(target, wanted))


def _env_operations(
    root: str, container: Mapping[str, Any], old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[Operation]:
    """The whole list at once: places within it shift while entries go."""
    live = list(container.get("env") or [])
    kept = [entry for entry in live if old.get(str(entry.get("name"))) != entry.get("value")]
    names = {entry.get("name") for entry in kept}
    wanted = [*kept, *({"name": name, "value": value} for name, value in sorted(new.items()) if name not in names)]
    if wanted == live:
        return
    if not wanted:
        yield {"op": "remove", "path": f"{root}/env"}
    else:
        yield {"op": "replace" if live else "add", "path": f"{root}/env", "value": wanted}


def _limit_operations(
    root: str, container: Mapping[str, Any], old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[Operation]:
    resources: dict[str, Any] = dict(container.get("resources") or {})
    live = dict(resources.get("limits") or {})
    wanted = {key: value for key, value in live.items() if old.get(key) != str(value)}
    wanted |= {key: value for key, value in new.items() if key not in wanted}
    if wanted == live:
        return
    if wanted:
        resources["limits"] = wanted
    else:
        resources.pop("limits", None)
    yield {"op": "replace" if "resources" in container else "add", "path": f"{root}/resources", "value": resources}


def _record(target: workload.KubeObject, edits: Edits) -> Iterator[Operation]:
    pointer = "/metadata/annotations/" + wellknown.GPU_ANNOTATION.replace("/", "~1")
    if edits.empty:
        if _has_record(target):
            yield {"op": "remove", "path": pointer}
        return
    if not workload.annotations(target):
        yield {"op": "add", "path": "/metadata/annotations", "value": {}}
    yield {"op": "add", "path": pointer, "value": edits.to_json()}


def _has_record(target: workload.KubeObject) -> bool:
    return wellknown.GPU_ANNOTATION in workload.annotations(target)
