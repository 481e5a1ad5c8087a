"""The admin port: `/healthz`, `/readyz`, `/metrics`, `/tools`. For the kubelet, Prometheus and the operator.

Owns these four and what they promise: liveness answers as long as the loop turns, readiness never depends on the model (a
pod without its model is still the right place to ask), metrics never stall a call.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from modelservice_api.adapter_config import AdapterReport
from modelservice_sidecar.inbound import Receive, Scope, Send
from modelservice_sidecar.telemetry import CONTENT_TYPE, Telemetry

METRICS_KEPT_FOR: Final = 1.0
"""Seconds for which rendered metrics are served again: scrapers are several, and rendering costs milliseconds."""


class AdminEndpoint:
    """ASGI application of the admin port."""

    def __init__(
        self,
        *,
        report: Callable[[], AdapterReport],
        draining: Callable[[], bool],
        telemetry: Telemetry,
        monotonic: Callable[[], float],
    ) -> None:
        self._report = report
        self._draining = draining
        self._telemetry = telemetry
        self._monotonic = monotonic
        self._rendering: asyncio.Task[bytes] | None = None
        self._rendered = b""
        self._rendered_at = float("-inf")

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path not in _PATHS:
            await _answer(send, 404, b"Not found. There are /healthz, /readyz, /metrics and /tools.\n")
        elif scope["method"] not in {"GET", "HEAD"}:
            await _answer(send, 405, b"Method not allowed\n", extra=[(b"allow", b"GET, HEAD")])
        elif path == "/healthz":
            await _answer(send, 200, b"ok\n")
        elif path == "/readyz":
            draining = self._draining()
            await _answer(send, 503 if draining else 200, b"draining\n" if draining else b"ok\n")
        elif path == "/tools":
            body = self._report().model_dump_json(by_alias=True).encode()
            await _answer(send, 200, body, b"application/json")
        else:
            await _answer(send, 200, await self._metrics(), CONTENT_TYPE.encode())

    async def _metrics(self) -> bytes:
        if self._monotonic() - self._rendered_at < METRICS_KEPT_FOR:
            return self._rendered
        if self._rendering is None:
            self._rendering = asyncio.ensure_future(self._render())
        return await asyncio.shield(self._rendering)

    async def _render(self) -> bytes:
        try:
            self._rendered = await asyncio.to_thread(self._telemetry.render)
            self._rendered_at = self._monotonic()
            return self._rendered
        finally:
            self._rendering = None


async def _answer(
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = b"text/plain; charset=utf-8",
    extra: list[tuple[bytes, bytes]] | None = None,
) -> None:
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *(extra or ())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics", "/tools"})
