"""What large tensors cost through the adapter's binary lane, compared with asking Triton itself; nginx and JSON beside both.

Owns the benchmark `tensor-1mb`: an image of 588 KiB with ten numbers as the answer, and one MiB in and out.
"""

from __future__ import annotations

from contextlib import ExitStack

from servicebench import machine, tensor_calls
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report, median
from servicebench.sampling import collect
from servicebench.tensor_calls import Caller, Way

NAME = "tensor-1mb"
DIRECT = "Triton"
THROUGH = "adapter"
PROXY = "nginx"
"""A plain proxy: what it costs to send the bytes a second time."""

Key = tuple[str, str, Way]


def run(cores: Cores, *, quick: bool) -> Report:
    """Both cases, direct and through the adapter, in bytes and in JSON, in turn."""
    require("taskset", "setpriv", "nginx")
    rounds = 1 if quick else 10
    with ExitStack() as stack:
        ports = stack.enter_context(tensor_calls.servers(cores))
        callers: dict[Key, Caller] = {}
        for name, case in (("image", tensor_calls.image()), ("1 MiB", tensor_calls.megabyte())):
            ways: list[tuple[str, int, Way]] = [
                (DIRECT, ports.triton, "V2 binary"),
                (PROXY, ports.nginx, "V2 binary"),
                (THROUGH, ports.adapter, "V2 binary"),
                (DIRECT, ports.triton, "V2 JSON"),
                (THROUGH, ports.adapter, "MCP"),
            ]
            for subject, port, way in ways:
                callers[name, subject, way] = caller = Caller(port, way, case)
                stack.callback(caller.close)
                caller.sample(3)  # warm

        def take(key: Key) -> tuple[float, float]:
            return callers[key].sample(_calls(key[2], quick=quick))

        samples = collect(list(callers), take, rounds=rounds)
    p50 = {key: median(values) for key, values in samples.by_key.items()}
    compared: dict[str, dict[str, float]] = {}
    for (name, subject, way), value in p50.items():
        compared.setdefault(f"{subject}, {way}", {})[f"{name}_p50_ms"] = value
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=tuple(
            Metric(
                metric=f"{name.replace(' ', '_')}_p50_over_direct",
                value=p50[name, THROUGH, "V2 binary"] / p50[name, DIRECT, "V2 binary"],
                unit="times",
                goal=1.2,
                better="lower",
            )
            for name in ("image", "1 MiB")
        ),
        compared=compared,
        discarded=samples.discarded,
        quiet=samples.quiet,
    )


def _calls(way: Way, *, quick: bool) -> int:
    if way == "V2 binary":
        return 20 if quick else 100
    return 2 if quick else 5
