"""What a bearer token must be: its form, its header and its claims, checked as plain values.

Owns every rule but the signature's, which needs a key (`auth.verifier`). Cheap checks come first and nothing of a token is
trusted before all hold: it names no algorithm, no key and no address that the platform admin did not.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import orjson

from modelservice_api.adapter_config import IssuerConfig
from modelservice_sidecar.core.authorization import SCOPE_PREFIX, Identity
from modelservice_sidecar.core.errors import AdapterError

MAX_TOKEN: Final = 16 * 1024
MAX_SUBJECT: Final = 255
MAX_AUDIENCES: Final = 32
_LATEST: Final = 253402300800
"""The year 10000: a time beyond it is no time."""

Reason = Literal[
    "missing",
    "repeated",
    "in_query",
    "too_long",
    "malformed",
    "header",
    "algorithm",
    "issuer",
    "claims",
    "audience",
    "expired",
    "not_yet_valid",
    "subject",
    "unknown_key",
    "signature",
    "keys_unavailable",
]
"""Why a token was refused: the word in metrics."""

_TOKEN: Final = re.compile(r"([A-Za-z0-9_-]{2,})\.([A-Za-z0-9_-]{2,})\.([A-Za-z0-9_-]{2,})")
_KID: Final = re.compile(r"[A-Za-z0-9._=+/-]{1,64}")
"""Any base64 alphabet: some identity providers number their keys so. It is looked up in a table and used for nothing else."""
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})
_UNDERSTOOD_BY_NOBODY: Final = ("crit", "b64", "zip", "enc", "cty")


class TokenError(AdapterError):
    """A request's credentials are refused. `str(error)` is shown to the caller; `reason` is counted."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class Unverified(NamedTuple):
    """A token whose form is right. Nothing in it is true until the signature is."""

    algorithm: str
    kid: str | None
    claims: Mapping[str, Any]


def read_authorization(values: Sequence[str]) -> str:
    """The token in a request's Authorization headers.

    Raises:
        TokenError: there is none, more than one, or one that cannot be a token.
    """
    if not values:
        raise TokenError(
            "missing", "This server needs a token: send Authorization: Bearer with one that is meant for it."
        )
    if len(values) > 1:
        raise TokenError("repeated", "The request has more than one Authorization header; send one.")
    scheme, _, token = values[0].partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer":
        raise TokenError("missing", "This server takes bearer tokens only: send Authorization: Bearer with a token.")
    if len(token) > MAX_TOKEN:
        raise TokenError("too_long", f"The token is longer than {MAX_TOKEN} bytes.")
    if not token:
        raise TokenError("malformed", "The Authorization header has no token after Bearer.")
    return token


def read(token: str) -> Unverified:
    """The parts of a signed JWT (RFC 7515, compact form).

    Raises:
        TokenError: it is not one, or its header asks for what is not done here.
    """
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise TokenError("malformed", "The token is not a signed JWT: three base64url parts with dots between.")
    header, claims = (_json_object(part) for part in match.groups()[:2])
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise TokenError("header", "The token's header has no algorithm, or a type that is no access token.")
    if any(name in header for name in _UNDERSTOOD_BY_NOBODY):
        raise TokenError("header", "The token's header asks for an extension that is not known here.")
    if kid is not None and not (isinstance(kid, str) and _KID.fullmatch(kid)):
        raise TokenError("header", "The token's key id (kid) is longer than 64 characters or has others than base64's.")
    return Unverified(algorithm=algorithm, kid=kid, claims=claims)


def find_issuer(unverified: Unverified, issuers: Mapping[str, IssuerConfig]) -> IssuerConfig:
    """The issuer that the token says it is from; `issuers` is by their `iss`.

    Raises:
        TokenError: none of ours, or not with an algorithm that it uses.
    """
    said = unverified.claims.get("iss")
    issuer = issuers.get(said) if isinstance(said, str) else None
    if issuer is None:
        raise TokenError("issuer", "The token's issuer (iss) is not trusted by this server.")
    if unverified.algorithm not in issuer.algorithms:
        raise TokenError("algorithm", f"The token is not signed with {' or '.join(issuer.algorithms)}.")
    return issuer


def check_claims(claims: Mapping[str, Any], issuer: IssuerConfig, now: float) -> Identity:
    """The caller that the claims tell of. `now` is seconds since the epoch.

    Raises:
        TokenError: a claim is absent, of a wrong type, or says that the token is not for here and now.
    """
    expires = _time(claims, "exp")
    issued = _time(claims, "iat")
    not_before = _time(claims, "nbf") if "nbf" in claims else issued
    _check_audience(claims.get("aud"), issuer.audiences)
    if expires <= now - issuer.leeway:
        raise TokenError("expired", "The token has expired; get a new one.")
    if max(issued, not_before) > now + issuer.leeway:
        raise TokenError(
            "not_yet_valid", "The token is not valid yet; compare the clocks of its issuer and this server."
        )
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT or not subject.isprintable():
        raise TokenError("claims", f"The token has no subject (sub) of 1 to {MAX_SUBJECT} printable characters.")
    if issuer.subject_prefixes and not subject.startswith(issuer.subject_prefixes):
        raise TokenError("subject", "The token's subject (sub) is not one that this server serves.")
    return Identity(subject=subject, issuer=issuer.name, scopes=_scopes(claims) | set(issuer.scopes), expires=expires)


def _json_object(part: str) -> dict[str, Any]:
    try:
        value = orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError):
        value = None
    if not isinstance(value, dict):
        raise TokenError("malformed", "The token's header and claims must be JSON objects.")
    return value


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LATEST:
        raise TokenError("claims", f"The token has no valid time in {name}.")
    return value


def _check_audience(said: object, wanted: Sequence[str]) -> None:
    audiences = said if isinstance(said, list) else [said]
    if len(audiences) > MAX_AUDIENCES or not all(isinstance(item, str) for item in audiences):
        raise TokenError("claims", "The token has no audience (aud) of strings.")
    if not any(item in wanted for item in audiences):
        raise TokenError("audience", f"The token is not meant for this server; ask for the audience {wanted[0]}.")


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """OAuth's `scope` (RFC 8693) and the `scp` of some identity providers; what is no string gives no right."""
    found: set[str] = set()
    for said in (claims.get("scope"), claims.get("scp")):
        words = said.split(" ") if isinstance(said, str) else said if isinstance(said, list) else []
        found.update(word for word in words if isinstance(word, str) and word.startswith(SCOPE_PREFIX))
    return frozenset(found)
