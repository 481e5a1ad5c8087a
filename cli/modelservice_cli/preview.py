"""What the operator would do about one ModelService, without doing it.

Owns the preview: the operator's own decision, and the API server's dry run of the write that it leads to. Writes nothing.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modelservice_api.conditions import ConditionType, Reasons
from modelservice_cli import documents, observing
from modelservice_cli.kubectl import Kubectl, KubectlError
from modelservice_cli.outcome import REFUSED
from modelservice_operator.core import injection, plan, workload
from modelservice_operator.core.observed import Observed
from modelservice_operator.core.plan import Plan
from modelservice_operator.core.refusal import Refusal


@dataclass(frozen=True, kw_only=True)
class Preview:
    """One decision in the words of its author."""

    subject: str
    """What would be changed: `Deployment/fraud`."""
    before: Any
    after: Any
    refusal: Refusal | None
    owned: tuple[str, ...]
    """What would be written beside it: `Service/fraud-mcp`."""
    notes: tuple[str, ...]

    @property
    def diff(self) -> list[str]:
        """A unified diff; empty where nothing changes."""
        old, new = (documents.write(value).splitlines() for value in (self.before, self.after))
        return [line.rstrip("\n") for line in difflib.unified_diff(old, new, self.subject, self.subject, lineterm="")]


def look(kubectl: Kubectl, observed: Observed) -> Preview:
    """Decide as the operator would, and ask the API server what it would make of the write.

    Raises:
        CommandError: The cluster cannot be asked.
    """
    decided = plan.decide(observed)
    _, kind, name = observing.reference_of(observed.model_service)
    subject = f"{kind}/{name}"
    before: Any = workload.pod_template(observed.workload or {})
    refusal, after, notes = decided.refusal, before, _notes(decided)
    own = next((document for document in decided.owned if document["kind"] == "Deployment"), None)
    if refusal is None and own is not None:
        subject = f"Deployment/{own['metadata']['name']}"
        before, after = workload.pod_template(observed.own_deployment or {}), workload.pod_template(own)
    elif refusal is None and decided.workload is not None:
        after, refusal, more = _merged(kubectl, observed, decided)
        notes += more
    return Preview(
        subject=subject,
        before=before,
        after=after,
        refusal=refusal,
        owned=tuple(f"{each['kind']}/{each['metadata']['name']}" for each in decided.owned) if refusal is None else (),
        notes=tuple(notes),
    )


def _merged(kubectl: Kubectl, observed: Observed, decided: Plan) -> tuple[Any, Refusal | None, list[str]]:
    """The template after the write: as the API server answers a dry run, else as the core merges it."""
    assert decided.workload is not None
    assert decided.rendered is not None
    assert observed.workload is not None
    template = workload.pod_template(observed.workload)
    meta = decided.workload.document["spec"]["template"]["metadata"]
    _, kind, name = observing.reference_of(observed.model_service)
    try:
        if decided.gpu_settings:
            plural = workload.ADOPTABLE[(observed.workload["apiVersion"], kind)]
            said = kubectl.run(
                "patch",
                f"{plural}.apps",
                name,
                "--type=json",
                f"--patch={json.dumps(list(decided.gpu_settings))}",
                "--dry-run=server",
                "--output=json",
            )
            template = workload.pod_template(json.loads(said))
        applied = kubectl.apply(decided.workload.document, manager=decided.workload.manager, dry_run=True)
        if not decided.gpu_settings:
            return workload.pod_template(applied), None, []
    except KubectlError as error:
        if error.is_forbidden:
            note = f"You may not patch {kind} {name}, so the API server was not asked; this is what the operator would write."
            return injection.inject(template, meta=meta, rendered=decided.rendered), None, [note]
        if error.code != REFUSED:
            raise
        conflict = "conflict" in error.said.lower()
        refusal = Refusal(
            condition=ConditionType.CONFLICT if conflict else ConditionType.INJECTED,
            reason=Reasons.FIELD_CONFLICT if conflict else Reasons.TEMPLATE_REJECTED,
            message=error.said,
        )
        return template, refusal, []
    return injection.inject(template, meta=meta, rendered=decided.rendered), None, []


def _notes(decided: Plan) -> list[str]:
    notes: list[str] = []
    if decided.backend is not None and decided.rendered is not None:
        target = decided.backend
        notes.append(
            f"The model server is container {target.container}, port {target.port} (read from {target.source}); "
            f"MCP is served on port {decided.rendered.ports.mcp}."
        )
    if decided.refusal is None:
        notes += [f"Risk: {risk.message}" for risk in decided.risks]
    if decided.strategy is not None and decided.strategy.saved is not None:
        strategy: Mapping[str, Any] = decided.strategy.strategy
        notes.append(f"For this one rollout the update strategy becomes {json.dumps(strategy)}, then yours comes back.")
    if decided.gpu_verdict is not None:
        notes.append(f"GPU: {decided.gpu_verdict.message}")
    if decided.held_back is not None:
        notes.append(decided.held_back.message)
    return notes
