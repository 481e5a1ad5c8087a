"""The adapter with every stage on that a production pod has: tokens, limit, checks, breaker, retries, metrics, spans, log.

Owns that configuration, the caller's token, and the receiver of spans. No bound of it is reached: what is measured is that the
stages are there. Only the cache and the batcher are off, since they save calls instead of making them.
"""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from servicebench import wire
from servicebench.children import Child
from servicebench.failure import BenchError
from servicebench.machine import Cores
from servicebench.subjects import ADAPTER, SERVERS, Subject, start_adapter
from servicebench.wire import TOOL, Wire

from modelservice_api.adapter_config import (
    AdapterConfig,
    AuthConfig,
    BackendConfig,
    CircuitBreakerConfig,
    IssuerConfig,
    RateLimitingConfig,
    RetryConfig,
    ServerConfig,
    TokenBucketConfig,
    ToolAnnotationsConfig,
    ToolOverride,
    ToolsConfig,
    TracingConfig,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from token_issuer import RESOURCE, Issuer

SAMPLE_RATIO = 0.01
_HOUR = 3600


def config(issuer: Issuer, spans: str) -> AdapterConfig:
    """Everything on. The tool is said to be idempotent, or the stage of retries would let it pass by."""
    idp = IssuerConfig(name="idp", issuer=issuer.url, audiences=(RESOURCE,), jwks=issuer.jwks())
    plenty = TokenBucketConfig(max_tokens=10_000_000, refill_period=1)
    idempotent = ToolOverride(annotations=ToolAnnotationsConfig(idempotent_hint=True))
    return AdapterConfig(
        server=ServerConfig(name="bench", version="1"),
        backend=BackendConfig(type="OpenAPI"),
        tools=ToolsConfig(overrides={TOOL: idempotent}),
        auth=AuthConfig(issuers=(idp,), resource=RESOURCE),
        rate_limiting=RateLimitingConfig(per_user=plenty, shared=plenty),
        circuit_breaker=CircuitBreakerConfig(),
        retry=RetryConfig(),
        tracing=TracingConfig(endpoint=spans, sample_ratio=SAMPLE_RATIO),
    )


def with_token(asked: Wire, token: str) -> Wire:
    """The same call from somebody."""
    return replace(asked, headers={**asked.headers, "Authorization": f"Bearer {token}"})


@contextmanager
def subject(cores: Cores) -> Iterator[Subject]:
    """The adapter so configured, asked with a token that is good for an hour.

    Raises:
        BenchError: at the end, when no span of it was received.
    """
    issuer = Issuer()
    token = issuer.token(issuer.claims(exp=int(time.time()) + _HOUR))
    with Child("span-sink", [sys.executable, str(SERVERS / "span_sink.py")], core=cores.others) as sink:
        port = int(sink.wait_for(str.isdigit))
        start = partial(start_adapter, config=config(issuer, f"http://127.0.0.1:{port}"))
        yield Subject(name=ADAPTER, wire=with_token(wire.modern(), token), start=start)
        if not _received(port):
            raise BenchError(f"the adapter sent no spans, so its tracing was not measured; see {sink.log}")


def _received(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/")
        return int(connection.getresponse().read())
    except (OSError, ValueError) as error:
        raise BenchError(f"the receiver of spans cannot be asked: {error}") from error
    finally:
        connection.close()
