"""Calls a model's worker process directly, without an adapter; prints the median in microseconds.

Usage: ``python worker_caller.py CONFIG CALLS``: a config document with one TVM model, and how many calls to time.
"""

import statistics
import sys
import time
from pathlib import Path

import uvloop

from modelservice_api.adapter_config import AdapterConfig
from modelservice_sidecar.backends.tvm import make
from modelservice_sidecar.core import codec


async def main(config: AdapterConfig) -> None:
    """Start the worker, warm it, time it, end it."""
    backend = make(config)
    await backend.describe()
    worker = next(iter(backend.workers().values()))
    inputs = {"x": codec.from_lists([[1.0, 1.0, 1.0, 1.0]], "FP32", limit=1024)}
    times: list[float] = []
    for number in range(int(sys.argv[2]) + 200):
        began = time.perf_counter()
        await worker.call(inputs)
        if number >= 200:
            times.append(time.perf_counter() - began)
    await backend.aclose()
    print(statistics.median(times) * 1e6)


uvloop.run(main(AdapterConfig.model_validate_json(Path(sys.argv[1]).read_text())))
