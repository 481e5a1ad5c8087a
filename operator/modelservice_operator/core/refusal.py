"""The one way in which a decision says no: a reason, a sentence with the particulars, and which condition shows it.

Owns the value only. Who refuses what is in `checks`, `backend` and `adapter`.
"""

from dataclasses import dataclass

from modelservice_api.conditions import ConditionType, Reason


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Nothing is written to the workload; the user reads `message` under `condition`."""

    reason: Reason
    message: str
    condition: ConditionType = ConditionType.INJECTED
