"""Which findings of the suite are expected, each with the reason why, and how a run is judged by them.

Owns the baseline files: one `baseline/REVISION.toml` for each protocol era. A table is a reason, in words; under it stand the
checks it explains as `scenario:check-id`, in the suite's own notation. Pure: a run in, a verdict out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from suite import Check

FOLDER = Path(__file__).resolve().parent / "baseline"


class BaselineError(Exception):
    """A baseline file says something that cannot be obeyed."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A leg's outcome. `stale` are entries that no longer fail: whoever made them pass must take them out."""

    passed: int
    expected: int
    skipped: int
    unexpected: tuple[Check, ...]
    stale: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def failures(self) -> int:
        return len(self.unexpected) + len(self.stale) + len(self.missing)


def read(file: Path) -> dict[str, str]:
    """Expected checks with their reasons.

    Raises:
        BaselineError: an entry has no reason, or stands twice.
    """
    reasons: dict[str, str] = {}
    for table, entry in tomllib.loads(file.read_text()).items():
        reason, checks = str(entry.get("reason", "")).strip(), entry.get("checks")
        if len(reason.split()) < 4 or not isinstance(checks, list) or not checks:
            raise BaselineError(f"{file.name}: [{table}] needs a reason in words and at least one check")
        for name in checks:
            if name in reasons:
                raise BaselineError(f"{file.name}: {name} stands twice")
            scenario, colon, check_id = str(name).partition(":")
            if not (scenario and colon and check_id):
                raise BaselineError(f"{file.name}: {name!r} is not scenario:check-id")
            reasons[name] = reason
    return reasons


def judge(checks: Iterable[Check], expected: Mapping[str, str], required: Iterable[str]) -> Verdict:
    """The verdict on a run. `required` are scenarios that must have run and passed at least one check."""
    checks = list(checks)
    failed = {check.name for check in checks if check.failed}
    passed_in = {check.scenario for check in checks if check.status == "SUCCESS"}
    return Verdict(
        passed=sum(check.status == "SUCCESS" for check in checks),
        expected=sum(check.failed and check.name in expected for check in checks),
        skipped=sum(check.status == "SKIPPED" for check in checks),
        unexpected=tuple(check for check in checks if check.failed and check.name not in expected),
        stale=tuple(name for name in expected if name not in failed),
        missing=tuple(name for name in required if name not in passed_in),
    )
