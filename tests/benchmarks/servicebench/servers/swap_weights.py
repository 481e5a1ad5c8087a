"""Exchanges the weights of a running model a few times; prints how long the worker took each time, in milliseconds.

Usage: ``python swap_weights.py CONFIG WEIGHTS TIMES``: a config document with one TVM model, and another file of its weights.
"""

import shutil
import sys
import time
from pathlib import Path

import uvloop

from modelservice_api.adapter_config import AdapterConfig
from modelservice_sidecar.backends.tvm import make


async def main(config: AdapterConfig) -> None:
    """Put the file in place, have it loaded, and time only that."""
    backend = make(config)
    await backend.describe()
    worker = next(iter(backend.workers().values()))
    served = Path(config.backend.tvm[0].artifact).with_suffix(".safetensors")
    for _ in range(int(sys.argv[3])):
        new = served.with_name("new")
        shutil.copy(sys.argv[2], new)
        new.replace(served)
        began = time.perf_counter()
        problem = await worker.load_weights()
        if problem:
            raise SystemExit(problem)
        print((time.perf_counter() - began) * 1e3)
    await backend.aclose()


uvloop.run(main(AdapterConfig.model_validate_json(Path(sys.argv[1]).read_text())))
