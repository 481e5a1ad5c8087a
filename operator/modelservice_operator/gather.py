"""All reads of one pass, into one frozen `Observed`.

Owns what is looked up and in which order. Decides nothing and writes nothing; a read that fails ends the pass with a
`KubeError`, because half a picture must not lead to a decision.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from modelservice_api import wellknown
from modelservice_operator import kube_api, kube_errors
from modelservice_operator.adapters import Adapters
from modelservice_operator.core import injection, naming, workload
from modelservice_operator.core.issuers import NO_ISSUERS, AuthSettings, ClusterKeys
from modelservice_operator.core.observed import AdapterObservation, Observed, Rival, most_telling
from modelservice_operator.core.signals import NO_SIGNALS, Signals
from modelservice_operator.kube_api import KubeApi, Resource

_ASKED_ADAPTERS = 3
"""How many ready adapters are asked for a report before the pass goes on without one."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where reads come from."""

    api: KubeApi
    adapters: Adapters
    clock: Callable[[], datetime]
    adapter_image: str
    auth: AuthSettings = NO_ISSUERS
    signals: Signals = NO_SIGNALS


def goes_with_its_namespace(api: KubeApi, model_service: workload.KubeObject) -> bool:
    """Whether a ModelService is deleted because its whole namespace is.

    Asked before anything else is read: the operator's own rights in that namespace may be gone already, and with them
    every chance to release what is being deleted anyway.
    """
    metadata = model_service["metadata"]
    if not metadata.get("deletionTimestamp"):
        return False
    try:
        namespace = api.get(kube_api.NAMESPACES, kube_api.ALL_NAMESPACES, str(metadata["namespace"]))
    except kube_errors.ForbiddenError:
        return False
    return namespace is not None and bool(namespace["metadata"].get("deletionTimestamp"))


def gather(sources: Sources, model_service: workload.KubeObject) -> Observed:
    """Everything one decision over a ModelService needs.

    Raises:
        KubeError: The API server did not answer a read.
    """
    namespace, name = str(model_service["metadata"]["namespace"]), str(model_service["metadata"]["name"])
    siblings = sources.api.list(kube_api.MODEL_SERVICES, namespace)
    target = _get_workload(sources.api, model_service)
    uid = str(model_service["metadata"]["uid"])
    mode = injection.mode_of(model_service)
    own = sources.api.get(kube_api.DEPLOYMENTS, namespace, naming.service(name))
    return Observed(
        now=sources.clock(),
        model_service=model_service,
        workload=target,
        rivals=tuple(_rivals(model_service, siblings)),
        live_uids=frozenset(str(sibling["metadata"]["uid"]) for sibling in siblings) | {uid},
        service=sources.api.get(kube_api.SERVICES, namespace, naming.service(name)),
        config_map=sources.api.get(kube_api.CONFIG_MAPS, namespace, naming.config_map(name)),
        own_deployment=own,
        adapters=_observe_adapters(sources, model_service, own if mode == "Standalone" else target),
        claims=_claim_modes(sources.api, namespace, target),
        services=_services(sources.api, namespace, target, standalone=mode == "Standalone"),
        adapter_image=sources.adapter_image,
        auth=sources.auth,
        signals=sources.signals,
        cluster_keys=_cluster_keys(sources, model_service),
    )


def _cluster_keys(sources: Sources, model_service: workload.KubeObject) -> ClusterKeys | None:
    """Asked in every pass that needs them, so that rotated keys reach adapters with the next sweep at the latest."""
    named = ((model_service.get("spec") or {}).get("auth") or {}).get("issuers") or []
    if not any(sources.auth.issuers[name].is_this_cluster for name in named if name in sources.auth.issuers):
        return None
    try:
        about = sources.api.get_document("/.well-known/openid-configuration")
        issuer, jwks = about.get("issuer"), sources.api.get_document("/openid/v1/jwks")
        return ClusterKeys(issuer=issuer, jwks=jwks) if isinstance(issuer, str) and issuer else None
    except (kube_errors.ForbiddenError, kube_errors.NotFoundError):
        return None


@dataclass(frozen=True, kw_only=True)
class Abandoned:
    """A workload that still holds the adapter of a ModelService that no longer exists."""

    resource: Resource
    workload: workload.KubeObject
    manager: str


def gather_abandoned(api: KubeApi, namespace: str, name: str) -> list[Abandoned]:
    """Workloads whose lock names a ModelService of that name that is gone: it went without its finalizer.

    Raises:
        KubeError: The API server did not answer a read.
    """
    live = {str(found["metadata"]["uid"]) for found in api.list(kube_api.MODEL_SERVICES, namespace)}
    abandoned = []
    for (api_version, kind), plural in workload.ADOPTABLE.items():
        resource = Resource(api_version=api_version, plural=plural)
        for found in api.list(resource, namespace):
            holder = naming.parse_owner(workload.annotations(found).get(wellknown.OWNER_ANNOTATION, ""))
            if holder is None or holder[:2] != (namespace, name) or holder[2] in live:
                continue
            # Items of a list carry neither apiVersion nor kind.
            whole = {**found, "apiVersion": api_version, "kind": kind}
            abandoned.append(Abandoned(resource=resource, workload=whole, manager=naming.field_manager(holder[2])))
    return abandoned


def workload_resource(model_service: workload.KubeObject) -> Resource | None:
    """The resource of the workload that a ModelService names, None for kinds that cannot be adopted."""
    api_version, kind, _ = workload_key(model_service)
    plural = workload.ADOPTABLE.get((api_version, kind))
    return Resource(api_version=api_version, plural=plural) if plural else None


def workload_key(model_service: workload.KubeObject) -> tuple[str, str, str]:
    """(apiVersion, kind, name) of the workload that a ModelService names."""
    reference = (model_service.get("spec") or {}).get("workloadRef") or {}
    return (
        str(reference.get("apiVersion") or "apps/v1"),
        str(reference.get("kind") or "Deployment"),
        str(reference.get("name") or ""),
    )


def _get_workload(api: KubeApi, model_service: workload.KubeObject) -> workload.KubeObject | None:
    resource = workload_resource(model_service)
    name = workload_key(model_service)[2]
    if resource is None or not name:
        return None
    return api.get(resource, str(model_service["metadata"]["namespace"]), name)


def _rivals(model_service: workload.KubeObject, siblings: Any) -> list[Rival]:
    mine = workload_key(model_service)
    return [
        Rival(
            name=str(sibling["metadata"]["name"]),
            uid=str(sibling["metadata"]["uid"]),
            created=str(sibling["metadata"].get("creationTimestamp")),
            deleting=bool(sibling["metadata"].get("deletionTimestamp")),
        )
        for sibling in siblings
        if workload_key(sibling) == mine and sibling["metadata"]["uid"] != model_service["metadata"]["uid"]
    ]


def _claim_modes(api: KubeApi, namespace: str, target: workload.KubeObject | None) -> dict[str, tuple[str, ...]]:
    """Access modes by claim. A claim that is not there yet is left out, and so is one that we may not read."""
    if target is None:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for volume in workload.pod_spec(workload.pod_template(target)).get("volumes") or []:
        name = str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")
        if not name or name in found:
            continue
        with contextlib.suppress(kube_errors.ForbiddenError):
            claim = api.get(kube_api.VOLUME_CLAIMS, namespace, name)
            if claim is not None:
                found[name] = tuple(str(mode) for mode in (claim.get("spec") or {}).get("accessModes") or [])
    return found


def _services(
    api: KubeApi, namespace: str, target: workload.KubeObject | None, *, standalone: bool
) -> tuple[workload.KubeObject, ...]:
    """Services are looked at for a template without declared ports, which has nothing better to say, and in Standalone mode."""
    if target is None:
        return ()
    containers = workload.containers(workload.pod_template(target))
    if not standalone and any(
        container.get("ports") for container in containers if container.get("name") != wellknown.ADAPTER_CONTAINER
    ):
        return ()
    return tuple(api.list(kube_api.SERVICES, namespace))


def _observe_adapters(
    sources: Sources, model_service: workload.KubeObject, target: workload.KubeObject | None
) -> AdapterObservation:
    """Asks adapters only where one of ours stands: other pods of that port are nobody's business."""
    metadata = model_service["metadata"]
    if target is None or metadata.get("deletionTimestamp"):
        return AdapterObservation()
    mode = injection.mode_of(model_service)
    if not injection.stands(target, name=str(metadata["name"]), uid=str(metadata["uid"]), mode=mode):
        return AdapterObservation()
    container = workload.container_named(workload.pod_template(target), wellknown.ADAPTER_CONTAINER)
    ports = [number for number, _, _ in workload.declared_ports(container or {})]
    if len(ports) != 2:
        return AdapterObservation()
    mcp_port, admin_port = ports
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    hosts = _ready_hosts(sources.api, namespace, name)
    if not hosts:
        return AdapterObservation()
    asked = [sources.adapters.report(host, admin_port) for host in hosts[:_ASKED_ADAPTERS]]
    path = ((model_service.get("spec") or {}).get("mcp") or {}).get("path") or "/mcp"
    url = f"http://{naming.service_host(namespace, name)}:{mcp_port}{path}"
    report = most_telling(asked)
    handshake = sources.adapters.handshake(url, name)
    if handshake.wants_token and report is not None:
        handshake = replace(handshake, server_version=report.server.version, protocol_versions=report.protocol_versions)
    return AdapterObservation(ready_endpoints=len(hosts), report=report, handshake=handshake)


def _ready_hosts(api: KubeApi, namespace: str, name: str) -> list[str]:
    """Addresses of ready pods behind our Service, sorted so that every pass asks the same ones."""
    selector = f"kubernetes.io/service-name={naming.service(name)}"
    hosts = {
        str(address)
        for slice_ in api.list(kube_api.ENDPOINT_SLICES, namespace, selector)
        for endpoint in slice_.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready", True)
        for address in endpoint.get("addresses") or []
    }
    return sorted(hosts)
