"""OpenAI-compatible servers for tests: the real `transformers serve`, and one that answers what the test tells it to.

Owns their start and end, and what each of them can tell about its callers. Both offer the same model, so one set of tests
holds the scripted one to what the real one does.
"""

import asyncio
import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

import venvs
from model_apps import model_server

MODEL = "tiny-chat"
START_SECONDS = 180


@dataclass(kw_only=True)
class TransformersServe:
    """The real server. `said` gets a line when it generates and when a caller's leaving stopped it."""

    port: int
    said: "queue.Queue[str]" = field(default_factory=queue.Queue)

    def until_stopped(self) -> None:
        """Wait until it has stopped writing for a caller that left."""
        while self.said.get(timeout=10) != "stopped":
            pass

    def generations(self) -> int:
        """How often it was made to generate since this was last asked."""
        words = list[str]()
        with contextlib.suppress(queue.Empty):
            while True:
                words.append(self.said.get_nowait())
        return words.count("generating")


@contextlib.contextmanager
def transformers_serve(folder: Path) -> Iterator[TransformersServe]:
    """`transformers serve` with the tiny model, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    program = Path(__file__).with_name("openai_tiny.py")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [venvs.python_of("transformers"), program, folder, str(port)],
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "HF_HOME": str(folder / "cache")},
        )
    server = TransformersServe(port=port)
    reader = threading.Thread(target=_read_lines, args=(process, server.said), daemon=True)
    reader.start()
    try:
        _wait_for(port, process, folder / "log")
        yield server
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reader.join()
        assert process.stdout is not None
        process.stdout.close()


def _read_lines(process: "subprocess.Popen[bytes]", said: "queue.Queue[str]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        said.put(line.decode().strip())


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
                return
        except (urllib.error.URLError, OSError) as error:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"transformers serve did not start:\n{log.read_text()[-4000:]}") from error
            time.sleep(0.1)


def chunk(said: str | None = None, *, finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk of a streamed chat, as these servers write it."""
    delta = {"role": "assistant"} if said is None else {"content": said}
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice], **more}


def events(*data: object, done: bool = True) -> bytes:
    """A stream of these values."""
    lines = [value if isinstance(value, str) else json.dumps(value) for value in (*data, *(["[DONE]"] if done else []))]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
WORDS = ("one", " two", " three")


@dataclass(kw_only=True)
class Scripted:
    """A server that answers in OpenAI's API, and misbehaves where it is told to.

    `reply` answers every call instead; `stream` is sent instead of the usual chunks. Before its last chunk, `pause` waits until
    the caller leaves and `breaks` ends the connection. `statuses` are what task paths answer instead of being served.
    """

    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": MODEL, "object": "model", "created": 1}])
    listing: Response | None = None
    statuses: dict[str, int] = field(default_factory=dict)
    reply: Response | None = None
    stream: bytes | None = None
    pause: bool = False
    breaks: bool = False
    knows_stream_options: bool = True
    vectors: Any = None
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    probes: list[str] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What it was asked, in order."""
        return [body for _, _, body in self.requests]

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/v1/models")
        def models() -> Any:
            return self.listing or {"object": "list", "data": self.models}

        @app.post("/v1/load_lora_adapter")
        def administer() -> None:
            """What such servers have besides, and what no tool must reach."""

        @app.post("/v1/chat/completions")
        async def chat(request: Request) -> Response:
            return await self._serve("chat", request)

        @app.post("/v1/completions")
        async def complete(request: Request) -> Response:
            return await self._serve("complete", request)

        @app.post("/v1/embeddings")
        async def embed(request: Request) -> Response:
            return await self._serve("embed", request)

        return app

    async def _serve(self, task: str, request: Request) -> Response:
        if task in self.statuses:
            return Response(status_code=self.statuses[task])
        content = await request.body()
        try:
            body = json.loads(content)
        except ValueError:
            self.probes.append(task)
            return _refusal(400, "The body is no JSON.")
        self.requests.append((task, dict(request.headers), body))
        if not self.knows_stream_options and "stream_options" in body:
            return _refusal(400, "Unknown parameter: stream_options")
        if self.reply is not None:
            return self.reply
        if body.get("stream"):
            return StreamingResponse(self._streamed(task, body), media_type="text/event-stream")
        if self.pause:
            await self._until_left(request)
        return JSONResponse(self._embedded(body) if task == "embed" else self._whole(task, body))

    async def _streamed(self, task: str, body: dict[str, Any]) -> AsyncIterator[bytes]:
        if self.stream is not None:
            yield self.stream
            return
        yield events(chunk(), *(_shaped(task, word) for word in _words(body)[:-1]), done=False)
        if self.pause:
            self.entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()
        if self.breaks:
            raise ConnectionAbortedError  # uvicorn closes the connection of an answer that does not end
        last = _shaped(task, _words(body)[-1])
        last["choices"][0]["finish_reason"] = _reason(body)
        usage = {**chunk(), "choices": [], "usage": _usage(body)}
        yield events(last, *([usage] if "stream_options" in body else []))

    def _whole(self, task: str, body: dict[str, Any]) -> dict[str, Any]:
        said = "".join(_words(body))
        holder = {"message": {"role": "assistant", "content": said}} if task == "chat" else {"text": said}
        choice = {"index": 0, "finish_reason": _reason(body), **holder}
        return {"id": "c", "created": 1, "model": body["model"], "choices": [choice], "usage": _usage(body)}

    def _embedded(self, body: dict[str, Any]) -> dict[str, Any]:
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        data = self.vectors
        if data is None:
            data = [{"index": place, "embedding": [len(text), 0.5]} for place, text in enumerate(texts)][::-1]
        return {
            "object": "list",
            "data": data,
            "model": body["model"],
            "usage": {"prompt_tokens": 4, "total_tokens": 4},
        }

    async def _until_left(self, request: Request) -> None:
        self.entered.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.left.set()

    def until_stopped(self) -> None:
        """Wait until it has stopped writing for a caller that left."""
        assert self.left.wait(10)

    def generations(self) -> int:
        """How often it was made to generate since this was last asked."""
        made, self.requests = len(self.requests), []
        return made


@contextlib.contextmanager
def scripted(**script: Any) -> Iterator[tuple[Scripted, int]]:
    """A scripted server and its port, until the block ends."""
    server = Scripted(**script)
    with model_server(server.app()) as port:
        yield server, port


def _words(body: dict[str, Any]) -> tuple[str, ...]:
    return WORDS[: body.get("max_tokens", len(WORDS))]


def _reason(body: dict[str, Any]) -> str:
    return "length" if "max_tokens" in body else "stop"


def _usage(body: dict[str, Any]) -> dict[str, int]:
    written = len(_words(body))
    return {"prompt_tokens": 5, "completion_tokens": written, "total_tokens": 5 + written}


def _shaped(task: str, said: str) -> dict[str, Any]:
    found = chunk(said)
    if task == "complete":
        found["choices"] = [{"index": 0, "text": said, "finish_reason": None}]
    return found


def _refusal(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error"}}, status_code=status)
