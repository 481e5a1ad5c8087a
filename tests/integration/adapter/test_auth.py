"""Only callers with a valid token for this service and scope get in: every way a token can be wrong, on the real adapter."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from mcp.client import Client

from adapter_harness import ACCEPT, Reply, Running, adapter, modern_body, modern_headers, request, run
from modelservice_api.adapter_config import AdapterConfig, AuthConfig, IssuerConfig, McpConfig
from modelservice_sidecar.core import tokens
from token_issuer import RESOURCE, URL, Issuer, encode

ALICE = Issuer()
STRANGER = Issuer()
RSA = Issuer(key=rsa.generate_private_key(public_exponent=65537, key_size=2048), kid="rsa-1")
WEAK_RSA = Issuer(key=rsa.generate_private_key(public_exponent=65537, key_size=1024), kid="weak-1")
P384 = Issuer(key=ec.generate_private_key(ec.SECP384R1()))

PLAIN = {"name": "plain", "arguments": {"features": [1.0, 2.0]}}


def trusting(*issuers: IssuerConfig, **auth: Any) -> AdapterConfig:
    return AdapterConfig(auth=AuthConfig(issuers=issuers, resource=RESOURCE, **auth))


def issuer_config(issuer: Issuer = ALICE, **changes: Any) -> IssuerConfig:
    given: dict[str, Any] = {"name": "idp", "issuer": URL, "audiences": (RESOURCE,), "jwks": issuer.jwks(), **changes}
    return IssuerConfig(**given)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def hs256_with(secret: bytes) -> Callable[[bytes], bytes]:
    def sign(data: bytes) -> bytes:
        made = hmac.HMAC(secret, hashes.SHA256())
        made.update(data)
        return made.finalize()

    return sign


def claims(**changes: Any) -> dict[str, str]:
    return bearer(ALICE.token(ALICE.claims(**changes)))


def header(**changes: Any) -> dict[str, str]:
    return bearer(ALICE.token(header=ALICE.header(**changes)))


def signed(sign: Callable[[bytes], bytes]) -> dict[str, str]:
    return bearer(ALICE.token(sign=sign))


def bent(change: Callable[[list[str]], str]) -> dict[str, str]:
    return bearer(change(ALICE.token().split(".")))


NOW = int(time.time())
HUGE = "x" * (16 * 1024 + 1)

MATRIX: dict[str, tuple[dict[str, str], int, str]] = {
    # What is accepted: by the same table, so that no row below is refused for a reason that refuses everything.
    "a valid token": (bearer(ALICE.token()), 200, "verified"),
    "scheme in lower case": ({"authorization": f"bearer {ALICE.token()}"}, 200, "verified"),
    "scheme in capitals": ({"authorization": f"BEARER {ALICE.token()}"}, 200, "verified"),
    "two blanks after the scheme": ({"authorization": f"Bearer  {ALICE.token()}"}, 200, "verified"),
    "aud is a list with ours in it": (claims(aud=["https://other.test", RESOURCE]), 200, "verified"),
    "exp is a float": (claims(exp=NOW + 600.5), 200, "verified"),
    "expired within the leeway": (claims(exp=int(time.time()) - 5), 200, "verified"),
    "no kid, and one key only": (header(kid=None), 200, "verified"),
    "typ at+jwt": (header(typ="at+jwt"), 200, "verified"),
    "no typ": (header(typ=None), 200, "verified"),
    "scp instead of scope": (claims(scope=None, scp=["mcp:tools:call"]), 200, "verified"),
    # No token, or not one.
    "none": ({}, 401, "missing"),
    "Basic": ({"authorization": "Basic YTpi"}, 401, "missing"),
    "Bearer only": ({"authorization": "Bearer"}, 401, "malformed"),
    "Bearer and a blank": ({"authorization": "Bearer "}, 401, "malformed"),
    "no scheme": ({"authorization": ALICE.token()}, 401, "missing"),
    "two headers": ({"authorization": f"Bearer {ALICE.token()}", "Authorization": "Bearer x"}, 400, "repeated"),
    "two tokens in one header": ({"authorization": f"Bearer {ALICE.token()}, Bearer x"}, 401, "malformed"),
    "16 KiB and a byte": (bearer(HUGE), 401, "too_long"),
    "words": (bearer("hunter2"), 401, "malformed"),
    "two parts": (bent(lambda parts: ".".join(parts[:2])), 401, "malformed"),
    "five parts: encrypted (JWE)": (bent(lambda parts: ".".join([*parts, "AAAA", "AAAA"])), 401, "malformed"),
    "no signature": (bent(lambda parts: ".".join([*parts[:2], ""])), 401, "malformed"),
    "padding": (bent(lambda parts: ".".join([*parts[:2], parts[2] + "=="])), 401, "malformed"),
    "white space inside": (bent(lambda parts: f"{parts[0]}.{parts[1][:9]} {parts[1][9:]}.{parts[2]}"), 401, "malformed"),
    "a letter of another alphabet": (bent(lambda parts: f"{parts[0]}.{parts[1]}+/.{parts[2]}"), 401, "malformed"),
    "a header that is a list": (bearer(ALICE.token(header=b"[]")), 401, "malformed"),
    "a header that is not JSON": (bearer(ALICE.token(header=b"{alg:none}")), 401, "malformed"),
    "claims with NaN": (bearer(ALICE.token(b'{"exp": NaN}')), 401, "malformed"),
    "claims 2,000 deep": (bearer(ALICE.token(b"[" * 2000 + b"]" * 2000)), 401, "malformed"),
    "a JWT inside a JWT": (bearer(ALICE.token(ALICE.token().encode(), ALICE.header(cty="JWT"))), 401, "malformed"),
    # Algorithms.
    "alg none": (bearer(ALICE.token(header=ALICE.header(alg="none"), sign=lambda _: b"xx")), 401, "algorithm"),
    "alg None": (bearer(ALICE.token(header=ALICE.header(alg="None"), sign=lambda _: b"xx")), 401, "algorithm"),
    "alg is null": (bearer(ALICE.token(header={"alg": None, "kid": ALICE.kid})), 401, "header"),
    "alg is absent": (header(alg=None), 401, "header"),
    "alg is a list": (header(alg=["ES256"]), 401, "header"),
    "HS256 with the public key": (
        bearer(ALICE.token(header=ALICE.header(alg="HS256"), sign=hs256_with(ALICE.public_pem()))),
        401,
        "algorithm",
    ),
    "HS256 with the key set": (
        bearer(ALICE.token(header=ALICE.header(alg="HS256"), sign=hs256_with(json.dumps(ALICE.jwk()).encode()))),
        401,
        "algorithm",
    ),
    "ES384": (bearer(P384.token(header=P384.header(alg="ES384"))), 401, "algorithm"),
    "ES256K": (header(alg="ES256K"), 401, "algorithm"),
    "RS256, not opted in": (bearer(RSA.token()), 401, "algorithm"),
    "es256 in lower case": (header(alg="es256"), 401, "algorithm"),
    # Keys.
    "kid that walks the file system": (header(kid="../../dev/null"), 401, "unknown_key"),
    "kid of 10 KB": (header(kid="k" * 10_240), 401, "header"),
    "kid with a quote": (header(kid="' OR 1=1"), 401, "header"),
    "kid is a number": (header(kid=1), 401, "header"),
    "kid of nobody": (header(kid="key-2"), 401, "unknown_key"),
    "its own key in the header (jwk)": (
        bearer(STRANGER.token(header=STRANGER.header(jwk=STRANGER.jwk()))),
        401,
        "signature",
    ),
    "its own key's address in the header (jku)": (
        bearer(STRANGER.token(header=STRANGER.header(jku="https://evil.test/jwks", x5u="https://evil.test/x5u"))),
        401,
        "signature",
    ),
    "a certificate in the header (x5c)": (bearer(STRANGER.token(header=STRANGER.header(x5c=["AAAA"]))), 401, "signature"),
    "crit with an extension": (header(crit=["exp"], exp=1), 401, "header"),
    "crit is empty": (header(crit=[]), 401, "header"),
    "b64 false": (header(b64=False, crit=["b64"]), 401, "header"),
    "zip": (header(zip="DEF"), 401, "header"),
    "typ of another token": (header(typ="dpop+jwt"), 401, "header"),
    # Signatures.
    "signed by somebody else": (bearer(STRANGER.token()), 401, "signature"),
    "r and s are 0": (signed(lambda _: bytes(64)), 401, "signature"),
    "s is 0": (signed(lambda data: ALICE.sign(data)[:32] + bytes(32)), 401, "signature"),
    "DER form": (signed(ALICE.sign_der), 401, "signature"),
    "cut off": (signed(lambda data: ALICE.sign(data)[:63]), 401, "signature"),
    "a byte too long": (signed(lambda data: ALICE.sign(data) + b"\0"), 401, "signature"),
    "claims changed after signing": (
        bent(lambda parts: f"{parts[0]}.{encode(json.dumps(ALICE.claims(sub='root')).encode())}.{parts[2]}"),
        401,
        "signature",
    ),
    # Claims.
    "issuer of nobody": (claims(iss="https://evil.test"), 401, "issuer"),
    "iss with a slash at its end": (claims(iss=URL + "/"), 401, "issuer"),
    "iss in capitals": (claims(iss=URL.upper()), 401, "issuer"),
    "no iss": (claims(iss=None), 401, "issuer"),
    "iss is a list": (claims(iss=[URL]), 401, "issuer"),
    "audience of another service": (claims(aud="http://other-mcp.ml.svc:8931/mcp"), 401, "audience"),
    "audience that begins like ours": (claims(aud=RESOURCE + "/x"), 401, "audience"),
    "aud is an empty list": (claims(aud=[]), 401, "audience"),
    "no aud": (claims(aud=None), 401, "claims"),
    "aud is an object": (claims(aud={RESOURCE: 1}), 401, "claims"),
    "aud is a list of 1,000": (claims(aud=[*map(str, range(1000)), RESOURCE]), 401, "claims"),
    "expired": (claims(exp=NOW - 120), 401, "expired"),
    "no exp": (claims(exp=None), 401, "claims"),
    "exp is a string": (claims(exp=str(NOW + 600)), 401, "claims"),
    "exp is true": (claims(exp=True), 401, "claims"),
    "exp is 2^63": (claims(exp=2**63), 401, "claims"),
    "exp is 1e400": (bearer(ALICE.token(json.dumps(ALICE.claims(exp=0)).replace(': 0,', ": 1e400,").encode())), 401, "malformed"),
    "exp is negative": (claims(exp=-1), 401, "claims"),
    "no iat": (claims(iat=None), 401, "claims"),
    "iat in the future": (claims(iat=NOW + 3600, exp=NOW + 7200), 401, "not_yet_valid"),
    "nbf in the future": (claims(nbf=NOW + 3600, exp=NOW + 7200), 401, "not_yet_valid"),
    "nbf is null": (bearer(ALICE.token({**ALICE.claims(), "nbf": None})), 401, "claims"),
    "no sub": (claims(sub=None), 401, "claims"),
    "sub is empty": (claims(sub=""), 401, "claims"),
    "sub with a line break": (claims(sub="alice\nroot"), 401, "claims"),
    "sub of 256 characters": (claims(sub="a" * 256), 401, "claims"),
    "sub is a number": (claims(sub=7), 401, "claims"),
}  # fmt: skip


async def call(running: Running, headers: dict[str, str], path: str = "/mcp") -> Reply:
    body = modern_body("tools/call", PLAIN)
    return await request(running.port, "POST", path, body, {**modern_headers("tools/call", PLAIN), **headers})


def counted(running: Running) -> dict[str, int]:
    return dict(running.adapter.telemetry.auth)


def new_outcome(running: Running, before: dict[str, int]) -> str:
    after = counted(running)
    grown = [outcome for outcome in after if after[outcome] != before.get(outcome, 0)]
    assert len(grown) == 1, (before, after)
    return grown[0]


@pytest.mark.promise("auth")
def test_every_token_of_the_matrix_is_let_in_or_refused_for_its_own_reason(torture: int) -> None:
    async def test() -> None:
        got: dict[str, tuple[int, str]] = {}
        async with adapter(torture, trusting(issuer_config())) as running:
            for name, (headers, _, _) in MATRIX.items():
                before = counted(running)
                reply = await call(running, headers)
                got[name] = reply.status, new_outcome(running, before)
                challenge = reply.headers.get("www-authenticate", "")
                assert challenge.startswith('Bearer resource_metadata="http') == (reply.status != 200), name
                assert ("error=" in challenge) == (reply.status != 200 and got[name][1] != "missing"), name
                assert reply.status == 200 or reply.json["error"]["message"].endswith("."), name
        assert got == {name: (status, outcome) for name, (_, status, outcome) in MATRIX.items()}

    run(test)
