"""Stage `rate_limit` with a shared store: all pods of a ModelService draw from the same buckets, kept in Redis or Valkey.

Owns the conversation with the store, its time limit, and what happens while it does not answer. The arithmetic is
`core.ratelimit`'s, written once more in the store's language so that reading and taking are one step there. The client
library is imported by adapters that are told of a store, and by no other.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from modelservice_api.adapter_config import RateLimitStoreConfig
from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.core.errors import OverloadedError
from modelservice_sidecar.core.ratelimit import Buckets, Draw, Refused
from modelservice_sidecar.metrics import Counter
from modelservice_sidecar.pipeline.call import Call, Handler
from modelservice_sidecar.pipeline.gates import rate_limited

if TYPE_CHECKING:
    from redis.asyncio import Redis

PATIENCE: Final = 0.25
"""Seconds that a call waits for the store, all told."""
PAUSE: Final = 1.0
"""Seconds without a question after one that was not answered: calls must not all wait for a store that is gone."""
CONNECTIONS: Final = 16

# One key a bucket holds the moment, on the store's clock, at which it is full again. Numbers are written with all their digits.
_SCRIPT: Final = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local full_at, longest, refused = {}, 0, 0
for place, key in ipairs(KEYS) do
  local period, most = tonumber(ARGV[3 * place - 1]), tonumber(ARGV[3 * place])
  full_at[place] = math.max(now, math.min(tonumber(redis.call('GET', key) or '0'), now + period))
  local over = full_at[place] - now - most
  if over > longest then longest, refused = over, place end
end
if refused > 0 then return {refused, string.format('%.17g', longest)} end
for place, key in ipairs(KEYS) do
  local interval, period = tonumber(ARGV[3 * place - 2]), tonumber(ARGV[3 * place - 1])
  local value = string.format('%.17g', full_at[place] + interval)
  redis.call('SET', key, value, 'PX', math.ceil(period * 1000) + 1000)
end
return {0, '0'}
"""


class StoreFailedError(Exception):
    """The store did not answer in time, or not with what was asked."""


class SharedBuckets:
    """The buckets of one ModelService in one Redis or Valkey."""

    def __init__(self, config: RateLimitStoreConfig, *, monotonic: Callable[[], float]) -> None:
        self._config = config
        self._monotonic = monotonic
        self._client: Redis | None = None
        self._script: Any = None
        self._silent_until = 0.0

    async def take(self, draws: Sequence[Draw], user: str) -> Refused | None:
        """Take a token from every bucket, or none at all.

        Raises:
            StoreFailedError: nobody knows; the store may have counted the call.
        """
        if self._monotonic() < self._silent_until:
            raise StoreFailedError("it did not answer a moment ago")
        try:
            if self._script is None:  # once, and longer than any call should wait for the store
                await self._load()
            async with asyncio.timeout(PATIENCE):
                return await self._ask(draws, user)
        except Exception as error:
            self._silent_until = self._monotonic() + PAUSE
            raise StoreFailedError(f"{type(error).__name__}: {error}") from error

    async def aclose(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.aclose()

    async def _ask(self, draws: Sequence[Draw], user: str) -> Refused | None:
        who = hashlib.blake2b(user.encode(), digest_size=16).hexdigest()  # names of users are nobody's business there
        # The braces keep all buckets of a call on one node of a cluster.
        keys = [
            f"{{{self._config.prefix}}}:{draw.name}:{draw.scope}{':' + who if draw.per_user else ''}" for draw in draws
        ]
        numbers = [number for draw in draws for number in (draw.interval, draw.interval + draw.most, draw.most)]
        place, over = await self._script(keys=keys, args=[repr(number) for number in numbers])
        return Refused(draws[place - 1].name, float(over)) if place else None

    async def _load(self) -> None:
        library = await asyncio.to_thread(import_module, "redis.asyncio")
        retry = await asyncio.to_thread(import_module, "redis.asyncio.retry")
        backoff = import_module("redis.backoff")
        if self._script is not None:  # another call was quicker
            return
        pool = library.BlockingConnectionPool(
            host=self._config.host,
            port=self._config.port,
            max_connections=CONNECTIONS,
            timeout=PATIENCE,
            socket_connect_timeout=PATIENCE,
            socket_timeout=PATIENCE,
            # A script that was sent may have run: sent again it would take a second token.
            retry=retry.Retry(backoff.NoBackoff(), 0),
        )
        self._client = library.Redis.from_pool(pool)
        self._script = self._client.register_script(_SCRIPT)


class SharedRateLimit:
    """Like `RateLimit`, with one more way to end: the store does not answer, and `failureMode` decides."""

    __slots__ = ("_buckets", "_failed", "_inner", "_is_open", "_monotonic", "_refused", "_store")

    def __init__(
        self,
        inner: Handler,
        *,
        store: SharedBuckets,
        is_open: bool,
        buckets: Buckets,
        monotonic: Callable[[], float],
        refused: Counter,
        failed: Counter,
    ) -> None:
        self._inner = inner
        self._store = store
        self._is_open = is_open
        self._buckets = buckets
        self._monotonic = monotonic
        self._refused = refused
        self._failed = failed

    def __call__(self, call: Call) -> Awaitable[Answer]:
        draws = self._buckets.draws(call.tool.name)
        return self._limited(call, draws) if draws else self._inner(call)

    async def _limited(self, call: Call, draws: Sequence[Draw]) -> Answer:
        came = perf_counter()
        try:
            refused = await self._store.take(draws, call.user)
            call.context.steps.waited("rate_limit", came)
        except StoreFailedError:
            call.context.steps.waited("rate_limit", came)
            self._failed.add("open" if self._is_open else "closed")
            if not self._is_open:
                raise OverloadedError(
                    "The store of rate limits does not answer, and rateLimiting.store.failureMode is Closed; "
                    "try again in a moment.",
                    retry_after=PAUSE,
                ) from None
            refused = self._buckets.take(call.tool.name, call.user, self._monotonic())  # this pod for itself
        if refused is not None:
            self._refused.add(call.tool.name, refused.bucket)
            raise rate_limited(call, refused)
        return await self._inner(call)
