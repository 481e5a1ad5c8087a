"""Real model servers for tests: FastAPI applications with everything an OpenAPI document can throw at an adapter."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from email.utils import formatdate
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import Body, Cookie, FastAPI, File, Form, Header, HTTPException, Path, Query, Request, Response, UploadFile
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f6450000000049454e44ae426082"
)


class Features(BaseModel):
    """Plain input."""

    features: Annotated[list[float], Field(min_length=1, description="One row of the model's input.")]
    top_k: Annotated[int, Field(ge=1, le=10)] = 1


class Score(BaseModel):
    score: float
    label: str | None = None


class Node(BaseModel):
    value: float
    children: list["Node"] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str


class Named(BaseModel):
    item_id: str
    weight: float


def torture_app() -> FastAPI:
    """Every route of the list that broke other converters."""
    app = FastAPI(title="torture", version="1")

    @app.post("/plain")
    def plain(body: Features) -> Score:
        """Score one row."""
        return Score(score=sum(body.features), label="ok")

    @app.post("/tree")
    def tree(root: Node) -> Node:
        return root

    @app.post("/pet")
    def pet(body: Annotated[Cat | Dog, Field(discriminator="kind")]) -> dict[str, str]:
        return {"kind": body.kind}

    @app.post("/total")
    def total(values: list[float]) -> float:
        return sum(values)

    @app.post("/double")
    def double(value: Annotated[int, Body()]) -> int:
        return value * 2

    @app.post("/everywhere/{item_id}")
    def everywhere(
        item_id: str,
        body: Features,
        limit: int = 5,
        tags: Annotated[list[str] | None, Query()] = None,
        x_flavour: Annotated[str, Header()] = "plain",
        session: Annotated[str | None, Cookie()] = None,
    ) -> dict[str, Any]:
        return {
            "item_id": item_id,
            "limit": limit,
            "tags": tags,
            "flavour": x_flavour,
            "session": session,
            "features": body.features,
        }

    @app.put("/items/{item_id}")
    def same_name(item_id: Annotated[str, Path()], body: Named) -> dict[str, Any]:
        return {"path": item_id, "body": body.item_id}

    @app.post("/upload")
    async def upload(
        file: UploadFile, note: Annotated[str, Form()] = "", extra: Annotated[list[UploadFile] | None, File()] = None
    ) -> dict[str, Any]:
        content = await file.read()
        sizes = [len(await one.read()) for one in extra or []]
        kind = file.content_type
        return {"name": file.filename, "type": kind, "size": len(content), "note": note, "extra": sizes}

    @app.post("/form")
    def form(text: Annotated[str, Form()], times: Annotated[int, Form()] = 1) -> dict[str, str]:
        return {"said": text * times}

    @app.get("/picture", response_class=Response, responses={200: {"content": {"image/png": {}}}})
    def picture() -> Response:
        return Response(PNG, media_type="image/png")

    @app.post("/tokens")
    async def tokens(count: Annotated[int, Body(embed=True)] = 3) -> StreamingResponse:
        async def events() -> AsyncIterator[str]:
            for number in range(count):
                yield f"data: token {number}\n\n"
                await asyncio.sleep(0)

        return StreamingResponse(events(), media_type="text/event-stream")

    @app.get("/words", response_class=PlainTextResponse)
    def words() -> str:
        return "plain words"

    @app.delete("/nothing", status_code=204)
    def nothing() -> None:
        return None

    @app.get("/busy")
    def busy() -> Response:
        return JSONResponse({"detail": "loading"}, status_code=503, headers={"Retry-After": "70"})

    @app.post("/strict")
    def strict(body: Strict) -> dict[str, int]:
        return {"length": len(body.text)}

    @app.post("/long", operation_id="a_very_long_operation_identifier_" + "x" * 120)
    def long() -> dict[str, bool]:
        return {"ok": True}

    @app.post(
        "/raw",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    )
    async def raw(request: Request) -> dict[str, int]:
        return {"size": len(await request.body())}

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/blob", response_class=Response, responses={200: {"content": {"application/x-weights": {}}}})
    def blob() -> Response:
        return Response(b"\x00\x01\x02", media_type="application/x-weights")

    @app.get("/secret/{name}")
    def secret(name: str) -> dict[str, str]:
        if name == "gone":
            raise HTTPException(404, "no such secret")
        if name == "forbidden":
            raise HTTPException(403, "the token hunter2 is wrong")
        if name == "crash":
            raise HTTPException(500, "Traceback: hunter2")
        return {"name": name}

    @app.get("/secret/{name}/admin")
    def admin(name: str) -> dict[str, str]:
        return {"admin": name}

    @app.post("/echo-headers")
    def echo_headers(request: Request) -> dict[str, dict[str, str]]:
        return {"headers": dict(request.headers)}

    return app


def named_app(*names: str) -> FastAPI:
    """One trivial operation per name."""
    app = FastAPI()

    def answer() -> dict[str, bool]:
        return {"ok": True}

    for name in names:
        app.get(f"/{name}", operation_id=name)(answer)
    return app


class AnswersModel:
    """A model server whose answers are unusual: busy at first, in pieces, or not what they call themselves."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    def app(self) -> FastAPI:
        app = FastAPI()

        def count(name: str) -> int:
            self.asked[name] = self.asked.get(name, 0) + 1
            return self.asked[name]

        def busy(after: str | None) -> Response:
            headers = {} if after is None else {"Retry-After": after}
            return JSONResponse({"detail": "loading"}, status_code=503, headers=headers)

        @app.post("/loading")
        def loading() -> Response:
            return busy("0") if count("loading") < 3 else JSONResponse({"ok": True})

        @app.post("/always-loading")
        def always_loading() -> Response:
            count("always_loading")
            return busy("0")

        @app.post("/no-idea")
        def no_idea() -> Response:
            count("no_idea")
            return busy(None)

        @app.post("/tomorrow")
        def tomorrow() -> Response:
            count("tomorrow")
            return JSONResponse(
                {}, status_code=429, headers={"Retry-After": formatdate(time.time() + 86_400, usegmt=True)}
            )

        def pieces(*parts: bytes, media: str) -> StreamingResponse:
            async def body() -> AsyncIterator[bytes]:
                for part in parts:
                    yield part
                    await asyncio.sleep(0)

            return StreamingResponse(body(), media_type=media)

        @app.get("/chunks")
        def chunks() -> Response:
            return pieces("é".encode()[:1], "é".encode()[1:] + b" one", b" two", media="text/plain")

        @app.get("/lines")
        def lines() -> Response:
            return pieces(b'{"n": 1}\n{"n"', b": 2}\n", media="application/x-ndjson")

        @app.get("/mislabelled")
        def mislabelled() -> Response:
            return Response(b'{"n": 1}\n{"n": 2}\n', media_type="application/json")

        @app.get("/events")
        def events() -> Response:
            return pieces(
                b": hello\n\nid: 1\ndata: a\ndata: b\n\n", b"data: c\n\ndata: [DONE]\n\n", media="text/event-stream"
            )

        @app.get("/sound")
        def sound() -> Response:
            return Response(b"RIFF", media_type="audio/wav")

        @app.get("/latin")
        def latin() -> Response:
            return Response("é".encode("latin-1"), media_type="text/plain; charset=iso-8859-1")

        @app.get("/files/{name:path}")
        def files(name: str) -> dict[str, str]:
            return {"name": name}

        return app


class SlowModel:
    """A model server whose calls wait until the test lets them go, and which sees callers leave."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.left = threading.Event()
        self.calls = 0
        self._release: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def release(self) -> None:
        """Let every waiting and later call go."""
        assert self._loop is not None
        assert self._release is not None
        self._loop.call_soon_threadsafe(self._release.set)

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/slow")
        async def slow(request: Request) -> dict[str, int]:
            self.calls += 1
            if self._release is None:
                self._release = asyncio.Event()
                self._loop = asyncio.get_running_loop()
            self.entered.release()
            gone = asyncio.ensure_future(_disconnected(request))
            released = asyncio.ensure_future(self._release.wait())
            await asyncio.wait([gone, released], return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                self.left.set()
            gone.cancel()
            released.cancel()
            return {"call": self.calls}

        @app.get("/quick")
        def quick() -> dict[str, bool]:
            return {"ok": True}

        return app


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@contextlib.contextmanager
def model_server(app: Any, port: int = 0, *, keep_alive: int = 5) -> Iterator[int]:
    """The application served by uvicorn in a thread on a loopback port, until the block ends."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        log_config=None,
        access_log=False,
        timeout_keep_alive=keep_alive,
        ws="none",
        lifespan="off",
    )
    config.timeout_graceful_shutdown = 1
    sock = config.bind_socket()
    server = _Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    server.up.wait()
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join()
        sock.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.up.set()
