"""What a benchmark says: its metrics beside their goals, and the same quantities of what it was compared with.

Owns the JSON document that `build/bench/NAME.json` holds and the table that people read. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

__all__ = ["Metric", "Report", "median", "table"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One figure. `goal` is absent where the figure is only told; `better` says in which direction the goal is kept."""

    metric: str
    value: float
    unit: str
    goal: float | None
    better: Literal["lower", "higher"]

    @property
    def kept(self) -> bool | None:
        """Whether the goal is reached; nothing where there is none."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.better == "lower" else self.value >= self.goal


@dataclass(frozen=True, kw_only=True)
class Report:
    """A benchmark's outcome. `discarded` samples saw too much foreign CPU; without `quiet`, figures are not to be trusted."""

    name: str
    machine: str
    rounds: int
    metrics: tuple[Metric, ...]
    compared: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    discarded: int = 0
    quiet: bool = True

    def document(self) -> dict[str, Any]:
        """As the JSON file holds it."""
        return {
            "name": self.name,
            "machine": self.machine,
            "rounds": self.rounds,
            "metrics": [asdict(metric) | {"value": rounded(metric.value)} for metric in self.metrics],
            "compared": {
                subject: {name: rounded(value) for name, value in values.items()}
                for subject, values in self.compared.items()
            },
            "discarded": self.discarded,
            "quiet": self.quiet,
        }

    def line(self) -> str:
        """The document as one line."""
        return json.dumps(self.document(), separators=(", ", ": "))


def rounded(value: float) -> float:
    """Four significant digits, which is more than any of these measurements is good for."""
    return float(f"{value:.4g}")


def table(report: Report) -> str:
    """For people: goals first, then who it was compared with."""
    rows = [("", "metric", "value", "unit", "goal")]
    for metric in report.metrics:
        mark = {None: " ", True: "ok", False: "MISSED"}[metric.kept]
        sign = "<=" if metric.better == "lower" else ">="
        goal = "" if metric.goal is None else f"{sign} {metric.goal:g}"
        rows.append((mark, metric.metric, f"{rounded(metric.value):g}", metric.unit, goal))
    parts = [f"{report.name}: {report.rounds} rounds on {report.machine}", _aligned(rows)]
    if report.compared:
        names = list(dict.fromkeys(name for values in report.compared.values() for name in values))
        header = ("compared", *names)
        body = [
            (subject, *(f"{rounded(values[name]):g}" if name in values else "-" for name in names))
            for subject, values in report.compared.items()
        ]
        parts.append(_aligned([header, *body]))
    if report.discarded:
        parts.append(
            f"{report.discarded} samples were discarded: other programs used more than the allowed share of CPU."
        )
    if not report.quiet:
        parts.append("The machine was not quiet; do not trust these figures. Run it again when nothing else runs.")
    return "\n\n".join(parts)


def _aligned(rows: Iterable[tuple[str, ...]]) -> str:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
