"""Several subjects in turn under the same closed load, at several numbers of connections: what callers see, and what it costs.

Owns the sample (one run of wrk and the subject's CPU meanwhile), its medians, and their names in tables. A closed load asks
again when it is answered, so at many connections p99 says how evenly a full core serves, not how a queue grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from servicebench import machine, wrk
from servicebench.machine import Cores
from servicebench.report import median
from servicebench.sampling import Samples, collect
from servicebench.subjects import DIRECT, Running, Subject, running
from servicebench.wire import Wire
from servicebench.wrk import Load

Targets = Mapping[str, tuple[Running, Wire]]
"""What is asked, by name, and how."""
Key = tuple[str, int]
"""A subject's name and the number of connections."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One run of load: what its callers saw and what it cost the subject, in microseconds of CPU per call."""

    load: Load
    cpu: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A subject at one number of connections; medians over the rounds. Latencies and CPU per call in microseconds."""

    per_second: float
    p50: float
    p99: float
    cpu: float


def start_all(
    stack: ExitStack, backend: Running, plain: Wire, subjects: Iterable[Subject], cores: Cores
) -> dict[str, tuple[Running, Wire]]:
    """The model server itself and every subject in front of it, for as long as the stack lasts."""
    targets = {DIRECT: (backend, plain)}
    for subject in subjects:
        started = stack.enter_context(running(subject, backend.port, cores))
        targets[subject.name] = (started, subject.wire)
    for started, _ in targets.values():
        started.child.read_on()
    return targets


def measure(
    targets: Targets, connections: Iterable[int], *, rounds: int, seconds: int, warm_up: bool
) -> tuple[dict[Key, Figures], Samples[Key, Sample]]:
    """Rounds over all targets. Each one's answer is compared whole before the first and after the last."""

    def take(key: Key) -> tuple[Sample, float]:
        return _sample(*targets[key[0]], key, seconds)

    _verify(targets)
    keys = [(name, number) for number in connections for name in targets]
    for key in keys if warm_up else ():
        started, asked = targets[key[0]]
        wrk.run(asked, started.port, subject=key[0], connections=key[1], seconds=1)
    samples = collect(keys, take, rounds=rounds)
    _verify(targets)
    return {key: _figures(values) for key, values in samples.by_key.items()}, samples


def compared(figures: Mapping[Key, Figures]) -> dict[str, dict[str, float]]:
    """All of them, as a report tells them."""
    told: dict[str, dict[str, float]] = {}
    for (name, connections), found in figures.items():
        told.setdefault(name, {}).update(
            {
                f"c{connections}_calls_per_s": found.per_second,
                f"c{connections}_p50_us": found.p50,
                f"c{connections}_p99_us": found.p99,
                f"c{connections}_cpu_us": found.cpu,
            }
        )
    return told


def _verify(targets: Targets) -> None:
    for name, (started, asked) in targets.items():
        asked.verify(started.port, name)


def _sample(started: Running, asked: Wire, key: Key, seconds: int) -> tuple[Sample, float]:
    before, cpu = machine.usage(), machine.cpu_seconds(started.child.pid)
    load = wrk.run(asked, started.port, subject=key[0], connections=key[1], seconds=seconds)
    cpu = machine.cpu_seconds(started.child.pid) - cpu
    return Sample(load=load, cpu=cpu / load.requests * 1e6), machine.usage().foreign_percent(before)


def _figures(samples: list[Sample]) -> Figures:
    return Figures(
        per_second=median(sample.load.per_second for sample in samples),
        p50=median(sample.load.p50 for sample in samples),
        p99=median(sample.load.p99 for sample in samples),
        cpu=median(sample.cpu for sample in samples),
    )
