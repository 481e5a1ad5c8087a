"""The model server of the benchmarks: as little as a server can do, so that what stands in front of it is what is measured.

Owns the answer to `POST /predict` and the OpenAPI document from which the adapter makes the tool `predict`. It does read its
input: an argument that got lost on the way changes the score.

Usage: ``python model_server.py [MORE]``; writes its port as the first line. MORE is how many further operations there are,
`/predict1` and so on, which do the same.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

import httptools
import orjson
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from servicebench.wire import answer

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "bench", "version": "1"},
    "paths": {
        "/predict": {
            "post": {
                "operationId": "predict",
                "description": "Score one transaction.",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "properties": {
                                    "features": {
                                        "type": "array",
                                        "items": {"type": "number"},
                                        "minItems": 16,
                                        "maxItems": 16,
                                    }
                                },
                                "required": ["features"],
                            }
                        }
                    },
                },
                "responses": {
                    "200": {
                        "description": "The score.",
                        "content": {
                            "application/json": {
                                "schema": {
                                    "type": "object",
                                    "properties": {
                                        "score": {"type": "number"},
                                        "label": {"type": "string"},
                                        "model": {"type": "string"},
                                        "version": {"type": "string"},
                                        "probabilities": {"type": "array", "items": {"type": "number"}},
                                        "explanation": {"type": "string"},
                                    },
                                    "required": ["score", "label"],
                                }
                            }
                        },
                    }
                },
            }
        }
    },
}


class Connection(asyncio.Protocol):
    """One connection; requests come one after another."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpRequestParser(self)
        self.path = b""
        self.body = b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.path, self.body = url, b""

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        if self.path.startswith(b"/predict"):
            content = orjson.dumps(answer(round(sum(orjson.loads(self.body)["features"]), 6)))
        else:
            content = orjson.dumps(DOCUMENT)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(content)
        self.transport.write(head + content)


async def main() -> None:
    """Serve until a signal."""
    for number in range(1, int(sys.argv[1]) + 1 if len(sys.argv) > 1 else 1):
        operation = {**DOCUMENT["paths"]["/predict"]["post"], "operationId": f"predict{number}"}
        DOCUMENT["paths"][f"/predict{number}"] = {"post": operation}
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
