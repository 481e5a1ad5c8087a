"""What the adapter adds to a call of a compiled model in its worker process, and how long 100 MB of new weights take.

Owns the benchmark `tvm-call`. The worker's own call is its exchange over the socket, timed in a program without an adapter, on
the same core.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from servicebench import machine, wrk
from servicebench.failure import BenchError
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report, median
from servicebench.sampling import collect
from servicebench.subjects import ADAPTER, SERVERS, Subject, running, start_adapter
from servicebench.worker_calls import artifact_models, tool

from modelservice_api.adapter_config import AdapterConfig

NAME = "tvm-call"
WORKER = "worker"


def run(cores: Cores, *, quick: bool) -> Report:
    """The worker alone and through the adapter in turn; then the weights."""
    require("taskset", "setpriv", "wrk")
    rounds, seconds, calls = (1, 1, 200) if quick else (5, 2, 5000)
    asked = tool("net", {"x": [[1.0, 1.0, 1.0, 1.0]]}, {"output": [[41.0, 41.0, 41.0]]})
    model = artifact_models.tvm_model(artifact_models.torch_models() / "net.pt2")
    config = artifact_models.config_of("TVM", artifact_models.artifact("TVM", model))
    subject = Subject(name=ADAPTER, wire=asked, start=partial(start_adapter, config=config))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="modelservice-bench-")))
        (folder / "config.json").write_text(config.to_json())
        started = stack.enter_context(running(subject, 9, cores))
        asked.verify(started.port, ADAPTER)
        started.child.read_on()

        def take(name: str) -> tuple[float, float]:
            before = machine.usage()
            if name == WORKER:
                value = _numbers(cores, "worker_caller.py", str(folder / "config.json"), str(calls))[0]
            else:
                value = wrk.run(asked, started.port, subject=name, connections=1, seconds=seconds).p50
            return value, machine.usage().foreign_percent(before)

        samples = collect([WORKER, ADAPTER], take, rounds=rounds)
        asked.verify(started.port, ADAPTER)
    p50 = {name: median(values) for name, values in samples.by_key.items()}
    swaps = _swaps(cores, 2 if quick else 7)
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=(
            Metric(metric="p50_over_worker", value=p50[ADAPTER] - p50[WORKER], unit="us", goal=400, better="lower"),
            Metric(metric="p50", value=p50[ADAPTER], unit="us", goal=None, better="lower"),
            Metric(metric="weights_100mb", value=median(swaps), unit="ms", goal=500, better="lower"),
            Metric(metric="weights_100mb_slowest", value=max(swaps), unit="ms", goal=None, better="lower"),
        ),
        compared={name: {"p50_us": value} for name, value in p50.items()},
        discarded=samples.discarded,
        quiet=samples.quiet,
    )


def _swaps(cores: Cores, times: int) -> list[float]:
    dense, weights = artifact_models.dense_model()
    model = artifact_models.tvm_model(dense)
    config: AdapterConfig = artifact_models.config_of("TVM", artifact_models.artifact("TVM", model))
    with tempfile.TemporaryDirectory(prefix="modelservice-bench-") as folder:
        path = Path(folder) / "config.json"
        path.write_text(config.to_json())
        return _numbers(cores, "swap_weights.py", str(path), str(weights), str(times))


def _numbers(cores: Cores, program: str, *arguments: str) -> list[float]:
    command = ["taskset", "--cpu-list", str(cores.subject), sys.executable, str(SERVERS / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise BenchError(f"{program}: {done.stderr.strip()[-500:]}")
    return [float(line) for line in done.stdout.split()]
