"""What a tool call through the adapter costs: latency, throughput and CPU, at 1 and at 16 connections.

Owns the benchmark `adapter-call`. The load is closed (each connection asks again when it is answered), so at 16 connections
p99 says how evenly a full core serves, not how a queue grows. CPU per call is the figure that a noisy machine moves least.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from servicebench import machine, wire, wrk
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report, median
from servicebench.sampling import Samples, collect
from servicebench.subjects import ADAPTER, DIRECT, OTHERS, OURS, Running, model_server, running
from servicebench.wire import Wire
from servicebench.wrk import Load

NAME = "adapter-call"
OLDER = f"{ADAPTER} {wire.OLDER_VERSION}"
CONNECTIONS = (1, 16)

Key = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One run of load: what its callers saw and what it cost the subject, in microseconds of CPU per call."""

    load: Load
    cpu: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A subject at one number of connections; medians over the rounds."""

    per_second: float
    p50: float
    p99: float
    cpu: float


def run(cores: Cores, *, quick: bool) -> Report:
    """All subjects in turn, under the same load."""
    require("taskset", "setpriv", "wrk", "nginx")
    rounds, seconds = (1, 1) if quick else (5, 2)
    with ExitStack() as stack:
        backend = stack.enter_context(model_server(cores))
        targets: dict[str, tuple[Running, Wire]] = {DIRECT: (backend, wire.plain())}
        for subject in (*OTHERS, OURS):
            started = stack.enter_context(running(subject, backend.port, cores))
            targets[subject.name] = (started, subject.wire)
        targets[OLDER] = (targets[ADAPTER][0], wire.older())
        for name, (started, asked) in targets.items():
            asked.verify(started.port, name)
            if name != OLDER:  # which is the same process
                started.child.read_on()

        def take(key: Key) -> tuple[Sample, float]:
            return _sample(*targets[key[0]], key, seconds)

        keys = [(name, connections) for connections in CONNECTIONS for name in targets]
        for key in keys if not quick else ():
            started, asked = targets[key[0]]
            wrk.run(asked, started.port, subject=key[0], connections=key[1], seconds=1)
        samples = collect(keys, take, rounds=rounds)
        for name, (started, asked) in targets.items():
            asked.verify(started.port, name)
    return _report({key: _figures(values) for key, values in samples.by_key.items()}, samples, rounds)


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


def _report(figures: dict[Key, Figures], samples: Samples[Key, Sample], rounds: int) -> Report:
    one, many, older = figures[ADAPTER, 1], figures[ADAPTER, 16], figures[OLDER, 16]
    sdk, afternoon = figures["sdk", 16], figures["fastapi+httpx", 16]
    over_direct = one.p50 - figures[DIRECT, 1].p50
    over_nginx = one.p50 / figures["nginx", 1].p50
    compared = {
        name: {
            label: value
            for connections in CONNECTIONS
            for label, value in _told(figures[name, connections], connections).items()
        }
        for name in dict.fromkeys(name for name, _ in figures)
    }
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=(
            Metric(metric="p50_over_direct_c1", value=over_direct, unit="us", goal=250, better="lower"),
            Metric(metric="p50_over_nginx_c1", value=over_nginx, unit="times", goal=2.0, better="lower"),
            Metric(metric="p99_c1", value=one.p99, unit="us", goal=500, better="lower"),
            Metric(metric="calls_per_second_c16", value=many.per_second, unit="1/s", goal=12000, better="higher"),
            Metric(metric="p99_c16", value=many.p99 / 1000, unit="ms", goal=3, better="lower"),
            Metric(metric="cpu_per_call_c16", value=many.cpu, unit="us", goal=90, better="lower"),
            Metric(metric="cpu_per_call_c1", value=one.cpu, unit="us", goal=None, better="lower"),
            Metric(
                metric="calls_per_second_over_sdk_c16",
                value=many.per_second / sdk.per_second,
                unit="times",
                goal=5,
                better="higher",
            ),
            Metric(
                metric="calls_per_second_over_fastapi_httpx_c16",
                value=many.per_second / afternoon.per_second,
                unit="times",
                goal=None,
                better="higher",
            ),
            Metric(
                metric=f"calls_per_second_c16_{wire.OLDER_VERSION}",
                value=older.per_second,
                unit="1/s",
                goal=None,
                better="higher",
            ),
        ),
        compared=compared,
        discarded=samples.discarded,
        quiet=samples.quiet,
    )


def _told(figures: Figures, connections: int) -> dict[str, float]:
    return {
        f"c{connections}_calls_per_s": figures.per_second,
        f"c{connections}_p50_us": figures.p50,
        f"c{connections}_p99_us": figures.p99,
        f"c{connections}_cpu_us": figures.cpu,
    }
