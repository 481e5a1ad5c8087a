"""Carrying out a plan: the only module that writes to the cluster.

Owns the order of writes and what is done about a refusal by the API server. A pass may end after any of them: each write
is complete in itself, and the next pass starts from what is then seen.
"""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from modelservice_api import wellknown
from modelservice_api.conditions import ConditionType, Reasons
from modelservice_operator import kube_api, kube_errors
from modelservice_operator.core import gpu, injection, rollout
from modelservice_operator.core.observed import Observed
from modelservice_operator.core.plan import Plan, ReleasePlan, WorkloadWrite
from modelservice_operator.core.refusal import Refusal
from modelservice_operator.core.summary import Result, Summary, Told
from modelservice_operator.core.workload import KubeObject
from modelservice_operator.gather import Abandoned, workload_resource
from modelservice_operator.kube_api import KubeApi, Resource

_OWNED: Mapping[str, Resource] = {
    "Service": kube_api.SERVICES,
    "ConfigMap": kube_api.CONFIG_MAPS,
    "Deployment": kube_api.DEPLOYMENTS,
}
_BY_PLURAL: Mapping[str, Resource] = {resource.plural: resource for resource in _OWNED.values()}

_OUR_KEYS = (
    f'.containers[name="{wellknown.ADAPTER_CONTAINER}"]',
    f'.volumes[name="{wellknown.CONFIG_VOLUME}"]',
)
"""A conflict may be forced only below these: an entry that is proven ours (R8)."""


def apply_plan(api: KubeApi, observed: Observed, plan: Plan) -> Result:
    """Dry run, finalizer, owned objects, workload, in this order; the first refusal ends it.

    Raises:
        KubeError: Something that another try may mend: no answer, or a write that met a newer version.
    """
    if plan.refusal is not None:
        if plan.revocation is not None:
            api.apply(kube_api.CONFIG_MAPS, plan.revocation, manager=wellknown.FIELD_MANAGER_PREFIX, force=True)
        return Result(workload=_resume_if_left(api, observed), own_deployment=observed.own_deployment)
    try:
        if plan.workload is not None and not plan.take_over:
            # Before anything of ours exists: what the API server would refuse must leave nothing behind.
            _apply_workload(api, observed, plan.workload, dry_run=True)
        if plan.add_finalizer:
            _add_finalizer(api, observed)
        own = observed.own_deployment
        for document in plan.owned:
            applied = api.apply(_OWNED[document["kind"]], document, manager=wellknown.FIELD_MANAGER_PREFIX, force=True)
            own = applied if document["kind"] == "Deployment" else own
        for write in plan.take_over:
            _apply_workload(api, observed, write)
        written = () if plan.workload is None else (plan.workload,)
        target = _write_template(api, observed, plan.strategy, plan.gpu_settings, written, pause=plan.one_rollout)
        _delete_owned(api, observed, plan.remove)
        return Result(workload=target, wrote_workload=plan.workload is not None, own_deployment=own)
    except kube_errors.ConflictError as error:
        if not error.fields:
            raise  # a newer version, not another owner: look again
        return Result(
            workload=observed.workload, own_deployment=observed.own_deployment, refusal=_field_conflict(error)
        )
    except kube_errors.InvalidError as error:
        return Result(
            workload=observed.workload,
            own_deployment=observed.own_deployment,
            refusal=Refusal(reason=Reasons.TEMPLATE_REJECTED, message=str(error)),
        )
    except kube_errors.ForbiddenError as error:
        return Result(
            workload=observed.workload,
            own_deployment=observed.own_deployment,
            refusal=Refusal(reason=Reasons.NOT_PERMITTED, message=str(error)),
        )


def release_abandoned(api: KubeApi, abandoned: Abandoned) -> None:
    """Releases a workload whose ModelService is gone; its owned objects go by garbage collection.

    Raises:
        KubeError: The workload still holds the adapter.
    """
    target = abandoned.workload
    metadata = target["metadata"]
    strategy = rollout.give_back(target)
    borrowed: list[Mapping[str, Any]] = [*gpu.release(target)]
    borrowed += [] if strategy is None else _strategy_operations(metadata, strategy)
    borrowed += _resume_operations(target) if _was_left_paused(target) else []
    with contextlib.suppress(kube_errors.NotFoundError):
        # First what is borrowed: the apply takes the lock away, by which another try would find this workload.
        if borrowed:
            operations = [_same_version(metadata), *borrowed]
            api.json_patch(abandoned.resource, metadata["namespace"], metadata["name"], operations)
        api.apply(abandoned.resource, injection.release_document(target), manager=abandoned.manager)


def apply_release(api: KubeApi, observed: Observed, plan: ReleasePlan) -> None:
    """The workload first, then what its pods used, then the finalizer.

    Raises:
        KubeError: The release is not complete; the finalizer is still there.
    """
    with contextlib.suppress(kube_errors.NotFoundError):  # deleted meanwhile: released
        _write_template(api, observed, plan.strategy, plan.gpu_settings, plan.releases, pause=plan.one_rollout)
    _delete_owned(api, observed, plan.delete)


def _delete_owned(api: KubeApi, observed: Observed, plurals: Sequence[str]) -> None:
    live = {
        "deployments": observed.own_deployment,
        "services": observed.service,
        "configmaps": observed.config_map,
    }
    for plural in plurals:
        found = live[plural]
        assert found is not None
        metadata = found["metadata"]
        api.delete(_BY_PLURAL[plural], observed.namespace, metadata["name"], uid=str(metadata["uid"]))


def _write_template(
    api: KubeApi,
    observed: Observed,
    strategy: rollout.StrategyWrite | None,
    settings: Sequence[Mapping[str, Any]],
    writes: Sequence[WorkloadWrite],
    *,
    pause: bool,
) -> KubeObject | None:
    """Everything that changes the pod template, in the order that makes one rollout of it; the workload as it then is."""
    target = observed.workload
    if strategy is not None:
        target = write_strategy(api, observed, strategy)
    if settings:
        target = _write_gpu(api, observed, target, settings, pause=pause)
    try:
        for write in writes:
            target = _apply_workload(api, observed, write)
    except kube_errors.KubeError:
        if pause:  # whatever went wrong, the owner's rollouts must go on
            with contextlib.suppress(kube_errors.KubeError):
                _resume(api, observed, target)
        raise
    return _resume(api, observed, target) if _was_left_paused(target) else target


def _resume_if_left(api: KubeApi, observed: Observed) -> KubeObject | None:
    """An earlier pass may have ended between its pause and its end."""
    target = observed.workload
    return _resume(api, observed, target) if _was_left_paused(target) else target


def _was_left_paused(target: KubeObject | None) -> bool:
    return target is not None and wellknown.RESUME_ANNOTATION in (target["metadata"].get("annotations") or {})


def _write_gpu(
    api: KubeApi,
    observed: Observed,
    target: KubeObject | None,
    operations: Sequence[Mapping[str, Any]],
    *,
    pause: bool,
) -> KubeObject:
    """The GPU settings, and with `pause` no rollout before `_resume`. Of the version that was read: places in lists move."""
    assert target is not None
    wanted = [_same_version(target["metadata"]), *operations]
    if pause:
        pointer = "/metadata/annotations/" + wellknown.RESUME_ANNOTATION.replace("/", "~1")
        if not target["metadata"].get("annotations") and not any(
            o["path"] == "/metadata/annotations" for o in operations
        ):
            wanted.append({"op": "add", "path": "/metadata/annotations", "value": {}})
        wanted += [
            {"op": "add", "path": pointer, "value": "true"},
            {"op": "add", "path": "/spec/paused", "value": True},
        ]
    return _patch_workload(api, observed, wanted)


def _resume(api: KubeApi, observed: Observed, target: KubeObject | None) -> KubeObject:
    assert target is not None
    return _patch_workload(api, observed, _resume_operations(target))


def _resume_operations(target: KubeObject) -> list[dict[str, Any]]:
    pointer = "/metadata/annotations/" + wellknown.RESUME_ANNOTATION.replace("/", "~1")
    operations = [{"op": "remove", "path": pointer}]
    if target["spec"].get("paused"):
        operations.append({"op": "remove", "path": "/spec/paused"})
    return operations


def _patch_workload(api: KubeApi, observed: Observed, operations: Sequence[Mapping[str, Any]]) -> KubeObject:
    resource = workload_resource(observed.model_service)
    assert resource is not None
    assert observed.workload is not None
    metadata = observed.workload["metadata"]
    return api.json_patch(resource, metadata["namespace"], metadata["name"], operations)


def write_strategy(api: KubeApi, observed: Observed, write: rollout.StrategyWrite) -> KubeObject:
    """The update strategy and the annotation that remembers the owner's, in one write; the workload as it then is.

    Raises:
        KubeError: Somebody changed the workload meanwhile, or no answer.
    """
    resource = workload_resource(observed.model_service)
    assert resource is not None
    assert observed.workload is not None
    return _patch_strategy(api, resource, observed.workload, write)


def _patch_strategy(api: KubeApi, resource: Resource, target: KubeObject, write: rollout.StrategyWrite) -> KubeObject:
    metadata = target["metadata"]
    operations = [_same_version(metadata), *_strategy_operations(metadata, write)]
    return api.json_patch(resource, metadata["namespace"], metadata["name"], operations)


def _strategy_operations(metadata: Mapping[str, Any], write: rollout.StrategyWrite) -> list[dict[str, Any]]:
    pointer = "/metadata/annotations/" + wellknown.SAVED_STRATEGY_ANNOTATION.replace("/", "~1")
    operations: list[dict[str, Any]] = []
    if write.saved is None:
        operations.append({"op": "remove", "path": pointer})
    else:
        if not metadata.get("annotations"):
            operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
        operations.append({"op": "add", "path": pointer, "value": write.saved})
    operations.append({"op": "replace", "path": "/spec/strategy", "value": write.strategy})
    return operations


def remove_finalizer(api: KubeApi, model_service: KubeObject) -> None:
    """Lets the ModelService go.

    Raises:
        KubeError: Somebody changed the object meanwhile, or no answer.
    """
    metadata = model_service["metadata"]
    finalizers = [item for item in metadata.get("finalizers") or [] if item != wellknown.FINALIZER]
    operations = [_same_version(metadata), {"op": "replace", "path": "/metadata/finalizers", "value": finalizers}]
    with contextlib.suppress(kube_errors.NotFoundError):
        api.json_patch(kube_api.MODEL_SERVICES, metadata["namespace"], metadata["name"], operations)


def write_summary(api: KubeApi, observed: Observed, summary: Summary) -> None:
    """Status where it differs, then events.

    Raises:
        KubeError: The status could not be written; events are then told by the pass that writes it.
    """
    if observed.model_service.get("status") != summary.status:
        operations = [{"op": "add", "path": "/status", "value": summary.status}]
        try:
            api.json_patch(kube_api.MODEL_SERVICES, observed.namespace, observed.name, operations, "status")
        except kube_errors.NotFoundError:
            return
    for told in summary.events:
        tell(api, observed, told)


def tell(api: KubeApi, observed: Observed, told: Told) -> None:
    """One event on the ModelService, and on the workload where its owner must know. Never fails a pass."""
    targets: list[Mapping[str, Any]] = [observed.model_service]
    if told.on_workload and observed.workload is not None:
        targets.append(observed.workload)
    for target in targets:
        tell_on(api, target, told, observed.now)


def tell_on(api: KubeApi, target: Mapping[str, Any], told: Told, now: datetime) -> None:
    """One event on one object. Never fails a pass: the condition says the same and is written."""
    with contextlib.suppress(kube_errors.KubeError):
        api.create(kube_api.EVENTS, str(target["metadata"]["namespace"]), _event(target, told, now))


def _event(target: Mapping[str, Any], told: Told, at: datetime) -> dict[str, Any]:
    now = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = target["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name'][:200]}.", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": target["apiVersion"],
            "kind": target["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion"),
        },
        "reason": told.reason.name,
        "message": told.message[:1024],
        "type": "Warning" if told.warning else "Normal",
        "source": {"component": wellknown.MANAGED_BY},
        "reportingComponent": wellknown.MANAGED_BY,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _add_finalizer(api: KubeApi, observed: Observed) -> None:
    finalizers = [*(observed.metadata.get("finalizers") or []), wellknown.FINALIZER]
    operations = [_same_version(observed.metadata), {"op": "add", "path": "/metadata/finalizers", "value": finalizers}]
    api.json_patch(kube_api.MODEL_SERVICES, observed.namespace, observed.name, operations)


def _same_version(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The list of finalizers is written whole, so it must be the one that was read.

    A `replace`, not a `test`: the API server answers 409 to an old version, but 422 to a test that fails.
    """
    return {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}


def _apply_workload(api: KubeApi, observed: Observed, write: WorkloadWrite, *, dry_run: bool = False) -> dict[str, Any]:
    resource = workload_resource(observed.model_service)
    assert resource is not None
    try:
        return api.apply(resource, write.document, manager=write.manager, dry_run=dry_run)
    except kube_errors.ConflictError as error:
        if not (write.force and error.fields and all(_is_ours(conflict.field) for conflict in error.fields)):
            raise
        return api.apply(resource, write.document, manager=write.manager, force=True, dry_run=dry_run)


def _is_ours(field: str) -> bool:
    return any(key in field for key in _OUR_KEYS)


def _field_conflict(error: kube_errors.ConflictError) -> Refusal:
    listed = "; ".join(f"{conflict.field}: {conflict.message}" for conflict in error.fields)
    return Refusal(condition=ConditionType.CONFLICT, reason=Reasons.FIELD_CONFLICT, message=f"{listed}.")
