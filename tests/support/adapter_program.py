"""The adapter as a process of its own: started, listened to, ended.

Owns the child and its log. What runs inside the test's own loop instead is in `adapter_harness`.
"""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapter_harness import encode


@dataclass(kw_only=True)
class Process:
    """A running adapter process and its log."""

    process: asyncio.subprocess.Process
    port: int = 0
    admin_port: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)

    async def line(self, event: str, **fields: Any) -> dict[str, Any]:
        """The next log line of that event."""
        assert self.process.stdout is not None
        while raw := await self.process.stdout.readline():
            line = json.loads(raw)
            self.lines.append(line)
            if line["event"] == event and all(line.get(key) == value for key, value in fields.items()):
                return dict(line)
        raise EOFError(f"the process ended without {event!r}: {self.lines}")

    async def rest(self) -> list[dict[str, Any]]:
        """The log from here to the process's end."""
        assert self.process.stdout is not None
        return [json.loads(raw) async for raw in self.process.stdout]

    @property
    def resident(self) -> int:
        """Bytes of memory that the process holds."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ProcessLookupError(self.process.pid)

    @property
    def descriptors(self) -> int:
        """How many files and sockets the process has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def open(self, body: Any, headers: dict[str, str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(encode("POST", "/mcp", body, headers))
        return reader, writer


@contextlib.asynccontextmanager
async def process(*arguments: str, backend: int = 1, ready: bool = True) -> AsyncIterator[Process]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "modelservice_sidecar", "--mcp-port", "0", "--admin-port", "0",
        "--bind", "127.0.0.1", "--admin-bind", "127.0.0.1", "--backend-port", str(backend), *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    running = Process(process=child)
    try:
        if ready:
            line = await running.line("ready")
            running.port, running.admin_port = line["mcp_port"], line["admin_port"]
        yield running
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()
