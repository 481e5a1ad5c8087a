"""Only callers with a valid token for this service and scope get in: every way a token can be wrong, on the real adapter."""

import asyncio
import json
import time
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import httpx2
import pytest
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import ProtectedResourceMetadata

from adapter_harness import ACCEPT, Reply, Running, adapter, modern_body, modern_headers, read_reply, request, run
from model_apps import model_server
from modelservice_api.adapter_config import (
    AdapterConfig,
    AuthConfig,
    IssuerConfig,
    LoggingConfig,
    McpConfig,
    PeersConfig,
)
from modelservice_sidecar import peers
from modelservice_sidecar.metrics import Counter
from modelservice_sidecar.middleware import auth as gates
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
    given: dict[str, Any] = {
        "name": "idp",
        "issuer": issuer.url,
        "audiences": (RESOURCE,),
        "jwks": issuer.jwks(),
        **changes,
    }
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
    "exp is 1e400": (bearer(ALICE.token(json.dumps(ALICE.claims(exp=0)).replace(" 0,", " 1e400,").encode())), 401, "malformed"),
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
    family = running.adapter.telemetry.families["modelservice_auth"]
    assert isinstance(family, Counter)
    return {outcome: int(count) for (outcome,), count in family.values.items()}


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


class Recorder:
    """A model server that notes every byte it is given."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.middleware("http")
        async def note(request: Request, call_next: Any) -> Any:
            body = await request.body()
            self.seen.append(
                f"{request.method} {request.url.path} {request.url.query} {request.headers.raw!r} {body!r}"
            )
            return await call_next(request)

        @app.post("/predict")
        def predict(request: Request, body: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
            return {"headers": dict(request.headers), "body": body}

        @app.post("/status")
        def status() -> dict[str, str]:
            return {"state": "fine"}

        @app.post("/fail")
        def fail(request: Request) -> Any:
            return JSONResponse({"detail": str(dict(request.headers))}, 500)

        return app


@pytest.mark.promise("auth")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-modelservice-handover": "1"},
        {"mcp-init-host": "digits-mcp.ml.svc", "x-forwarded-user": "root", "mcp-session-id": "1"},
        {"mcp-method": "server/discover", "mcp-name": "status"},
        {"authorization": "Bearer " + STRANGER.token()},
    ],
)
def test_no_path_no_verb_and_no_header_gets_past_the_door(headers: dict[str, str]) -> None:
    async def test() -> None:
        model = Recorder()
        config = trusting(issuer_config())
        config = config.model_copy(update={"mcp": McpConfig(binary_transfer=True)})
        body = modern_body("tools/call", {"name": "status"})
        with model_server(model.app()) as port:
            async with adapter(port, config) as running:
                model.seen.clear()
                got = {}
                for path in PATHS:
                    for verb in ("GET", "HEAD", "POST", "PUT", "DELETE", "TRACE"):
                        reply = await request(running.port, verb, path, body, {**ACCEPT, **headers})
                        got[verb, path] = reply.status
                assert set(got.values()) == {401}, got
        assert not [line for line in model.seen if line.startswith("POST")]

    run(test)


PATHS = (
    "/mcp", "/mcp/", "/mcp/x", "//mcp", "/mcp/../x", "/%6dcp", "/MCP", "/x/mcp", "/rpc", "/rpc/", "/", "/docs", "/openapi.json",
    "/v2", "/v2/health/live", "/v2/models/status/infer", "/metrics", "/tools", "/readyz",
    "/.well-known/oauth-protected-resource/../../mcp", "/.well-known/oauth-protected-resource/other",
    "/.well-known/oauth-protected-resource%2fmcp", "/.well-known/openid-configuration",
)  # fmt: skip


@pytest.mark.promise("auth")
def test_a_caller_without_a_token_is_refused_before_a_byte_of_its_body_is_read(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture, trusting(issuer_config())) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(
                b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 4000000\r\n\r\n"
            )
            reply = await read_reply(reader)
            assert reply.status == 401
            assert reply.headers["cache-control"] == "no-store"
            writer.close()
            assert running.lines.of("call") == []

    run(test)


@pytest.mark.promise("auth")
@pytest.mark.parametrize(
    "query", ["access_token=TOKEN", "a=b&access_token=TOKEN", "access%5Ftoken=TOKEN", "Access_Token=x"]
)
def test_a_token_in_the_url_is_refused_even_beside_one_in_the_header(torture: int, query: str) -> None:
    async def test() -> None:
        async with adapter(torture, trusting(issuer_config())) as running:
            token = ALICE.token()
            reply = await call(running, bearer(token), "/mcp?" + query.replace("TOKEN", token))
            assert (reply.status, new_outcome(running, {})) == (400, "in_query")
            assert "Authorization header" in reply.json["error"]["message"]
            assert (await call(running, bearer(token), "/mcp?trace=1")).status == 200

    run(test)


@pytest.mark.promise("auth")
def test_without_auth_in_the_configuration_nobody_is_asked_and_there_is_nothing_to_find(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            assert (await call(running, {})).status == 200
            assert (await call(running, bearer("not even a token"))).status == 200
            assert (await request(running.port, "GET", gates.WELL_KNOWN)).status == 404
            assert (await running.modern("tools/list")).json["result"]["cacheScope"] == "public"
            assert counted(running) == {}

    run(test)


@pytest.mark.promise("auth")
def test_clients_learn_where_tokens_come_from_at_both_places_and_never_from_their_own_host_header(torture: int) -> None:
    async def test() -> None:
        config = trusting(issuer_config()).model_copy(update={"mcp": McpConfig(path="/models/digits")})
        assert config.auth is not None
        config = config.model_copy(
            update={"auth": config.auth.model_copy(update={"resource": "https://ai.example/digits"})}
        )
        async with adapter(torture, config) as running:
            for path in ("", "/models/digits", "/digits"):
                reply = await request(running.port, "GET", gates.WELL_KNOWN + path, None, {"host": "evil.example"})
                assert reply.status == 200, path
                assert reply.headers["cache-control"] == "public, max-age=300"
                document = ProtectedResourceMetadata.model_validate_json(reply.body)
                assert str(document.resource) == "https://ai.example/digits"
                assert [str(url) for url in document.authorization_servers] == [URL]
                assert document.scopes_supported == ["mcp:tools:list", "mcp:tools:call"]
                assert document.resource_name == "modelservice"
                assert b"evil.example" not in reply.body
            refused = await request(running.port, "POST", "/models/digits", b"{}", {**ACCEPT, "host": "evil.example"})
            assert refused.headers["www-authenticate"] == (
                'Bearer resource_metadata="https://ai.example/.well-known/oauth-protected-resource/digits", '
                'scope="mcp:tools:list mcp:tools:call"'
            )
            post = await request(running.port, "POST", gates.WELL_KNOWN, b"{}", ACCEPT)
            assert (post.status, post.headers["allow"]) == (405, "GET, HEAD")

    run(test)


LIST, CALL = "mcp:tools:list", "mcp:tools:call"
SCOPES: list[tuple[str | None, int, int, int]] = [
    # scopes of the token; status of a list, of a call of predict, of a call of status
    (f"{LIST} {CALL}", 200, 200, 200),
    (f"openid {LIST} {CALL} mcp:admin", 200, 200, 200),
    (LIST, 200, 403, 403),
    (CALL, 403, 200, 200),
    (f"{CALL}:predict", 403, 200, 403),
    (f"{LIST} {CALL}:status", 200, 403, 200),
    (f"{CALL}:predic", 403, 403, 403),
    (f"{CALL}:*", 403, 403, 403),
    (f"{CALL}:", 403, 403, 403),
    ("MCP:TOOLS:CALL", 403, 403, 403),
    ("", 403, 403, 403),
    (None, 403, 403, 403),
]


@pytest.mark.promise("auth")
def test_a_token_does_what_its_scopes_say_and_no_more_on_every_lane() -> None:
    async def test() -> None:
        model = Recorder()
        with model_server(model.app()) as port:
            async with adapter(port, trusting(issuer_config())) as running:
                model.seen.clear()
                for scope, *expected in SCOPES:
                    token = bearer(ALICE.token(ALICE.claims(scope=scope)))
                    params = [{"name": "predict", "arguments": {"body": {}}}, {"name": "status"}]
                    modern = [
                        await running.modern("tools/list", None, **token),
                        *[await running.modern("tools/call", each, **token) for each in params],
                    ]
                    legacy = [
                        await running.legacy("tools/list", None, **token),
                        *[await running.legacy("tools/call", each, **token) for each in params],
                    ]
                    plain = [
                        await running.rpc("list_tools", None, **token),
                        *[await running.rpc("call_tool", each, **token) for each in params],
                    ]
                    for replies in (modern, legacy, plain):
                        assert [reply.status for reply in replies] == expected, scope
                    for reply, wanted in zip(modern, (LIST, f"{CALL}:predict", f"{CALL}:status"), strict=True):
                        if reply.status == 403:
                            assert reply.json["error"]["code"] == 1403
                            challenge = reply.headers["www-authenticate"]
                            assert challenge.endswith(f', error="insufficient_scope", scope="{wanted}"'), challenge
                    unknown = await running.modern("tools/call", {"name": "no_such"}, **token)
                    assert unknown.status == (400 if CALL in (scope or "").split() else 403)
                    info = await running.rpc("get_tool_info", {"name": "status"}, **token)
                    assert info.status == expected[0]
                calls = [line for line in running.lines.of("call") if line["outcome"] == "ok"]
                assert len(calls) == len([line for line in model.seen if line.startswith("POST")])
                assert {line["outcome"] for line in running.lines.of("call")} == {"ok", "not_permitted", "unknown_tool"}

    run(test)


@pytest.mark.promise("auth")
def test_a_tool_that_asks_for_no_token_is_open_and_every_other_stays_shut() -> None:
    async def test() -> None:
        with model_server(Recorder().app()) as port:
            async with adapter(port, trusting(issuer_config(), anonymous_tools=("status", "no_such_tool"))) as running:
                token = bearer(ALICE.token())
                poor = bearer(ALICE.token(ALICE.claims(scope=None)))

                async def names(headers: dict[str, str]) -> list[str]:
                    result = (await running.modern("tools/list", None, **headers)).json["result"]
                    assert result["cacheScope"] == "private"
                    plain = (await running.rpc("list_tools", None, **headers)).json["result"]
                    assert [tool["name"] for tool in plain["tools"]] == [tool["name"] for tool in result["tools"]]
                    return [tool["name"] for tool in result["tools"]]

                assert (await names({}), await names(poor)) == (["status"], ["status"])
                assert await names(token) == ["fail", "predict", "status"]
                assert (await running.modern("server/discover")).status == 200
                assert (await running.modern("tools/call", {"name": "status"})).status == 200
                for name in ("predict", "no_such"):
                    refused = await running.modern("tools/call", {"name": name, "arguments": {"body": {}}})
                    assert (refused.status, refused.json["error"]["code"]) == (401, 1401)
                    assert refused.headers["www-authenticate"].endswith(f'scope="{CALL}:{name}"')
                info = await running.rpc("get_tool_info", {"name": "predict"})
                assert (info.status, info.json["error"]["data"]["outcome"]) == (401, "unauthenticated")
                # Who shows a token is held to it: a bad one is not taken for none.
                for bad in (STRANGER.token(), ALICE.token(ALICE.claims(exp=NOW - 500))):
                    assert (await running.modern("tools/call", {"name": "status"}, **bearer(bad))).status == 401

    run(test)


@pytest.mark.promise("auth")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_official_client_works_with_a_token_and_is_told_what_is_missing_without(torture: int, mode: Any) -> None:
    async def test() -> None:
        async with adapter(torture, trusting(issuer_config())) as running:
            async with (
                httpx2.AsyncClient(headers=bearer(ALICE.token())) as http,
                Client(streamable_http_client(running.url, http_client=http), mode=mode) as client,
            ):
                assert "plain" in {tool.name for tool in (await client.list_tools()).tools}
                result = await client.call_tool("plain", PLAIN["arguments"])
                assert result.structured_content == {"score": 3.0, "label": "ok"}
            with pytest.raises(BaseException) as refused:
                async with Client(running.url, mode=mode) as client:
                    await client.list_tools()
            assert "needs a token" in "".join(traceback.format_exception(refused.value))

    run(test)


@pytest.mark.promise("auth")
def test_a_web_page_may_ask_before_it_has_a_token_and_may_read_the_challenge(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture, trusting(issuer_config())) as running:
            origin = {"origin": "http://localhost:6274"}
            assert (await request(running.port, "OPTIONS", "/mcp", None, origin)).status == 204
            refused = await call(running, origin)
            assert refused.status == 401
            assert refused.headers["access-control-allow-origin"] == origin["origin"]
            assert "www-authenticate" in refused.headers["access-control-expose-headers"]
            assert (await call(running, {**bearer(ALICE.token()), "origin": "https://evil.example"})).status == 403

    run(test)


@pytest.mark.promise("auth")
def test_only_service_accounts_of_the_listed_namespaces_get_in(torture: int) -> None:
    async def test() -> None:
        cluster = Issuer(key=RSA.key, kid="sa-1", url="https://kubernetes.default.svc", scope=None)
        config = trusting(
            issuer_config(
                cluster,
                algorithms=("RS256",),
                scopes=(LIST, CALL),
                subject_prefixes=("system:serviceaccount:ml:",),
            )
        )
        async with adapter(torture, config) as running:
            for subject, status in {
                "system:serviceaccount:ml:agent": 200,
                "system:serviceaccount:mlx:agent": 401,
                "system:serviceaccount:other:agent": 401,
                "system:node:ml": 401,
            }.items():
                token = cluster.token(cluster.claims(sub=subject, **{"kubernetes.io": {"namespace": "ml"}}))
                assert (await call(running, bearer(token))).status == status, subject
            assert counted(running)["subject"] == 3

    run(test)


@pytest.mark.promise("auth")
def test_rsa_is_taken_where_it_was_opted_in_and_weak_keys_never(torture: int) -> None:
    async def test() -> None:
        keys = {"keys": [RSA.jwk(), WEAK_RSA.jwk(), ALICE.jwk(), STRANGER.jwk(kid="enc", use="enc")]}
        async with adapter(torture, trusting(issuer_config(jwks=keys, algorithms=("RS256",)))) as running:
            assert (await call(running, bearer(RSA.token()))).status == 200
            assert (await call(running, bearer(WEAK_RSA.token()))).status == 401
            assert (await call(running, bearer(ALICE.token()))).status == 401
            # An elliptic key under the name of the other algorithm.
            assert (await call(running, header(alg="RS256"))).status == 401
        async with adapter(torture, trusting(issuer_config(jwks=keys))) as running:
            assert (await call(running, bearer(ALICE.token()))).status == 200
            encryption = Issuer(key=STRANGER.key, kid="enc")
            assert (await call(running, bearer(encryption.token()))).status == 401

    run(test)


@pytest.mark.promise("auth")
@pytest.mark.parametrize(("log_subject", "expected"), [("Omit", None), ("Plain", "alice"), ("Hash", 16)])
def test_a_caller_stands_in_the_log_as_the_admin_says(torture: int, log_subject: Any, expected: Any) -> None:
    async def test() -> None:
        async with adapter(torture, trusting(issuer_config(), log_subject=log_subject)) as running:
            for _ in range(2):
                assert (await call(running, bearer(ALICE.token()))).status == 200
            assert (await call(running, bearer(ALICE.token(ALICE.claims(sub="bob"))))).status == 200
            first, second, other = (line.get("user") for line in running.lines.of("call"))
            assert first == second
            if isinstance(expected, int):
                assert len(first) == expected
                assert first != other
            else:
                assert first == expected

    run(test)


@pytest.mark.promise("auth")
def test_a_change_of_configuration_shuts_and_opens_the_door_without_a_restart(torture: int) -> None:
    async def test() -> None:
        mine = bearer(ALICE.token())
        async with adapter(torture) as running:
            assert (await call(running, {})).status == 200
            await running.adapter.reconfigure(trusting(issuer_config()))
            assert ((await call(running, {})).status, (await call(running, mine)).status) == (401, 200)
            assert (await call(running, mine)).status == 200
            await running.adapter.reconfigure(trusting(issuer_config(STRANGER)))  # the key was taken back
            assert (await call(running, mine)).status == 401
            assert counted(running) == {"missing": 1, "verified": 1, "cached": 1, "signature": 1}
            await running.adapter.reconfigure(AdapterConfig(auth=AuthConfig()))  # nobody is trusted
            assert (await call(running, mine)).status == 401
            await running.adapter.reconfigure(AdapterConfig())
            assert (await call(running, {})).status == 200

    run(test)


@pytest.mark.promise("auth")
def test_no_word_of_a_token_leaves_the_adapter_but_to_another_adapter_of_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "PAUSE", 0.001)

    async def test() -> None:
        canary = Issuer(key=ALICE.key, subject="canary-subject")
        secret = canary.token(canary.claims(jti="canary-claim", email="canary@example.test"))
        parts = [*secret.split("."), "canary"]
        told: list[str] = []
        config = trusting(issuer_config(), log_subject="Hash")
        config = config.model_copy(update={"logging": LoggingConfig(bodies="Redacted")})
        here, there = Recorder(), Recorder()
        with model_server(there.app()) as other_model, model_server(here.app()) as model:
            async with (
                adapter(other_model, config) as other,
                adapter(
                    model, config.model_copy(update={"peers": PeersConfig(host="127.0.0.1", port=other.port)})
                ) as running,
            ):
                for name in ("predict", "fail", "status", "no_such"):
                    params = {"name": name, "arguments": {"body": {}}, "_meta": {"progressToken": 1}}
                    told.append(str(await running.modern("tools/call", params, **bearer(secret))))
                    told.append(str(await running.rpc("call_tool", params, **bearer(secret), cookie=secret)))
                running.adapter.begin_drain()
                handed = await running.modern(
                    "tools/call", {"name": "predict", "arguments": {"body": {}}}, **bearer(secret)
                )
                assert not handed.json["result"]["isError"], handed
                told.append(str(handed))
                assert len([line for line in there.seen if line.startswith("POST /predict")]) == 1
                assert counted(other)["verified"] == 1, "the other adapter verified the caller's own token"
                bad = await running.modern("tools/call", {"name": "predict"}, **bearer(secret[:-8] + "AAAAAAAA"))
                told.append(str(bad))
                monkeypatch.setattr(running.adapter.calls, "snapshot", None)
                fault = await running.modern(
                    "tools/call", {"name": "predict", "arguments": {"body": {}}}, **bearer(secret)
                )
                assert fault.status == 500
                told.append(str(fault))
                for each in (running, other):
                    told.append(str(each.lines.all))
                    told.append((await request(each.admin_port, "GET", "/metrics")).body.decode())
                    told.append(str(await each.report()))
                assert len(here.seen) > 3
                whole = "\n".join([*told, *here.seen, *there.seen])
                assert [part for part in parts if part in whole] == []

    run(test)


@pytest.mark.promise("auth")
def test_what_a_call_needs_is_read_from_its_body_and_from_no_header() -> None:
    async def test() -> None:
        with model_server(Recorder().app()) as port:
            async with adapter(port, trusting(issuer_config())) as running:
                token = bearer(ALICE.token(ALICE.claims(scope=f"{CALL}:status")))
                params = {"name": "predict", "arguments": {"body": {}}}
                hidden = {"mcp-name": "status", "mcp-method": "tools/call"}
                for ask in (running.legacy, running.modern):
                    reply = await ask("tools/call", params, **hidden, **token)
                    assert (reply.status, reply.json["error"]["code"]) == (400, -32020), "headers that say otherwise"
                assert (await running.legacy("tools/call", params, **token)).status == 403
                batch = [
                    {"jsonrpc": "2.0", "id": n, "method": "call_tool", "params": {"name": name}}
                    for n, name in enumerate(("status", "fail"))
                ]
                replies = (await request(running.port, "POST", "/rpc", batch, {**ACCEPT, **token})).json
                assert ["result" in reply for reply in replies] == [True, False]
                assert replies[1]["error"]["code"] == 1403

    run(test)


def test_an_outage_of_the_keys_in_another_pod_is_no_answer_to_a_call_that_was_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "PAUSE", 0.001)

    async def test() -> None:
        here, there = Recorder(), Recorder()
        without_keys = trusting(issuer_config(jwks=None, jwks_uri="http://127.0.0.1:1/keys", plain_http=True))
        with model_server(there.app()) as other_model, model_server(here.app()) as model:
            async with adapter(other_model, without_keys) as other:
                facing = trusting(issuer_config()).model_copy(
                    update={"peers": PeersConfig(host="127.0.0.1", port=other.port)}
                )
                async with adapter(model, facing) as running:
                    running.adapter.begin_drain()
                    reply = await running.modern("tools/call", {"name": "status"}, **bearer(ALICE.token()))
                    assert reply.json["result"]["structuredContent"] == {"state": "fine"}
                assert set(counted(other)) == {"keys_unavailable"}

    run(test)


def test_an_audience_of_any_letters_is_told_in_a_header_that_can_hold_it(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture, trusting(issuer_config(audiences=('mödels"→',)))) as running:
            reply = await call(running, bearer(ALICE.token()))
            assert reply.status == 401
            assert reply.headers["www-authenticate"].endswith("ask for the audience m?dels'?.\"")
            assert 'mödels"→' in reply.json["error"]["message"]

    run(test)
