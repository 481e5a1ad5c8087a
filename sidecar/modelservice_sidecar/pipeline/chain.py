"""The chain that every tool call goes through, whichever lane it came in by, as one visible list.

Owns the order of the stages, which of them a configuration switches on, and what of them outlives a change of configuration.
Knows no protocol: a `Call` comes in, an `Answer` or a `CallError` comes out. Why each stage stands where it stands is in
docs/explanation/adapter.md; what each does is in docs/reference/pipeline.
"""

import random
from collections.abc import Callable, Sequence
from typing import Final, Literal

from modelservice_api.adapter_config import (
    AdapterConfig,
    RateLimitingConfig,
    RateLimitStoreConfig,
    StageConfig,
    TokenBucketConfig,
)
from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.core.authorization import Access
from modelservice_sidecar.core.breaker import STATES, Breaker
from modelservice_sidecar.core.cachekey import Store
from modelservice_sidecar.core.ratelimit import Bucket, Buckets, Rules, ToolBuckets
from modelservice_sidecar.core.retrypolicy import Budget
from modelservice_sidecar.peers import Peers
from modelservice_sidecar.pipeline import extension
from modelservice_sidecar.pipeline.answer import CheckAnswer
from modelservice_sidecar.pipeline.backend import ask_backend
from modelservice_sidecar.pipeline.batch import Batch
from modelservice_sidecar.pipeline.breaker import CircuitBreaker
from modelservice_sidecar.pipeline.cache import Answers, Cache
from modelservice_sidecar.pipeline.call import Handler
from modelservice_sidecar.pipeline.concurrency import Concurrency, Limiter
from modelservice_sidecar.pipeline.deadline import Deadline
from modelservice_sidecar.pipeline.extension import Extension
from modelservice_sidecar.pipeline.gates import Authorise, CheckArguments, RateLimit
from modelservice_sidecar.pipeline.hand_over import HandOver
from modelservice_sidecar.pipeline.retry import Retry
from modelservice_sidecar.pipeline.shared_limit import SharedBuckets, SharedRateLimit
from modelservice_sidecar.published import Published
from modelservice_sidecar.telemetry import Telemetry

StageName = Literal[
    "deadline",
    "authorise",
    "rate_limit",
    "check_arguments",
    "cache",
    "breaker",
    "retry",
    "concurrency",
    "hand_over",
    "check_answer",
    "batch",
    "backend",
]

ORDER: Final[tuple[StageName, ...]] = (
    "deadline",  # outermost: every wait below is part of a call's time
    "authorise",  # who may not call uses up no token and learns nothing about arguments
    "rate_limit",  # wrong calls are work too
    "check_arguments",  # nothing below sees arguments that the tool does not take
    "cache",  # a kept answer is right while the model server is down or busy
    "breaker",  # an open one refuses at once instead of in line
    "retry",  # one call is one failure to the breaker, however often it was sent
    "concurrency",  # a call that waits to be sent again holds no slot
    "hand_over",  # each call of a failed batch is handed over by itself
    "check_answer",  # a peer has checked its answer already
    "batch",  # innermost: what is joined has passed everything else
    "backend",
)
"""Outermost first."""

_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

Around = Callable[[Handler], Handler]


class Pipeline:
    """The chains of one adapter: each configuration has its own, and they share what must not begin anew with each."""

    def __init__(
        self,
        config: AdapterConfig,
        telemetry: Telemetry,
        *,
        monotonic: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._telemetry = telemetry
        self._monotonic = monotonic
        self._chance = chance
        self.limiter = Limiter(config.limits.max_concurrency)
        self._buckets: Buckets | None = None
        self._stores: dict[RateLimitStoreConfig, SharedBuckets] = {}
        self._breaker: Breaker | None = None
        self._budget: Budget | None = None
        self._answers: Answers | None = None
        self._extensions: tuple[Extension, ...] = ()
        self._extensions_of: tuple[StageConfig, ...] = ()
        self._config: AdapterConfig | None = None
        self._published: Published | None = None

    def build(
        self, config: AdapterConfig, published: Published, *, peers: Peers | None = None, access: Access | None = None
    ) -> Handler:
        """The chain under this configuration. A stage that is not configured is not in it and costs nothing."""
        self.limiter.resize(config.limits.max_concurrency)
        if published is not self._published and self._breaker is not None:
            self._breaker.reset()  # what was found was found well
        if config != self._config or published is not self._published:
            self._answers = None
        self._load_extensions(config.stages)
        switched_on: dict[StageName, Around | None] = {
            "deadline": lambda inner: Deadline(inner, seconds=config.limits.timeout),
            "authorise": None
            if access is None or not access.required
            else lambda inner: Authorise(inner, access=access),
            "rate_limit": self._rate_limit(config),
            "check_arguments": CheckArguments,
            "cache": self._cache(config),
            "breaker": self._circuit_breaker(config),
            "retry": self._retry(config),
            "concurrency": lambda inner: Concurrency(inner, limiter=self.limiter, monotonic=self._monotonic),
            "hand_over": None if peers is None else lambda inner: HandOver(inner, peers=peers),
            "check_answer": CheckAnswer,
            "batch": self._batch(config),
        }
        self._config, self._published = config, published
        return chain(switched_on, self._extensions)

    async def aclose(self) -> None:
        """Give back every connection of a stage."""
        for store in self._stores.values():
            await store.aclose()

    def _load_extensions(self, wanted: tuple[StageConfig, ...]) -> None:
        if wanted == self._extensions_of:
            return
        self._extensions = extension.load(wanted, ORDER)
        self._extensions_of = wanted
        for loaded in self._extensions:
            if loaded.problem:
                self._telemetry.writer.event(
                    "stage_rejected", stage=loaded.name, message=f"{loaded.problem}. No call is let through."
                )

    def _rate_limit(self, config: AdapterConfig) -> Around | None:
        if config.rate_limiting is None:
            self._buckets = None
            return None
        rules = rules_of(config.rate_limiting)
        if self._buckets is None:
            self._buckets = buckets = Buckets(rules)
            self._telemetry.gauge(
                "modelservice_rate_limit_subjects",
                "Users' buckets that are remembered.",
                lambda: 0 if self._buckets is None else self._buckets.subjects,
            )
        else:
            buckets = self._buckets
            buckets.configure(rules, self._monotonic())
        refused = self._telemetry.counter(
            "modelservice_rate_limited", "Calls refused for want of a token.", ("tool", "bucket")
        )
        settings = config.rate_limiting.store
        if settings is None:
            return lambda inner: RateLimit(inner, buckets=buckets, monotonic=self._monotonic, refused=refused)
        failed = self._telemetry.counter(
            "modelservice_rate_limit_store_failures", "Calls for which the shared store did not answer.", ("mode",)
        )
        store = self._stores.setdefault(settings, SharedBuckets(settings, monotonic=self._monotonic))
        is_open = settings.failure_mode == "Open"
        return lambda inner: SharedRateLimit(
            inner,
            store=store,
            is_open=is_open,
            buckets=buckets,
            monotonic=self._monotonic,
            refused=refused,
            failed=failed,
        )

    def _cache(self, config: AdapterConfig) -> Around | None:
        settings = config.cache
        if settings is None:
            self._answers = None
            return None
        if self._answers is None:
            self._answers = Answers(store=Store(max_bytes=settings.max_bytes, ttl=settings.ttl))
        answers = self._answers
        gauge = self._telemetry.gauge
        gauge("modelservice_cache_bytes", "Bytes of kept answers.", lambda: self._kept().size)
        gauge("modelservice_cache_entries", "Kept answers.", lambda: len(self._kept()))
        asked = self._telemetry.counter(
            "modelservice_cache_requests", "Calls of cacheable tools, by what the cache had.", ("tool", "result")
        )
        return lambda inner: Cache(
            inner,
            answers=answers,
            version=config.server.version,
            per_user=settings.scope == "PerUser",
            monotonic=self._monotonic,
            asked=asked,
        )

    def _kept(self) -> Store[Answer]:
        return Store(max_bytes=0, ttl=0) if self._answers is None else self._answers.store

    def _circuit_breaker(self, config: AdapterConfig) -> Around | None:
        settings = config.circuit_breaker
        if settings is None:
            self._breaker = None
            return None
        if self._breaker is None:
            self._breaker = Breaker(failures=settings.consecutive_failures, open_seconds=settings.open_duration)
        breaker = self._breaker
        breaker.configure(failures=settings.consecutive_failures, open_seconds=settings.open_duration)
        self._telemetry.state(
            "modelservice_circuit_breaker_state", "1 for the breaker's state.", STATES, self._breaker_state
        )
        return lambda inner: CircuitBreaker(inner, breaker=breaker, monotonic=self._monotonic)

    def _breaker_state(self) -> str:
        return "closed" if self._breaker is None else self._breaker.state

    def _retry(self, config: AdapterConfig) -> Around | None:
        settings = config.retry
        if settings is None:
            self._budget = None
            return None
        if self._budget is None:
            self._budget = Budget(settings.budget_percent)
        budget = self._budget
        budget.configure(settings.budget_percent)
        retries = self._telemetry.counter(
            "modelservice_retries", "Failed calls that could be sent again, by whether they were.", ("tool", "result")
        )
        return lambda inner: Retry(
            inner, attempts=settings.max_attempts, budget=budget, chance=self._chance, retries=retries
        )

    def _batch(self, config: AdapterConfig) -> Around | None:
        settings = config.batcher
        if settings is None:
            return None
        sizes = self._telemetry.histogram("modelservice_batch_rows", "Rows of each batch that was sent.", _ROWS)
        return lambda inner: Batch(
            inner, max_rows=settings.max_batch_size, max_latency=settings.max_latency, sizes=sizes
        )


def chain(stages: dict[StageName, Around | None], extensions: Sequence[Extension]) -> Handler:
    """The stages that are switched on, in their order, each extension right outside of the stage that it names.

    An extension without a place is one that cannot be used; it stands outermost and lets nothing through.
    """
    handler: Handler = ask_backend
    for name in reversed(ORDER):
        around = stages.get(name)
        if around is not None:
            handler = around(handler)
        for other in reversed(extensions):
            if other.before == name:
                handler = other.around(handler)
    for other in reversed(extensions):
        if not other.before:
            handler = other.around(handler)
    return handler


def rules_of(config: RateLimitingConfig) -> Rules:
    """The buckets that a configuration describes."""
    return Rules(
        per_user=_bucket(config.per_user),
        shared=_bucket(config.shared),
        tools={
            tool.name: ToolBuckets(per_user=_bucket(tool.per_user), shared=_bucket(tool.shared))
            for tool in config.tools
        },
    )


def _bucket(config: TokenBucketConfig | None) -> Bucket | None:
    return None if config is None else Bucket(max_tokens=config.max_tokens, period=config.refill_period)
