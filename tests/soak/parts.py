"""The two processes of the soak: the adapter, watched, and the model server that is killed and started again.

Owns their start, their end, and what is seen of the adapter from outside: its memory, its descriptors, its tasks and its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import psutil

HERE = Path(__file__).resolve().parent
PATIENCE = 30.0


@dataclass(frozen=True, kw_only=True)
class Look:
    """The adapter at one moment; memory in millions of bytes."""

    resident: float
    descriptors: int
    tasks: int


@dataclass(kw_only=True)
class AdapterProcess:
    """A running adapter. `complaints` are tracebacks and everything that it should not have said."""

    process: asyncio.subprocess.Process
    port: int = 0
    events: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    digest: str = ""
    """Of the configuration that was taken up last."""
    ready: bool = False
    """Whether it has found the model server."""
    _tasks: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    async def look(self) -> Look:
        """Now."""
        self.process.send_signal(signal.SIGUSR1)
        tasks = await asyncio.wait_for(self._tasks.get(), PATIENCE)
        seen = psutil.Process(self.process.pid)
        return Look(resident=seen.memory_info().rss / 1e6, descriptors=seen.num_fds(), tasks=tasks)

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Until the log makes it so."""
        async with asyncio.timeout(PATIENCE):
            while not wanted():
                self.news.clear()
                await self.news.wait()

    async def read_log(self) -> None:
        """Every line, to the end."""
        assert self.process.stdout is not None
        async for raw in self.process.stdout:
            line = orjson.loads(raw)
            event = line["event"]
            self.events[event] += 1
            if event == "call":
                self.outcomes[line["outcome"]] += 1
            if event in {"fault", "log"} or b'File \\"' in raw:
                self.complaints.append(raw.decode()[:2000])
            if event == "call":
                continue
            if event == "ready":
                self.port = line["mcp_port"]
            elif event == "config_loaded":
                self.digest = line["digest"]
            elif event == "backend":
                self.ready = line["state"] == "Ready"
            self.news.set()

    async def read_errors(self) -> None:
        """What comes where nothing should."""
        assert self.process.stderr is not None
        async for raw in self.process.stderr:
            if raw.startswith(b"tasks "):
                self._tasks.put_nowait(int(raw.split()[1]))
            else:
                self.complaints.append(raw.decode("utf-8", "replace").rstrip())


@contextlib.asynccontextmanager
async def adapter(config: Path, backend_port: int) -> AsyncIterator[AdapterProcess]:
    """The adapter, ready; asked to end when the block does."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "adapter_program.py"), "--config", str(config), "--drain-seconds", "0",
        "--bind", "127.0.0.1", "--admin-bind", "127.0.0.1", "--mcp-port", "0", "--admin-port", "0",
        "--backend-port", str(backend_port),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=1 << 20,
    )  # fmt: skip
    running = AdapterProcess(process=child)
    readers = [asyncio.create_task(running.read_log()), asyncio.create_task(running.read_errors())]
    try:
        await running.until(lambda: running.port > 0 and running.ready)
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            code = await asyncio.wait_for(child.wait(), PATIENCE)
        except TimeoutError:
            child.kill()
            code = await child.wait()
        await asyncio.gather(*readers)
        if code != 0:
            running.complaints.append(f"it ended with code {code}")


class ModelServer:
    """The model server on one port, as often as it is started."""

    def __init__(self, port: int, journal: Path) -> None:
        self._port = port
        self._journal = journal
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Until it serves."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(HERE / "model_server.py"),
            str(self._port),
            str(self._journal),
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        said = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        if said != b"ready\n":
            raise RuntimeError("the model server did not start")

    async def kill(self) -> None:
        """At once, whatever it is doing."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def runs(self) -> Counter[int]:
        """How often each call ran."""
        return Counter(map(int, self._journal.read_bytes().split()))


def swap(file: Path, content: str) -> None:
    """Replace a file at once, as the kubelet does."""
    staged = file.with_suffix(".new")
    staged.write_text(content, encoding="utf-8")
    os.replace(staged, file)
