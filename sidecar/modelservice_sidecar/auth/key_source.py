"""Where an issuer's keys come from, and how long they are believed.

Owns the fetching: when, how often, how much. An identity provider that is down, slow or broken costs no call as long as its
last good keys are believed, and no stream of tokens with made-up key ids makes this adapter ask it more than so often.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import urlsplit

import orjson

from modelservice_api.adapter_config import IssuerConfig
from modelservice_sidecar.auth import key_set
from modelservice_sidecar.auth.key_set import BadKeySetError, Key, KeySet
from modelservice_sidecar.auth.pace import KeyPace
from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.core.errors import BackendAnswerInvalidError, BackendAnswerTooLargeError, BackendError
from modelservice_sidecar.core.tokens import TokenError
from modelservice_sidecar.upstream import Pool

MAX_DOCUMENT: Final = 256 * 1024
MAX_WAITING: Final = 64
"""Requests that may wait for one fetch; more would only pile up."""
MAX_UNKNOWN: Final = 256


class KeySource(Protocol):
    """An issuer's keys."""

    @property
    def age(self) -> float:
        """Seconds since the keys were known to be right."""
        ...

    @property
    def believed_for(self) -> float:
        """Seconds for which the keys are still believed."""
        ...

    async def find(self, algorithm: str, kid: str | None) -> Key:
        """The key.

        Raises:
            TokenError: there is no such key, or no keys can be had now.
        """
        ...

    async def look_again(self) -> None:
        """Ask for the keys anew, if it is time: a token did not fit the key that it names."""
        ...

    async def run(self) -> None:
        """Keep the keys fresh until cancelled."""
        ...


class StaticKeys:
    """Keys that stand in the configuration; none, where those are not keys."""

    age = 0.0
    believed_for = float("inf")

    def __init__(self, issuer: IssuerConfig, tell: Callable[[str], None]) -> None:
        try:
            self._keys = key_set.parse(issuer.jwks, issuer.algorithms)
        except BadKeySetError as error:
            self._keys = KeySet()
            tell(f"Its keys are not taken: {error}. Every token of it is refused.")

    async def find(self, algorithm: str, kid: str | None) -> Key:
        key = self._keys.find(algorithm, kid)
        if key is None:
            raise _unknown_key()
        return key

    async def look_again(self) -> None:
        """There is nothing to ask."""

    async def run(self) -> None:
        """There is nothing to keep fresh."""


class RemoteKeys:
    """Keys from the issuer's `jwks_uri`, looked at in the background by `run`. `changed` is called when they are others."""

    def __init__(
        self,
        issuer: IssuerConfig,
        *,
        pace: KeyPace,
        monotonic: Callable[[], float],
        changed: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        self._issuer = issuer
        self._pace = pace
        self._monotonic = monotonic
        self._changed = changed
        self._tell = tell
        self._told = ""
        self._keys = KeySet()
        self._document = b""
        self._good_at = float("-inf")
        self._asked_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0
        self._unknown: dict[tuple[str, str | None], float] = {}

    @property
    def age(self) -> float:
        return self._monotonic() - self._good_at

    @property
    def believed_for(self) -> float:
        return self._good_at + self._pace.believed - self._monotonic()

    async def run(self) -> None:
        try:
            while True:
                await self._fetch_soon()
                fresh = self.age < self._pace.fresh
                await asyncio.sleep(self._pace.fresh if fresh else self._pace.again)
        finally:
            if self._fetching is not None:
                self._fetching.cancel()

    async def find(self, algorithm: str, kid: str | None) -> Key:
        key = self._look(algorithm, kid)
        if key is not None:
            return key
        missing = (algorithm, kid)
        if self._unknown.get(missing, float("-inf")) < self._monotonic() or self.believed_for <= 0:
            await self._fetch_soon()
            key = self._look(algorithm, kid)
            if key is not None:
                return key
        if self.believed_for <= 0:
            raise TokenError(
                "keys_unavailable", "The keys of the token's issuer cannot be had now; try again in a moment."
            )
        if len(self._unknown) >= MAX_UNKNOWN:
            self._unknown.clear()
        self._unknown.setdefault(missing, self._monotonic() + self._pace.unknown)
        raise _unknown_key()

    async def look_again(self) -> None:
        await self._fetch_soon()

    def _look(self, algorithm: str, kid: str | None) -> Key | None:
        return self._keys.find(algorithm, kid) if self.believed_for > 0 else None

    async def _fetch_soon(self) -> None:
        """Fetch, or wait for the fetch that runs; do neither where the last one is too near or too many wait already."""
        if self._fetching is None:
            now = self._monotonic()
            if now - self._asked_at < self._pace.again:
                return
            self._asked_at = now
            self._fetching = asyncio.create_task(self._fetch())
        if self._waiting >= MAX_WAITING:
            return
        self._waiting += 1
        try:
            await asyncio.shield(self._fetching)
        finally:
            self._waiting -= 1

    async def _fetch(self) -> None:
        try:
            document = await self._get()
            if document != self._document:
                keys = await asyncio.to_thread(self._parse, document)
                self._keys, self._document = keys, document
                self._unknown.clear()
                self._changed()
            self._good_at = self._monotonic()
            self._say(f"{len(self._keys)} keys")
        except BadKeySetError as error:
            self._say(
                f"Its keys are not taken: {error}. The last good ones are believed for {self._pace.believed:g} s."
            )
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the looking: it would never begin again
            self._say(f"Its keys cannot be looked at: {type(error).__name__}.")
        finally:
            self._fetching = None

    def _parse(self, document: bytes) -> KeySet:
        try:
            decoded = orjson.loads(document)
        except orjson.JSONDecodeError as error:
            raise BadKeySetError("the answer is not JSON") from error
        keys = key_set.parse(decoded, self._issuer.algorithms)
        if not keys:
            raise BadKeySetError(f"it has no key for {' or '.join(self._issuer.algorithms)}")
        return keys

    async def _get(self) -> bytes:
        """The document. Redirects are not followed: the admin named this address and no other."""
        url = urlsplit(self._issuer.jwks_uri)
        tls: ssl.SSLContext | None = None
        if (
            url.scheme == "https"
        ):  # anew each time: authorities are files that change; reading them takes many milliseconds
            try:
                tls = await asyncio.to_thread(ssl.create_default_context, cadata=self._issuer.ca or None)
            except (ssl.SSLError, ValueError, TypeError) as error:
                raise BadKeySetError("ca is no certificate in PEM") from error
        pool = Pool(url.hostname or "", url.port or (443 if tls else 80), tls=tls)
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = [(b"accept", b"application/json, application/jwk-set+json"), (b"connection", b"close")]
        try:
            async with asyncio.timeout(self._pace.patience):
                reply = await pool.request(
                    HttpRequest(method="GET", target=target, headers=headers, body=b""), limit=MAX_DOCUMENT
                )
        except TimeoutError as error:
            raise BadKeySetError(f"no answer within {self._pace.patience:g} s") from error
        except BackendAnswerTooLargeError as error:
            raise BadKeySetError(f"the answer is larger than {MAX_DOCUMENT} bytes") from error
        except BackendAnswerInvalidError as error:
            raise BadKeySetError("the answer is broken HTTP, or compressed") from error
        except BackendError as error:
            raise BadKeySetError("it cannot be reached") from error
        finally:
            await pool.aclose()
        if reply.status != 200:
            raise BadKeySetError(f"the answer is HTTP {reply.status}")
        return reply.body

    def _say(self, message: str) -> None:
        """Once for every change."""
        if message != self._told:
            self._told = message
            self._tell(message)


def _unknown_key() -> TokenError:
    return TokenError("unknown_key", "The token is signed with a key that its issuer does not publish.")
