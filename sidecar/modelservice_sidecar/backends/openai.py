"""A model server that speaks OpenAI's API: vLLM, SGLang, llama.cpp's server, TGI, `transformers serve` and others.

Owns the conversation: recognising it by its model list, finding out which tasks it offers, sending calls, telling streamed
text as progress. The translation itself is in `core.openai`, `openai_request` and `openai_answer`.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import orjson

from modelservice_api.adapter_config import BackendType, OpenAIConfig
from modelservice_sidecar.backends import http_failure, openai_answer, openai_request
from modelservice_sidecar.backends.base import Answer, CallContext, Description, Progress
from modelservice_sidecar.backends.event_stream import PieceReader, stream_kind
from modelservice_sidecar.backends.http_call import HttpCalls
from modelservice_sidecar.backends.openai_answer import Generated, Told
from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.core import openai
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import (
    BackendAnswerTooLargeError,
    BackendDisconnectedError,
    BackendError,
    BackendUnreachableError,
    CallError,
    DescribeError,
)
from modelservice_sidecar.core.openai import MODELS_PATH, PATHS, Endpoint, ModelList, Task
from modelservice_sidecar.upstream import OnHead, Pool, Reply

MAX_LIST: Final = 1024 * 1024
MAX_REFUSAL: Final = 64 * 1024
DESCRIBE_TIMEOUT: Final = 10.0
OFF_LOOP_BYTES: Final = 64 * 1024
"""JSON from this size is read in a thread: parsing it takes about a millisecond."""
_LOADING: Final = frozenset({429, 503})
_ABSENT: Final = frozenset({404, 405, 410, 501})
"""What a server says where a path is not served; 501 is llama.cpp's word for a task that is switched off."""

Value = TypeVar("Value")


class OpenAIBackend:
    """Implements `Backend` over HTTP on one pool."""

    kind: BackendType = "OpenAI"

    def __init__(self, pool: Pool, config: OpenAIConfig) -> None:
        self._pool = pool
        self._config = config
        self._calls = HttpCalls(pool)
        self._offered: frozenset[Task] | None = None
        self._counts_streams: bool | None = None
        """Whether the server takes `stream_options`; not known before the first streamed call."""

    async def describe(self) -> Description:
        """Read the model list; what is offered is asked once, and again after the server was away."""
        try:
            found = await self._models()
            chosen = openai.choose(found, self._config)
            if self._offered is None:
                self._offered = await self._tasks()
        except DescribeError:
            self._offered = None
            raise
        seen = [sorted(self._offered), chosen.notes, [[model.id, model.context] for model in chosen.models]]
        models = f"{found.listed} model{'' if found.listed == 1 else 's'}"
        return Description(
            kind="OpenAI",
            fingerprint=hashlib.sha256(orjson.dumps(seen)).hexdigest(),
            tools=openai.tools(chosen.models, self._offered),
            notes=chosen.notes,
            because=f"Recognised as OpenAI: GET {MODELS_PATH} lists {models}.",
        )

    async def ready(self) -> bool:
        """Whether a connection can be had: the paths for health differ between servers, and a call would cost tokens."""
        return await self._pool.probe()

    async def warm_up(self) -> None:
        """Have one connection open before the first call wants it; no token is asked for."""
        await self._pool.probe()

    async def call(self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext) -> Answer:
        """Send the call and read its answer whole."""
        endpoint: Endpoint = spec.binding
        body = openai_request.body_of(endpoint, arguments)
        reply = await self._send(endpoint, body, context)
        return _counted(await _read(endpoint, body, reply, context), context)

    async def stream(
        self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext
    ) -> AsyncGenerator[Progress | Answer, None]:
        """Send the call and tell the text as it is written; an embedding has no pieces."""
        endpoint: Endpoint = spec.binding
        if endpoint.task == "embed":
            yield await self.call(spec, arguments, context)
            return
        body = openai_request.body_of(endpoint, arguments)
        writing = _Writing()
        sending = asyncio.ensure_future(self._send_streamed(endpoint, body, context, writing.on_head))
        sending.add_done_callback(lambda _: writing.arrived.set())
        told = 0
        try:
            done = False
            while not done:
                await writing.arrived.wait()
                writing.arrived.clear()
                done = sending.done()  # read first: the last pieces come with the end and are told like the others
                if writing.error is not None:
                    raise writing.error
                pieces = writing.generated.pieces
                if len(pieces) > told:
                    news, told = "".join(pieces[told:]), len(pieces)
                    yield Progress(value=told, message=news)
            reply = await sending
            whole = writing.told() if writing.began else await _read(endpoint, body, reply, context)
            yield _counted(whole, context)
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, CallError):  # its own failure is told, or comes second
                await sending

    async def cancel(self, request_id: str) -> None:
        """Cancel the call and close its connection, at which such servers stop writing."""
        self._calls.cancel(request_id)

    async def aclose(self) -> None:
        """End what runs."""
        self._calls.cancel_all()

    async def _send_streamed(
        self, endpoint: Endpoint, body: dict[str, Any], context: CallContext, on_head: OnHead
    ) -> Reply:
        """Ask for a stream with its token counts; a server that does not know that option is asked once more without it."""
        streamed = {**body, "stream": True}
        if self._counts_streams is not False:
            counted = {**streamed, "stream_options": {"include_usage": True}}
            reply = await self._send(endpoint, counted, context, on_head)
            if 200 <= reply.status < 300:
                self._counts_streams = True
            if reply.status not in {400, 422} or (self._counts_streams and b"stream_options" not in reply.body):
                return reply
        reply = await self._send(endpoint, streamed, context, on_head)
        if 200 <= reply.status < 300:
            self._counts_streams = False
        return reply

    async def _send(
        self, endpoint: Endpoint, body: dict[str, Any], context: CallContext, on_head: OnHead | None = None
    ) -> Reply:
        request = openai_request.post(endpoint, body, streamed=on_head is not None)
        try:
            return await self._calls.send(request, context, on_head=on_head)
        except (BackendUnreachableError, BackendDisconnectedError):
            self._forget()
            raise

    def _forget(self) -> None:
        """The server went away; another one, or the same with other options, may come back."""
        self._offered = None
        self._counts_streams = None

    async def _models(self) -> ModelList:
        reply = await self._ask(openai_request.models(), limit=MAX_LIST)
        where = f"{MODELS_PATH} on {self._pool.address}"
        if reply.status in {401, 403} and _says_error(reply.body):
            raise DescribeError(
                "Invalid",
                f"{where} wants credentials (HTTP {reply.status}), which the adapter has not; "
                "start the model server without an API key, only its own pod reaches it.",
            )
        if reply.status in _LOADING:
            raise DescribeError("Unreachable", f"{where} is busy or loads its model (HTTP {reply.status}).")
        if reply.status != 200:
            raise DescribeError("NotRecognised", f"{where} answers HTTP {reply.status} instead of a model list.")

        def read() -> ModelList:
            try:
                return openai.read_models(orjson.loads(reply.body))
            except orjson.JSONDecodeError as error:
                raise DescribeError("NotRecognised", f"{where} answers something else than JSON.") from error

        return await _off_loop(read, len(reply.body))

    async def _tasks(self) -> frozenset[Task]:
        """What is served, by what each path says to a request that no server can act on.

        An OpenAPI document would list paths, too, but few of these servers have one, it can be switched off, and it lists what
        is routed rather than what is switched on.
        """
        offered: set[Task] = set()
        for task, path in PATHS.items():
            try:
                reply = await self._ask(openai_request.unreadable(path), limit=MAX_REFUSAL)
            except _ClosedError:
                continue
            if reply.status in _LOADING:
                where = f"{path} on {self._pool.address}"
                raise DescribeError("Unreachable", f"{where} is busy or loads its model (HTTP {reply.status}).")
            if reply.status >= 400 and reply.status not in _ABSENT:
                offered.add(task)
        if not offered:
            paths = ", ".join(PATHS.values())
            raise DescribeError("NotRecognised", f"{MODELS_PATH} lists models, but none of {paths} is served.")
        return frozenset(offered)

    async def _ask(self, request: HttpRequest, *, limit: int) -> Reply:
        where = f"{request.target} on {self._pool.address}"
        try:
            async with asyncio.timeout(DESCRIBE_TIMEOUT):
                return await self._pool.request(request, limit=limit)
        except BackendUnreachableError as error:
            raise DescribeError("Unreachable", f"Nothing accepts connections on {self._pool.address}.") from error
        except TimeoutError as error:
            raise DescribeError("Unreachable", f"{where} did not answer within {DESCRIBE_TIMEOUT:.0f} s.") from error
        except BackendAnswerTooLargeError as error:
            raise DescribeError("NotRecognised", f"{where} answers more than {limit // 1024} KiB.") from error
        except BackendDisconnectedError as error:
            raise _ClosedError("NotRecognised", f"{where} closes the connection without an answer.") from error
        except BackendError as error:
            raise DescribeError("NotRecognised", f"{where} does not answer in HTTP.") from error


class _ClosedError(DescribeError):
    """The server closed the connection instead of answering."""


class _Writing:
    """Collects a streamed answer; the pool's bound on its size bounds this too."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.generated = Generated()
        self.error: CallError | None = None
        self.began = False
        self._reader = PieceReader("events")

    def on_head(self, status: int, headers: dict[str, str]) -> Callable[[bytes], None] | None:
        if not 200 <= status < 300 or stream_kind(headers.get("content-type", "")) != "events":
            return None
        self.began = True
        return self._feed

    def told(self) -> Told:
        for data in self._reader.finish():
            self.generated.add(data)
        return self.generated.told()

    def _feed(self, chunk: bytes) -> None:
        if self.error is not None:
            return
        try:
            for data in self._reader.feed(chunk):
                self.generated.add(data)
        except CallError as error:
            self.error = (
                error  # raised where the answer is awaited: the parser that calls this could do nothing with it
            )
        self.arrived.set()


def _says_error(body: bytes) -> bool:
    """Whether a refusal is worded as OpenAI's API words it: a server that only guards every path says `detail`, or nothing."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(value, dict) and "error" in value


async def _read(endpoint: Endpoint, body: dict[str, Any], reply: Reply, context: CallContext) -> Told:
    """The answer in MCP's terms."""
    if not 200 <= reply.status < 300:
        raise http_failure.failure(reply.status, reply.headers, reply.body)

    def read() -> Told:
        if endpoint.task == "embed":
            texts = body["input"]
            expected = len(texts) if isinstance(texts, list) else 1
            return openai_answer.read_vectors(reply.body, expected=expected, request_id=context.ids.request_id)
        if stream_kind(reply.headers.get("content-type", "")) == "events":
            return openai_answer.read_stream(reply.body)
        return openai_answer.read_generated(reply.body)

    return await _off_loop(read, len(reply.body))


async def _off_loop(read: Callable[[], Value], size: int) -> Value:
    """What a function makes of so many bytes; in a thread where that takes a millisecond or more."""
    return read() if size < OFF_LOOP_BYTES else await asyncio.to_thread(read)


def _counted(told: Told, context: CallContext) -> Answer:
    context.tokens_in = told.tokens_in
    context.tokens_out = told.tokens_out
    return told.answer
