"""Who may speak to the endpoint from a browser, and under which name it may be addressed.

Owns the `Origin` check (MCP demands it in every revision: without it any web page could use a reader's localhost or
cluster), the optional `Host` allowlist, and the CORS answers for origins that are allowed.
"""

import re
from collections.abc import Callable
from typing import Final

from modelservice_api.adapter_config import McpConfig
from modelservice_sidecar import inbound as requests
from modelservice_sidecar.inbound import ASGIApp, RawHeaders, Receive, Scope, Send

_LOCAL_ORIGIN: Final = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_LOCAL_HOST: Final = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)

ALLOWED_HEADERS: Final = (
    b"accept, authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id, "
    b"traceparent, tracestate, x-request-id"
)


class Origin:
    """Pure ASGI middleware; `config` is asked for every request, since it can change while the adapter runs."""

    def __init__(self, app: ASGIApp, *, config: Callable[[], McpConfig], on_reject: Callable[[str], None]) -> None:
        self._app = app
        self._config = config
        self._on_reject = on_reject

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inbound = requests.of(scope)
        config = self._config()
        if config.allowed_hosts and not _host_allowed(inbound.headers.get("host") or "", config.allowed_hosts):
            self._on_reject("host")
            await requests.refuse(inbound, send, 421, "This Host is not served here; see spec.mcp.allowedHosts")
            return
        origin = inbound.headers.get("origin")
        if origin is not None:
            if not _origin_allowed(origin, config.allowed_origins):
                self._on_reject("origin")
                await requests.refuse(inbound, send, 403, "This Origin is not allowed; see spec.mcp.allowedOrigins")
                return
            inbound.answer_headers += _cors(origin)
        if scope["method"] == "OPTIONS":
            await requests.answer_empty(inbound, send, 204, _PREFLIGHT if origin is not None else _ALLOW)
            return
        await self._app(scope, receive, send)


def _origin_allowed(origin: str, allowed: tuple[str, ...]) -> bool:
    return (
        bool(_LOCAL_ORIGIN.fullmatch(origin)) or "*" in allowed or origin.lower() in {item.lower() for item in allowed}
    )


def _host_allowed(host: str, allowed: tuple[str, ...]) -> bool:
    """Whether the Host, with or without its port, is listed. Localhost always is: `kubectl port-forward` uses it, and a
    page that rebinds DNS cannot send it."""
    name = host.lower()
    bare = name.rsplit(":", 1)[0] if not name.endswith("]") else name
    return bool(_LOCAL_HOST.fullmatch(name)) or any(item.lower() in {name, bare} for item in allowed)


def _cors(origin: str) -> RawHeaders:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"x-request-id, www-authenticate"),
        (b"vary", b"origin"),
    ]


_ALLOW: Final[RawHeaders] = [(b"allow", b"POST, OPTIONS")]
_PREFLIGHT: Final[RawHeaders] = [
    *_ALLOW,
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", ALLOWED_HEADERS),
    (b"access-control-max-age", b"600"),
]
