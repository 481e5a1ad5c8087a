"""While the adapter drains, every answer asks its client to open its next connection elsewhere.

Owns the `Connection: close` header, and tells that a request came. Calls are still served: pods receive them until every
node knows they are leaving, and when none comes any more, every node does.
"""

from collections.abc import Callable

from modelservice_sidecar import inbound as requests
from modelservice_sidecar.inbound import ASGIApp, Receive, Scope, Send


class Drain:
    """Pure ASGI middleware."""

    def __init__(self, app: ASGIApp, *, draining: Callable[[], bool], on_request: Callable[[], None]) -> None:
        self._app = app
        self._draining = draining
        self._on_request = on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._draining():
            self._on_request()
            requests.of(scope).answer_headers.append((b"connection", b"close"))
        await self._app(scope, receive, send)
