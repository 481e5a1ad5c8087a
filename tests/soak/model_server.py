"""The model server of the soak: answers a call with the call's own number and notes in a file that it ran.

Owns the journal: one line a call, written before the answer, so that a killed server has noted all that it may have answered.

Usage: ``python model_server.py PORT JOURNAL``; says `ready` when it serves.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, cast

import httptools
import orjson
import uvloop

SLOW_SECONDS = 1.2
"""More than the adapter waits before it answers as a stream whoever asked for progress."""
_SCHEMA = {"type": "object", "properties": {"call": {"type": "integer"}}, "required": ["call"]}
_CONTENT = {"application/json": {"schema": _SCHEMA}}
_RESPONSES = {"200": {"description": "The call's number.", "content": _CONTENT}}


def _operation(name: str) -> dict[str, Any]:
    body = {"required": True, "content": _CONTENT}
    return {"post": {"operationId": name, "description": name, "requestBody": body, "responses": _RESPONSES}}


DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "soak", "version": "1"},
    "paths": {"/score": _operation("score"), "/slow": _operation("slow")},
}


class Connection(asyncio.Protocol):
    """One connection; requests come one after another. A slow call whose caller leaves does not run."""

    def __init__(self, journal: int) -> None:
        self.journal = journal

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpRequestParser(self)
        self.path = self.body = b""
        self.later: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.later is not None:
            self.later.cancel()

    def on_url(self, url: bytes) -> None:
        self.path, self.body = url, b""

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        if self.path == b"/openapi.json":
            self.write(200, DOCUMENT)
        elif self.path in {b"/score", b"/slow"}:
            number = orjson.loads(self.body)["call"]
            if self.path == b"/slow":
                self.later = asyncio.get_running_loop().call_later(SLOW_SECONDS, self.ran, number)
            else:
                self.ran(number)
        else:
            self.write(404, {"detail": "Not Found"})

    def ran(self, number: int) -> None:
        """Note it, then answer."""
        os.write(self.journal, b"%d\n" % number)
        self.write(200, {"call": number})

    def write(self, status: int, value: Any) -> None:
        content = orjson.dumps(value)
        head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(content))
        self.transport.write(head + content)


async def main(port: int, file: str) -> None:
    """Serve until a signal."""
    journal = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(journal), "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2]))
