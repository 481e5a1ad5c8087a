"""A model server whose every request costs the same time, one after another, however many rows it holds: as a GPU does.

Owns two ways to ask it: `POST /predict` of its OpenAPI document, and the Open Inference Protocol's model `add`, which sums the
numbers of each row. The time is slept away, so that it takes no core from what is measured.

Usage: ``python fixed_cost_model.py MILLISECONDS``; writes its port as the first line.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, Final, cast

import httptools
import orjson
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model_server import DOCUMENT
from servicebench.wire import FEATURES, answer

SECONDS: Final = float(sys.argv[1]) / 1000
MAX_BATCH: Final = 64

V2: Final[dict[str, Any]] = {
    "/v2": {"name": "fixed-cost", "version": "1", "extensions": ["model_configuration", "model_repository"]},
    "/v2/repository/index": [{"name": "add", "version": "1", "state": "READY"}],
    "/v2/models/add/ready": {},
    "/v2/models/add/config": {"name": "add", "max_batch_size": MAX_BATCH},
    "/v2/models/add": {
        "name": "add",
        "platform": "none",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, len(FEATURES)]}],
        "outputs": [{"name": "y", "datatype": "FP64", "shape": [-1, 1]}],
    },
}


class Connection(asyncio.Protocol):
    """One connection. What costs time holds the whole server, so requests of other connections wait for it."""

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
        path = self.path.decode()
        if path == "/v2/models/add/infer":
            time.sleep(SECONDS)
            self._write(200, _infer(orjson.loads(self.body)))
        elif path == "/predict":
            time.sleep(SECONDS)
            self._write(200, answer(round(sum(orjson.loads(self.body)["features"]), 6)))
        elif path == "/openapi.json":
            self._write(200, DOCUMENT)
        elif path in V2:
            self._write(200, V2[path])
        else:
            self._write(404, {"error": "not found"})

    def _write(self, status: int, value: Any) -> None:
        content = orjson.dumps(value)
        head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(content))
        self.transport.write(head + content)


def _infer(request: dict[str, Any]) -> dict[str, Any]:
    [given] = request["inputs"]
    rows, width = given["shape"]
    numbers = given["data"]
    if numbers and isinstance(numbers[0], list):
        numbers = [number for row in numbers for number in row]
    sums = [round(sum(numbers[row * width : (row + 1) * width]), 3) for row in range(rows)]
    output = {"name": "y", "datatype": "FP64", "shape": [rows, 1], "data": sums}
    return {"model_name": "add", "id": request.get("id", ""), "outputs": [output]}


async def main() -> None:
    """Serve until a signal."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
