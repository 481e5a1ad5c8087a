"""What the operator would see of one ModelService, read with the user's own rights.

Owns the reads. They are those of the operator's own gathering, by way of kubectl; what is decided over them is decided by the
operator's core. Writes nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

import pydantic

from modelservice_api import wellknown
from modelservice_cli.kubectl import Kubectl, KubectlError
from modelservice_operator.core import naming, rollout, workload
from modelservice_operator.core.issuers import AuthSettings
from modelservice_operator.core.observed import AdapterObservation, Observed, Rival

MODEL_SERVICES: Final = f"{wellknown.PLURAL}.{wellknown.GROUP}"
"""The kind as kubectl is asked for it: no other group's kind of that name is meant."""

OPERATOR_SELECTOR: Final = "app.kubernetes.io/part-of=modelservice,app.kubernetes.io/component=operator"
DEFAULT_IMAGE: Final = f"modelservice/adapter:{metadata.version('modelservice')}"
"""What the chart of this version installs, where the operator's own settings are not known."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An installed operator, as its Deployment says."""

    namespace: str
    name: str
    account: str
    adapter_image: str
    version: str
    ready: int
    namespaces: tuple[str, ...]
    """The namespaces that it serves; empty for all."""
    auth: AuthSettings = field(default_factory=AuthSettings)


def find_operators(kubectl: Kubectl) -> list[Operator]:
    """Every operator of the cluster.

    Raises:
        KubectlError: Deployments of other namespaces may not be read.
    """
    return [
        _operator(found) for found in kubectl.list("deployments.apps", "--all-namespaces", f"-l{OPERATOR_SELECTOR}")
    ]


def find_operator(kubectl: Kubectl, namespace: str) -> Operator | None:
    """The operator that serves a namespace; None where there is none, or where it may not be seen."""
    try:
        found = find_operators(kubectl)
    except KubectlError:
        return None
    return next((each for each in found if not each.namespaces or namespace in each.namespaces), None)


def observe(kubectl: Kubectl, model_service: workload.KubeObject, operator: Operator | None) -> Observed:
    """Everything that a decision over the ModelService needs.

    Raises:
        CommandError: Something could not be read.
    """
    known = model_service["metadata"]
    name, uid = str(known["name"]), str(known["uid"])
    siblings = kubectl.list(MODEL_SERVICES)
    target = find_workload(kubectl, model_service)
    return assemble(
        model_service=model_service,
        target=target,
        rivals=_rivals(model_service, siblings),
        live_uids=frozenset(str(each["metadata"]["uid"]) for each in siblings) | {uid},
        service=kubectl.find("services", naming.service(name)),
        config_map=kubectl.find("configmaps", naming.config_map(name)),
        own_deployment=kubectl.find("deployments.apps", naming.service(name)),
        claims=claim_modes(kubectl, target),
        services=kubectl.list("services"),
        operator=operator,
    )


def assemble(
    *,
    model_service: workload.KubeObject,
    target: workload.KubeObject | None,
    services: Sequence[workload.KubeObject] = (),
    rivals: tuple[Rival, ...] = (),
    live_uids: frozenset[str] = frozenset(),
    service: workload.KubeObject | None = None,
    config_map: workload.KubeObject | None = None,
    own_deployment: workload.KubeObject | None = None,
    claims: rollout.ClaimModes | None = None,
    operator: Operator | None = None,
    image: str = "",
) -> Observed:
    """The snapshot that the operator's core decides over. Adapters are not asked: what they say changes no pod template."""
    return Observed(
        now=datetime.now(UTC),
        model_service=_without_known_issuers(model_service, operator),
        workload=target,
        rivals=rivals,
        live_uids=live_uids or frozenset({str(model_service["metadata"]["uid"])}),
        service=service,
        config_map=config_map,
        own_deployment=own_deployment,
        adapters=AdapterObservation(),
        claims=claims or {},
        services=services,
        adapter_image=image or (operator.adapter_image if operator else DEFAULT_IMAGE),
        auth=operator.auth if operator else AuthSettings(),
    )


def reference_of(model_service: workload.KubeObject) -> tuple[str, str, str]:
    """(apiVersion, kind, name) of the workload that a ModelService names."""
    reference = (model_service.get("spec") or {}).get("workloadRef") or {}
    return (
        str(reference.get("apiVersion") or "apps/v1"),
        str(reference.get("kind") or "Deployment"),
        str(reference.get("name") or ""),
    )


def find_workload(kubectl: Kubectl, model_service: workload.KubeObject) -> dict[str, Any] | None:
    """The workload, None where it is not there or of a kind that cannot be adopted."""
    api_version, kind, name = reference_of(model_service)
    plural = workload.ADOPTABLE.get((api_version, kind))
    return kubectl.find(f"{plural}.apps", name) if plural and name else None


def claim_modes(kubectl: Kubectl, target: workload.KubeObject | None) -> dict[str, tuple[str, ...]]:
    """Access modes of the claims that a workload names. One that may not be read is left out, as by the operator."""
    volumes = workload.pod_spec(workload.pod_template(target or {})).get("volumes") or []
    names = {str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "") for volume in volumes} - {""}
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(names):
        try:
            claim = kubectl.find("persistentvolumeclaims", name)
        except KubectlError as error:
            if not error.is_forbidden:
                raise
            continue
        if claim is not None:
            found[name] = tuple(str(mode) for mode in (claim.get("spec") or {}).get("accessModes") or [])
    return found


def _rivals(model_service: workload.KubeObject, siblings: Sequence[workload.KubeObject]) -> tuple[Rival, ...]:
    mine = reference_of(model_service)
    return tuple(
        Rival(
            name=str(each["metadata"]["name"]),
            uid=str(each["metadata"]["uid"]),
            created=str(each["metadata"].get("creationTimestamp")),
            deleting=bool(each["metadata"].get("deletionTimestamp")),
        )
        for each in siblings
        if reference_of(each) == mine and each["metadata"]["name"] != model_service["metadata"]["name"]
    )


def _without_known_issuers(model_service: workload.KubeObject, operator: Operator | None) -> workload.KubeObject:
    """Whom to trust stands in the config document and not in the pod template; only unknown issuers make a difference,
    and who they are is known only where the operator's settings are."""
    spec: Mapping[str, Any] = model_service.get("spec") or {}
    auth = spec.get("auth")
    names = (auth.get("issuers") or []) if isinstance(auth, Mapping) else []
    if not names or (operator is not None and any(name not in operator.auth.issuers for name in names)):
        return model_service
    return {**model_service, "spec": {key: value for key, value in spec.items() if key != "auth"}}


def _operator(deployment: Mapping[str, Any]) -> Operator:
    found = deployment["metadata"]
    spec = workload.pod_spec(workload.pod_template(deployment))
    variables = {
        str(each.get("name")): str(each.get("value") or "")
        for container in spec.get("containers") or []
        for each in container.get("env") or []
    }
    wide = variables.get("MODELSERVICE_CLUSTER_WIDE", "").lower() in {"1", "true", "yes"}
    served = tuple(part.strip() for part in variables.get("MODELSERVICE_NAMESPACES", "").split(",") if part.strip())
    return Operator(
        namespace=str(found["namespace"]),
        name=str(found["name"]),
        account=str(spec.get("serviceAccountName") or "default"),
        adapter_image=variables.get("MODELSERVICE_ADAPTER_IMAGE") or DEFAULT_IMAGE,
        version=str((found.get("labels") or {}).get("app.kubernetes.io/version") or ""),
        ready=int((deployment.get("status") or {}).get("readyReplicas") or 0),
        namespaces=() if wide else served,
        auth=_auth(variables.get("MODELSERVICE_AUTH") or "{}"),
    )


def _auth(text: str) -> AuthSettings:
    try:
        return AuthSettings.model_validate(json.loads(text))
    except (ValueError, pydantic.ValidationError):
        return AuthSettings()  # of another version; its own operator says what is wrong with it
