"""The admin port: `/healthz`, `/readyz`, `/metrics`, `/tools`. For the kubelet, Prometheus and the operator.

Owns these four and what they promise: liveness answers as long as the loop turns, readiness never depends on the model (a
pod without its model is still the right place to ask), metrics never stall a call.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from modelservice_api.adapter_config import AdapterReport
from modelservice_sidecar.inbound import Receive, Scope, Send
from modelservice_sidecar.telemetry import Telemetry

_TEXT: Final = ""
_OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0"
"""The two formats, by the Accept header that asks for them: the second has exemplars."""
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
        self._exposition = {accept: _Kept() for accept in (_OPEN_METRICS, _TEXT)}

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
            accept = _OPEN_METRICS if b"application/openmetrics-text" in accepted.lower() else _TEXT
            body, content_type = await self._metrics(accept)
            await _answer(send, 200, body, content_type.encode(), extra=[(b"vary", b"Accept")])

    def _readiness(self) -> tuple[int, bytes]:
        """A bad config document is told and takes no pod out: the last good one serves on."""
        if self._draining():
            return 503, b"draining\n"
        error = self._report().config_error
        return 200, f"ok\nconfig rejected, the last good one is obeyed: {error}\n".encode() if error else b"ok\n"

    async def _metrics(self, accept: str) -> tuple[bytes, str]:
        kept = self._exposition[accept]
        if self._monotonic() - kept.at < METRICS_KEPT_FOR:
            return kept.rendered
        if kept.rendering is None:
            kept.rendering = asyncio.ensure_future(self._render(accept, kept))
        return await asyncio.shield(kept.rendering)

    async def _render(self, accept: str, kept: "_Kept") -> tuple[bytes, str]:
        try:
            kept.rendered = await asyncio.to_thread(self._telemetry.render, accept)
            kept.at = self._monotonic()
            return kept.rendered
        finally:
            kept.rendering = None


@dataclass(kw_only=True, slots=True)
class _Kept:
    """The metrics in one format as they were rendered last, and the rendering that is under way."""

    rendered: tuple[bytes, str] = (b"", "")
    at: float = float("-inf")
    rendering: "asyncio.Task[tuple[bytes, str]] | None" = None


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
