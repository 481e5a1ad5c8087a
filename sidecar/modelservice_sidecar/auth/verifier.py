"""Tokens → identities, each token's signature verified once.

Owns the verified-token cache and the one place where a signature is checked. A verification costs more than the rest of a
call, a hit in the cache a microsecond. An entry is never used past its token's end, nor after its issuer's keys changed.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import jwt

from modelservice_api.adapter_config import AuthConfig, IssuerConfig
from modelservice_sidecar.auth.key_set import Key
from modelservice_sidecar.auth.key_source import KeySource, RemoteKeys, StaticKeys
from modelservice_sidecar.auth.pace import KeyPace
from modelservice_sidecar.core import tokens
from modelservice_sidecar.core.authorization import Identity
from modelservice_sidecar.core.tokens import TokenError

MAX_CACHED: Final = 10_000

_JWS: Final = jwt.PyJWS(algorithms=["ES256", "RS256"])

Tell = Callable[[str, str], None]
"""Hears an issuer's name and a sentence about its keys."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Issuer:
    config: IssuerConfig
    keys: KeySource
    task: "asyncio.Task[None]"


class Verifier:
    """Verifies tokens of the configured issuers. `wall` is seconds since the epoch."""

    def __init__(self, *, pace: KeyPace, wall: Callable[[], float], monotonic: Callable[[], float], tell: Tell) -> None:
        self._pace = pace
        self._wall = wall
        self._monotonic = monotonic
        self._tell = tell
        self._cache: dict[bytes, tuple[float, Identity]] = {}
        self._issuers: dict[str, _Issuer] = {}
        self._configs: dict[str, IssuerConfig] = {}

    @property
    def age(self) -> float:
        """Seconds since the oldest of the issuers' keys were known to be right."""
        return max((issuer.keys.age for issuer in self._issuers.values()), default=0.0)

    @property
    def cached_tokens(self) -> int:
        return len(self._cache)

    def configure(self, config: AuthConfig | None) -> None:
        """Trust these issuers from now on, on the running loop. Issuers that stay the same keep the keys that they have."""
        before, self._issuers = self._issuers, {}
        for issuer in config.issuers if config is not None else ():
            known = before.get(issuer.issuer)
            if known is not None and known.config == issuer:
                self._issuers[issuer.issuer] = before.pop(issuer.issuer)
            else:
                self._issuers[issuer.issuer] = self._begin(issuer)
        self._configs = {url: issuer.config for url, issuer in self._issuers.items()}
        self._cache.clear()
        for gone in before.values():
            gone.task.cancel()

    async def aclose(self) -> None:
        """Stop looking for keys."""
        tasks = [issuer.task for issuer in self._issuers.values()]
        self.configure(None)
        await asyncio.gather(*tasks, return_exceptions=True)

    def cached(self, token: str) -> Identity | None:
        """Whose token it is, if that is known already."""
        entry = self._cache.get(hashlib.sha256(token.encode("latin-1")).digest())
        if entry is None:
            return None
        believed_until, identity = entry
        return identity if identity.expires > self._wall() and believed_until > self._monotonic() else None

    async def verify(self, token: str) -> Identity:
        """Whose token it is.

        Raises:
            TokenError: it is not valid here and now.
        """
        unverified = tokens.read(token)
        config = tokens.find_issuer(unverified, self._configs)
        identity = tokens.check_claims(unverified.claims, config, self._wall())
        issuer = self._issuers[config.issuer]
        algorithm, kid = unverified.algorithm, unverified.kid
        key = await issuer.keys.find(algorithm, kid)
        if not _is_signed(token, key, algorithm):
            await issuer.keys.look_again()  # a provider that changed the key under the same id
            newer = await issuer.keys.find(algorithm, kid)
            if newer is key or not _is_signed(token, newer, algorithm):
                raise TokenError("signature", "The token's signature is not its issuer's.")
        if self._issuers.get(config.issuer) is issuer:  # else it was verified by a configuration that is gone
            self._keep(token, identity, issuer.keys.believed_for)
        return identity

    def _keep(self, token: str, identity: Identity, believed_for: float) -> None:
        if len(self._cache) >= MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        # How long keys are believed is no time of day: a wall clock that jumps must not lengthen it, nor end it for all.
        until = self._monotonic() + believed_for
        self._cache[hashlib.sha256(token.encode("latin-1")).digest()] = until, identity

    def _begin(self, issuer: IssuerConfig) -> _Issuer:
        def tell(message: str) -> None:
            self._tell(issuer.name, message)

        keys: KeySource
        if issuer.jwks is not None:
            keys = StaticKeys(issuer, tell)
        else:
            keys = RemoteKeys(issuer, pace=self._pace, monotonic=self._monotonic, changed=self._cache.clear, tell=tell)
        return _Issuer(config=issuer, keys=keys, task=asyncio.create_task(keys.run()))


def _is_signed(token: str, key: Key, algorithm: str) -> bool:
    try:
        _JWS.decode(token, key, algorithms=[algorithm])
    except jwt.PyJWTError:
        return False
    return True
