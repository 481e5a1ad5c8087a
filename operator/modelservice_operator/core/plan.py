"""`Observed` → `Plan`: what to write, in which order, or why nothing may be written.

Owns the decision of one pass. A plan is a value: the shell carries it out (`apply`), and `summary` turns what came of it
into status, events and the time of the next look.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pydantic

from modelservice_api import v1alpha1, wellknown
from modelservice_api.adapter_config import AdapterConfig
from modelservice_api.conditions import ConditionType, Reasons
from modelservice_operator.core import adapter, backend, checks, gpu, injection, naming, rollout, standalone, workload
from modelservice_operator.core.adapter import Rendered
from modelservice_operator.core.backend import BackendTarget
from modelservice_operator.core.observed import Observed
from modelservice_operator.core.refusal import Refusal

Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class WorkloadWrite:
    """One server-side apply on the workload."""

    document: Document
    manager: str
    force: bool = False
    """Only ever true for an adapter container that our own manager is proven to own (R8)."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one pass does. With a `refusal` it writes nothing but status and events, and a `revocation`."""

    add_finalizer: bool = False
    owned: tuple[Document, ...] = ()
    """Service and ConfigMap to apply, before the workload: a pod must find its config when it starts."""
    remove: tuple[str, ...] = ()
    """Plurals of owned objects that another mode needed and this one does not."""
    take_over: tuple[WorkloadWrite, ...] = ()
    """Empty applies under managers of ModelServices that no longer exist."""
    strategy: rollout.StrategyWrite | None = None
    """The update strategy: borrowed before the workload is written, or given back when its pods are replaced."""
    gpu_settings: tuple[gpu.Operation, ...] = ()
    """GPU settings of the model server's container, by an ordinary patch before the adapter is applied."""
    one_rollout: bool = False
    """Several writes change the pod template: the Deployment is paused for them, so that one rollout comes of all."""
    gpu_verdict: gpu.Verdict | None = None
    workload: WorkloadWrite | None = None
    risks: tuple[rollout.Risk, ...] = ()
    """What the write to the workload may lead to. With `spec.rollout.onRisk: Refuse` there is no write, but a refusal."""
    refusal: Refusal | None = None
    revocation: Document | None = None
    """A ConfigMap that is written even with a refusal: what was taken away must not live on because of another mistake."""
    held_back: Refusal | None = None
    """Why a needed write to the workload is left out (suspended, paused); owned objects are still kept."""
    backend: BackendTarget | None = None
    rendered: Rendered | None = None
    injected: bool = False
    """Whether the adapter already stands in the template as rendered."""
    stands_alone: bool = False
    """Standalone mode: the template meant is that of the adapter's own Deployment."""
    repairs_drift: bool = False


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """How a ModelService that is being deleted lets go."""

    strategy: rollout.StrategyWrite | None = None
    """Written before the releases where it is borrowed for them, after them where it is given back."""
    gpu_settings: tuple[gpu.Operation, ...] = ()
    one_rollout: bool = False
    releases: tuple[WorkloadWrite, ...] = ()
    delete: tuple[str, ...] = field(default=())
    """Plurals of owned objects to delete, after the template was released."""
    awaits_rollout: bool = False
    """The strategy is still lent to the rollout of the release: the finalizer stays until that is done."""
    remove_finalizer: bool = True


def decide(observed: Observed) -> Plan:
    """The plan for a ModelService that is not being deleted."""
    try:
        spec = v1alpha1.ModelServiceSpec.model_validate(observed.model_service.get("spec") or {})
    except pydantic.ValidationError as error:
        return Plan(refusal=_invalid(error))
    case = checks.Case(observed=observed, spec=spec)
    if refusal := checks.first_refusal(case):
        return Plan(refusal=refusal, revocation=_revoke(observed))
    return _decide_standalone(case) if v1alpha1.mode_of(spec) == "Standalone" else _decide_adoption(case)


def decide_release(observed: Observed) -> ReleasePlan:
    """The plan for a ModelService that is being deleted. A missing workload or namespace is already released (R28)."""
    releases: tuple[WorkloadWrite, ...] = ()
    strategy, awaits_rollout = None, False
    settings: tuple[gpu.Operation, ...] = ()
    if observed.workload is not None:
        manager = naming.field_manager(observed.uid)
        if workload.managed_by(observed.workload, manager):
            document = injection.release_document(observed.workload)
            releases = (WorkloadWrite(document=document, manager=manager),)
            settings = gpu.release(observed.workload)
            strategy = _room_for_release(observed, observed.workload)
            awaits_rollout = strategy is not None or rollout.is_lent(observed.workload)
        elif rollout.is_lent(observed.workload):
            awaits_rollout = not workload.progress(observed.workload).complete
            strategy = None if awaits_rollout else rollout.give_back(observed.workload)
    owned = (
        ("deployments", observed.own_deployment),
        ("services", observed.service),
        ("configmaps", observed.config_map),
    )
    return ReleasePlan(
        strategy=strategy,
        gpu_settings=settings,
        one_rollout=bool(settings and releases) and observed.workload is not None and _can_pause(observed.workload),
        releases=releases,
        awaits_rollout=awaits_rollout,
        delete=tuple(
            plural for plural, found in owned if found is not None and checks.is_owned(found, observed.uid, frozenset())
        ),
        remove_finalizer=wellknown.FINALIZER in (observed.metadata.get("finalizers") or []),
    )


def give_back_anyway(observed: Observed) -> rollout.StrategyWrite | None:
    """The owner's strategy, where a release has waited for its rollout long enough."""
    return None if observed.workload is None else rollout.give_back(observed.workload)


def _decide_adoption(case: checks.Case) -> Plan:
    observed, spec = case.observed, case.spec
    template = workload.pod_template(case.target)
    manager = naming.field_manager(observed.uid)
    mode = v1alpha1.mode_of(spec)
    manual = mode == "Manual"
    ours = injection.stands(case.target, name=observed.name, uid=observed.uid, mode=mode)
    found = backend.resolve(template, spec.backend or v1alpha1.Backend(), observed.services)
    if isinstance(found, Refusal):
        return Plan(refusal=found)
    ports = adapter.choose_ports(
        template, spec.mcp or v1alpha1.Mcp(), found, ours=ours or bool(workload.managers_of_adapter(case.target))
    )
    if isinstance(ports, Refusal):
        return Plan(refusal=ports)
    rendered = adapter.render(
        name=observed.name, spec=spec, template=template, backend=found, ports=ports, image=_image(case, ours=ours)
    )
    meta = injection.template_metadata(
        observed.name,
        rendered,
        default_container=_default_container(case.target, manager, found.container, manual=manual),
    )
    injected = ours and injection.exists(template, meta=meta, rendered=rendered)
    held = _held_back(case, ours=ours)
    held_back = None if injected else held
    wanted = gpu.decide(case.target, found.container, spec.gpu)
    settings = () if held else wanted.operations
    strategy: rollout.StrategyWrite | None = None
    risks: tuple[rollout.Risk, ...] = ()
    if not held and (settings or not injected):
        # Paused by a pass that did not get to its end: that pass asked, and the pods are still those from before.
        unfinished = wellknown.RESUME_ANNOTATION in workload.annotations(case.target)
        risks = () if unfinished else rollout.risks(case.target, observed.claims)
        if refusal := _refuse_risk(case, risks):
            return Plan(refusal=refusal, risks=risks, backend=found, rendered=rendered)
        strategy = _room(case.target, spec, risks)
    elif workload.progress(case.target).complete:
        strategy = rollout.give_back(case.target)
    return Plan(
        gpu_settings=settings,
        gpu_verdict=None if held else wanted.verdict,
        one_rollout=bool(settings) and not injected and _can_pause(case.target),
        strategy=strategy,
        risks=risks,
        add_finalizer=wellknown.FINALIZER not in (observed.metadata.get("finalizers") or []),
        owned=tuple(
            document
            for document, live in (
                (
                    build_config_map(
                        observed,
                        spec,
                        ports,
                        patch=injection.patch_document(workload_object=case.target, meta=meta, rendered=rendered)
                        if manual
                        else None,
                    ),
                    observed.config_map,
                ),
                (build_service(observed, ports), observed.service),
            )
            if not _stands(document, live)
        ),
        take_over=() if held_back else _take_over(case, manager),
        workload=None
        if injected or held_back
        else WorkloadWrite(
            document=injection.apply_document(
                workload_object=case.target,
                owner=naming.owner(observed.namespace, observed.name, observed.uid),
                meta=meta,
                rendered=rendered,
            ),
            manager=manager,
            force=ours,
        ),
        held_back=held_back,
        remove=_outdated_deployment(case) if injected and workload.progress(case.target).complete else (),
        backend=found,
        rendered=rendered,
        injected=injected,
        repairs_drift=not injected and held_back is None and _is_drift(case, rendered),
    )


def _decide_standalone(case: checks.Case) -> Plan:
    """The adapter's own Deployment. A workload that holds an adapter from another mode is released once this one serves."""
    observed, spec = case.observed, case.spec
    template = workload.pod_template(case.target)
    found = standalone.find_service(template, spec.backend or v1alpha1.Backend(), observed.services)
    if isinstance(found, Refusal):
        return Plan(refusal=found)
    own = observed.own_deployment
    target = BackendTarget(container=wellknown.ADAPTER_CONTAINER, port=found.port, source="services")
    ports = adapter.choose_ports(
        workload.pod_template(own or {}), spec.mcp or v1alpha1.Mcp(), target, ours=own is not None
    )
    if isinstance(ports, Refusal):
        return Plan(refusal=ports)
    rendered = adapter.render(
        name=observed.name,
        spec=spec,
        template={},
        backend=target,
        ports=ports,
        image=_standalone_image(case),
        backend_host=f"{found.service}.{observed.namespace}.svc",
    )
    document = standalone.build_deployment(
        metadata=_owned_metadata(observed, naming.service(observed.name)),
        name=observed.name,
        template=template,
        meta=injection.template_metadata(observed.name, rendered, default_container=None),
        rendered=rendered,
    )
    injected = own is not None and injection.covers(own, document)
    serves = injected and own is not None and workload.progress(own).complete
    manager = naming.field_manager(observed.uid)
    leaves = serves and workload.owns_adapter(case.target, manager)
    release = WorkloadWrite(document=injection.release_document(case.target), manager=manager)
    return Plan(
        add_finalizer=wellknown.FINALIZER not in (observed.metadata.get("finalizers") or []),
        owned=tuple(
            wanted
            for wanted, live in (
                (build_config_map(observed, spec, ports), observed.config_map),
                (build_service(observed, ports), observed.service),
                (document, own),
            )
            if not _stands(wanted, live)
        ),
        workload=release if leaves else None,
        backend=target,
        rendered=rendered,
        injected=injected,
        stands_alone=True,
    )


def _standalone_image(case: checks.Case) -> str:
    if case.spec.adapter is not None and case.spec.adapter.image:
        return case.spec.adapter.image
    live = workload.container_named(
        workload.pod_template(case.observed.own_deployment or {}), wellknown.ADAPTER_CONTAINER
    )
    return str((live or {}).get("image") or case.observed.adapter_image)


def _outdated_deployment(case: checks.Case) -> tuple[str, ...]:
    """Our own Deployment of Standalone mode, when the workload's pods hold the adapter themselves."""
    own = case.observed.own_deployment
    ours = own is not None and checks.is_owned(own, case.observed.uid, case.observed.live_uids)
    return ("deployments",) if ours else ()


def _can_pause(target: workload.KubeObject) -> bool:
    """Only Deployments can be paused, and one that its owner paused stays so."""
    return target.get("kind") == "Deployment" and not (target.get("spec") or {}).get("paused")


def _refuse_risk(case: checks.Case, risks: tuple[rollout.Risk, ...]) -> Refusal | None:
    """Nothing is changed where that could take the model away, until somebody says how (R21)."""
    if not risks:
        return None
    on_risk = (case.spec.rollout or v1alpha1.Rollout()).on_risk
    told = " ".join(risk.message for risk in risks)
    if on_risk == "Refuse":
        advice = (
            "Nothing was changed; set spec.rollout.onRisk to SurgeZero (one old pod stops before a new one starts), "
            "Recreate (all stop first) or Proceed (as the strategy says)."
        )
    elif on_risk != "Proceed" and case.target.get("kind") != "Deployment":
        advice = (
            f"Nothing was changed; spec.rollout.onRisk: {on_risk} needs a Deployment, Proceed works for every kind."
        )
    else:
        return None
    return Refusal(condition=ConditionType.ROLLOUT_RISK, reason=risks[0].reason, message=f"{told} {advice}")


def _room(
    target: workload.KubeObject, spec: v1alpha1.ModelServiceSpec, risks: tuple[rollout.Risk, ...]
) -> rollout.StrategyWrite | None:
    on_risk = (spec.rollout or v1alpha1.Rollout()).on_risk
    return rollout.borrow(target, on_risk) if risks and on_risk in ("SurgeZero", "Recreate") else None


def _room_for_release(observed: Observed, target: workload.KubeObject) -> rollout.StrategyWrite | None:
    """A release replaces the pods as well, and what was agreed for the adoption holds for it."""
    try:
        spec = v1alpha1.ModelServiceSpec.model_validate(observed.model_service.get("spec") or {})
    except pydantic.ValidationError:
        return None
    return _room(target, spec, rollout.risks(target, observed.claims))


def build_service(observed: Observed, ports: adapter.Ports) -> Document:
    """The Service in front of the adapters. Numeric target: named ones were lost on native sidecars (kubernetes#127958)."""
    port = {
        "name": wellknown.MCP_PORT_NAME,
        "port": ports.mcp,
        "targetPort": ports.mcp,
        "protocol": "TCP",
        "appProtocol": "http",
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _owned_metadata(observed, naming.service(observed.name)),
        "spec": {
            "type": "ClusterIP",
            "selector": {wellknown.NAME_LABEL: naming.label_value(observed.name)},
            "ports": [port],
        },
    }


def build_config_map(
    observed: Observed, spec: v1alpha1.ModelServiceSpec, ports: adapter.Ports, *, patch: Document | None = None
) -> Document:
    """The ConfigMap with the adapter's config document, and in Manual mode the patch that its owner commits."""
    config = adapter.build_config(
        namespace=observed.namespace,
        name=observed.name,
        spec=spec,
        ports=ports,
        auth=observed.auth,
        cluster_keys=observed.cluster_keys,
        signals=observed.signals,
    )
    data = {wellknown.CONFIG_KEY: config.to_json()}
    if patch is not None:
        data[wellknown.PATCH_KEY] = json.dumps(patch, indent=2) + "\n"  # every JSON document is one of YAML
    return _config_map(observed, data)


def _config_map(observed: Observed, data: Mapping[str, str]) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _owned_metadata(observed, naming.config_map(observed.name)),
        "data": dict(data),
    }


def _revoke(observed: Observed) -> Document | None:
    """The config document as it stands, without issuers that the platform admin has taken away. None where none was."""
    live = observed.config_map
    if live is None or not checks.is_owned(live, observed.uid, observed.live_uids):
        return None
    try:
        config = AdapterConfig.model_validate_json((live.get("data") or {}).get(wellknown.CONFIG_KEY, ""))
    except pydantic.ValidationError:
        return None  # of another version; the next pass without a refusal writes it anew
    if config.auth is None or all(issuer.name in observed.auth.issuers for issuer in config.auth.issuers):
        return None
    kept = tuple(issuer for issuer in config.auth.issuers if issuer.name in observed.auth.issuers)
    left = config.model_copy(update={"auth": config.auth.model_copy(update={"issuers": kept})})
    return _config_map(observed, {**live["data"], wellknown.CONFIG_KEY: left.to_json()})


def _owned_metadata(observed: Observed, name: str) -> dict[str, Any]:
    """Same-namespace owner reference: garbage collection is the second net under `decide_release` (R4)."""
    return {
        "name": name,
        "namespace": observed.namespace,
        "labels": {
            wellknown.MANAGED_BY_LABEL: wellknown.MANAGED_BY,
            wellknown.NAME_LABEL: naming.label_value(observed.name),
        },
        "ownerReferences": [
            {
                "apiVersion": wellknown.API_VERSION,
                "kind": wellknown.KIND,
                "name": observed.name,
                "uid": observed.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }


def _stands(document: Document, live: workload.KubeObject | None) -> bool:
    return live is not None and injection.covers(live, document)


def _image(case: checks.Case, *, ours: bool) -> str:
    """The image in the CR, else the one adopted with, else the operator's: operator upgrades roll nothing (R24).

    What was adopted with is read from the status, which a `kubectl set image` on our container does not change, and from
    the container itself after a crash between the two. A copied ModelService brings no pin of its own.
    """
    if case.spec.adapter is not None and case.spec.adapter.image:
        return case.spec.adapter.image
    recorded = (case.observed.model_service.get("status") or {}).get("injection") or {}
    if _was_injected(case.observed) and recorded.get("image"):
        return str(recorded["image"])
    live = workload.container_named(workload.pod_template(case.target), wellknown.ADAPTER_CONTAINER)
    return str((live or {}).get("image") if ours else case.observed.adapter_image)


def _was_injected(observed: Observed) -> bool:
    """Whether this very ModelService had injected the adapter into this very workload: its lock is still there, or was
    dropped with the template by a writer who replaces the whole object (`kubectl replace`)."""
    conditions = (observed.model_service.get("status") or {}).get("conditions") or []
    return any(
        condition.get("type") == ConditionType.INJECTED and condition.get("status") == "True"
        for condition in conditions
    )


def _is_drift(case: checks.Case, rendered: Rendered) -> bool:
    """Whether somebody else changed what we had put there, rather than the ModelService or the user's own template."""
    annotations = (workload.pod_template(case.target).get("metadata") or {}).get("annotations") or {}
    return _was_injected(case.observed) and annotations.get(wellknown.HASH_ANNOTATION) in (None, rendered.hash)


def _default_container(target: workload.KubeObject, manager: str, container: str, *, manual: bool) -> str | None:
    """Ours to set where the template names none, or where we named it."""
    meta = workload.pod_template(target).get("metadata") or {}
    if manual:
        named = (meta.get("annotations") or {}).get(wellknown.DEFAULT_CONTAINER_ANNOTATION, container)
        return container if named == container else None
    if wellknown.DEFAULT_CONTAINER_ANNOTATION not in (meta.get("annotations") or {}):
        return container
    fields: Any = workload.managed_by(target, manager)
    for key in ("f:spec", "f:template", "f:metadata", "f:annotations"):
        fields = fields.get(key) or {}
    return container if f"f:{wellknown.DEFAULT_CONTAINER_ANNOTATION}" in fields else None


def _held_back(case: checks.Case, *, ours: bool) -> Refusal | None:
    if v1alpha1.mode_of(case.spec) == "Manual":
        name = naming.config_map(case.observed.name)
        message = (
            f"Commit the patch to {case.described}: kubectl get configmap {name} --namespace {case.observed.namespace} "
            f"--output jsonpath='{{.data.{wellknown.PATCH_KEY.replace('.', chr(92) + '.')}}}'."
        )
        if ours:
            message = f"The adapter that was committed differs from what spec now asks for. {message}"
        return Refusal(reason=Reasons.WAITING_FOR_COMMIT, message=message)
    if case.spec.suspend:
        return Refusal(reason=Reasons.SUSPENDED, message=f"spec.suspend is true; {case.described} is not touched.")
    if workload.annotations(case.target).get(wellknown.PAUSE_ANNOTATION) == "true":
        return Refusal(
            reason=Reasons.PAUSED,
            message=f'{case.described} carries {wellknown.PAUSE_ANNOTATION}: "true"; remove it to let the adapter back in.',
        )
    return None


def _take_over(case: checks.Case, manager: str) -> tuple[WorkloadWrite, ...]:
    """Managers other than ours that hold the adapter belong to ModelServices that are gone (`lock_held` saw to that)."""
    document = injection.release_document(case.target)
    return tuple(
        WorkloadWrite(document=document, manager=other)
        for other in workload.managers_of_adapter(case.target)
        if other != manager
    )


def _invalid(error: pydantic.ValidationError) -> Refusal:
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    return Refusal(
        condition=ConditionType.ACCEPTED, reason=Reasons.INVALID_SPEC, message=f"spec.{path}: {first['msg']}."
    )
