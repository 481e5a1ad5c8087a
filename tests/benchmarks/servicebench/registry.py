"""The benchmarks by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from servicebench import (
    adapter_auth,
    adapter_call,
    adapter_chain,
    adapter_memory,
    adapter_overload,
    adapter_rss,
    adapter_scrape,
    adapter_start,
    batcher,
    openai_stream,
    schema_validate,
    tensor_1mb,
    tensor_msgpack,
    tvm_call,
    worker_isolation,
)
from servicebench.report import Report

Benchmark = Callable[..., Report]
"""Called with the cores and, as `quick`, whether only to try it out."""

BENCHMARKS: dict[str, Benchmark] = {
    module.NAME: module.run
    for module in (
        adapter_rss,
        adapter_start,
        adapter_scrape,
        adapter_call,
        adapter_chain,
        adapter_memory,
        adapter_auth,
        adapter_overload,
        batcher,
        openai_stream,
        schema_validate,
        tensor_1mb,
        tensor_msgpack,
        tvm_call,
        worker_isolation,
    )
}
