"""A JWK set (RFC 7517) → the public keys in it that tokens may be verified with.

Owns which keys count: those of the issuer's algorithms, strong enough, made for signatures. Fetches nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from modelservice_api.adapter_config import Algorithm

MAX_KEYS: Final = 64
MIN_RSA_BITS: Final = 2048

Key = EllipticCurvePublicKey | RSAPublicKey

_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_SHAPE: Final[Mapping[Algorithm, tuple[str, str | None]]] = {"ES256": ("EC", "P-256"), "RS256": ("RSA", None)}


class BadKeySetError(ValueError):
    """The document is no set of public keys; the text says why."""


class KeySet:
    """Public keys by algorithm and id."""

    def __init__(self, keys: Mapping[tuple[str, str | None], Key] | None = None) -> None:
        self._keys = dict(keys or {})

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, algorithm: str, kid: str | None) -> Key | None:
        """The key; a token that names none is meant only where the issuer has no other of that algorithm."""
        if kid is not None:
            return self._keys.get((algorithm, kid))
        candidates = [key for (found, _), key in self._keys.items() if found == algorithm]
        return candidates[0] if len(candidates) == 1 else None


def parse(document: object, algorithms: Iterable[Algorithm]) -> KeySet:
    """The usable keys of a decoded JWK set. Keys for other uses and algorithms are passed over.

    Raises:
        BadKeySetError: it is no JWK set, or tells a private key, which makes all its keys worthless.
    """
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadKeySetError("it is not a JWK set: an object with a list of keys")
    if len(entries) > MAX_KEYS:
        raise BadKeySetError(f"it has more than {MAX_KEYS} keys")
    if any(entry.get("kty") == "oct" or _PRIVATE & entry.keys() for entry in entries):
        raise BadKeySetError("it tells a private key, so anybody can sign tokens")
    found: dict[tuple[str, str | None], Key] = {}
    for algorithm in algorithms:
        for entry in entries:
            key = _key(entry, algorithm)
            if key is not None:
                kid = entry.get("kid")
                found[algorithm, kid if isinstance(kid, str) else None] = key
    return KeySet(found)


def _key(entry: dict[str, Any], algorithm: Algorithm) -> Key | None:
    kty, curve = _SHAPE[algorithm]
    if entry.get("kty") != kty or (curve is not None and entry.get("crv") != curve):
        return None
    if entry.get("use", "sig") != "sig" or entry.get("alg", algorithm) != algorithm:
        return None
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    try:
        key: object = jwt.PyJWK(entry, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
        return None
    if isinstance(key, RSAPublicKey):
        return key if key.key_size >= MIN_RSA_BITS else None
    return key if isinstance(key, EllipticCurvePublicKey) else None
