"""What dynamic batching gains where calls come together, and what it costs a call that comes alone.

Owns the benchmark `batcher`. The model server takes two milliseconds for a request, one after another, however many rows are in
it. The same adapter is measured with and without the `batcher` block, in the same rounds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from servicebench import machine, wire, wrk
from servicebench.children import Child
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report, median
from servicebench.sampling import collect
from servicebench.subjects import SERVERS, Running, Subject, running, start_adapter
from servicebench.wire import FEATURES, Wire
from servicebench.wrk import Load

from modelservice_api.adapter_config import AdapterConfig, BackendConfig, BatcherConfig

NAME = "batcher"
COST_MS = 2.0
MAX_LATENCY_MS = 5.0
BATCH = 8
CALLERS = (1, 16)
WITHOUT, WITH = "without batcher", "with batcher"

Key = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class AddWire(Wire):
    """A call of the tensor tool `add` with one row."""

    @property
    def marker(self) -> str:
        return f"[[{round(sum(FEATURES), 3)}]]"

    def is_right(self, content: bytes) -> bool:
        try:
            found = json.loads(content)["result"]["structuredContent"]
        except (ValueError, KeyError, TypeError):
            return False
        return bool(found == {"y": [[round(sum(FEATURES), 3)]]})


def add_wire() -> AddWire:
    """MCP 2026-07-28, as the other benchmarks speak it."""
    plain = wire.modern()
    message = json.loads(plain.body)
    message["params"] |= {"name": "add", "arguments": {"x": [FEATURES]}}
    return AddWire(
        path=plain.path, headers={**plain.headers, "Mcp-Name": "add"}, body=json.dumps(message).encode(), mcp=True
    )


@contextmanager
def fixed_cost_model(cores: Cores, milliseconds: float) -> Iterator[Running]:
    """A model server whose requests take so long each, one after another."""
    command = [sys.executable, str(SERVERS / "fixed_cost_model.py"), str(milliseconds)]
    with Child("fixed-cost-model", command, core=cores.others) as child:
        yield Running(child=child, port=int(child.wait_for(str.isdigit)))


def run(cores: Cores, *, quick: bool) -> Report:
    """Both adapters in turn, alone and with many callers."""
    require("taskset", "setpriv", "wrk")
    rounds, seconds = (1, 1) if quick else (5, 2)
    asked = add_wire()
    plain = AdapterConfig(backend=BackendConfig(type="V2"))
    batcher = BatcherConfig(max_batch_size=BATCH, max_latency=MAX_LATENCY_MS / 1000)
    configs = {WITHOUT: plain, WITH: plain.model_copy(update={"batcher": batcher})}
    with ExitStack() as stack:
        backend = stack.enter_context(fixed_cost_model(cores, COST_MS))
        subjects: dict[str, Running] = {}
        for name, config in configs.items():
            subject = Subject(name=name, wire=asked, start=partial(start_adapter, config=config))
            subjects[name] = stack.enter_context(running(subject, backend.port, cores))
            asked.verify(subjects[name].port, name)
            subjects[name].child.read_on()

        def take(key: Key) -> tuple[Load, float]:
            before = machine.usage()
            load = wrk.run(asked, subjects[key[0]].port, subject=key[0], connections=key[1], seconds=seconds)
            return load, machine.usage().foreign_percent(before)

        samples = collect([(name, callers) for callers in CALLERS for name in configs], take, rounds=rounds)
        for name, started in subjects.items():
            asked.verify(started.port, name)
    p50 = {key: median(load.p50 for load in loads) / 1000 for key, loads in samples.by_key.items()}
    per_second = {key: median(load.per_second for load in loads) for key, loads in samples.by_key.items()}
    many = CALLERS[-1]
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=(
            Metric(
                metric="throughput_gain_c16",
                value=per_second[WITH, many] / per_second[WITHOUT, many],
                unit="times",
                goal=3.2,
                better="higher",
            ),
            Metric(
                metric="p50_added_c1",
                value=p50[WITH, 1] - p50[WITHOUT, 1],
                unit="ms",
                goal=MAX_LATENCY_MS + 0.3,
                better="lower",
            ),
        ),
        compared={
            name: {
                f"c{callers}_{figure}": values[name, callers]
                for callers in CALLERS
                for figure, values in (("calls_per_s", per_second), ("p50_ms", p50))
            }
            for name in configs
        },
        discarded=samples.discarded,
        quiet=samples.quiet,
    )
