"""The rules over tokens and scopes as pure functions: whatever comes in, the answer is an identity or a refusal with a reason.

The table of wrong tokens is in tests/integration/adapter/test_auth.py, on the whole adapter.
"""

import ssl
import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelservice_api.adapter_config import AuthConfig, IssuerConfig
from modelservice_sidecar.core import tokens
from modelservice_sidecar.core.authorization import Access, Identity
from modelservice_sidecar.core.errors import NotPermittedError, UnauthenticatedError
from modelservice_sidecar.upstream import Pool
from token_issuer import RESOURCE, URL, Issuer, encode

NOW = 1_800_000_000.0
CONFIG = IssuerConfig(name="idp", issuer=URL, audiences=(RESOURCE,), jwks={"keys": []}, leeway=30)
GOOD = {"iss": URL, "sub": "alice", "aud": RESOURCE, "exp": NOW + 60, "iat": NOW}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
CLAIM_NAMES = st.sampled_from(["iss", "sub", "aud", "exp", "iat", "nbf", "scope", "scp", "other"])


@given(st.text() | st.from_regex(r"[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*", fullmatch=True))
def test_whatever_is_sent_as_a_token_is_read_or_refused(token: str) -> None:
    try:
        tokens.read(token)
    except tokens.TokenError as error:
        assert str(error).endswith(".")


@given(JSON, JSON)
def test_whatever_the_parts_of_a_token_hold_they_are_read_or_refused(header: Any, claims: Any) -> None:
    try:
        parts = [encode(orjson.dumps(part)) for part in (header, claims)]
    except TypeError:  # an integer that JSON for computers cannot hold
        return
    with pytest.raises(tokens.TokenError):  # a header that is random is no right one
        tokens.read(".".join([*parts, "AAAA"]))


@given(st.dictionaries(CLAIM_NAMES, JSON, max_size=9))
def test_one_changed_claim_never_makes_another_caller(changes: dict[str, Any]) -> None:
    try:
        identity = tokens.check_claims({**GOOD, **changes}, CONFIG, NOW)
    except tokens.TokenError:
        return
    assert isinstance(identity.subject, str)
    assert identity.subject == {**GOOD, **changes}["sub"]
    assert NOW - CONFIG.leeway < identity.expires < 253402300800
    assert all(scope.startswith("mcp:tools:") for scope in identity.scopes)


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "a mcp:tools:list b"}, {"mcp:tools:list"}),
        ({"scp": ["mcp:tools:call", 7, None]}, {"mcp:tools:call"}),
        ({"scp": "mcp:tools:list mcp:tools:call:x"}, {"mcp:tools:list", "mcp:tools:call:x"}),
        ({"scope": ["mcp:tools:list"], "scp": {"mcp:tools:call": True}}, {"mcp:tools:list"}),
        ({"scope": "mcp:tools:list\tmcp:tools:call"}, {"mcp:tools:list\tmcp:tools:call"}),
        ({"scope": 1}, set()),
        ({}, set()),
    ],
)
def test_scopes_are_read_in_both_spellings(claims: dict[str, Any], scopes: set[str]) -> None:
    assert tokens.check_claims({**GOOD, **claims}, CONFIG, NOW).scopes == scopes


def test_an_issuers_own_scopes_come_on_top() -> None:
    given = CONFIG.model_copy(update={"scopes": ("mcp:tools:call",)})
    assert tokens.check_claims({**GOOD, "scope": "mcp:tools:list"}, given, NOW).scopes == {
        "mcp:tools:list",
        "mcp:tools:call",
    }


@pytest.mark.parametrize(
    ("exp", "iat", "outcome"),
    [
        (NOW - 29, NOW - 60, "alice"),
        (NOW - 30, NOW - 60, "expired"),
        (NOW + 60, NOW + 30, "alice"),
        (NOW + 60, NOW + 31, "not_yet_valid"),
    ],
)
def test_clocks_may_differ_by_the_leeway_and_no_more(exp: float, iat: float, outcome: str) -> None:
    try:
        found = tokens.check_claims({**GOOD, "exp": exp, "iat": iat}, CONFIG, NOW).subject
    except tokens.TokenError as error:
        found = error.reason
    assert found == outcome


def test_a_real_token_is_read_and_its_issuer_found() -> None:
    unverified = tokens.read(Issuer().token())
    assert (unverified.algorithm, unverified.kid) == ("ES256", "key-1")
    assert tokens.find_issuer(unverified, {URL: CONFIG}) is CONFIG
    assert tokens.check_claims(unverified.claims, CONFIG, time.time()).subject == "alice"


def test_without_auth_everything_is_allowed_and_with_it_nothing_unless_a_scope_says_so() -> None:
    nobody = Identity(subject="alice", issuer="idp", scopes=frozenset(), expires=NOW)
    off, on = Access(), Access(required=True)
    assert (off.may_list(None), off.may_call(None, "x"), off.may_see(None, "x"), off.takes_anonymous) == (
        None, None, None, True,
    )  # fmt: skip
    assert not on.takes_anonymous
    for identity, kind in ((None, UnauthenticatedError), (nobody, NotPermittedError)):
        refusals = [on.may_list(identity), on.may_call(identity, "x"), on.may_see(identity, "x")]
        assert [type(refusal) for refusal in refusals] == [kind] * 3
        assert [refusal.scope for refusal in refusals if refusal is not None] == [
            "mcp:tools:list", "mcp:tools:call:x", "mcp:tools:list",
        ]  # fmt: skip


def test_a_name_that_is_no_tools_name_never_reaches_a_header() -> None:
    refusal = Access(required=True).may_call(None, 'x"\r\nset-cookie: a')
    assert refusal is not None
    assert refusal.scope == "mcp:tools:call"
    assert "cookie" not in str(refusal)


def test_two_issuers_of_one_url_cannot_be_configured() -> None:
    with pytest.raises(ValueError, match="tell them apart"):
        AuthConfig(issuers=(CONFIG, CONFIG.model_copy(update={"name": "other"})))


@pytest.mark.parametrize(
    ("port", "tls", "address"),
    [(443, True, "idp.test"), (8443, True, "idp.test:8443"), (443, False, "idp.test:443"), (80, False, "idp.test:80")],
)
def test_a_provider_is_addressed_as_other_clients_do(port: int, tls: bool, address: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if tls else None
    assert Pool("idp.test", port, tls=context).address == address
