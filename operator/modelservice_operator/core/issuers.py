"""Whose tokens may be trusted: what the platform admin set up, and what of it one ModelService's adapters are told.

Owns the shape of the chart's `auth` value and its translation into the adapters' config document. Authors of ModelServices
choose among these issuers by name and can add none.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from modelservice_api import adapter_config, v1alpha1

_SERVICE_ACCOUNT = "system:serviceaccount:"
_EVERY_NAMESPACE = "*"
_SCOPES_OF_SERVICE_ACCOUNTS = ("mcp:tools:list", "mcp:tools:call")


class _Value(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class Issuer(_Value):
    """One entry of `auth.issuers`.

    `Kubernetes` is the ServiceAccounts of a cluster: of this one where no keys are given. Their tokens have no scopes, and any
    account may ask for any audience; so scopes are given here, and only accounts of `namespaces` get in: the ModelService's own
    where none is listed, `*` for all.
    """

    type: Literal["OIDC", "Kubernetes"] = "OIDC"
    issuer: str = ""
    jwks_uri: str = ""
    jwks: dict[str, Any] | None = None
    ca: str = ""
    plain_http: bool = False
    audiences: tuple[Annotated[str, Field(min_length=1, max_length=512)], ...] = ()
    algorithms: tuple[adapter_config.Algorithm, ...] = ()
    scopes: tuple[Annotated[str, Field(pattern=r"^mcp:tools:(list|call|call:[A-Za-z0-9_-]{1,64})$")], ...] | None = None
    namespaces: tuple[str, ...] = ()
    leeway_seconds: Annotated[int, Field(ge=0, le=60)] = 30

    @property
    def is_this_cluster(self) -> bool:
        """Whether its name and keys are asked of the API server."""
        return self.type == "Kubernetes" and self.jwks is None and not self.jwks_uri

    @model_validator(mode="after")
    def _can_be_used(self) -> "Issuer":
        if self.type == "OIDC" and self.namespaces:
            raise ValueError("namespaces are for type Kubernetes")
        if self.is_this_cluster:
            return self
        if not self.issuer:
            raise ValueError("issuer is missing: the URL that stands in its tokens as iss")
        _check_keys(self.jwks)
        try:
            _resolve("it", self, None, namespace="x", audiences=("x",))
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
        return self


class AuthSettings(_Value):
    """The chart's `auth` value."""

    issuers: dict[str, Issuer] = {}
    log_subject: Literal["Omit", "Hash", "Plain"] = "Hash"

    @model_validator(mode="after")
    def _issuers_differ(self) -> "AuthSettings":
        urls = [issuer.issuer or "this cluster" for issuer in self.issuers.values()]
        if repeated := next((url for url in urls if urls.count(url) > 1), None):
            raise ValueError(f"two issuers are {repeated}; a token could not tell them apart")
        return self


NO_ISSUERS: Final = AuthSettings()


@dataclass(frozen=True, kw_only=True)
class ClusterKeys:
    """What the API server says about the tokens it signs for ServiceAccounts."""

    issuer: str
    jwks: dict[str, Any]


def of_this_cluster(settings: AuthSettings, auth: v1alpha1.Auth | None) -> list[str]:
    """The named issuers that need the API server's own keys."""
    named = auth.issuers if auth else ()
    return [name for name in named if name in settings.issuers and settings.issuers[name].is_this_cluster]


def build_auth(
    auth: v1alpha1.Auth | None,
    settings: AuthSettings,
    cluster_keys: ClusterKeys | None,
    *,
    namespace: str,
    service_url: str,
) -> adapter_config.AuthConfig | None:
    """What the adapters are told; None where anybody may call. `checks` has seen that every name is known."""
    if auth is None:
        return None
    public = auth.public_url or service_url
    audiences = tuple(dict.fromkeys((public, service_url)))
    resolved: dict[str, adapter_config.IssuerConfig] = {}
    for name in auth.issuers:
        found = _resolve(name, settings.issuers[name], cluster_keys, namespace=namespace, audiences=audiences)
        resolved.setdefault(found.issuer, found)
    return adapter_config.AuthConfig(
        issuers=tuple(resolved.values()),
        resource=public,
        anonymous_tools=auth.anonymous_tools,
        log_subject=settings.log_subject,
    )


def _resolve(
    name: str, issuer: Issuer, cluster_keys: ClusterKeys | None, *, namespace: str, audiences: tuple[str, ...]
) -> adapter_config.IssuerConfig:
    accounts = issuer.type == "Kubernetes"
    url, jwks = issuer.issuer, issuer.jwks
    if issuer.is_this_cluster:
        assert cluster_keys is not None
        url, jwks = issuer.issuer or cluster_keys.issuer, cluster_keys.jwks
    # Clusters sign with RSA by default, and it is their own keys that are asked for.
    algorithms = issuer.algorithms or (("ES256", "RS256") if accounts else ("ES256",))
    scopes = issuer.scopes if issuer.scopes is not None else _SCOPES_OF_SERVICE_ACCOUNTS if accounts else ()
    return adapter_config.IssuerConfig(
        name=name,
        issuer=url,
        audiences=issuer.audiences or audiences,
        algorithms=algorithms,
        jwks=jwks,
        jwks_uri=issuer.jwks_uri,
        plain_http=issuer.plain_http,
        ca=issuer.ca,
        scopes=scopes,
        subject_prefixes=_subjects(issuer, namespace) if accounts else (),
        leeway=issuer.leeway_seconds,
    )


def _check_keys(jwks: dict[str, Any] | None) -> None:
    """Before they are written into ConfigMaps that many may read."""
    if jwks is None:
        return
    keys = jwks.get("keys")
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise ValueError("jwks is not a JWK set: an object with a list of keys")
    if any("d" in key or "k" in key for key in keys):
        raise ValueError("jwks has a private key; take it back at the issuer and give the public part alone")


def _subjects(issuer: Issuer, namespace: str) -> tuple[str, ...]:
    if _EVERY_NAMESPACE in issuer.namespaces:
        return (_SERVICE_ACCOUNT,)
    return tuple(f"{_SERVICE_ACCOUNT}{each}:" for each in issuer.namespaces or (namespace,))
