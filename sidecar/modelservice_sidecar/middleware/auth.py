"""Who sends a request: asked before its body is read, answered the same on every path of the port.

Owns the HTTP side of authentication: the header, the refusals with their challenges (RFC 6750) and the document that tells
clients where tokens come from (RFC 9728). Without `auth` in the configuration it is not in the way. What a caller may do is
decided later, from the body: a header that names a tool is no reason to let anybody in.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import parse_qsl, urlsplit

import orjson

from modelservice_api.adapter_config import AdapterConfig, AuthConfig
from modelservice_sidecar import inbound as requests
from modelservice_sidecar.core import authorization, tokens
from modelservice_sidecar.core.authorization import Access, Identity
from modelservice_sidecar.core.errors import TABLE, BackendUnreachableError, UnauthenticatedError
from modelservice_sidecar.core.tokens import TokenError
from modelservice_sidecar.inbound import ASGIApp, Inbound, RawHeaders, Receive, Scope, Send

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
METADATA_MAX_AGE: Final = 300
_RETRY_AFTER: Final = b"5"
_CODE: Final = TABLE[UnauthenticatedError].code
_NOT_RUN: Final = TABLE[BackendUnreachableError].code
"""Another pod that handed a call over reads in it that nothing was run, and asks elsewhere."""
_MALFORMED: Final = frozenset({"repeated", "in_query"})
"""What is wrong with the request rather than with the token (RFC 6750, 3.1: 400)."""


class Verifier(Protocol):
    """What turns a token into an identity."""

    def cached(self, token: str) -> Identity | None: ...

    async def verify(self, token: str) -> Identity: ...


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What one configuration asks of requests."""

    access: Access
    challenge: str
    metadata: bytes
    metadata_paths: frozenset[str]
    log_subject: str
    verifier: Verifier = field(repr=False)

    def user(self, identity: Identity | None) -> str:
        """How the caller stands in a log line."""
        if identity is None or self.log_subject == "Omit":
            return ""
        if self.log_subject == "Plain":
            return identity.subject
        return _hashed(identity.issuer, identity.subject)


def gate(config: AdapterConfig, auth: AuthConfig, verifier: Verifier) -> Gate:
    """The gate of a configuration that asks for tokens."""
    url = urlsplit(auth.resource)
    document = {
        "resource": auth.resource,
        "authorization_servers": [issuer.issuer for issuer in auth.issuers],
        "scopes_supported": authorization.ALL_SCOPES.split(),
        "bearer_methods_supported": ["header"],
        "resource_name": config.server.name,
    }
    paths = {WELL_KNOWN, WELL_KNOWN + config.mcp.path, WELL_KNOWN + url.path.rstrip("/")}
    return Gate(
        access=access_of(auth),
        challenge=f'Bearer resource_metadata="{url.scheme}://{url.netloc}{WELL_KNOWN}{url.path}"'
        if auth.resource
        else 'Bearer realm="modelservice"',
        metadata=orjson.dumps(document),
        # Behind a proxy that changes the path, a client asks by the public one and the proxy by ours.
        metadata_paths=frozenset(paths if auth.resource else ()),
        log_subject=auth.log_subject,
        verifier=verifier,
    )


def access_of(auth: AuthConfig | None) -> Access:
    """What callers need, as the pipeline asks for it."""
    if auth is None:
        return Access()
    return Access(required=True, anonymous_tools=frozenset(auth.anonymous_tools))


class Auth:
    """Pure ASGI middleware; `gate` is asked for every request, since it can change while the adapter runs."""

    def __init__(self, app: ASGIApp, *, gate: Callable[[], Gate | None], on_outcome: Callable[[str], None]) -> None:
        self._app = app
        self._gate = gate
        self._on_outcome = on_outcome

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gate = self._gate()
        if gate is None:
            await self._app(scope, receive, send)
            return
        inbound = requests.of(scope)
        if scope["path"].startswith(WELL_KNOWN) and await _told(gate, scope, inbound, send):
            return
        inbound.challenge = gate.challenge
        try:
            await self._identify(gate, scope, inbound)
        except TokenError as error:
            self._on_outcome(error.reason)
            await _refuse(gate, inbound, send, error)
            return
        inbound.user = gate.user(inbound.identity)
        await self._app(scope, receive, send)

    async def _identify(self, gate: Gate, scope: Scope, inbound: Inbound) -> None:
        if scope["query_string"] and _names_token(scope["query_string"]):
            raise TokenError("in_query", "A token in the URL ends up in logs; send it in the Authorization header.")
        given = [str(value, "latin-1") for name, value in scope["headers"] if name == b"authorization"]
        if not given and gate.access.takes_anonymous:
            self._on_outcome("anonymous")
            return
        token = tokens.read_authorization(given)
        identity = gate.verifier.cached(token)
        if identity is None:
            identity = await gate.verifier.verify(token)
            self._on_outcome("verified")
        else:
            self._on_outcome("cached")
        inbound.identity = identity
        inbound.credentials = given[0]


@lru_cache(maxsize=4096)
def _hashed(issuer: str, subject: str) -> str:
    """The same for the same caller, in every pod, and for nobody to read back but who knows the subject already."""
    return hashlib.sha256(f"{issuer}\n{subject}".encode()).hexdigest()[:16]


def _names_token(query: bytes) -> bool:
    return any(name.lower() == "access_token" for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True))


async def _told(gate: Gate, scope: Scope, inbound: Inbound, send: Send) -> bool:
    """Answer a request for the metadata, which needs no token; whether it was one."""
    path: str = scope["path"]
    if path not in gate.metadata_paths or scope.get("raw_path", path.encode()) != path.encode():
        return False
    if scope["method"] not in {"GET", "HEAD"}:
        await requests.answer_empty(inbound, send, 405, [(b"allow", b"GET, HEAD")])
        return True
    kept: RawHeaders = [(b"cache-control", b"public, max-age=%d" % METADATA_MAX_AGE)]
    await requests.answer(inbound, send, 200, gate.metadata, extra=kept)
    return True


async def _refuse(gate: Gate, inbound: Inbound, send: Send, error: TokenError) -> None:
    extra: RawHeaders = [(b"cache-control", b"no-store")]
    if error.reason == "keys_unavailable":
        extra.append((b"retry-after", _RETRY_AFTER))
        await requests.refuse(inbound, send, 503, str(error), code=_NOT_RUN, extra=extra)
        return
    challenge = f'{gate.challenge}, scope="{authorization.ALL_SCOPES}"'
    status = 400 if error.reason in _MALFORMED else 401
    if error.reason != "missing":
        said = str(error).replace('"', "'")
        kind = "invalid_request" if status == 400 else "invalid_token"
        challenge += f', error="{kind}", error_description="{said}"'
    extra.append((b"www-authenticate", challenge.encode("ascii", "replace")))
    await requests.refuse(inbound, send, status, str(error), code=_CODE, extra=extra)
