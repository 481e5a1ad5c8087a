"""What a ModelService's status says to its author: ready or not, why not, and whether waiting could help.

Owns the reading of conditions. The words are the operator's own messages and the sentences of their reasons. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from modelservice_api.conditions import ConditionType, Reasons

_SENTENCES: Final = {reason.name: reason.sentence for reason in Reasons.all()}
_GOOD_WHEN_FALSE: Final = frozenset({ConditionType.CONFLICT, ConditionType.ROLLOUT_RISK, ConditionType.DEGRADED})
_BY_HAND: Final = frozenset(
    {Reasons.SUSPENDED.name, Reasons.PAUSED.name, Reasons.WAITING_FOR_COMMIT.name, Reasons.WORKLOAD_NOT_FOUND.name}
)
"""Reasons that end when somebody does something, and refuse nothing."""

NOT_SEEN: Final = "No operator has looked at it yet; run `kubectl modelservice doctor` if it stays so."


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One condition that is not as it should be."""

    condition: str
    reason: str
    message: str
    advice: str
    """The reason's sentence, where the message does not say the same."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One ModelService as its author wants to know it."""

    namespace: str
    name: str
    ready: bool
    reason: str
    message: str
    current: bool
    """Whether the operator has seen the spec as it now is."""
    refused: bool
    """The operator will not do it as it is asked; nothing comes of waiting."""
    held_back: bool
    """The operator waits for a person."""
    problems: tuple[Problem, ...]
    tools: tuple[str, ...]
    tool_count: int
    backend: str
    url: str
    created: str


def read(model_service: Mapping[str, Any]) -> Standing:
    """The standing of one object as the API server sent it."""
    metadata = model_service["metadata"]
    status: Mapping[str, Any] = model_service.get("status") or {}
    conditions = {str(found.get("type")): found for found in status.get("conditions") or []}
    told = conditions.get(ConditionType.READY) or {}
    ready = told.get("status") == "True"
    reason, message = str(told.get("reason") or "NotSeen"), str(told.get("message") or NOT_SEEN)
    stopped = {
        str(found.get("reason"))
        for kind, found in conditions.items()
        if kind in (ConditionType.ACCEPTED, ConditionType.INJECTED) and found.get("status") == "False"
    }
    return Standing(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        ready=ready,
        reason="Deleting" if metadata.get("deletionTimestamp") else reason,
        message=message,
        current=int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0),
        refused=bool(stopped - _BY_HAND),
        held_back=bool(stopped & _BY_HAND),
        problems=_problems(conditions) if conditions else (_not_seen(),),
        tools=tuple(str(name) for name in (status.get("tools") or {}).get("names") or []),
        tool_count=int((status.get("tools") or {}).get("count") or 0),
        backend=str((status.get("backend") or {}).get("type") or ""),
        url=str((status.get("address") or {}).get("url") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
    )


def _problems(conditions: Mapping[str, Mapping[str, Any]]) -> tuple[Problem, ...]:
    found: dict[tuple[str, str], Problem] = {}
    for kind, condition in conditions.items():
        good = "False" if kind in _GOOD_WHEN_FALSE else "True"
        if kind == ConditionType.READY or condition.get("status") == good:
            continue
        reason, message = str(condition.get("reason")), str(condition.get("message") or "")
        sentence = _SENTENCES.get(reason, "")
        advice = "" if sentence in message else sentence
        # A refusal stands in several conditions in the same words; once is enough.
        found.setdefault((reason, message), Problem(condition=kind, reason=reason, message=message, advice=advice))
    return tuple(found.values())


def _not_seen() -> Problem:
    return Problem(condition=ConditionType.READY, reason="NotSeen", message=NOT_SEEN, advice="")
