"""Which kind of model server answers at a port.

Owns the order of kinds. A later kind adds one row; nothing else changes here.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final, Literal

from modelservice_api.adapter_config import AdapterConfig, BackendConfig, BackendType
from modelservice_sidecar.backends.base import Backend, Description
from modelservice_sidecar.backends.openai import OpenAIBackend
from modelservice_sidecar.backends.openapi import OpenAPIBackend
from modelservice_sidecar.core.errors import DescribeError
from modelservice_sidecar.upstream import Pool

Make = Callable[[Pool, AdapterConfig], Backend]


def _worker_models(kind: Literal["tvm", "torch", "onnx"]) -> Make:
    """Models that the adapter runs itself; their modules are loaded where there is such a model."""

    def make(_pool: Pool, config: AdapterConfig) -> Backend:
        backend: Backend = import_module(f"modelservice_sidecar.backends.{kind}").make(config)
        return backend

    return make


def _v2(pool: Pool, config: AdapterConfig) -> Backend:
    """Its module is loaded where such a server may be: it knows tensors, which few adapters meet."""
    backend: Backend = import_module("modelservice_sidecar.backends.v2").V2Backend(pool, config)
    return backend


KINDS: Final[dict[BackendType, Make]] = {
    "V2": _v2,
    "OpenAI": lambda pool, config: OpenAIBackend(pool, config.backend.open_ai),
    "OpenAPI": lambda pool, config: OpenAPIBackend(pool, config.backend.open_api),
    "TVM": _worker_models("tvm"),
    "Torch": _worker_models("torch"),
    "ONNX": _worker_models("onnx"),
}

PROBED: Final[tuple[BackendType, ...]] = ("V2", "OpenAI", "OpenAPI")
"""What `Auto` tries, in this order: most specific first, for a server of a specific kind may serve an OpenAPI document too."""


async def find(pool: Pool, config: AdapterConfig) -> tuple[Backend, Description]:
    """The first kind that can describe what is there.

    Raises:
        DescribeError: none can; the text of the kind that came closest, or of all that were tried.
    """
    tried: list[tuple[BackendType, DescribeError]] = []
    for kind in _candidates(config.backend):
        backend = KINDS[kind](pool, config)
        try:
            return backend, await backend.describe()
        except DescribeError as error:
            await backend.aclose()
            tried.append((kind, error))
            # Nothing more is found at a port that accepts nothing; and what is of this kind, and broken or guarded, is not of
            # another one: a guarded vLLM's OpenAPI document would offer its administration as tools.
            if error.state in {"Unreachable", "Invalid"}:
                break
    raise _closest(tried)


def _candidates(config: BackendConfig) -> tuple[BackendType, ...]:
    """The kinds to try. Where a file is named for the adapter to run, nothing is to be found at the port."""
    if config.type != "Auto":
        return (config.type,)
    named: tuple[tuple[BackendType, bool], ...] = (
        ("TVM", bool(config.tvm)),
        ("Torch", bool(config.torch)),
        ("ONNX", bool(config.onnx)),
    )
    return next(((kind,) for kind, is_named in named if is_named), PROBED)


def _closest(tried: list[tuple[BackendType, DescribeError]]) -> DescribeError:
    for _, error in tried:
        # "It is this kind, and broken" says more than "it is not this kind".
        if error.state == "Invalid":
            return error
    last = tried[-1][1]
    if len(tried) == 1 or last.state == "Unreachable":
        return last
    return DescribeError(last.state, " ".join(f"Not {kind}: {error}" for kind, error in tried))
