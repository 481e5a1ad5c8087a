"""Finding the model server in a pod template: one container and one port, or a refusal that says what to set.

Owns the rule (R17 of the injection study): an explicit name first, then the one declared port there is; never a guess
and never a position in the list. Containers of meshes and log shippers are known by their exact names and are never
the model server unless named.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modelservice_api import v1alpha1, wellknown
from modelservice_api.conditions import Reasons
from modelservice_operator.core import workload
from modelservice_operator.core.refusal import Refusal


@dataclass(frozen=True, kw_only=True)
class BackendTarget:
    """The model server inside the pod."""

    container: str
    port: int


def resolve(template: Mapping[str, Any], spec: v1alpha1.Backend) -> BackendTarget | Refusal:
    """The model server that `spec` means in `template`."""
    candidates = [
        container for container in workload.containers(template) if container.get("name") != wellknown.ADAPTER_CONTAINER
    ]
    if spec.container is not None:
        chosen = [container for container in candidates if container.get("name") == spec.container]
        if not chosen:
            return Refusal(
                reason=Reasons.BACKEND_CONTAINER_NOT_FOUND,
                message=f"spec.backend.container is {spec.container!r}; the pod template has {_names(candidates)}.",
            )
        candidates = chosen
    else:
        candidates = [container for container in candidates if container.get("name") not in wellknown.HELPER_CONTAINERS]
    return _choose(candidates, spec)


def _choose(candidates: list[Mapping[str, Any]], spec: v1alpha1.Backend) -> BackendTarget | Refusal:
    declared = [
        BackendTarget(container=str(container["name"]), port=number)
        for container in candidates
        for number, _, protocol in workload.declared_ports(container)
        if protocol == "TCP"
    ]
    if spec.port is not None:
        matching = [target for target in declared if target.port == spec.port]
        if len(matching) == 1:
            return matching[0]
        if len(candidates) == 1:
            # An undeclared port is fine: declaring one is only documentation (Kubernetes API, ContainerPort).
            return BackendTarget(container=str(candidates[0]["name"]), port=spec.port)
        return Refusal(
            reason=Reasons.AMBIGUOUS_BACKEND,
            message=f"Port {spec.port} could belong to {_names(candidates)}; set spec.backend.container.",
        )
    if len(declared) == 1:
        return declared[0]
    if len(declared) > 1:
        listed = ", ".join(f"{target.container}:{target.port}" for target in declared)
        return Refusal(
            reason=Reasons.AMBIGUOUS_BACKEND,
            message=f"The model server could be {listed}; set spec.backend.container and spec.backend.port.",
        )
    if len(candidates) == 1:
        return Refusal(
            reason=Reasons.BACKEND_PORT_UNKNOWN,
            message=f"Container {candidates[0]['name']!r} declares no TCP port; set spec.backend.port.",
        )
    return Refusal(
        reason=Reasons.AMBIGUOUS_BACKEND,
        message=f"No container declares a TCP port and there are {len(candidates)} that could be the model server "
        f"({_names(candidates)}); set spec.backend.container and spec.backend.port.",
    )


def _names(candidates: list[Mapping[str, Any]]) -> str:
    return ", ".join(repr(str(container.get("name"))) for container in candidates) or "no container that could be it"
