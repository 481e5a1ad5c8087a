"""Keeps the tools equal to what the model server says it can do: finds it, reads it, notices changes, loses nothing.

Owns the loop and the report of what was found. The last good tools stay published while the model server is away or answers
nonsense: their calls fail with a sentence, and come back by themselves.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from modelservice_api.adapter_config import AdapterConfig, BackendReport, BackendState, BackendType
from modelservice_sidecar.backends import probe
from modelservice_sidecar.backends.base import Backend, Description
from modelservice_sidecar.core.errors import DescribeError
from modelservice_sidecar.log import LineWriter
from modelservice_sidecar.upstream import Pool


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """Seconds between attempts: `first` doubles up to `slowest` until the model server is found; then `steady`."""

    first: float = 0.1
    slowest: float = 5.0
    steady: float = 10.0

    def after(self, delay: float, state: BackendState) -> float:
        """The next wait after one that found nothing. What is there and wrong changes seldom, and a look may cost a process."""
        return min(delay * 2, self.slowest * (12 if state == "Invalid" else 1))


_UNDER_WAY: Final = frozenset({"Discovering", "WarmingUp", "Unreachable"})
_SETTLED: Final = frozenset({"Ready", "NoTools"})

FIRST_REPORT: Final = BackendReport(type="Auto", state="Discovering", message="The model server is being looked for.")


class Discovery:
    """One model server's discovery. `on_found` publishes a description; it is awaited, so reports never run ahead."""

    def __init__(
        self,
        pool: Pool,
        config: AdapterConfig,
        *,
        on_found: Callable[[Backend, Description], Awaitable[BackendReport]],
        on_left: Callable[[Backend], None],
        writer: LineWriter,
        pace: Pace,
    ) -> None:
        self._pool = pool
        self._config = config
        self._on_found = on_found
        self._on_left = on_left
        self._writer = writer
        self._pace = pace
        self._backend: Backend | None = None
        self._seen: Description | None = None
        self._now = asyncio.Event()
        self._found = asyncio.Event()
        self._looked = asyncio.Event()
        self.report: BackendReport = FIRST_REPORT

    async def run(self) -> None:
        """Look for ever; ends by cancellation."""
        delay = self._pace.first
        while True:
            found = await self.attempt()
            self._looked.set()
            wait = self._pace.steady if found else delay
            delay = self._pace.first if found else self._pace.after(delay, self.report.state)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._now.wait()
            if self._now.is_set():
                self._now.clear()
                delay = self._pace.first

    def look_now(self) -> None:
        """Do not wait for the next turn: something was seen that says the model server changed."""
        self._now.set()

    async def until_found(self, seconds: float) -> None:
        """Wait for the first tools, unless it is known that there are none to come."""
        await self._until(self._found, seconds)

    async def until_looked(self, seconds: float) -> None:
        """While there are no tools yet, look once more and wait for that look alone."""
        self._looked.clear()
        await self._until(self._looked, seconds)

    async def _until(self, event: asyncio.Event, seconds: float) -> None:
        if self._found.is_set() or self.report.state not in _UNDER_WAY:
            return
        self.look_now()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    async def reconfigure(self, config: AdapterConfig) -> None:
        """Look again under another configuration."""
        self._config = config
        backend, self._backend, self._seen = self._backend, None, None
        if backend is not None:
            self._on_left(backend)
        self.look_now()

    async def aclose(self) -> None:
        """Close what was found; nothing may look any more."""
        backend, self._backend = self._backend, None
        if backend is not None:
            await backend.aclose()

    def looks_at(self, backend: Backend) -> bool:
        """Whether this backend is the one that is described again and again."""
        return backend is self._backend

    async def republish(self) -> None:
        """Publish what is known once more: the configuration of the tools changed."""
        if self._backend is not None and self._seen is not None:
            self.tell(await self._on_found(self._backend, self._seen))

    async def attempt(self) -> bool:
        """Describe once and publish what is new; whether the model server was understood and nothing more is to come soon."""
        config, is_new = self._config, self._backend is None
        try:
            if self._backend is None:
                backend, description = await probe.find(self._pool, config)
            else:
                backend, description = self._backend, await self._backend.describe()
        except DescribeError as error:
            self.tell(BackendReport(type=self._kind(), state=error.state, message=str(error)))
            return False
        if config is not self._config:
            if is_new:
                await backend.aclose()
            return False  # reconfigured meanwhile; the next turn looks with the new one
        changed = self._seen is None or description.fingerprint != self._seen.fingerprint
        self._backend = backend
        if changed or self.report.state not in _SETTLED:
            self._seen = description
            self.tell(await self._on_found(backend, description))
            if self.report.state in _SETTLED:
                self._found.set()
                await backend.warm_up()
        return self.report.state in _SETTLED and not description.unsettled

    def _kind(self) -> BackendType:
        return self._backend.kind if self._backend is not None else self._config.backend.type

    def tell(self, report: BackendReport) -> None:
        """This is how it stands now; what is new goes to the log."""
        if report != self.report:
            self._writer.event("backend", type=report.type, state=report.state, message=report.message)
        self.report = report
