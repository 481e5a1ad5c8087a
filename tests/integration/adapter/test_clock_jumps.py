"""The wall clock jumps ten minutes, either way, and nothing expires or lives on for it: only the times within tokens see it.

The wall clock of the whole process jumps (`time.time` and the adapter's own), the monotonic one only where a test moves
it. Every duration is so long that only a jump could end it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from adapter_harness import Reply, Running, adapter, encode, modern_body, modern_headers, next_event, request, run
from model_apps import SlowModel, model_server
from modelservice_api.adapter_config import (
    AdapterConfig,
    AuthConfig,
    CacheConfig,
    CircuitBreakerConfig,
    IssuerConfig,
    RateLimitingConfig,
    TokenBucketConfig,
    ToolAnnotationsConfig,
    ToolOverride,
    ToolsConfig,
)
from modelservice_sidecar.auth import verifier as verifier_module
from modelservice_sidecar.auth.pace import KeyPace
from modelservice_sidecar.auth.verifier import Verifier
from modelservice_sidecar.clock import Clock
from modelservice_sidecar.core.tokens import TokenError
from token_issuer import RESOURCE, Issuer, key_server, keys_of

HOUR = 3600
JUMPS = pytest.mark.parametrize("jump", [600.0, -600.0], ids=["forward", "back"])
ALICE = Issuer()
TOTAL = {"name": "total", "arguments": {"body": [1.0, 2.0]}}


class Hands:
    """A clock that runs on, and that a test moves."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.moved = 0.0

    def __call__(self) -> float:
        return self._clock() + self.moved


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Hands:
    """The wall clock of the whole process."""
    hands = Hands(time.time)
    monkeypatch.setattr(time, "time", hands)
    return hands


def clock_of(wall: Hands) -> Clock:
    return Clock(wall=wall)


def token(**changes: Any) -> str:
    """Valid since half an hour and for another hour, by the clock before any jump."""
    now = int(time.time())
    return ALICE.token(ALICE.claims(iat=now - HOUR // 2, exp=now + HOUR, **changes))


async def call(running: Running, bearer: str = "", params: dict[str, Any] = TOTAL) -> Reply:
    headers = modern_headers("tools/call", params)
    if bearer:
        headers["authorization"] = f"Bearer {bearer}"
    return await request(running.port, "POST", "/mcp", modern_body("tools/call", params), headers)


def auth_outcomes(running: Running) -> Counter[str]:
    """How tokens were taken, by the metric."""
    found: Counter[str] = Counter()
    for line in running.adapter.telemetry.render().decode().splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("modelservice_auth") and 'outcome="' in name:
            found[name.split('outcome="')[1].split('"')[0]] += int(float(value))
    return found


@JUMPS
@pytest.mark.promise("nothing-lost")
def test_caches_limits_and_keys_outlive_a_jump(torture: int, wall: Hands, jump: float) -> None:
    async def test() -> None:
        async with key_server(keys_of(ALICE)) as server:
            uri = f"http://127.0.0.1:{server.port}/keys"
            idp = IssuerConfig(name="idp", issuer=ALICE.url, audiences=(RESOURCE,), jwks_uri=uri, plain_http=True)
            kept = ToolOverride(annotations=ToolAnnotationsConfig(read_only_hint=True, idempotent_hint=True))
            config = AdapterConfig(
                auth=AuthConfig(issuers=(idp,), resource=RESOURCE),
                tools=ToolsConfig(filter=("total",), overrides={"total": kept}),
                cache=CacheConfig(ttl=HOUR),
                rate_limiting=RateLimitingConfig(per_user=TokenBucketConfig(max_tokens=3, refill_period=10 * HOUR)),
            )
            async with adapter(torture, config, clock=clock_of(wall)) as running:
                alice, bob = token(), token(sub="bob")
                assert [(await call(running, alice)).status for _ in range(2)] == [200, 200]
                assert (await call(running, bob)).status == 200
                before = auth_outcomes(running)
                assert before == {"verified": 2, "cached": 1}

                wall.moved += jump

                assert (await call(running, alice)).status == 200
                assert (await call(running, alice)).json["result"]["isError"], "no token came back"
                assert (await call(running, bob)).status == 200
                assert auth_outcomes(running) - before == {"cached": 3}
                assert server.requests == 1
                lines = [(line["outcome"], line.get("cache")) for line in running.lines.of("call")]
                assert Counter(lines) == {("ok", "miss"): 2, ("ok", "hit"): 3, ("rate_limited", None): 1}

    run(test)


@JUMPS
@pytest.mark.promise("nothing-lost")
def test_an_open_breaker_stays_open_through_a_jump_and_closes_in_its_own_time(wall: Hands, jump: float) -> None:
    async def test() -> None:
        model = SlowModel()
        monotonic = Hands(time.perf_counter)
        config = AdapterConfig(circuit_breaker=CircuitBreakerConfig(consecutive_failures=1, open_duration=HOUR))
        clock = Clock(wall=wall, monotonic=monotonic)
        with model_server(model.app()) as port:
            async with adapter(port, config, clock=clock) as running:
                breaker = running.adapter._pipeline._breaker
                assert breaker is not None
                permit = breaker.admit(monotonic())
                assert isinstance(permit, int)
                breaker.record(permit, "failed", monotonic())
                before = await running.call("quick")
                wall.moved += jump
                after = await running.call("quick")
                assert [reply["_meta"]["modelservice.dev/retryAfter"] for reply in (before, after)] == [HOUR, HOUR]
                monotonic.moved += HOUR
                assert (await running.call("quick"))["structuredContent"] == {"ok": True}

    run(test)


@JUMPS
@pytest.mark.promise("nothing-lost")
def test_a_call_under_way_neither_ends_nor_is_said_to_have_lasted_for_a_jump(wall: Hands, jump: float) -> None:
    async def test() -> None:
        model = SlowModel()
        with model_server(model.app()) as port:
            async with adapter(port, clock=clock_of(wall)) as running:
                under_way = asyncio.ensure_future(running.call("slow"))
                await asyncio.to_thread(model.entered.acquire)
                wall.moved += jump
                assert (await running.call("quick"))["structuredContent"] == {"ok": True}
                assert not under_way.done()
                model.release()
                assert (await under_way)["structuredContent"] == {"call": 1}
                assert all(0 < line["ms"] < 300_000 for line in running.lines.of("call"))

    run(test)


@JUMPS
@pytest.mark.promise("auth")
def test_a_listen_stream_within_its_token_s_time_stays_open(torture: int, wall: Hands, jump: float) -> None:
    async def test() -> None:
        idp = IssuerConfig(name="idp", issuer=ALICE.url, audiences=(RESOURCE,), jwks=ALICE.jwks())
        config = AdapterConfig(auth=AuthConfig(issuers=(idp,), resource=RESOURCE))
        async with adapter(torture, config, clock=clock_of(wall)) as running:
            params = {"notifications": {"toolsListChanged": True}}
            headers = modern_headers("subscriptions/listen", params) | {"authorization": f"Bearer {token()}"}
            body = modern_body("subscriptions/listen", params)
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(encode("POST", "/mcp", body, headers))
            assert (await next_event(reader))["method"] == "notifications/subscriptions/acknowledged"
            wall.moved += jump
            filtered = config.model_copy(update={"tools": ToolsConfig(filter=("total",))})
            await running.adapter.reconfigure(filtered)
            assert (await next_event(reader))["method"] == "notifications/tools/list_changed"
            writer.close()

    run(test)


@pytest.mark.promise("auth")
def test_no_known_token_is_verified_again_after_a_jump_and_none_is_believed_longer(
    wall: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider is down and its keys are believed for five more minutes: less than the jump, either way."""
    checked = 0
    is_signed = verifier_module._is_signed

    def counted(*arguments: Any) -> bool:
        nonlocal checked
        checked += 1
        return is_signed(*arguments)

    monkeypatch.setattr(verifier_module, "_is_signed", counted)

    async def test() -> None:
        monotonic = Hands(time.perf_counter)
        async with key_server(keys_of(ALICE)) as server:
            uri = f"http://127.0.0.1:{server.port}/keys"
            idp = IssuerConfig(name="idp", issuer=ALICE.url, audiences=(RESOURCE,), jwks_uri=uri, plain_http=True)
            verifier = Verifier(pace=KeyPace(), wall=wall, monotonic=monotonic, tell=lambda *_: None)
            verifier.configure(AuthConfig(issuers=(idp,)))
            await verifier.verify(token())
            server.publish(b"", "503 Gone")
            monotonic.moved += KeyPace().believed - 300
            known = [token(jti=str(number)) for number in range(50)]
            for each in known:
                await verifier.verify(each)
            assert checked == 51
            for jump in (600.0, -1200.0):
                wall.moved += jump
                assert all(verifier.cached(each) is not None for each in known)
            monotonic.moved += 301
            assert not any(verifier.cached(each) is not None for each in known)
            await verifier.aclose()

    run(test)


@pytest.mark.promise("auth")
def test_a_token_s_own_times_see_the_jump_and_leeway_takes_up_what_clocks_may_differ(wall: Hands) -> None:
    async def test() -> None:
        idp = IssuerConfig(name="idp", issuer=ALICE.url, audiences=(RESOURCE,), jwks=ALICE.jwks(), leeway=30)
        verifier = Verifier(pace=KeyPace(), wall=wall, monotonic=time.perf_counter, tell=lambda *_: None)
        verifier.configure(AuthConfig(issuers=(idp,)))
        now = int(time.time())

        async def outcome(bearer: str) -> str:
            try:
                await verifier.verify(bearer)
            except TokenError as error:
                return error.reason
            return "valid"

        fresh = ALICE.token(ALICE.claims(iat=now, exp=now + 300))
        seen = {}
        for jump in (0, -20, -600, 320, 600):
            wall.moved = jump
            seen[jump] = await outcome(fresh)
        assert seen == {0: "valid", -20: "valid", -600: "not_yet_valid", 320: "valid", 600: "expired"}
        assert verifier.cached(fresh) is None, "a token that is known ends, too"
        await verifier.aclose()

    run(test)
