"""Whether a call is recorded as OpenTelemetry spans, and where they go. Off until an endpoint is configured.

Owns the switch and the decision. The spans themselves are made by `span_export`, which needs OpenTelemetry's SDK (extra
`otel`) and is imported with the first endpoint and not before: who sends no spans pays one comparison for each call.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Final

from modelservice_api.adapter_config import ServerConfig, TracingConfig
from modelservice_sidecar.core import trace
from modelservice_sidecar.core.trace import Ids
from modelservice_sidecar.metrics import Counter

if TYPE_CHECKING:
    from modelservice_sidecar.span_export import SpanExport
    from modelservice_sidecar.telemetry import CallRecord

LAST_BATCH: Final = 2.5
"""Seconds that the end of the process, or of a configuration, waits for a collector to take what is left."""


class TracingUnavailableError(Exception):
    """The SDK is not installed; the text is a sentence."""


class Tracing:
    """The spans of one adapter. `counted` counts them by what became of them."""

    def __init__(self, counted: Counter) -> None:
        self._counted = counted
        self._export: SpanExport | None = None
        self._bound = 0

    async def configure(self, config: TracingConfig, server: ServerConfig) -> None:
        """Send spans by this configuration from now on; those that wait still go where they were meant to go.

        Raises:
            TracingUnavailableError: there is an endpoint and no SDK.
        """
        made = await asyncio.to_thread(_open, config, server, self._counted) if config.endpoint else None
        await self._replace(made, config.sample_ratio)

    async def aclose(self) -> None:
        """Send what waits, for a bounded time."""
        await self._replace(None, 0.0)

    async def _replace(self, export: SpanExport | None, sample_ratio: float) -> None:
        before, self._export = self._export, export
        self._bound = trace.bound_of(sample_ratio)
        if before is not None:
            ended = asyncio.Event()
            loop = asyncio.get_running_loop()

            def end() -> None:
                before.close()
                loop.call_soon_threadsafe(ended.set)

            # Not the loop's own threads: the process would wait for them to the end.
            threading.Thread(target=end, name="last-spans", daemon=True).start()
            try:
                async with asyncio.timeout(LAST_BATCH):
                    await ended.wait()
            except TimeoutError:
                self._counted.add("late")

    def decide(self, ids: Ids) -> Ids:
        """The ids with the decision whether their trace is recorded.

        Where spans go nowhere the caller's own span stays the parent of the model server's: ours would be missed in between.
        """
        if self._export is not None:
            decided = trace.decide(ids, self._bound)
            # A span id of its own: calls of one batch came with one.
            return decided._replace(span_id=os.urandom(8).hex()) if decided.recorded else decided
        return ids._replace(span_id=ids.parent_id) if ids.parent_id else ids

    def records(self, ids: Ids) -> bool:
        """Whether spans are made of a call with these ids."""
        return self._export is not None and ids.recorded

    def call(self, record: CallRecord, now: float) -> None:
        """Make the spans of a call that ended now."""
        if self._export is not None:
            self._export.call(record, now)


def _open(config: TracingConfig, server: ServerConfig, counted: Counter) -> SpanExport:
    try:
        from modelservice_sidecar.span_export import SpanExport
    except ImportError as error:
        raise TracingUnavailableError(
            "Spans cannot be sent: OpenTelemetry's SDK is not installed; install modelservice[otel]."
        ) from error
    return SpanExport(config.endpoint, server, counted)
