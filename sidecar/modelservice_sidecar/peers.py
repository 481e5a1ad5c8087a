"""Handing a call to another adapter of the same ModelService when this pod's own model server takes no more calls.

Owns one hop and no more: a call that was handed over is never handed on. A pod that is being stopped gets its SIGTERM in
every container at once, so its model server may refuse connections while clients still reach its adapter; nothing was
sent then, and another pod can answer. What may have been executed is never sent twice.

Peers are reached through the ModelService's own Service, over `/rpc`, where errors say whether a call was executed. Calls with
tensors in bytes go as MessagePack, and so do their answers come.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

import orjson

from modelservice_api.adapter_config import PeersConfig
from modelservice_sidecar.backends.base import Answer, CallContext
from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.core import errors
from modelservice_sidecar.core.errors import (
    BackendAnswerInvalidError,
    BackendUnreachableError,
    CallError,
    CircuitOpenError,
)
from modelservice_sidecar.core.tensors import Tensor
from modelservice_sidecar.steps import HAND_OVER
from modelservice_sidecar.upstream import Pool, Reply

HEADER: Final = "x-modelservice-handover"
"""On a call that another adapter handed over."""

ATTEMPTS: Final = 25
PAUSE: Final = 0.2
"""Seconds between attempts. Together five seconds: longer than nodes take to learn that a pod leaves, and until they
have, the Service may lead back to this very pod."""

ATTEMPTS_WHILE_STAYING: Final = 5
"""A pod that stays although its model server is gone: chance alone decides whether the Service leads elsewhere, and where
there is no other pod the caller must not wait long for the same error."""

_MSGPACK: Final = b"application/msgpack"

_BY_CODE: Final[dict[int, type[CallError]]] = {told.code: kind for kind, told in errors.TABLE.items()}


class Peers:
    """The other adapters behind one Service. `leaving` says whether this pod is being stopped."""

    def __init__(self, config: PeersConfig, *, leaving: Callable[[], bool], max_connections: int) -> None:
        self._pool = Pool(config.host, config.port, max_connections=max_connections)
        self._leaving = leaving

    @property
    def come_first(self) -> bool:
        """Whether peers are asked before this pod's own model server, which is being stopped too."""
        return self._leaving()

    async def call(
        self, name: str, arguments: dict[str, Any], context: CallContext, credentials: str | None = None
    ) -> Answer:
        """Let another adapter run the tool. Ends by the call's own deadline or cancellation at the latest.

        The other adapter checks the caller's `credentials` itself: it trusts no word of this one.

        Raises:
            BackendUnreachableError: no other adapter could run it either; it was not executed.
            CallError: another adapter's answer.
        """
        step = context.steps.ask(HAND_OVER)
        try:
            return await self._until_taken(_request(name, arguments, context, credentials, context.traceparent(step)))
        except BaseException as error:
            step.error = type(error).__name__
            raise
        finally:
            step.ended = perf_counter()

    async def _until_taken(self, request: HttpRequest) -> Answer:
        attempt = 0
        # Asked anew each time: the model server's SIGTERM can come a moment before our own.
        while attempt < (ATTEMPTS if self._leaving() else ATTEMPTS_WHILE_STAYING):
            if attempt:
                await asyncio.sleep(PAUSE)
            attempt += 1
            try:
                return await self._ask(request)
            except (BackendUnreachableError, CircuitOpenError):
                continue
        raise BackendUnreachableError("The model server cannot be reached, in this pod or in another.")

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()

    async def _ask(self, request: HttpRequest) -> Answer:
        reply = await self._pool.request(request)
        try:
            message = _load(reply)
            error, result = message.get("error"), message.get("result")
            if error is not None:
                failed = _BY_CODE.get(error["code"], BackendAnswerInvalidError)(str(error["message"]))
                after = error.get("data", {}).get("retryAfter")
                failed.retry_after = after if isinstance(after, int | float) else None
                raise failed
            return Answer(
                content=result["content"],
                structured=result.get("structuredContent"),
                has_structured="structuredContent" in result,
                tensors=result.get("tensors"),
            )
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as broken:
            raise BackendAnswerInvalidError("Another pod's adapter gave an answer that cannot be read.") from broken


def _load(reply: Reply) -> Any:
    """The answer in the form in which it came: refusals of the layers before `/rpc` are always JSON."""
    if reply.headers.get("content-type") != _MSGPACK.decode():
        return orjson.loads(reply.body)
    from modelservice_sidecar import msgpack_body

    try:
        return msgpack_body.load_answer(reply.body)
    except msgpack_body.BadMessageError as error:
        raise TypeError(str(error)) from error


def _pack(message: dict[str, Any]) -> bytes:
    from modelservice_sidecar import msgpack_body

    return msgpack_body.dump(message)


def _request(
    name: str, arguments: dict[str, Any], context: CallContext, credentials: str | None, traceparent: str
) -> HttpRequest:
    written = {key: value.fields() if isinstance(value, Tensor) else value for key, value in arguments.items()}
    params = {"name": name, "arguments": written}
    message = {"jsonrpc": "2.0", "id": 1, "method": "call_tool", "params": params}
    binary = context.wants_tensors
    return HttpRequest(
        method="POST",
        target="/rpc",
        headers=[
            (b"content-type", _MSGPACK if binary else b"application/json"),
            # A kept connection would lead to the same pod again, which may be the one that cannot answer.
            (b"connection", b"close"),
            (b"x-request-id", context.ids.request_id.encode("ascii")),
            (b"traceparent", traceparent.encode("ascii")),
            *([(b"tracestate", context.ids.state.encode("ascii"))] if context.ids.state else []),
            *((name.encode("ascii"), value.encode("latin-1")) for name, value in context.headers.items()),
            (HEADER.encode("ascii"), b"1"),
            *([(b"authorization", credentials.encode("latin-1"))] if credentials is not None else []),
        ],
        body=_pack(message) if binary else orjson.dumps(message),
    )
