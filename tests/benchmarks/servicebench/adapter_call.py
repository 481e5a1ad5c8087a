"""What a tool call through the adapter costs: latency, throughput and CPU, at 1 and at 16 connections.

Owns the benchmark `adapter-call`. The load is closed (each connection asks again when it is answered), so at 16 connections
p99 says how evenly a full core serves, not how a queue grows. CPU per call is the figure that a noisy machine moves least.
"""

from __future__ import annotations

from contextlib import ExitStack

from servicebench import closed_load, machine, wire
from servicebench.closed_load import Figures, Key, Sample
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report
from servicebench.sampling import Samples
from servicebench.subjects import ADAPTER, DIRECT, OTHERS, OURS, model_server

NAME = "adapter-call"
OLDER = f"{ADAPTER} {wire.OLDER_VERSION}"
CONNECTIONS = (1, 16)


def run(cores: Cores, *, quick: bool) -> Report:
    """All subjects in turn, under the same load."""
    require("taskset", "setpriv", "wrk", "nginx")
    rounds, seconds = (1, 1) if quick else (5, 2)
    with ExitStack() as stack:
        backend = stack.enter_context(model_server(cores))
        targets = closed_load.start_all(stack, backend, wire.plain(), (*OTHERS, OURS), cores)
        targets[OLDER] = (targets[ADAPTER][0], wire.older())
        figures, samples = closed_load.measure(targets, CONNECTIONS, rounds=rounds, seconds=seconds, warm_up=not quick)
    return _report(figures, samples, rounds)


def _report(figures: dict[Key, Figures], samples: Samples[Key, Sample], rounds: int) -> Report:
    one, many, older = figures[ADAPTER, 1], figures[ADAPTER, 16], figures[OLDER, 16]
    sdk, afternoon = figures["sdk", 16], figures["fastapi+httpx", 16]
    over_direct = one.p50 - figures[DIRECT, 1].p50
    over_nginx = one.p50 / figures["nginx", 1].p50
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
        compared=closed_load.compared(figures),
        discarded=samples.discarded,
        quiet=samples.quiet,
    )
