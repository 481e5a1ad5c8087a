"""How long the adapter takes to start, with its model server up.

Owns the benchmark `adapter-start`. Two moments count: readiness, when the kubelet sends traffic, and the first right answer,
for which the tools must have been found. Time begins before the process is made, so the interpreter's own start is in it.
"""

from __future__ import annotations

import http.client
import time

from servicebench import machine
from servicebench.failure import BenchError
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report, median
from servicebench.sampling import collect
from servicebench.subjects import ADAPTER, OTHERS, OURS, Running, Subject, model_server, running

NAME = "adapter-start"


def run(cores: Cores, *, quick: bool) -> Report:
    """Start every subject several times, in turn."""
    require("taskset", "setpriv", "nginx")
    rounds = 1 if quick else 10
    subjects = {subject.name: subject for subject in (OURS, *OTHERS)}
    with model_server(cores) as backend:

        def take(name: str) -> tuple[float, float]:
            before = machine.usage()
            seconds = _start(subjects[name], backend.port, cores)
            return seconds, machine.usage().foreign_percent(before)

        for name in subjects:
            take(name)  # the first start reads files from disk and compiles Python
        samples = collect(subjects, take, rounds=rounds)
    starts = samples.by_key[ADAPTER]
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=(
            Metric(metric="start_to_first_answer", value=median(starts), unit="s", goal=0.5, better="lower"),
            Metric(metric="slowest_start", value=max(starts), unit="s", goal=None, better="lower"),
        ),
        compared={
            name: {"start_to_first_answer_s": median(values)}
            for name, values in samples.by_key.items()
            if name != ADAPTER
        },
        discarded=samples.discarded,
        quiet=samples.quiet,
    )


def _start(subject: Subject, backend_port: int, cores: Cores) -> float:
    """Seconds from nothing to the first right answer, readiness included where there is such a thing."""
    with running(subject, backend_port, cores) as started:
        if started.admin_port:
            _check_ready(started)
        subject.wire.verify(started.port, subject.name)
        return time.monotonic() - started.child.started


def _check_ready(started: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", started.admin_port, timeout=10)
    try:
        connection.request("GET", "/readyz")
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != 200:
        raise BenchError(f"the adapter's readiness answers {status}")
