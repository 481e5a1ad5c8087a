"""A receiver of spans that keeps none: takes OTLP over HTTP, and says to a GET how many batches came.

Owns as little as that takes, so that it costs the core that it shares with the load generator next to nothing.

Usage: ``python span_sink.py``; writes its port as the first line.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools
import uvloop

received = 0


class Connection(asyncio.Protocol):
    """One connection; requests come one after another."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        global received
        posted = self.parser.get_method() == b"POST"
        received += posted
        content = b"" if posted else b"%d" % received
        kind = b"application/x-protobuf" if posted else b"text/plain"
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (kind, len(content))
        self.transport.write(head + content)


async def main() -> None:
    """Serve until a signal."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
