"""How much memory the adapter holds: idle, and after many calls.

Owns the benchmark `adapter-rss`. Idle is after the start, one call and a second of rest, before any load.
"""

from __future__ import annotations

import time

from servicebench import machine, wrk
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report, median
from servicebench.subjects import ADAPTER, OTHERS, OURS, Subject, model_server, running

NAME = "adapter-rss"
REST_SECONDS = 1.0


def run(cores: Cores, *, quick: bool) -> Report:
    """Start every subject a few times and look; then load the adapter."""
    require("taskset", "setpriv", "wrk", "nginx")
    rounds = 1 if quick else 3
    idle: dict[str, list[float]] = {subject.name: [] for subject in (OURS, *OTHERS)}
    with model_server(cores) as backend:
        for _ in range(rounds):
            for subject in (OURS, *OTHERS):
                idle[subject.name].append(_idle(subject, backend.port, cores))
        half, whole, calls = _loaded(backend.port, cores, seconds=1 if quick else 10)
    megabytes = {name: median(values) for name, values in idle.items()}
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=(
            Metric(metric="idle_rss", value=megabytes[ADAPTER], unit="MB", goal=48, better="lower"),
            Metric(metric="rss_after_calls", value=whole, unit="MB", goal=64, better="lower"),
            Metric(metric="growth_in_second_half", value=whole - half, unit="MB", goal=1, better="lower"),
            Metric(metric="calls", value=calls, unit="calls", goal=None, better="higher"),
        ),
        compared={name: {"idle_rss_mb": value} for name, value in megabytes.items() if name != ADAPTER},
    )


def _idle(subject: Subject, backend_port: int, cores: Cores) -> float:
    with running(subject, backend_port, cores) as started:
        subject.wire.verify(started.port, subject.name)
        time.sleep(REST_SECONDS)  # what is measured is that nothing happens
        return machine.resident_megabytes(started.child.pid)


def _loaded(backend_port: int, cores: Cores, *, seconds: int) -> tuple[float, float, int]:
    """Memory after half of the calls and after all, and how many there were."""
    with running(OURS, backend_port, cores) as started:
        started.child.read_on()
        first = wrk.run(OURS.wire, started.port, subject=ADAPTER, connections=16, seconds=seconds)
        half = machine.resident_megabytes(started.child.pid)
        second = wrk.run(OURS.wire, started.port, subject=ADAPTER, connections=16, seconds=seconds)
        whole = machine.resident_megabytes(started.child.pid)
        OURS.wire.verify(started.port, ADAPTER)
    return half, whole, first.requests + second.requests
