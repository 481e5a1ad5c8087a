"""Which devices a pod template asks for, whatever their vendor and however they are asked for.

Owns the recognition: GPUs and other accelerators are extended resources of a container, or claims of the pod (Dynamic
Resource Allocation). Changes nothing; what the operator itself writes about GPUs is in `gpu`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from modelservice_operator.core import quantities, workload

_SHARED_BY_DESIGN = frozenset({"devices.kubevirt.io/kvm", "smarter-devices/fuse", "github.com/fuse"})
"""Extended resources that stand for a device file any number of pods may open: nobody waits for them."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A container's wish for devices: `resource` such as `nvidia.com/gpu`, or the claim's name with `claim` set."""

    container: str
    resource: str
    claim: bool = False

    def __str__(self) -> str:
        """As a user would name it."""
        return f"claim {self.resource!r} of container {self.container!r}" if self.claim else self.resource


def requests(template: Mapping[str, Any]) -> Iterator[Request]:
    """Every device that any container of the template asks for, init containers too. An amount of 0 asks for none."""
    for container in workload.all_containers(template):
        resources = container.get("resources") or {}
        name = str(container.get("name"))
        amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        for resource, amount in sorted(amounts.items()):
            if is_device(resource) and quantities.parse(str(amount)):
                yield Request(container=name, resource=resource)
        for claim in resources.get("claims") or []:
            yield Request(container=name, resource=str(claim.get("name")), claim=True)


def is_device(resource: str) -> bool:
    """Whether a resource is an extended one: `domain/name`, the domain not Kubernetes' own."""
    domain, slash, _ = resource.partition("/")
    own = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash) and not own and resource not in _SHARED_BY_DESIGN


def shared_claims(template: Mapping[str, Any]) -> list[str]:
    """Resource claims that the template names itself: every pod of the workload shares the one claim."""
    claims = workload.pod_spec(template).get("resourceClaims") or []
    return [str(claim["resourceClaimName"]) for claim in claims if claim.get("resourceClaimName")]
