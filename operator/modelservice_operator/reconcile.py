"""One level-triggered pass over one ModelService: gather → decide → apply → summarise.

Owns the sequence, and the time limit of a release. Called from every event, from the sweep and from timers alike, with
nothing but a name; what happened before is read from the cluster.
"""

import contextlib
from datetime import datetime

from modelservice_api.conditions import Reasons
from modelservice_operator import apply, kube_api, kube_errors
from modelservice_operator.core import plan, summary
from modelservice_operator.core.observed import Observed
from modelservice_operator.core.summary import Told
from modelservice_operator.gather import Sources, gather, gather_abandoned, goes_with_its_namespace

_ROLLOUT_RECHECK_SECONDS = 2.0

RELEASE_TIMEOUT_SECONDS = 120.0
"""How long a release may fail before the ModelService is let go all the same, with a warning (R28)."""


def reconcile(sources: Sources, namespace: str, name: str) -> float | None:
    """Brings one ModelService a step closer; seconds until it wants another look, None for at its next event.

    Raises:
        KubeError: The pass could not be completed and is worth repeating.
    """
    model_service = sources.api.get(kube_api.MODEL_SERVICES, namespace, name)
    if model_service is None:
        _release_abandoned(sources, namespace, name)
        return None
    if goes_with_its_namespace(sources.api, model_service):
        apply.remove_finalizer(sources.api, model_service)
        return None
    observed = gather(sources, model_service)
    if observed.metadata.get("deletionTimestamp"):
        return _release(sources, observed)
    decided = plan.decide(observed)
    result = apply.apply_plan(sources.api, observed, decided)
    told = summary.summarise(observed, decided, result)
    apply.write_summary(sources.api, observed, told)
    return told.look_again_after


def let_go(sources: Sources, namespace: str, name: str) -> None:
    """Makes a ModelService deletable without an operator: finishes its release where one was begun, else only removes
    the finalizer and leaves the workload serving. For uninstalling the operator.

    Raises:
        KubeError: The finalizer is still there.
    """
    model_service = sources.api.get(kube_api.MODEL_SERVICES, namespace, name)
    if model_service is None:
        return
    observed = gather(sources, model_service)
    if observed.metadata.get("deletionTimestamp"):
        _release(sources, observed)
    elif plan.decide_release(observed).remove_finalizer:
        apply.remove_finalizer(sources.api, model_service)


def _release_abandoned(sources: Sources, namespace: str, name: str) -> None:
    """The second net under the finalizer: a ModelService may go while no operator runs, or be forced out."""
    try:
        found = gather_abandoned(sources.api, namespace, name)
    except kube_errors.ForbiddenError:
        return  # a namespace that is not served any more, or is being deleted with everything in it
    for abandoned in found:
        apply.release_abandoned(sources.api, abandoned)
        told = Told(reason=Reasons.RELEASED, message=Reasons.RELEASED.sentence, warning=False)
        apply.tell_on(sources.api, abandoned.workload, told, sources.clock())


def _release(sources: Sources, observed: Observed) -> float | None:
    """Seconds until the next look where the release waits for its rollout."""
    decided = plan.decide_release(observed)
    if not decided.remove_finalizer:
        return None
    try:
        apply.apply_release(sources.api, observed, decided)
    except kube_errors.KubeError as error:
        if not _is_overdue(observed):
            raise
        message = f"{Reasons.RELEASE_FAILED.sentence} Last error: {error}"
        apply.tell(
            sources.api, observed, Told(reason=Reasons.RELEASE_FAILED, message=message, warning=True, on_workload=True)
        )
        if (strategy := plan.give_back_anyway(observed)) is not None:
            with contextlib.suppress(kube_errors.KubeError):
                apply.write_strategy(sources.api, observed, strategy)
    else:
        if decided.releases:
            apply.tell(
                sources.api,
                observed,
                Told(reason=Reasons.RELEASED, message=Reasons.RELEASED.sentence, warning=False, on_workload=True),
            )
        if decided.awaits_rollout and not _is_overdue(observed):
            return _ROLLOUT_RECHECK_SECONDS
        if decided.awaits_rollout and (strategy := plan.give_back_anyway(observed)) is not None:
            apply.write_strategy(sources.api, observed, strategy)
    apply.remove_finalizer(sources.api, observed.model_service)
    return None


def _is_overdue(observed: Observed) -> bool:
    since = datetime.fromisoformat(str(observed.metadata["deletionTimestamp"]))
    return (observed.now - since).total_seconds() > RELEASE_TIMEOUT_SECONDS
