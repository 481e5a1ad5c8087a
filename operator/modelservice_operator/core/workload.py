"""Reading facts off raw workload objects: kinds, templates, ports, managed fields, rollout progress.

Owns the table of kinds that can be adopted and every accessor over a workload's raw JSON. Decides nothing and changes
nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from modelservice_api import wellknown

KubeObject = Mapping[str, Any]
"""A raw Kubernetes object, as the API server sent it."""

ADOPTABLE: Mapping[tuple[str, str], str] = {
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("apps/v1", "DaemonSet"): "daemonsets",
}
"""(apiVersion, kind) → plural of every kind whose pod template the operator changes."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far the workload's own controller has brought the current pod template."""

    complete: bool
    paused: bool
    stalled: bool
    text: str


def metadata(obj: KubeObject) -> Mapping[str, Any]:
    """`metadata`, empty when absent."""
    return obj.get("metadata") or {}


def annotations(obj: KubeObject) -> Mapping[str, str]:
    """`metadata.annotations`, empty when absent."""
    return metadata(obj).get("annotations") or {}


def pod_template(obj: KubeObject) -> Mapping[str, Any]:
    """`spec.template`, empty when absent."""
    return (obj.get("spec") or {}).get("template") or {}


def pod_spec(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """`spec` of a pod template, empty when absent."""
    return template.get("spec") or {}


def containers(template: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The ordinary containers of a pod template."""
    return list(pod_spec(template).get("containers") or [])


def all_containers(template: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Ordinary and init containers of a pod template."""
    return containers(template) + list(pod_spec(template).get("initContainers") or [])


def container_named(template: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The ordinary container of that exact name."""
    return next((container for container in containers(template) if container.get("name") == name), None)


def declared_ports(container: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    """(number, name, protocol) of each declared port."""
    for port in container.get("ports") or []:
        yield int(port["containerPort"]), str(port.get("name", "")), str(port.get("protocol", "TCP"))


def controller_of(obj: KubeObject) -> Mapping[str, Any] | None:
    """The owner reference marked as controller."""
    return next((ref for ref in metadata(obj).get("ownerReferences") or [] if ref.get("controller")), None)


def managed_by(obj: KubeObject, manager: str) -> Mapping[str, Any]:
    """`fieldsV1` that `manager` owns by server-side apply, empty when it owns nothing."""
    for entry in metadata(obj).get("managedFields") or []:
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            fields: Mapping[str, Any] = entry.get("fieldsV1") or {}
            return fields
    return {}


def owns_adapter(obj: KubeObject, manager: str) -> bool:
    """Whether `manager` applied the adapter container: the proof that it is ours (injection notes, EXP 6)."""
    fields: Any = managed_by(obj, manager)
    for key in ("f:spec", "f:template", "f:spec", "f:containers"):
        fields = fields.get(key) or {}
    return f'k:{{"name":"{wellknown.ADAPTER_CONTAINER}"}}' in fields


def managers_of_adapter(obj: KubeObject) -> list[str]:
    """Operator field managers, of any ModelService, that own the adapter container."""
    names = {str(entry.get("manager")) for entry in metadata(obj).get("managedFields") or []}
    ours = sorted(name for name in names if name.startswith(f"{wellknown.FIELD_MANAGER_PREFIX}."))
    return [name for name in ours if owns_adapter(obj, name)]


def progress(obj: KubeObject) -> Progress:
    """The rollout's state, by the rules of `kubectl rollout status`."""
    spec: Mapping[str, Any] = obj.get("spec") or {}
    status: Mapping[str, Any] = obj.get("status") or {}
    generation = int(metadata(obj).get("generation") or 0)
    observed = int(status.get("observedGeneration") or 0) >= generation
    if obj.get("kind") == "DaemonSet":
        wanted = int(status.get("desiredNumberScheduled") or 0)
        updated = int(status.get("updatedNumberScheduled") or 0)
        available = int(status.get("numberAvailable") or 0)
        extra = 0
    else:
        wanted = int(spec.get("replicas", 1))
        updated = int(status.get("updatedReplicas") or 0)
        available = int(status.get("availableReplicas") or 0)
        extra = max(0, int(status.get("replicas") or 0) - updated)
    complete = observed and updated >= wanted and available >= wanted and extra == 0
    return Progress(
        complete=complete,
        paused=bool(spec.get("paused")),
        stalled=observed and _deadline_exceeded(status),
        text=f"{updated} of {wanted} updated, {available} available, {extra} of the old template left",
    )


def _deadline_exceeded(status: Mapping[str, Any]) -> bool:
    return any(
        condition.get("type") == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded"
        for condition in status.get("conditions") or []
    )
