"""What a tool call costs with everything on, beside other ways to serve the same call, at 1, 16 and 64 connections.

Owns the benchmark `adapter-chain`. The others do less, most of them only the call itself; none of them has tokens, limits,
checks, metrics, spans or a log.
"""

from __future__ import annotations

from contextlib import ExitStack

from servicebench import closed_load, full_chain, machine, wire
from servicebench.closed_load import Figures, Key, Sample
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report
from servicebench.sampling import Samples
from servicebench.subjects import ADAPTER, DIRECT, FASTAPI, FASTAPI_HTTPX, FASTMCP, NGINX, SDK, model_server

NAME = "adapter-chain"
CONNECTIONS = (1, 16, 64)
COMPARED = (NGINX, FASTAPI, FASTAPI_HTTPX, SDK, FASTMCP)


def run(cores: Cores, *, quick: bool) -> Report:
    """All subjects in turn, under the same load."""
    require("taskset", "setpriv", "wrk", "nginx")
    rounds, seconds = (1, 1) if quick else (5, 2)
    with full_chain.subject(cores) as ours, ExitStack() as stack:
        backend = stack.enter_context(model_server(cores))
        targets = closed_load.start_all(stack, backend, wire.plain(), (*COMPARED, ours), cores)
        figures, samples = closed_load.measure(targets, CONNECTIONS, rounds=rounds, seconds=seconds, warm_up=not quick)
    return _report(figures, samples, rounds)


def _report(figures: dict[Key, Figures], samples: Samples[Key, Sample], rounds: int) -> Report:
    one, many = figures[ADAPTER, 1], figures[ADAPTER, 16]
    obvious = figures[FASTAPI_HTTPX.name, 16]

    def times_as_many(name: str) -> float:
        return many.per_second / figures[name, 16].per_second

    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=(
            Metric(
                metric="p50_over_direct_c1", value=one.p50 - figures[DIRECT, 1].p50, unit="us", goal=250, better="lower"
            ),
            Metric(
                metric="p50_over_nginx_c1",
                value=one.p50 / figures[NGINX.name, 1].p50,
                unit="times",
                goal=2,
                better="lower",
            ),
            Metric(metric="p99_c1", value=one.p99, unit="us", goal=500, better="lower"),
            Metric(metric="calls_per_second_c16", value=many.per_second, unit="1/s", goal=12000, better="higher"),
            Metric(metric="p99_c16", value=many.p99 / 1000, unit="ms", goal=3, better="lower"),
            Metric(metric="cpu_per_call_c16", value=many.cpu, unit="us", goal=90, better="lower"),
            Metric(
                metric="cpu_over_fastapi_c16",
                value=many.cpu / figures[FASTAPI.name, 16].cpu,
                unit="times",
                goal=1,
                better="lower",
            ),
            Metric(
                metric="calls_per_second_over_fastapi_httpx_c16",
                value=times_as_many(FASTAPI_HTTPX.name),
                unit="times",
                goal=20,
                better="higher",
            ),
            Metric(
                metric="p99_over_fastapi_httpx_c16",
                value=many.p99 / obvious.p99,
                unit="times",
                goal=0.05,
                better="lower",
            ),
            Metric(
                metric="calls_per_second_over_sdk_c16",
                value=times_as_many(SDK.name),
                unit="times",
                goal=5,
                better="higher",
            ),
            Metric(
                metric="calls_per_second_over_fastmcp_c16",
                value=times_as_many(FASTMCP.name),
                unit="times",
                goal=10,
                better="higher",
            ),
        ),
        compared=closed_load.compared(figures),
        discarded=samples.discarded,
        quiet=samples.quiet,
    )
