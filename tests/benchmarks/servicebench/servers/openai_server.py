"""A language model's server for benchmarks: OpenAI's API with as little behind it as there can be.

Owns one streamed answer of a few tokens: the first leaves at once, the others one by one, so that what stands between is what
is measured.

Usage: ``python openai_server.py``; writes its port as the first line.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httptools
import orjson
import uvloop

MODEL = "bench"
TOKENS = tuple(f"token{number} " for number in range(8))
PAUSE = 0.002
"""Seconds between tokens after the first: longer than the adapter takes to tell one."""


def event(delta: dict[str, str], **more: Any) -> bytes:
    """One chunk of a streamed chat as an HTTP chunk."""
    choice = {"index": 0, "delta": delta, "finish_reason": more.pop("finish_reason", None)}
    value = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice], **more}
    return chunk(b"data: " + orjson.dumps(value) + b"\n\n")


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


USAGE = {"prompt_tokens": 4, "completion_tokens": len(TOKENS), "total_tokens": 4 + len(TOKENS)}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
FIRST = HEAD + event({"role": "assistant", "content": ""})
LAST = event({}, finish_reason="stop", usage=USAGE) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


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
        if self.path == b"/v1/models":
            self.answer(b"200 OK", {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        elif self.path != b"/v1/chat/completions":
            self.answer(b"404 Not Found", {})
        else:
            self.chat()

    def chat(self) -> None:
        try:
            asked = orjson.loads(self.body)["messages"][-1]["content"]
        except (orjson.JSONDecodeError, KeyError):
            self.answer(b"400 Bad Request", {"error": {"message": "no messages"}})
            return
        self.transport.write(FIRST)
        self.transport.write(event({"content": f"{asked}: {TOKENS[0]}"}))
        asyncio.get_running_loop().call_later(PAUSE, self.go_on, 1)

    def go_on(self, place: int) -> None:
        if place == len(TOKENS):
            self.transport.write(LAST)
            return
        self.transport.write(event({"content": TOKENS[place]}))
        asyncio.get_running_loop().call_later(PAUSE, self.go_on, place + 1)

    def answer(self, status: bytes, value: object) -> None:
        content = orjson.dumps(value)
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(content))
        self.transport.write(head + content)


async def main() -> None:
    """Serve until a signal."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
