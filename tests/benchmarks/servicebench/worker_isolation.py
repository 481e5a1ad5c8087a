"""What two models in one adapter cost each other: speed while both work on one core, and calls when one of them crashes.

Owns the benchmark `worker-isolation`. Adapter and workers share one core. A model's share is half of the calls per second that
it has when it is asked alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import psutil
from servicebench import machine, wrk
from servicebench.failure import BenchError
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report, median
from servicebench.sampling import collect
from servicebench.subjects import ADAPTER, Running, Subject, running, start_adapter
from servicebench.worker_calls import ToolWire, artifact_models, tool
from servicebench.wrk import Load

NAME = "worker-isolation"
MODELS = ("left", "right")
TOGETHER = "together"
TURNS = 20
ENDLESS = 50_000_000


def run(cores: Cores, *, quick: bool) -> Report:
    """Each model alone, both at once, then one under load while the other is killed in call after call."""
    require("taskset", "setpriv", "wrk")
    rounds, seconds = (1, 1) if quick else (5, 3)
    asked = {name: tool(name, {"turns": TURNS}, {"total": 256.0}) for name in MODELS}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="modelservice-bench-")))
        for name in MODELS:
            shutil.copy(artifact_models.onnx_models() / "slow.onnx", folder / f"{name}.onnx")
        files = [artifact_models.artifact("ONNX", folder / f"{name}.onnx") for name in MODELS]
        start = partial(start_adapter, config=artifact_models.config_of("ONNX", *files))
        started = stack.enter_context(running(Subject(name=ADAPTER, wire=asked["left"], start=start), 9, cores))
        for name in MODELS:
            asked[name].verify(started.port, name)
        started.child.read_on()

        def take(names: str) -> tuple[dict[str, float], float]:
            before = machine.usage()
            wanted = MODELS if names == TOGETHER else (names,)
            with ThreadPoolExecutor() as pool:
                loads = list(pool.map(lambda name: _load(asked[name], started, name, seconds), wanted))
            found = {name: load.per_second for name, load in zip(wanted, loads, strict=True)}
            return found, machine.usage().foreign_percent(before)

        samples = collect([*MODELS, TOGETHER], take, rounds=rounds)
        alone = {name: median(sample[name] for sample in samples.by_key[name]) for name in MODELS}
        both = {name: median(sample[name] for sample in samples.by_key[TOGETHER]) for name in MODELS}
        crashes, load = _crash(asked["right"], started, seconds * 2)
    shares = {name: both[name] / (alone[name] / 2) for name in MODELS}
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=(
            Metric(metric="smaller_share", value=min(shares.values()), unit="of half", goal=0.9, better="higher"),
            Metric(metric="lost_calls", value=0, unit="calls", goal=0, better="lower"),  # wrk.run raises on any
            Metric(metric="crashes", value=crashes, unit="crashes", goal=None, better="higher"),
            Metric(metric="calls_meanwhile", value=load.requests, unit="calls", goal=None, better="higher"),
        ),
        compared={
            name: {"alone_per_s": alone[name], "together_per_s": both[name], "share": shares[name]} for name in MODELS
        },
        discarded=samples.discarded,
        quiet=samples.quiet,
    )


def _load(asked: ToolWire, started: Running, name: str, seconds: int) -> Load:
    return wrk.run(asked, started.port, subject=name, connections=1, seconds=seconds)


def _crash(asked: ToolWire, started: Running, seconds: int) -> tuple[int, Load]:
    """Load one model while the other is killed in the middle of its calls, again and again."""
    over = threading.Event()
    with ThreadPoolExecutor() as pool:
        crashing = pool.submit(_crash_on, started, over)
        try:
            load = _load(asked, started, "right", seconds)
        finally:
            over.set()
        return crashing.result(), load


def _crash_on(started: Running, over: threading.Event) -> int:
    short, endless = tool("left", {"turns": 1}, {"total": 256.0}), tool("left", {"turns": ENDLESS}, {})
    crashes = 0
    while not over.is_set():
        short.verify(started.port, "left")  # waits for the process that was started again
        connection = HTTPConnection("127.0.0.1", started.port, timeout=30)
        connection.request("POST", endless.path, endless.body, endless.headers)
        time.sleep(0.1)
        os.kill(_worker(started, "left.onnx"), signal.SIGKILL)
        answer = connection.getresponse().read()
        connection.close()
        if b"ended by SIGKILL" not in answer:
            raise BenchError(f"a killed worker was not told: {answer[:300]!r}")
        crashes += 1
    return crashes


def _worker(started: Running, model: str) -> int:
    children = psutil.Process(started.child.pid).children()
    return next(int(child.pid) for child in children if child.cmdline()[-1].endswith(model))
