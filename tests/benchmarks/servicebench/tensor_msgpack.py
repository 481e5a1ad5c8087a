"""One image sent to the adapter as MessagePack with its bytes as they are, and the same as JSON numbers.

Owns the benchmark `tensor-msgpack-vs-json`: whole calls, from the first byte sent to the last byte of the right answer.
"""

from __future__ import annotations

from contextlib import ExitStack

from servicebench import machine, tensor_calls
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report, median
from servicebench.sampling import collect
from servicebench.tensor_calls import Caller, Way

NAME = "tensor-msgpack-vs-json"
WAYS: tuple[Way, ...] = ("MessagePack", "JSON-RPC", "V2 binary", "MCP")


def run(cores: Cores, *, quick: bool) -> Report:
    """All ways in turn, the same image."""
    require("taskset", "setpriv", "nginx")
    rounds = 1 if quick else 10
    with ExitStack() as stack:
        ports = stack.enter_context(tensor_calls.servers(cores))
        callers: dict[Way, Caller] = {}
        for way in WAYS:
            callers[way] = caller = Caller(ports.adapter, way, tensor_calls.image())
            stack.callback(caller.close)
            caller.sample(3)  # warm

        def take(way: Way) -> tuple[float, float]:
            calls = 50 if way in {"MessagePack", "V2 binary"} else 5
            return callers[way].sample(2 if quick else calls)

        samples = collect(list(callers), take, rounds=rounds)
    p50 = {way: median(values) for way, values in samples.by_key.items()}
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=(
            Metric(
                metric="json_over_msgpack",
                value=p50["JSON-RPC"] / p50["MessagePack"],
                unit="times",
                goal=4.3,
                better="higher",
            ),
            Metric(metric="msgpack_p50", value=p50["MessagePack"], unit="ms", goal=None, better="lower"),
        ),
        compared={way: {"p50_ms": value} for way, value in p50.items()},
        discarded=samples.discarded,
        quiet=samples.quiet,
    )
