"""The adapter as a Deployment of its own, before the Service of a workload that is not touched at all.

Owns which of the namespace's Services leads to the model server, and what that Deployment looks like. The container in it is
rendered by `adapter`, like everywhere else. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modelservice_api import v1alpha1, wellknown
from modelservice_api.conditions import Reasons
from modelservice_operator.core import backend, naming, workload
from modelservice_operator.core.adapter import Rendered
from modelservice_operator.core.refusal import Refusal


@dataclass(frozen=True, kw_only=True)
class ServiceTarget:
    """A Service of the workload and the port of it that leads to the model server."""

    service: str
    port: int


def find_service(
    template: Mapping[str, Any], spec: v1alpha1.Backend, services: Sequence[workload.KubeObject]
) -> ServiceTarget | Refusal:
    """The one Service and port that lead to the workload's pods; a name in the spec must be among them."""
    selecting = [service for service in services if backend.selects(service, template)]
    known = ", ".join(sorted(_name(service) for service in selecting)) or "none"
    if spec.service is not None:
        selecting = [service for service in selecting if _name(service) == spec.service]
    if not selecting:
        wanted = "No Service" if spec.service is None else f"No Service {spec.service!r}"
        return Refusal(
            reason=Reasons.BACKEND_SERVICE_NOT_FOUND,
            message=f"{wanted} selects the workload's pods (those that do: {known}); Standalone mode reaches the model "
            "server through one.",
        )
    found = [
        ServiceTarget(service=_name(service), port=port) for service in selecting for port in _ports(service, spec.port)
    ]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{target.service}:{target.port}" for target in found) or known
    return Refusal(
        reason=Reasons.AMBIGUOUS_BACKEND,
        message=f"The model server could be reached at {listed}; set spec.backend.service and spec.backend.port.",
    )


def build_deployment(
    *,
    metadata: Mapping[str, Any],
    name: str,
    template: Mapping[str, Any],
    meta: Mapping[str, Mapping[str, str]],
    rendered: Rendered,
) -> dict[str, Any]:
    """The Deployment. `template` is the workload's, of which it takes the credentials for pulling images and nothing else."""
    labels = {wellknown.NAME_LABEL: naming.label_value(name), wellknown.ROLE_LABEL: wellknown.ROLE_STANDALONE}
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [dict(rendered.container)],
        "volumes": [dict(rendered.volume)],
    }
    secrets = workload.pod_spec(template).get("imagePullSecrets")
    if secrets:
        pod["imagePullSecrets"] = secrets
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": dict(meta["annotations"])}, "spec": pod},
        },
    }


def _ports(service: workload.KubeObject, wanted: int | None) -> Iterator[int]:
    """Ports by the Service's own numbers; `wanted` is the model server's, or the Service's where no target has it."""
    ports = [port for port in (service.get("spec") or {}).get("ports") or [] if port.get("protocol", "TCP") == "TCP"]
    if wanted is not None:
        ports = [port for port in ports if port.get("targetPort", port["port"]) == wanted] or [
            port for port in ports if port["port"] == wanted
        ]
    elif len(ports) > 1:
        ports = [port for port in ports if not backend.speaks_otherwise(str(port.get("name", "")))] or ports
    yield from (int(port["port"]) for port in ports)


def _name(service: workload.KubeObject) -> str:
    return str((service.get("metadata") or {}).get("name"))
