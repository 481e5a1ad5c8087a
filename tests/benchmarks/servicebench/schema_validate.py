"""What it costs to check an image that came as nested lists, before anything is converted or sent.

Owns the benchmark `schema-validate`: one image of 3 x 224 x 224 numbers, the size that vision models take. The check is the
one that every call passes. Decoding and conversion stand beside it, since a caller who sends lists pays for them too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import orjson
from servicebench import machine
from servicebench.failure import BenchError
from servicebench.machine import Cores
from servicebench.report import Metric, Report, median
from servicebench.sampling import collect

from modelservice_sidecar.core import codec, tensors
from modelservice_sidecar.core.tensors import Signature, TensorSpec
from modelservice_sidecar.tensor_checks import compile_tensor_check

NAME = "schema-validate"
SHAPE = (3, 224, 224)


def run(_cores: Cores, *, quick: bool) -> Report:
    """The check and what stands beside it, in turn, in this process."""
    rounds = 2 if quick else 40
    spec = tensors.batch_axis(TensorSpec(name="image", datatype="FP32", shape=SHAPE), 16)
    check = compile_tensor_check(Signature(inputs=(spec,), outputs=(), max_batch=16))
    image = _image()
    body = orjson.dumps({"image": image})
    steps: dict[str, Callable[[], Any]] = {
        "check": lambda: check({"image": image}),
        "decode JSON": lambda: orjson.loads(body),
        "convert to bytes": lambda: codec.from_lists(image, "FP32", limit=2**30),
    }
    _verify(check, image)

    def take(name: str) -> tuple[float, float]:
        before = machine.usage()
        began = time.perf_counter()
        for _ in range(5):
            steps[name]()
        return (time.perf_counter() - began) / 5 * 1000, machine.usage().foreign_percent(before)

    for name in steps:
        take(name)
    samples = collect(steps, take, rounds=rounds)
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=(
            Metric(
                metric="check_150528_floats", value=median(samples.by_key["check"]), unit="ms", goal=3, better="lower"
            ),
        ),
        compared={name: {"ms": median(values)} for name, values in samples.by_key.items()},
        discarded=samples.discarded,
        quiet=samples.quiet,
    )


def _image() -> list[list[list[float]]]:
    draw = random.Random(1).random  # the same picture in every run
    channels, rows, columns = SHAPE
    return [[[draw() for _ in range(columns)] for _ in range(rows)] for _ in range(channels)]


def _verify(check: Callable[[Any], str | None], image: list[list[list[float]]]) -> None:
    """A check that takes everything would be quick too."""
    if check({"image": image}) is not None:
        raise BenchError("the check refuses a right image")
    spoiled: Any = [*image[:-1], [*image[-1][:-1], [*image[-1][-1][:-1], "x"]]]
    told = check({"image": spoiled})
    if told is None or not told.startswith("$.image[2][223][223]: "):
        raise BenchError("the check does not see a string where the last number should be")
