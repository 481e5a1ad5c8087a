"""Ordered rules over what was observed: may this ModelService adopt this workload?

Owns the rules and their order. Each is a small function from `Case` to a refusal or None; the first refusal wins, and
it comes before anything is written. The sentences are what users read, so each says where and what to do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from modelservice_api import wellknown
from modelservice_api.conditions import ConditionType, Reasons
from modelservice_api.v1alpha1 import ModelServiceSpec, mode_of
from modelservice_operator.core import issuers, naming, support, workload
from modelservice_operator.core.observed import Observed
from modelservice_operator.core.refusal import Refusal


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a rule looks at."""

    observed: Observed
    spec: ModelServiceSpec

    @property
    def target(self) -> workload.KubeObject:
        """The workload; rules after `workload_not_found` may rely on it."""
        assert self.observed.workload is not None
        return self.observed.workload

    @property
    def described(self) -> str:
        """The workload as users write it, for example `Deployment "fraud"`."""
        return f'{self.spec.workload_ref.kind} "{self.spec.workload_ref.name}"'


Check = Callable[[Case], Refusal | None]


def first_refusal(case: Case) -> Refusal | None:
    """The first rule of `ADOPTION` that refuses. Rules about changing the template are none of Standalone mode's."""
    untouched = mode_of(case.spec) == "Standalone"
    rules = (check for check in ADOPTION if not (untouched and check in _ABOUT_THE_TEMPLATE))
    return next((refusal for check in rules if (refusal := check(case)) is not None), None)


def not_supported_yet(case: Case) -> Refusal | None:
    """Nothing that was asked for is silently ignored."""
    if not (fields := support.unsupported_fields(case.spec)):
        return None
    listed = ", ".join(f"spec.{field}" for field in fields)
    return Refusal(
        condition=ConditionType.ACCEPTED,
        reason=Reasons.NOT_SUPPORTED_YET,
        message=f"This version cannot do {listed}; remove {'it' if len(fields) == 1 else 'them'} or upgrade the operator.",
    )


def unknown_issuer(case: Case) -> Refusal | None:
    """Who issues tokens is the platform admin's word: an author who could name an address could send requests to it."""
    known = case.observed.auth.issuers
    unknown = [name for name in (case.spec.auth.issuers if case.spec.auth else ()) if name not in known]
    if not unknown:
        return None
    return Refusal(
        condition=ConditionType.ACCEPTED,
        reason=Reasons.UNKNOWN_ISSUER,
        message=f"spec.auth.issuers names {', '.join(unknown)}; the platform admin's auth.issuers has "
        f"{', '.join(sorted(known)) or 'none'}.",
    )


def cluster_keys_withheld(case: Case) -> Refusal | None:
    """Tokens of ServiceAccounts are verified with the API server's own keys."""
    wanted = issuers.of_this_cluster(case.observed.auth, case.spec.auth)
    if not wanted or case.observed.cluster_keys is not None:
        return None
    return Refusal(
        condition=ConditionType.ACCEPTED,
        reason=Reasons.NOT_PERMITTED,
        message=f"The API server does not let the operator get /openid/v1/jwks, which issuer {wanted[0]} needs; the chart "
        "grants it with rbac.create.",
    )


def unsupported_kind(case: Case) -> Refusal | None:
    """Only kinds whose pod template can be changed in place."""
    reference = case.spec.workload_ref
    if (reference.api_version, reference.kind) in workload.ADOPTABLE:
        return None
    return Refusal(
        condition=ConditionType.ACCEPTED,
        reason=Reasons.UNSUPPORTED_KIND,
        message=f"spec.workloadRef is {reference.api_version} {reference.kind}; "
        "use apps/v1 Deployment, StatefulSet or DaemonSet.",
    )


def workload_not_found(case: Case) -> Refusal | None:
    """Waiting for a workload costs no writes."""
    if case.observed.workload is not None:
        return None
    return Refusal(
        condition=ConditionType.ACCEPTED,
        reason=Reasons.WORKLOAD_NOT_FOUND,
        message=f'{case.described} does not exist in namespace "{case.observed.namespace}"; it is adopted when it appears.',
    )


def workload_being_deleted(case: Case) -> Refusal | None:
    """A workload in deletion is left alone."""
    if not workload.metadata(case.target).get("deletionTimestamp"):
        return None
    return Refusal(
        condition=ConditionType.ACCEPTED,
        reason=Reasons.WORKLOAD_BEING_DELETED,
        message=f"{case.described} is being deleted.",
    )


def opted_out(case: Case) -> Refusal | None:
    """The workload's owner has the last word."""
    if workload.annotations(case.target).get(wellknown.INJECT_ANNOTATION) != "false":
        return None
    return Refusal(
        condition=ConditionType.ACCEPTED,
        reason=Reasons.OPTED_OUT,
        message=f'{case.described} carries {wellknown.INJECT_ANNOTATION}: "false"; its owner must remove that first.',
    )


def controlled_by_other(case: Case) -> Refusal | None:
    """A controller that writes the whole object would undo us, and we it (kserve#2521)."""
    if (owner := workload.controller_of(case.target)) is None:
        return None
    return Refusal(
        condition=ConditionType.ACCEPTED,
        reason=Reasons.CONTROLLED_BY_OTHER,
        message=f'{case.described} belongs to {owner.get("kind")} "{owner.get("name")}", which would undo the change.',
    )


def host_network(case: Case) -> Refusal | None:
    """On the node's network the adapter's ports would be the node's (linkerd2#366)."""
    if not workload.pod_spec(workload.pod_template(case.target)).get("hostNetwork"):
        return None
    return Refusal(
        condition=ConditionType.ACCEPTED,
        reason=Reasons.HOST_NETWORK,
        message=f"{case.described} sets hostNetwork: true; the adapter's ports would be ports of the node.",
    )


def windows_nodes(case: Case) -> Refusal | None:
    """The adapter's image is for Linux."""
    spec = workload.pod_spec(workload.pod_template(case.target))
    selected = (spec.get("nodeSelector") or {}).get("kubernetes.io/os")
    if selected != "windows" and (spec.get("os") or {}).get("name") != "windows":
        return None
    return Refusal(
        condition=ConditionType.ACCEPTED,
        reason=Reasons.WINDOWS_NODES,
        message=f"{case.described} runs on Windows nodes; the adapter runs on Linux only.",
    )


def older_rival(case: Case) -> Refusal | None:
    """One ModelService per workload: the oldest, then the lowest uid."""
    metadata = case.observed.metadata
    mine = (str(metadata.get("creationTimestamp")), case.observed.uid)
    older = [rival for rival in case.observed.rivals if not rival.deleting and (rival.created, rival.uid) < mine]
    if not older:
        return None
    winner = min(older, key=lambda rival: (rival.created, rival.uid))
    return _taken(case, winner.name)


def lock_held(case: Case) -> Refusal | None:
    """The owner annotation names another ModelService that still exists."""
    value = workload.annotations(case.target).get(wellknown.OWNER_ANNOTATION)
    if value is None or value == naming.owner(case.observed.namespace, case.observed.name, case.observed.uid):
        return None
    holder = naming.parse_owner(value)
    if holder is not None and holder[2] not in case.observed.live_uids:
        return None
    return _taken(case, holder[1] if holder else value)


def name_conflict(case: Case) -> Refusal | None:
    """A container or volume of our name that no operator applied is the user's own, whatever image it runs."""
    template = workload.pod_template(case.target)
    if workload.managers_of_adapter(case.target) or mode_of(case.spec) == "Manual":
        return None
    if any(container.get("name") == wellknown.ADAPTER_CONTAINER for container in workload.all_containers(template)):
        taken = f"container {wellknown.ADAPTER_CONTAINER!r}"
    elif _has_volume(template, wellknown.CONFIG_VOLUME):
        taken = f"volume {wellknown.CONFIG_VOLUME!r}"
    else:
        return None
    return Refusal(
        condition=ConditionType.CONFLICT,
        reason=Reasons.NAME_CONFLICT,
        message=f"{case.described} already has a {taken} of its own; rename it, the adapter needs that name.",
    )


def service_name_taken(case: Case) -> Refusal | None:
    """Never take over a Service that is not ours."""
    return _owned_name_taken(case, case.observed.service, "Service", Reasons.SERVICE_NAME_TAKEN)


def deployment_name_taken(case: Case) -> Refusal | None:
    """Never take over a Deployment that is not ours."""
    found = case.observed.own_deployment if mode_of(case.spec) == "Standalone" else None
    return _owned_name_taken(case, found, "Deployment", Reasons.DEPLOYMENT_NAME_TAKEN)


def config_map_name_taken(case: Case) -> Refusal | None:
    """Never take over a ConfigMap that is not ours."""
    return _owned_name_taken(case, case.observed.config_map, "ConfigMap", Reasons.CONFIG_MAP_NAME_TAKEN)


ADOPTION: tuple[Check, ...] = (
    not_supported_yet,  # first: the author can mend it without looking at the cluster
    unknown_issuer,
    cluster_keys_withheld,
    unsupported_kind,
    workload_not_found,
    workload_being_deleted,
    opted_out,
    controlled_by_other,
    host_network,
    windows_nodes,
    older_rival,
    lock_held,  # after the election: it also holds while the winner's predecessor is being released
    name_conflict,
    service_name_taken,
    config_map_name_taken,
    deployment_name_taken,
)
"""The rules in the order in which they are asked."""

_ABOUT_THE_TEMPLATE = frozenset({controlled_by_other, host_network, windows_nodes, lock_held, name_conflict})


def _taken(case: Case, by: str) -> Refusal:
    return Refusal(
        condition=ConditionType.CONFLICT,
        reason=Reasons.WORKLOAD_TAKEN,
        message=f'{case.described} is adopted by ModelService "{by}"; delete one of the two.',
    )


def _has_volume(template: Mapping[str, Any], name: str) -> bool:
    return any(volume.get("name") == name for volume in workload.pod_spec(template).get("volumes") or [])


def _owned_name_taken(case: Case, found: workload.KubeObject | None, kind: str, reason: Any) -> Refusal | None:
    if found is None or is_owned(found, case.observed.uid, case.observed.live_uids):
        return None
    return Refusal(
        condition=ConditionType.CONFLICT,
        reason=reason,
        message=f'{kind} "{workload.metadata(found).get("name")}" exists and is not this ModelService\'s; '
        "delete or rename it, or give the ModelService another name.",
    )


def is_owned(obj: workload.KubeObject, uid: str, live_uids: frozenset[str]) -> bool:
    """Whether an owned object is this ModelService's, or a leftover of one that is gone and of the same name."""
    references = workload.metadata(obj).get("ownerReferences") or []
    owners = {str(ref.get("uid")) for ref in references if ref.get("kind") == wellknown.KIND}
    return uid in owners or (bool(owners) and not owners & live_uids)
