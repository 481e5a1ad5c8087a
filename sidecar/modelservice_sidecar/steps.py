"""Where a call's time went: what it waited for, and what it asked of others.

Owns the record of it, which a log line shows as stage times and a recorded trace as child spans. Stages and backends write
it; times are on the monotonic clock of `time.perf_counter`. What did not wait writes nothing.
"""

import os
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

BACKEND: Final = "backend"
"""The name of every request to a model server; all other names are those of stages."""
HAND_OVER: Final = "hand_over"
"""The stage that lets another pod answer: a wait, and a request too."""


@dataclass(kw_only=True, slots=True)
class Step:
    """One stretch of time. `span_id` is set where others hang their spans below it; `attributes` are OpenTelemetry's.

    `error` is a word for what went wrong, by OpenTelemetry's rules for `error.type`.
    """

    name: str
    began: float
    ended: float = 0.0
    span_id: str = ""
    error: str = ""
    attributes: dict[str, str | int] = field(default_factory=dict)


class Steps(list[Step]):
    """The steps of one call. `recorded`: spans are made of them."""

    __slots__ = ("recorded",)

    def __init__(self, *, recorded: bool = False) -> None:
        super().__init__()
        self.recorded = recorded

    def waited(self, stage: str, since: float) -> None:
        """The call waited in a stage since then, and goes on now."""
        self.append(Step(name=stage, began=since, ended=perf_counter()))

    def ask(self, name: str = BACKEND) -> Step:
        """Another process is asked now. What it does hangs below the step; whoever asks ends it."""
        step = Step(name=name, began=perf_counter())
        if self.recorded:
            step.span_id = os.urandom(8).hex()
        self.append(step)
        return step

    def milliseconds(self) -> dict[str, float]:
        """How long each stage took in all, the model server aside."""
        taken: dict[str, float] = {}
        for step in self:
            if step.name != BACKEND:
                taken[step.name] = round(taken.get(step.name, 0.0) + (step.ended - step.began) * 1000, 3)
        return taken
