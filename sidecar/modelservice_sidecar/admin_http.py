"""The admin port: `/healthz`, `/readyz`, `/metrics`, `/tools`. For the kubelet, Prometheus and the operator.

Owns these four and what they promise: liveness answers as long as the loop turns, readiness never depends on the model (a
pod without its model is still the right place to ask), metrics never stall a call.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from modelservice_api.adapter_config import AdapterReport
from modelservice_sidecar import exposition
from modelservice_sidecar.inbound import Receive, Scope, Send
from modelservice_sidecar.telemetry import Telemetry

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
        self._exposition = {True: _Kept(), False: _Kept()}

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path not in _PATHS:
            await _answer(send, 404, b"Not found. There are /healthz, /readyz, /metrics and /tools.\n")
        elif scope["method"] not in {"GET", "HEAD"}:
            await _answer(send, 405, b"Method not allowed\n", extra=[(b"allow", b"GET, HEAD")])
        elif path == "/healthz":
            await _answer(send, 200, b"ok\n")
        elif path == "/readyz":
            status, body = self._readiness()
            await _answer(send, status, body)
        elif path == "/tools":
            body = self._report().model_dump_json(by_alias=True).encode()
            await _answer(send, 200, body, b"application/json")
        else:
            accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
            open_metrics = b"application/openmetrics-text" in accepted.lower()
            content_type = (exposition.OPEN_METRICS if open_metrics else exposition.TEXT).encode()
            await _answer(send, 200, await self._metrics(open_metrics), content_type, extra=[(b"vary", b"Accept")])

    def _readiness(self) -> tuple[int, bytes]:
        """A bad config document is told and takes no pod out: the last good one serves on."""
        if self._draining():
            return 503, b"draining\n"
        error = self._report().config_error
        return 200, f"ok\nconfig rejected, the last good one is obeyed: {error}\n".encode() if error else b"ok\n"

    async def _metrics(self, open_metrics: bool) -> bytes:
        kept = self._exposition[open_metrics]
        if self._monotonic() - kept.at < METRICS_KEPT_FOR:
            return kept.rendered
        if kept.rendering is None:
            kept.rendering = asyncio.ensure_future(self._render(open_metrics, kept))
        return await asyncio.shield(kept.rendering)

    async def _render(self, open_metrics: bool, kept: "_Kept") -> bytes:
        try:
            kept.rendered = await asyncio.to_thread(self._telemetry.render, open_metrics=open_metrics)
            kept.at = self._monotonic()
            return kept.rendered
        finally:
            kept.rendering = None


@dataclass(kw_only=True, slots=True)
class _Kept:
    """The metrics in one format as they were rendered last, and the rendering that is under way."""

    rendered: bytes = b""
    at: float = float("-inf")
    rendering: "asyncio.Task[bytes] | None" = None


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
