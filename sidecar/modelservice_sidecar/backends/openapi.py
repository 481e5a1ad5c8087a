"""A model server that describes itself with OpenAPI: FastAPI and everything like it.

Owns the conversation: fetching the document within bounds, sending calls, telling streamed pieces. The translation itself
is in `core.openapi`, `openapi_request` and `openapi_answer`.
"""

import asyncio
import codecs
import hashlib
import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, Final

import orjson

from modelservice_api.adapter_config import BackendType, OpenAPIConfig
from modelservice_sidecar import validation
from modelservice_sidecar.backends import openapi_answer, openapi_request
from modelservice_sidecar.backends.base import Answer, CallContext, Description, Progress
from modelservice_sidecar.backends.event_stream import PieceReader, stream_kind
from modelservice_sidecar.backends.http_call import HttpCalls
from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.core import openapi, text
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import (
    BackendAnswerTooLargeError,
    BackendDisconnectedError,
    BackendError,
    BackendUnreachableError,
    DescribeError,
)
from modelservice_sidecar.core.openapi_binding import Operation
from modelservice_sidecar.upstream import OnHead, Pool, Reply

MAX_DOCUMENT: Final = 5 * 1024 * 1024
DESCRIBE_TIMEOUT: Final = 10.0
_YAML: Final = re.compile(rb"^[\"']?(?:openapi|swagger)[\"']?\s*:\s", re.MULTILINE)


class OpenAPIBackend:
    """Implements `Backend` over HTTP on one pool."""

    kind: BackendType = "OpenAPI"

    def __init__(self, pool: Pool, config: OpenAPIConfig) -> None:
        self._pool = pool
        self._config = config
        self._described: Description | None = None
        self._calls = HttpCalls(pool)

    async def describe(self) -> Description:
        """Fetch the document; it is read again only when its bytes changed."""
        reply = await self._fetch()
        fingerprint = hashlib.sha256(reply.body).hexdigest()
        if self._described is None or self._described.fingerprint != fingerprint:
            # Up to 5 MB: parsing and converting it would stall every call in flight.
            reading = await asyncio.to_thread(_read_document, reply, self._config)
            self._described = Description(
                kind="OpenAPI",
                fingerprint=fingerprint,
                tools=reading.tools,
                notes=reading.notes,
                because=f"Recognised as OpenAPI: GET {self._config.path} answers with {reading.dialect}.",
            )
        return self._described

    async def ready(self) -> bool:
        """Whether a connection can be had."""
        return await self._pool.probe()

    async def warm_up(self) -> None:
        """Have one connection open before the first call wants it."""
        await self._pool.probe()

    async def call(self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext) -> Answer:
        """Send the call and read its answer whole."""
        reply = await self._send(spec, arguments, context, None)
        if 200 <= reply.status < 300 and (kind := stream_kind(reply.headers.get("content-type", ""))):
            reader = PieceReader(kind)
            return _joined([*reader.feed(reply.body), *reader.finish()])
        return self._answer(spec, reply, context)

    async def stream(
        self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext
    ) -> AsyncGenerator[Progress | Answer, None]:
        """Send the call and tell each piece of a streamed answer as it comes."""
        pieces = _Pieces()
        sending = asyncio.ensure_future(self._send(spec, arguments, context, pieces.on_head))
        sending.add_done_callback(lambda _: pieces.arrived.set())
        told = 0
        try:
            done = False
            while not done:
                await pieces.arrived.wait()
                pieces.arrived.clear()
                done = sending.done()  # read first: the last pieces come with the end and are told like the others
                if len(pieces.texts) > told:
                    told = len(pieces.texts)
                    yield Progress(value=told, message=text.clean(pieces.texts[-1], 200))
            reply = await sending
            if pieces.reader is not None:
                yield _joined(pieces.finish())
            else:
                yield self._answer(spec, reply._replace(body=b"".join(pieces.chunks) or reply.body), context)
        finally:
            if not sending.done():
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending

    async def cancel(self, request_id: str) -> None:
        """Cancel the call and close its connection."""
        self._calls.cancel(request_id)

    async def aclose(self) -> None:
        """End what runs."""
        self._calls.cancel_all()

    async def _send(
        self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext, on_head: OnHead | None
    ) -> Reply:
        operation: Operation = spec.binding
        request = openapi_request.build(operation, arguments, _boundary(operation))
        return await self._calls.send(request, context, on_head=on_head, patient=True)

    def _answer(self, spec: ToolSpec, reply: Reply, context: CallContext) -> Answer:
        operation: Operation = spec.binding
        return openapi_answer.read(
            reply.status, reply.headers, reply.body, wrap=operation.wrap, request_id=context.ids.request_id
        )

    async def _fetch(self) -> Reply:
        path = self._config.path
        request = HttpRequest(method="GET", target=path, headers=[(b"accept", b"application/json")], body=b"")
        where = f"{path} on {self._pool.address}"
        try:
            async with asyncio.timeout(DESCRIBE_TIMEOUT):
                reply = await self._pool.request(request, limit=MAX_DOCUMENT)
        except BackendUnreachableError as error:
            raise DescribeError("Unreachable", f"Nothing accepts connections on {self._pool.address}.") from error
        except TimeoutError as error:
            raise DescribeError("Unreachable", f"{where} did not answer within {DESCRIBE_TIMEOUT:.0f} s.") from error
        except BackendAnswerTooLargeError as error:
            raise DescribeError("Invalid", f"The document at {where} is larger than 5 MB.") from error
        except BackendDisconnectedError as error:
            message = f"{where} closed the connection before the end of its answer."
            raise DescribeError("NotRecognised", message) from error
        except BackendError as error:
            raise DescribeError("NotRecognised", f"{where} does not answer in HTTP: {error}") from error
        if 300 <= reply.status < 400:
            message = f"{where} answers with a redirect (HTTP {reply.status}), which is not followed."
            raise DescribeError("NotRecognised", f"{message} Name the document's own path in backend.openAPI.path.")
        if reply.status != 200:
            raise DescribeError("NotRecognised", f"{where} answers HTTP {reply.status} instead of an OpenAPI document.")
        return reply


class _Pieces:
    """Collects a streamed answer; the pool's bound on its size bounds this too.

    Text that comes in chunks is a stream too, but one whose pieces are not to be told apart: it is answered as it is.
    """

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.texts: list[str] = []
        self.chunks: list[bytes] = []
        self.reader: PieceReader | None = None
        self._decoder: codecs.IncrementalDecoder | None = None

    def on_head(self, status: int, headers: dict[str, str]) -> Callable[[bytes], None] | None:
        media = headers.get("content-type", "")
        kind = stream_kind(media) if 200 <= status < 300 else None
        if kind is not None:
            self.reader = PieceReader(kind)
            return self._feed
        if 200 <= status < 300 and media.startswith("text/plain") and "transfer-encoding" in headers:
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
            return self._feed_text
        return None

    def finish(self) -> list[str]:
        assert self.reader is not None
        return [*self.texts, *self.reader.finish()]

    def _feed(self, chunk: bytes) -> None:
        assert self.reader is not None
        found = self.reader.feed(chunk)
        if found:
            self.texts += found
            self.arrived.set()

    def _feed_text(self, chunk: bytes) -> None:
        assert self._decoder is not None
        self.chunks.append(chunk)
        self.texts.append(self._decoder.decode(chunk))
        self.arrived.set()


def _read_document(reply: Reply, config: OpenAPIConfig) -> openapi.Reading:
    body = reply.body.removeprefix(codecs.BOM_UTF8)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _not_json(body, reply.headers.get("content-type", ""), config.path) from error
    return openapi.read(document, config, is_pattern=validation.is_pattern)


def _not_json(body: bytes, media: str, path: str) -> DescribeError:
    if "html" in media or body.lstrip()[:1] == b"<":
        return DescribeError("NotRecognised", f"{path} answers with an HTML page instead of an OpenAPI document.")
    if _YAML.search(body[:65536]):
        message = f"The document at {path} is YAML and only JSON is read."
        return DescribeError("Invalid", f"{message} Serve it as JSON and name its path in backend.openAPI.path.")
    return DescribeError("Invalid", f"The document at {path} is not valid JSON, or nested deeper than 1,024.")


def _joined(pieces: list[str]) -> Answer:
    if pieces and pieces[-1].strip() == "[DONE]":  # how many servers say that their stream is whole; no part of it
        pieces = pieces[:-1]
    return Answer(content=[openapi_answer.text_block("\n".join(pieces))])


def _boundary(operation: Operation) -> str:
    multipart = operation.body is not None and operation.body.kind == "multipart"
    return f"modelservice-{os.urandom(12).hex()}" if multipart else ""
