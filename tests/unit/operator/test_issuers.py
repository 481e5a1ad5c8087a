"""The issuers that a platform admin sets up, and what one ModelService's adapters are told about them."""

from typing import Any

import pytest
from pydantic import ValidationError

from modelservice_api import v1alpha1
from modelservice_operator.core import adapter
from modelservice_operator.core.issuers import AuthSettings, ClusterKeys

SERVICE = "http://fraud-mcp.ml.svc:8931/mcp"
PORTS = adapter.Ports(mcp=8931, mcp_name="mcp", admin=8932, admin_name="mcp-admin")
PUBLIC_KEY = {"kty": "EC", "crv": "P-256", "kid": "1", "x": "AA", "y": "AA"}
CLUSTER = ClusterKeys(issuer="https://kubernetes.default.svc", jwks={"keys": [PUBLIC_KEY]})
CORP = {"issuer": "https://idp.test", "jwksUri": "https://idp.test/keys"}


def settings(**issuers: Any) -> AuthSettings:
    return AuthSettings.model_validate({"issuers": issuers})


def told(auth: dict[str, Any], known: AuthSettings) -> dict[str, Any]:
    """The `auth` part of the config document."""
    spec = v1alpha1.ModelServiceSpec.model_validate({"workloadRef": {"name": "fraud"}, "auth": auth})
    built = adapter.build_config(
        namespace="ml", name="fraud", spec=spec, ports=PORTS, auth=known, cluster_keys=CLUSTER
    ).auth
    assert built is not None
    return built.model_dump(by_alias=True, exclude_defaults=True, mode="json")


def test_a_token_is_meant_for_the_service_unless_the_admin_says_otherwise() -> None:
    assert told({"issuers": ["corp"]}, settings(corp=CORP)) == {
        "issuers": [{"name": "corp", "audiences": [SERVICE], **CORP}],
        "resource": SERVICE,
    }
    found = told({"issuers": ["corp"]}, settings(corp={**CORP, "audiences": ["models"]}))
    assert found["issuers"][0]["audiences"] == ["models"]


def test_a_public_url_is_what_clients_are_told_and_tokens_may_be_meant_for_either() -> None:
    found = told(
        {"issuers": ["corp"], "publicUrl": "https://models.example/fraud", "anonymousTools": ["status"]},
        settings(corp=CORP),
    )
    assert found["resource"] == "https://models.example/fraud"
    assert found["issuers"][0]["audiences"] == ["https://models.example/fraud", SERVICE]
    assert found["anonymousTools"] == ["status"]


@pytest.mark.promise("auth")
@pytest.mark.parametrize(
    ("namespaces", "prefixes"),
    [
        ([], ["system:serviceaccount:ml:"]),
        (["agents", "ml"], ["system:serviceaccount:agents:", "system:serviceaccount:ml:"]),
        (["*"], ["system:serviceaccount:"]),
    ],
)
def test_service_accounts_of_the_own_namespace_get_in_unless_others_are_listed(
    namespaces: list[str], prefixes: list[str]
) -> None:
    found = told({"issuers": ["cluster"]}, settings(cluster={"type": "Kubernetes", "namespaces": namespaces}))
    assert found["issuers"] == [
        {
            "name": "cluster",
            "issuer": CLUSTER.issuer,
            "jwks": CLUSTER.jwks,
            "audiences": [SERVICE],
            "algorithms": ["ES256", "RS256"],
            "scopes": ["mcp:tools:list", "mcp:tools:call"],
            "subjectPrefixes": prefixes,
        }
    ]


@pytest.mark.parametrize(
    ("issuer", "named"),
    [
        ({}, "issuer is missing"),
        ({"issuer": "https://idp.test"}, "needs either jwks or jwksUri"),
        ({**CORP, "jwks": {"keys": []}}, "needs either jwks or jwksUri"),
        ({"issuer": "https://idp.test", "jwksUri": "http://idp.test/keys"}, "is not https; plainHttp"),
        ({"issuer": "https://idp.test", "jwksUri": "file:///etc/passwd"}, "not a plain https:// URL"),
        ({"issuer": "https://idp.test", "jwksUri": "https://user:secret@idp.test/"}, "not a plain https:// URL"),
        ({"issuer": "https://idp.test", "jwksUri": "https://idp.test/keys#a"}, "not a plain https:// URL"),
        ({"issuer": "https://idp.test", "jwksUri": "https://idp.test/a b"}, "not a plain https:// URL"),
        ({"issuer": "https://idp.test", "jwksUri": "https://idp.test\r\nx: y"}, "not a plain https:// URL"),
        ({"issuer": "https://idp.test", "jwksUri": "https://ïdp.test/"}, "not a plain https:// URL"),
        ({"issuer": "https://idp.test", "jwksUri": "https:///keys"}, "not a plain https:// URL"),
        ({"issuer": "https://idp.test", "jwks": {"keys": [{**PUBLIC_KEY, "d": "AA"}]}}, "private key"),
        ({"issuer": "https://idp.test", "jwks": {"keys": [{"kty": "oct", "k": "AA"}]}}, "private key"),
        ({"issuer": "https://idp.test", "jwks": {}}, "not a JWK set"),
        ({**CORP, "algorithms": ["HS256"]}, "'ES256' or 'RS256'"),
        ({**CORP, "leegwaySeconds": 1}, "Extra inputs"),
        ({**CORP, "leewaySeconds": 61}, "less than or equal to 60"),
        ({**CORP, "scopes": ["admin"]}, "should match pattern"),
        ({**CORP, "namespaces": ["ml"]}, "namespaces are for type Kubernetes"),
    ],
)
def test_an_issuer_that_cannot_be_used_is_refused_when_the_operator_starts(issuer: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        settings(corp=issuer)


def test_two_issuers_of_one_url_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"two issuers are https://idp\.test"):
        settings(corp=CORP, other=CORP)


def test_keys_over_plain_http_and_the_trust_in_nobody_are_the_admins_own_words() -> None:
    found = told(
        {"issuers": ["dex", "gone", "dex"]},
        settings(
            dex={"issuer": "http://dex.auth.svc", "jwksUri": "http://dex.auth.svc:5556/keys", "plainHttp": True},
            gone={"issuer": "https://old.test", "jwks": {"keys": []}},
        ),
    )
    assert [issuer["name"] for issuer in found["issuers"]] == ["dex", "gone"]
    assert found["issuers"][1]["jwks"] == {"keys": []}
