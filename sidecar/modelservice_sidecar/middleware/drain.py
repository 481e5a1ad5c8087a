"""While the adapter drains, every answer asks its client to open its next connection elsewhere.

Owns the `Connection: close` header. Calls are still served: pods receive them until every node knows they are leaving.
"""

from collections.abc import Callable

from modelservice_sidecar import inbound as requests
from modelservice_sidecar.inbound import ASGIApp, Receive, Scope, Send


class Drain:
    """Pure ASGI middleware."""

    def __init__(self, app: ASGIApp, *, draining: Callable[[], bool]) -> None:
        self._app = app
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._draining():
            requests.of(scope).answer_headers.append((b"connection", b"close"))
        await self._app(scope, receive, send)
