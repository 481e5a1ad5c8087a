"""Takes samples of several subjects in turn and drops those that other programs disturbed.

Owns the order (rounds over all subjects, so that a slow minute hits all of them) and the bound on repetitions. Knows nothing
of what a sample is or how it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

FOREIGN_LIMIT = 4.0
"""Per cent of the machine that others may use during a sample."""

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(kw_only=True)
class Samples(Generic[Key, Value]):
    """The samples that count, by subject. `quiet` is false where some subject had none and its disturbed ones had to do."""

    by_key: dict[Key, list[Value]] = field(default_factory=dict)
    discarded: int = 0
    quiet: bool = True


def collect(
    keys: Iterable[Key],
    take: Callable[[Key], tuple[Value, float]],
    *,
    rounds: int,
    limit: float = FOREIGN_LIMIT,
) -> Samples[Key, Value]:
    """Samples of every key. `take` gives one and the foreign CPU it saw, in per cent.

    Disturbed samples are taken again, in all at most as often as a third of the whole.
    """
    keys = list(keys)
    samples: Samples[Key, Value] = Samples(by_key={key: [] for key in keys})
    disturbed: dict[Key, list[Value]] = {key: [] for key in keys}
    repetitions = max(1, rounds * len(keys) // 3)
    for _ in range(rounds):
        for key in keys:
            value, foreign = take(key)
            while foreign > limit and repetitions > 0:
                repetitions -= 1
                samples.discarded += 1
                disturbed[key].append(value)
                value, foreign = take(key)
            if foreign > limit:
                samples.discarded += 1
                disturbed[key].append(value)
            else:
                samples.by_key[key].append(value)
    for key in keys:
        if not samples.by_key[key]:
            samples.by_key[key] = disturbed[key]
            samples.quiet = False
    return samples
