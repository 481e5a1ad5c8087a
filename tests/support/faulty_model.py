"""A model server on a real socket that answers, hangs, crashes or fails as a test says, call by call."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

Fault = Literal["none", "hang", "crash", "500", "503"]

PATHS: dict[str, Any] = {
    "/look": {"get": {"operationId": "look", "responses": {"200": {"description": "read only"}}}},
    "/act": {"post": {"operationId": "act", "responses": {"200": {"description": "not idempotent"}}}},
}


class FaultyModel:
    """`fault` holds for every call until it is changed; `faults` are for the next calls, one each, and come first.

    `calls` counts what arrived, by path; `headers` are those of the last call.
    """

    def __init__(self, paths: dict[str, Any] = PATHS) -> None:
        self._document = {"openapi": "3.1.0", "info": {"title": "faulty", "version": "1"}, "paths": paths}
        self.fault: Fault = "none"
        self.faults: list[Fault] = []
        self.calls: dict[str, int] = dict.fromkeys(paths, 0)
        self.headers: dict[str, str] = {}
        self.retry_after = "0"
        self.hanging = 0
        self.arrived = asyncio.Event()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As a process that died: nothing accepts connections, and those that were open are gone."""
        assert self._server is not None
        self._server.close()
        for handler in list(self._handlers):
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while await self._answer(reader, writer):
                    pass
        finally:
            self._handlers.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        await reader.readexactly(int(headers.get("content-length", "0")))
        path = head.split()[1].partition("?")[0]
        if path == "/openapi.json":
            return await self._write(writer, 200, self._document)
        if path not in self.calls:
            return await self._write(writer, 404, {"detail": "not found"})
        self.calls[path] += 1
        self.headers = headers
        self.arrived.set()
        fault = self.faults.pop(0) if self.faults else self.fault
        if fault == "hang":
            self.hanging += 1
            try:
                await reader.read()  # until the caller closes
            finally:
                self.hanging -= 1
            return False
        if fault == "crash":
            return False
        if fault == "503":
            return await self._write(writer, 503, {}, f"retry-after: {self.retry_after}\r\n")
        return await self._write(writer, 500 if fault == "500" else 200, {"call": sum(self.calls.values())})

    async def _write(self, writer: asyncio.StreamWriter, status: int, value: Any, more: str = "") -> bool:
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{more}\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        return True


@contextlib.asynccontextmanager
async def faulty_model(paths: dict[str, Any] = PATHS) -> AsyncIterator[FaultyModel]:
    """One that listens."""
    model = FaultyModel(paths)
    await model.start()
    try:
        yield model
    finally:
        await model.stop()


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what tells nobody that it happened; the test's own time limit bounds it."""
    while not holds():  # noqa: ASYNC110 - there is no event to await
        await asyncio.sleep(0.001)
