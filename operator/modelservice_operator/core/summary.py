"""What a pass came to: conditions, the rest of the status, events, and when to look again.

Owns how outcomes are told. One place maps refusals and reports to conditions, so the same reason stands in condition,
event and log. Conditions keep their transition time until their status changes (KEP-1623); an event is told once, when
the reason changes.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from modelservice_api import v1alpha1, wellknown
from modelservice_api.adapter_config import AdapterReport, BackendState
from modelservice_api.conditions import ConditionType, Reason, Reasons
from modelservice_operator.core import gpu, injection, naming, workload
from modelservice_operator.core.observed import Handshake, Observed
from modelservice_operator.core.plan import Plan
from modelservice_operator.core.refusal import Refusal
from modelservice_operator.core.workload import KubeObject

Status = Literal["True", "False", "Unknown"]

READY_RECHECK_SECONDS = 60.0
"""How long a ready ModelService is believed: a model server that dies shows up in its status within this time."""

CONFIG_RECHECK_SECONDS = 10.0
"""A node brings a changed ConfigMap into its pods within about a minute."""

UNWATCHED_RECHECK_SECONDS = 60.0
"""What refuses may go away without an event: names, rights, volumes and Services of others are not watched."""

_SHORTEST_WAIT, _LONGEST_WAIT = 1.0, 30.0
_STATUS_TOOL_NAMES = 64

_BACKEND_REASONS: Mapping[BackendState, Reason] = {
    "Discovering": Reasons.DISCOVERING,
    "Ready": Reasons.DISCOVERED,
    "Unreachable": Reasons.BACKEND_UNREACHABLE,
    "NotRecognised": Reasons.BACKEND_NOT_RECOGNISED,
    "Invalid": Reasons.BACKEND_SCHEMA_INVALID,
    "NoTools": Reasons.NO_TOOLS,
    "ModelSpecConflict": Reasons.MODEL_SPEC_CONFLICT,
    "WarmingUp": Reasons.WARMING_UP,
}


_UNVERIFIABLE: frozenset[BackendState] = frozenset({"WarmingUp", "ModelSpecConflict"})


@dataclass(frozen=True, kw_only=True)
class Told:
    """One event: on the ModelService, and on the workload where its owner must know."""

    reason: Reason
    message: str
    warning: bool
    on_workload: bool = False


@dataclass(frozen=True, kw_only=True)
class Result:
    """What `apply` made of a plan."""

    workload: workload.KubeObject | None
    """The workload after the pass: what was observed, or what the API server answered to our write."""
    refusal: Refusal | None = None
    """What the API server refused: a field conflict, an invalid template, a missing permission."""
    wrote_workload: bool = False
    own_deployment: KubeObject | None = None
    """The adapter's own Deployment after the pass, in Standalone mode."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The status to write, the events to tell, and the seconds until the next look (None: at the next event)."""

    status: Mapping[str, Any]
    events: tuple[Told, ...]
    look_again_after: float | None


@dataclass(frozen=True, kw_only=True)
class _Verdict:
    type: ConditionType
    status: Status
    reason: Reason
    message: str


def summarise(observed: Observed, plan: Plan, result: Result) -> Summary:
    """The summary of one pass."""
    refusal = plan.refusal or result.refusal
    mode = injection.mode_of(observed.model_service)
    carrier = result.own_deployment if mode == "Standalone" else result.workload
    stands = carrier is not None and injection.stands(carrier, name=observed.name, uid=observed.uid, mode=mode)
    verdicts = [*_admission(refusal), *_risk(plan, refusal), _injected(plan, refusal, stands=stands)]
    if plan.gpu_verdict is not None:
        verdicts.append(_gpu(plan.gpu_verdict))
    if stands and carrier is not None:
        verdicts += [_discovered(observed), _verified(observed), *_configured(observed), _rollout(carrier)]
    verdicts.append(_ready(verdicts))
    old = _old_conditions(observed)
    generation = int(observed.metadata.get("generation") or 0)
    conditions = [_condition(verdict, old.get(verdict.type), generation, observed.now) for verdict in verdicts]
    status = {"observedGeneration": generation, "conditions": conditions}
    status |= _facts(observed, plan, verdicts, stands=stands)
    return Summary(
        status=status,
        events=(*_events(verdicts, old, plan, result), *_changed_tools(observed, status)),
        look_again_after=_look_again_after(verdicts, conditions, refusal, observed.now, stands=stands),
    )


def _admission(refusal: Refusal | None) -> list[_Verdict]:
    accepted = _Verdict(
        type=ConditionType.ACCEPTED, status="True", reason=Reasons.ACCEPTED, message=Reasons.ACCEPTED.sentence
    )
    conflict = _Verdict(
        type=ConditionType.CONFLICT, status="False", reason=Reasons.NO_CONFLICT, message=Reasons.NO_CONFLICT.sentence
    )
    match refusal:
        case Refusal(condition=ConditionType.ACCEPTED):
            accepted = _Verdict(
                type=ConditionType.ACCEPTED, status="False", reason=refusal.reason, message=refusal.message
            )
        case Refusal(condition=ConditionType.CONFLICT):
            conflict = _Verdict(
                type=ConditionType.CONFLICT, status="True", reason=refusal.reason, message=refusal.message
            )
        case _:
            pass
    return [accepted, conflict]


def _risk(plan: Plan, refusal: Refusal | None) -> list[_Verdict]:
    """Nothing where no change was looked at: another refusal came first."""
    if not plan.risks and refusal is not None:
        return []
    if not plan.risks:
        reason = Reasons.NO_ROLLOUT_RISK
        return [_Verdict(type=ConditionType.ROLLOUT_RISK, status="False", reason=reason, message=reason.sentence)]
    refused = refusal is not None and refusal.condition is ConditionType.ROLLOUT_RISK
    told = " ".join(risk.message for risk in plan.risks)
    message = (
        refusal.message if refused and refusal is not None else f"{told} It was changed as spec.rollout.onRisk says."
    )
    return [_Verdict(type=ConditionType.ROLLOUT_RISK, status="True", reason=plan.risks[0].reason, message=message)]


def _gpu(verdict: gpu.Verdict) -> _Verdict:
    return _Verdict(
        type=ConditionType.GPU_CONFIGURED,
        status="True" if verdict.holds else "False",
        reason=verdict.reason,
        message=verdict.message,
    )


def _injected(plan: Plan, refusal: Refusal | None, *, stands: bool) -> _Verdict:
    if refusal is not None and not stands:
        return _Verdict(type=ConditionType.INJECTED, status="False", reason=refusal.reason, message=refusal.message)
    if refusal is not None:
        message = f"The adapter stays as it was: {refusal.message}"
        status: Status = "True" if refusal.condition is ConditionType.ACCEPTED else "False"
        reason = Reasons.INJECTED if status == "True" else refusal.reason
        return _Verdict(type=ConditionType.INJECTED, status=status, reason=reason, message=message)
    if plan.held_back is not None and not plan.injected:
        return _Verdict(
            type=ConditionType.INJECTED,
            status="True" if stands else "False",
            reason=plan.held_back.reason,
            message=plan.held_back.message,
        )
    where = f" Port {plan.rendered.ports.mcp}, image {plan.rendered.image}." if plan.rendered else ""
    sentence = Reasons.INJECTED.sentence
    if plan.stands_alone:
        sentence = "The adapter is a Deployment of its own; the workload is as its owner left it."
    return _Verdict(type=ConditionType.INJECTED, status="True", reason=Reasons.INJECTED, message=sentence + where)


def _discovered(observed: Observed) -> _Verdict:
    report = observed.adapters.report
    if report is None:
        return _Verdict(
            type=ConditionType.DISCOVERED,
            status="Unknown",
            reason=Reasons.WAITING_FOR_ADAPTER,
            message=Reasons.WAITING_FOR_ADAPTER.sentence,
        )
    reason = _BACKEND_REASONS[report.backend.state]
    message = report.backend.message or reason.sentence
    if report.backend.state == "Ready":
        return _Verdict(
            type=ConditionType.DISCOVERED,
            status="True",
            reason=reason,
            message=f"{report.tools.count} tool{'s' if report.tools.count != 1 else ''} of a server that speaks "
            f"{report.backend.type}. {report.backend.message}".strip(),
        )
    return _Verdict(
        type=ConditionType.DISCOVERED,
        status="Unknown" if report.backend.state in {"Discovering", "WarmingUp"} else "False",
        reason=reason,
        message=message,
    )


def _verified(observed: Observed) -> _Verdict:
    report = observed.adapters.report
    if report is not None and report.backend.state in _UNVERIFIABLE:
        # The adapter answers MCP all the same; what it stands for must not be called.
        reason = _BACKEND_REASONS[report.backend.state]
        return _Verdict(
            type=ConditionType.VERIFIED,
            status="Unknown" if report.backend.state == "WarmingUp" else "False",
            reason=reason,
            message=reason.sentence,
        )
    match observed.adapters.handshake:
        case None:
            return _Verdict(
                type=ConditionType.VERIFIED,
                status="Unknown",
                reason=Reasons.WAITING_FOR_ADAPTER,
                message=Reasons.WAITING_FOR_ADAPTER.sentence,
            )
        case Handshake(error="", wants_token=True):
            return _Verdict(
                type=ConditionType.VERIFIED,
                status="True",
                reason=Reasons.VERIFIED,
                message="Through the Service this ModelService's own server answers; it asks for a token, as spec.auth says.",
            )
        case Handshake(error="") if _asks_every_caller(observed):
            return _Verdict(
                type=ConditionType.VERIFIED,
                status="False",
                reason=Reasons.AUTH_NOT_ENFORCED,
                message=Reasons.AUTH_NOT_ENFORCED.sentence,
            )
        case Handshake(error="") as handshake:
            return _Verdict(
                type=ConditionType.VERIFIED,
                status="True",
                reason=Reasons.VERIFIED,
                message=f"{Reasons.VERIFIED.sentence} The server is {handshake.server_name} {handshake.server_version}.",
            )
        case Handshake(error=error):
            return _Verdict(type=ConditionType.VERIFIED, status="False", reason=Reasons.HANDSHAKE_FAILED, message=error)


def _asks_every_caller(observed: Observed) -> bool:
    """Whether no request gets an answer without a token; with anonymous tools some do, and the operator's is one of them."""
    auth = (observed.model_service.get("spec") or {}).get("auth")
    return auth is not None and not auth.get("anonymousTools")


def _configured(observed: Observed) -> list[_Verdict]:
    """Nothing where no adapter has said which configuration it obeys."""
    report, config_map = observed.adapters.report, observed.config_map
    if report is None or config_map is None:
        return []
    document = str((config_map.get("data") or {}).get(wellknown.CONFIG_KEY, ""))
    status: Status = "Unknown"
    reason, message = Reasons.CONFIG_PENDING, Reasons.CONFIG_PENDING.sentence
    if report.config_error:
        status, reason, message = "False", Reasons.CONFIG_REJECTED, report.config_error
    elif report.config_digest == "sha256:" + hashlib.sha256(document.encode()).hexdigest():
        status, reason, message = "True", Reasons.CONFIGURED, Reasons.CONFIGURED.sentence
    return [_Verdict(type=ConditionType.CONFIGURED, status=status, reason=reason, message=message)]


def _rollout(target: workload.KubeObject) -> _Verdict:
    progress = workload.progress(target)
    reason, status = Reasons.ROLLING_OUT, "False"
    if progress.complete:
        reason, status = Reasons.ROLLOUT_COMPLETE, "True"
    elif progress.paused:
        reason = Reasons.ROLLOUT_PAUSED
    elif progress.stalled:
        reason = Reasons.ROLLOUT_STALLED
    return _Verdict(
        type=ConditionType.ROLLOUT_COMPLETE,
        status="True" if status == "True" else "False",
        reason=reason,
        message=f"{reason.sentence} {progress.text}." if reason is not Reasons.ROLLOUT_COMPLETE else reason.sentence,
    )


_NEEDED = (ConditionType.ACCEPTED, ConditionType.INJECTED, ConditionType.DISCOVERED, ConditionType.VERIFIED)


def _ready(verdicts: list[_Verdict]) -> _Verdict:
    by_type = {verdict.type: verdict for verdict in verdicts}
    for needed in _NEEDED:
        found = by_type.get(needed)
        if found is None or found.status != "True":
            reason = found.reason if found else Reasons.NOT_READY
            detail = found.message if found else Reasons.NOT_READY.sentence
            return _Verdict(
                type=ConditionType.READY, status="False", reason=reason, message=f"Waiting for {needed}: {detail}"
            )
    return _Verdict(type=ConditionType.READY, status="True", reason=Reasons.READY, message=Reasons.READY.sentence)


def _old_conditions(observed: Observed) -> dict[str, Mapping[str, Any]]:
    found = (observed.model_service.get("status") or {}).get("conditions") or []
    return {str(condition.get("type")): condition for condition in found}


def _condition(verdict: _Verdict, old: Mapping[str, Any] | None, generation: int, now: datetime) -> dict[str, Any]:
    changed = old is None or old.get("status") != verdict.status
    since = now.strftime("%Y-%m-%dT%H:%M:%SZ") if changed or old is None else str(old.get("lastTransitionTime"))
    return {
        "type": str(verdict.type),
        "status": verdict.status,
        "reason": verdict.reason.name,
        "message": verdict.message[:4096],
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }


def _facts(observed: Observed, plan: Plan, verdicts: list[_Verdict], *, stands: bool) -> dict[str, Any]:
    """Everything but conditions. What a report no longer says is kept from before: the last good state stays."""
    old: Mapping[str, Any] = observed.model_service.get("status") or {}
    facts: dict[str, Any] = {
        key: old[key] for key in ("address", "serverInfo", "backend", "injection", "tools") if key in old and stands
    }
    if not stands or plan.rendered is None or plan.backend is None:
        return facts
    report = observed.adapters.report
    facts["backend"] = {
        "type": _backend_type(report, facts.get("backend"), observed),
        "container": plan.backend.container,
        "port": plan.backend.port,
        "source": plan.backend.source,
    }
    facts["injection"] = {
        "mode": injection.mode_of(observed.model_service),
        "container": str(plan.rendered.container["name"]),
        "port": plan.rendered.ports.mcp,
        "adminPort": plan.rendered.ports.admin,
        "image": plan.rendered.image,
        "hash": plan.rendered.hash,
    }
    if report is not None and report.backend.state == "Ready":
        facts["tools"] = {
            "count": report.tools.count,
            "hash": report.tools.hash,
            "names": list(report.tools.names[:_STATUS_TOOL_NAMES]),
        }
    handshake = observed.adapters.handshake
    if handshake is not None and not handshake.error:
        facts["serverInfo"] = {
            "name": handshake.server_name,
            "version": handshake.server_version,
            "protocolVersions": list(handshake.protocol_versions),
        }
    url = mcp_url(observed, plan)
    if verdicts[-1].status == "True":
        facts["address"] = {"url": url}
    elif facts.get("address", {}).get("url") != url:
        facts.pop("address", None)
    return facts


def mcp_url(observed: Observed, plan: Plan) -> str:
    """Where clients in the cluster connect: the Service's name, port and path."""
    assert plan.rendered is not None
    spec = v1alpha1.ModelServiceSpec.model_validate(observed.model_service["spec"])
    path = (spec.mcp or v1alpha1.Mcp()).path
    return f"http://{naming.service_host(observed.namespace, observed.name)}:{plan.rendered.ports.mcp}{path}"


def _backend_type(report: AdapterReport | None, old: Any, observed: Observed) -> str:
    if report is not None and report.backend.state == "Ready":
        return report.backend.type
    if isinstance(old, Mapping):
        return str(old.get("type"))
    return str(((observed.model_service.get("spec") or {}).get("backend") or {}).get("type") or "Auto")


_TOLD = (
    ConditionType.ACCEPTED,
    ConditionType.CONFLICT,
    ConditionType.ROLLOUT_RISK,
    ConditionType.GPU_CONFIGURED,
    ConditionType.INJECTED,
    ConditionType.DISCOVERED,
    ConditionType.VERIFIED,
    ConditionType.CONFIGURED,
    ConditionType.READY,
)
_TOLD_ON_WORKLOAD = frozenset(
    {
        ConditionType.ACCEPTED,
        ConditionType.CONFLICT,
        ConditionType.ROLLOUT_RISK,
        ConditionType.GPU_CONFIGURED,
        ConditionType.INJECTED,
    }
)
_EXPECTED = frozenset(
    {ConditionType.CONFLICT, ConditionType.ACCEPTED, ConditionType.ROLLOUT_RISK, ConditionType.CONFIGURED}
)
_GOOD_WHEN_FALSE = frozenset({ConditionType.CONFLICT, ConditionType.ROLLOUT_RISK, ConditionType.DEGRADED})


def _events(
    verdicts: list[_Verdict], old: Mapping[str, Mapping[str, Any]], plan: Plan, result: Result
) -> tuple[Told, ...]:
    told: dict[str, Told] = {}
    if plan.repairs_drift and result.wrote_workload:
        told[Reasons.DRIFT_REPAIRED.name] = Told(
            reason=Reasons.DRIFT_REPAIRED, message=Reasons.DRIFT_REPAIRED.sentence, warning=True, on_workload=True
        )
    for verdict in verdicts:
        before = old.get(verdict.type)
        unchanged = before is not None and before.get("reason") == verdict.reason.name
        if verdict.type not in _TOLD or unchanged or verdict.status == "Unknown":
            continue
        good = (verdict.status == "False") is (verdict.type in _GOOD_WHEN_FALSE)
        if good and verdict.type in _EXPECTED:
            continue  # what everybody expects is no news
        if verdict.type is ConditionType.READY and not good:
            continue  # the condition that it waits for has been told
        told.setdefault(
            verdict.reason.name,
            Told(
                reason=verdict.reason,
                message=verdict.message,
                warning=not good,
                on_workload=verdict.type in _TOLD_ON_WORKLOAD,
            ),
        )
    return tuple(told.values())


def _changed_tools(observed: Observed, status: Mapping[str, Any]) -> list[Told]:
    """Tools are instructions to a language model: who changes them behind a name that is trusted must be seen (OWASP MCP)."""
    before: Mapping[str, Any] = (observed.model_service.get("status") or {}).get("tools") or {}
    now: Mapping[str, Any] = status.get("tools") or {}
    if not before.get("hash") or not now.get("hash") or before["hash"] == now["hash"]:
        return []
    old, new = set(before.get("names") or ()), set(now.get("names") or ())
    parts = [
        f"added {', '.join(sorted(new - old))}" if new - old else "",
        f"gone {', '.join(sorted(old - new))}" if old - new else "",
    ]
    what = "; ".join(part for part in parts if part) or "the same names with other definitions"
    message = f"{Reasons.TOOL_DEFINITION_CHANGED.sentence} Now: {what} ({now['hash'][:19]}…)."
    return [Told(reason=Reasons.TOOL_DEFINITION_CHANGED, message=message, warning=True)]


def _look_again_after(
    verdicts: list[_Verdict],
    conditions: list[dict[str, Any]],
    refusal: Refusal | None,
    now: datetime,
    *,
    stands: bool,
) -> float | None:
    if refusal is not None and not stands:
        return None if refusal.condition is ConditionType.ACCEPTED else UNWATCHED_RECHECK_SECONDS
    if verdicts[-1].status == "True":
        pending = any(verdict.reason is Reasons.CONFIG_PENDING for verdict in verdicts)
        return CONFIG_RECHECK_SECONDS if pending else READY_RECHECK_SECONDS
    # Often at first, when a user is watching, and ever less so for what stays broken.
    since = datetime.fromisoformat(conditions[-1]["lastTransitionTime"])
    return max(_SHORTEST_WAIT, min(_LONGEST_WAIT, (now - since).total_seconds() / 4))
