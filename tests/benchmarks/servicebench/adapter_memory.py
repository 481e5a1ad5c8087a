"""How much memory the adapter holds with everything on: idle, and after a million calls. The library that checks
signatures and the one that makes spans are loaded only where they are configured, so the defaults' idle is told beside it.

Owns the benchmark `adapter-memory`. It ends after `LONGEST_SECONDS` of load, whatever was reached; a count that was missed is
a missed goal. Idle is after the start, one call and a second of rest.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from servicebench import full_chain, machine, wrk
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report
from servicebench.subjects import ADAPTER, OURS, Running, model_server, running
from servicebench.wire import Wire

NAME = "adapter-memory"
CALLS = 1_000_000
QUICK_CALLS = 4_000
LONGEST_SECONDS = 1200.0
REST_SECONDS = 1.0
CONNECTIONS = 16


def run(cores: Cores, *, quick: bool) -> Report:
    """Idle, then two halves of the calls."""
    require("taskset", "setpriv", "wrk")
    wanted, slice_seconds = (QUICK_CALLS, 1) if quick else (CALLS, 10)
    with full_chain.subject(cores) as ours, ExitStack() as stack:
        backend = stack.enter_context(model_server(cores))
        backend.child.read_on()
        with running(OURS, backend.port, cores) as bare:
            bare_idle = _idle(bare, OURS.wire)
        started = stack.enter_context(running(ours, backend.port, cores))
        idle = _idle(started, ours.wire)
        began = time.monotonic()
        half_calls = _load(started, ours.wire, wanted // 2, slice_seconds)
        half = machine.resident_megabytes(started.child.pid)
        calls = half_calls + _load(started, ours.wire, wanted - half_calls, slice_seconds)
        whole = machine.resident_megabytes(started.child.pid)
        took = time.monotonic() - began
        ours.wire.verify(started.port, ADAPTER)
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=1,
        metrics=(
            Metric(metric="idle_rss", value=idle, unit="MB", goal=48, better="lower"),
            Metric(metric="rss_after_calls", value=whole, unit="MB", goal=64, better="lower"),
            Metric(metric="growth_in_second_half", value=whole - half, unit="MB", goal=1, better="lower"),
            Metric(metric="calls", value=calls, unit="calls", goal=wanted, better="higher"),
            Metric(metric="seconds", value=took, unit="s", goal=None, better="lower"),
        ),
        compared={"with the defaults": {"idle_rss_mb": bare_idle}, "with everything on": {"idle_rss_mb": idle}},
    )


def _idle(started: Running, asked: Wire) -> float:
    asked.verify(started.port, ADAPTER)
    started.child.read_on()
    time.sleep(REST_SECONDS)  # what is measured is that nothing happens
    return machine.resident_megabytes(started.child.pid)


def _load(started: Running, asked: Wire, wanted: int, slice_seconds: int) -> int:
    """At least so many calls, unless half of the time is over."""
    until = time.monotonic() + LONGEST_SECONDS / 2
    calls = 0
    while calls < wanted and time.monotonic() < until:
        load = wrk.run(asked, started.port, subject=ADAPTER, connections=CONNECTIONS, seconds=slice_seconds)
        calls += load.requests
    return calls
