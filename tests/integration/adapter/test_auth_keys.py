"""Issuers' keys over the network: taken when they are good, kept when their provider is not, given up after an hour.

The provider is a real server on loopback whose answers a test sets. Times that no test may wait for are on a clock of the test.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapter_harness import Reply, Running, adapter, encode, modern_body, modern_headers, next_event, request, run
from modelservice_api.adapter_config import AdapterConfig, AuthConfig, IssuerConfig
from modelservice_sidecar.auth import verifier as verifier_module
from modelservice_sidecar.auth.key_source import MAX_DOCUMENT, RemoteKeys
from modelservice_sidecar.auth.pace import KeyPace
from modelservice_sidecar.auth.verifier import Verifier
from modelservice_sidecar.core.tokens import TokenError
from token_issuer import RESOURCE, Issuer, KeyServer, certificate, key_server, keys_of

ALICE, BOB = Issuer(), Issuer(kid="key-2")
PLAIN = {"name": "plain", "arguments": {"features": [1.0, 2.0]}}
QUICK = KeyPace(fresh=0.02, again=0.01, believed=3600, unknown=0.01, patience=5)
ONCE = KeyPace(fresh=3600, again=0, believed=3600, unknown=0, patience=5)
"""Asks at the start and when a token wants it, and never else."""


def issuer_config(server: KeyServer, **changes: Any) -> IssuerConfig:
    given = {"jwks_uri": f"http://127.0.0.1:{server.port}/keys", "plain_http": True, **changes}
    return IssuerConfig(name="idp", issuer=ALICE.url, audiences=(RESOURCE,), **given)


def trusting(server: KeyServer, **changes: Any) -> AdapterConfig:
    return AdapterConfig(auth=AuthConfig(issuers=(issuer_config(server, **changes),), resource=RESOURCE))


async def call(running: Running, token: str) -> Reply:
    headers = {**modern_headers("tools/call", PLAIN), "authorization": f"Bearer {token}"}
    return await request(running.port, "POST", "/mcp", modern_body("tools/call", PLAIN), headers)


async def status(running: Running, token: str) -> int:
    return (await call(running, token)).status


@pytest.mark.promise("auth")
def test_keys_come_over_https_from_an_authority_that_the_admin_named(torture: int, tmp_path: Path) -> None:
    async def test() -> None:
        tls, ca = certificate(tmp_path)
        async with key_server(keys_of(ALICE), tls) as server:
            url = f"https://127.0.0.1:{server.port}/keys?tenant=1"
            async with adapter(torture, trusting(server, jwks_uri=url, plain_http=False, ca=ca)) as running:
                assert await status(running, ALICE.token()) == 200
            # The system's authorities do not know it.
            async with adapter(torture, trusting(server, jwks_uri=url, plain_http=False)) as running:
                reply = await call(running, ALICE.token())
                assert (reply.status, reply.headers["retry-after"]) == (503, "5")
                assert "cannot be reached" in (await running.lines.wait_for("auth_keys"))["message"]
                # A port that speaks no TLS.
            async with key_server(keys_of(ALICE)) as plain:
                url = f"https://127.0.0.1:{plain.port}/keys"
                async with adapter(torture, trusting(plain, jwks_uri=url, plain_http=False)) as running:
                    assert await status(running, ALICE.token()) == 503

    run(test)


@pytest.mark.promise("auth")
def test_a_new_key_is_known_with_its_first_token_and_one_that_was_taken_back_no_longer(torture: int) -> None:
    async def test() -> None:
        async with key_server(keys_of(ALICE)) as server, adapter(torture, trusting(server), key_pace=ONCE) as running:
            first = ALICE.token()
            assert [await status(running, first) for _ in range(2)] == [200, 200]
            assert server.requests == 1
            server.publish(keys_of(BOB))
            assert await status(running, BOB.token()) == 200
            assert server.requests == 2
            assert await status(running, first) == 401, "also a token that was verified before"

    run(test)


@pytest.mark.promise("auth")
def test_a_key_that_changed_under_the_same_id_is_looked_at_again(torture: int) -> None:
    async def test() -> None:
        other = Issuer(kid=ALICE.kid)
        async with key_server(keys_of(ALICE)) as server, adapter(torture, trusting(server), key_pace=ONCE) as running:
            assert await status(running, ALICE.token()) == 200
            server.publish(keys_of(other))
            assert await status(running, other.token()) == 200
            assert await status(running, ALICE.token(ALICE.claims(jti="2"))) == 401

    run(test)


@pytest.mark.promise("auth")
def test_keys_are_refreshed_without_any_token(torture: int) -> None:
    async def test() -> None:
        async with key_server(keys_of(ALICE)) as server, adapter(torture, trusting(server), key_pace=QUICK) as running:
            first = ALICE.token()
            assert await status(running, first) == 200
            server.publish(keys_of(BOB))
            await running.lines.wait_for("auth_keys", message="1 keys")
            for _ in range(3):
                await server.next_request()
            assert await status(running, first) == 401

    run(test)


BAD_ANSWERS: dict[str, tuple[bytes, str, str, str]] = {
    "10 MB": (b'{"keys": [' + b" " * 10_000_000 + b"]}", "200 OK", "", f"larger than {MAX_DOCUMENT} bytes"),
    "HTML": (b"<!doctype html><title>login</title>", "200 OK", "", "not JSON"),
    "a redirect": (b"", "302 Found", "location: http://169.254.169.254/keys\r\n", "HTTP 302"),
    "no keys": (b'{"keys": []}', "200 OK", "", "no key for ES256"),
    "only keys for other things": (json.dumps(BOB.jwks(use="enc")).encode(), "200 OK", "", "no key for ES256"),
    "a list": (b"[]", "200 OK", "", "not a JWK set"),
    "keys that are words": (b'{"keys": ["x"]}', "200 OK", "", "not a JWK set"),
    "a point that is on no curve": (
        json.dumps(BOB.jwks(x=ALICE.jwk()["x"])).encode(), "200 OK", "", "no key for ES256",
    ),
    "a private key": (json.dumps(BOB.jwks(d="AAAA")).encode(), "200 OK", "", "private key"),
    "a shared secret": (b'{"keys": [{"kty": "oct", "k": "AAAA", "kid": "key-2"}]}', "200 OK", "", "private key"),
    "65 keys": (json.dumps({"keys": [BOB.jwk(kid=str(n)) for n in range(65)]}).encode(), "200 OK", "", "more than 64"),
    "an error": (b"{}", "500 Oops", "", "HTTP 500"),
    "zipped": (b"\x1f\x8b", "200 OK", "content-encoding: gzip\r\n", "or compressed"),
}  # fmt: skip


@pytest.mark.promise("auth")
@pytest.mark.parametrize("bad", BAD_ANSWERS)
def test_a_bad_answer_changes_nothing_and_is_told(torture: int, bad: str) -> None:
    async def test() -> None:
        body, line, headers, said = BAD_ANSWERS[bad]
        async with key_server(keys_of(ALICE)) as server:
            async with adapter(torture, trusting(server), key_pace=ONCE) as running:
                assert await status(running, ALICE.token()) == 200
                server.publish(body, line, headers)
                assert await status(running, BOB.token()) == 401
                told = [entry["message"] for entry in running.lines.of("auth_keys")]
                assert said in told[-1], told
                assert await status(running, ALICE.token(ALICE.claims(jti="2"))) == 200, "the last good keys are kept"
                server.publish(keys_of(ALICE, BOB))
                assert await status(running, BOB.token()) == 200
            # Where there never was a good one, nobody gets in, and no caller is told that its token is bad.
            server.publish(body, line, headers)
            async with adapter(torture, trusting(server), key_pace=ONCE) as running:
                assert await status(running, ALICE.token()) == 503

    run(test)


@pytest.mark.promise("auth")
def test_tokens_with_made_up_key_ids_do_not_make_the_provider_answer_each(torture: int) -> None:
    async def test() -> None:
        pace = KeyPace(fresh=3600, again=3600, unknown=3600)
        async with key_server(keys_of(ALICE)) as server, adapter(torture, trusting(server), key_pace=pace) as running:
            made_up = [ALICE.token(header=ALICE.header(kid=f"made-up-{number}")) for number in range(300)]
            for start in range(0, len(made_up), 50):
                got = await asyncio.gather(*(status(running, token) for token in made_up[start : start + 50]))
                assert set(got) == {401}
            assert server.requests == 1
            assert await status(running, ALICE.token()) == 200

    run(test)


@pytest.mark.promise("auth")
def test_a_slow_provider_holds_up_only_who_needs_its_keys(torture: int) -> None:
    async def test() -> None:
        async with key_server(keys_of(ALICE)) as server, adapter(torture, trusting(server), key_pace=ONCE) as running:
            assert await status(running, ALICE.token()) == 200
            server.gate.clear()
            waiting = asyncio.create_task(status(running, BOB.token()))
            await server.next_request()
            assert await status(running, ALICE.token(ALICE.claims(jti="2"))) == 200
            assert not waiting.done()
            server.publish(keys_of(ALICE, BOB))
            server.gate.set()
            assert await waiting == 200

    run(test)


@pytest.mark.promise("auth")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ca": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"}, "no certificate in PEM"),
        ({"jwks_uri": "https://127.0.0.1:99999/keys"}, "cannot be looked at: ValueError"),
        ({"jwks_uri": "https://no-such-host.invalid/keys"}, "cannot be reached"),
    ],
)
def test_a_mistake_of_the_admin_lets_nobody_in_and_is_told(torture: int, changes: dict[str, Any], said: str) -> None:
    async def test() -> None:
        async with key_server(keys_of(ALICE)) as server:
            given = {"jwks_uri": f"https://127.0.0.1:{server.port}/keys", "plain_http": False, **changes}
            async with adapter(torture, trusting(server, **given)) as running:
                assert await status(running, ALICE.token()) == 503
                assert said in (await running.lines.wait_for("auth_keys"))["message"]

    run(test)


@pytest.mark.promise("auth")
def test_a_listening_stream_ends_with_its_token(torture: int) -> None:
    async def test() -> None:
        async with key_server(keys_of(ALICE)) as server, adapter(torture, trusting(server)) as running:
            claims = ALICE.claims()
            claims["exp"] = claims["iat"] - 29  # over, and within the leeway: the stream is opened and ends at once
            params = {"notifications": {"toolsListChanged": True}}
            headers = {**modern_headers("subscriptions/listen"), "authorization": f"Bearer {ALICE.token(claims)}"}
            reply = await request(running.port, "POST", "/mcp", modern_body("subscriptions/listen", params), headers)
            assert reply.status == 200
            assert [event.get("method") for event in reply.events] == ["notifications/subscriptions/acknowledged", None]
            open_headers = {**headers, "authorization": f"Bearer {ALICE.token()}"}
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(encode("POST", "/mcp", modern_body("subscriptions/listen", params), open_headers))
            assert (await next_event(reader))["method"] == "notifications/subscriptions/acknowledged"
            assert running.adapter.subscriptions.count == 1
            writer.close()

    run(test)


class Hands:
    """A clock whose hands a test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def remote_keys(server: KeyServer, clock: Hands, told: list[str]) -> AsyncIterator[RemoteKeys]:
    keys = RemoteKeys(
        issuer_config(server), pace=KeyPace(), monotonic=clock, changed=lambda: told.append("changed"), tell=told.append
    )
    looking = asyncio.create_task(keys.run())
    try:
        await keys.find("ES256", ALICE.kid)
        yield keys
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def outcome(keys: RemoteKeys, kid: str) -> str:
    try:
        await keys.find("ES256", kid)
    except TokenError as error:
        return error.reason
    return "found"


@pytest.mark.promise("auth")
def test_keys_outlive_their_provider_by_an_hour_and_no_longer() -> None:
    async def test() -> None:
        clock, told = Hands(), list[str]()
        async with key_server(keys_of(ALICE)) as server, remote_keys(server, clock, told) as keys:
            server.publish(b"", "503 Gone")
            clock.now += 3599
            assert await outcome(keys, ALICE.kid) == "found"
            assert (keys.age, keys.believed_for) == (3599, 1)
            clock.now += 1
            assert await outcome(keys, ALICE.kid) == "keys_unavailable"
            assert server.requests == 2
            assert told[-1].startswith("Its keys are not taken: the answer is HTTP 503.")
            server.publish(keys_of(ALICE))
            clock.now += 10
            assert await outcome(keys, ALICE.kid) == "found"
            assert keys.age == 0

    run(test)


@pytest.mark.promise("auth")
def test_unknown_key_ids_are_asked_for_once_in_ten_seconds_and_each_of_them_once_a_minute() -> None:
    async def test() -> None:
        clock = Hands()
        async with key_server(keys_of(ALICE)) as server, remote_keys(server, clock, []) as keys:
            assert server.requests == 1
            for kid in ("a", "b", "a"):
                assert await outcome(keys, kid) == "unknown_key"
            assert server.requests == 1, "the keys are younger than ten seconds"
            clock.now += 10
            assert await outcome(keys, "a") == "unknown_key"
            assert server.requests == 1, "that one was asked for within the minute"
            assert [await outcome(keys, "c") for _ in range(3)] == ["unknown_key"] * 3
            assert server.requests == 2
            clock.now += 51
            assert await outcome(keys, "a") == "unknown_key"
            assert server.requests == 3
            server.publish(keys_of(ALICE, BOB))
            clock.now += 61
            assert await outcome(keys, BOB.kid) == "found"

    run(test)


@pytest.mark.promise("auth")
def test_a_verified_token_is_remembered_up_to_its_end_and_so_many_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier_module, "MAX_CACHED", 3)

    async def test() -> None:
        clock = Hands()
        verifier = Verifier(pace=KeyPace(), wall=clock, monotonic=clock, tell=lambda *_: None)
        static = IssuerConfig(name="idp", issuer=ALICE.url, audiences=(RESOURCE,), jwks=ALICE.jwks())
        verifier.configure(AuthConfig(issuers=(static,)))

        def token(**changes: Any) -> str:
            return ALICE.token(ALICE.claims(iat=int(clock.now), exp=int(clock.now) + 60, **changes))

        first = token()
        assert verifier.cached(first) is None
        identity = await verifier.verify(first)
        assert verifier.cached(first) is identity
        clock.now += 59
        assert verifier.cached(first) is identity
        clock.now += 1
        assert verifier.cached(first) is None
        several = [token(jti=str(number)) for number in range(5)]
        for each in several:
            await verifier.verify(each)
        assert [verifier.cached(each) is not None for each in several] == [False, False, True, True, True]
        assert verifier.cached_tokens == 3
        await verifier.aclose()

    run(test)
