"""The `/rpc` endpoint: `list_tools`, `call_tool` and `get_tool_info` over plain JSON-RPC 2.0.

Owns the HTTP side and the wording of results and errors there: a failed call is a JSON-RPC error, and every answer carries
`request_id` and `trace_id` beside `result` or `error`. The same pipeline serves `/mcp`. With `binaryTransfer` messages may be
MessagePack, and then so are their answers, in which tensors are bytes.
"""

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import orjson

from modelservice_sidecar import inbound as requests
from modelservice_sidecar import json_body, peers
from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.calls import LIST_WAIT, Calls, Snapshot
from modelservice_sidecar.core import errors, mcp, rpc, trace
from modelservice_sidecar.core.errors import AccessError, CallError, UnknownToolError
from modelservice_sidecar.core.rpc import Rejection, Request
from modelservice_sidecar.core.trace import Ids
from modelservice_sidecar.exchange import Exchange, Timing
from modelservice_sidecar.inbound import Inbound, Receive, Scope, Send
from modelservice_sidecar.mcp_http import is_json
from modelservice_sidecar.middleware.context import new_hex
from modelservice_sidecar.telemetry import CallRecord, Telemetry

_METHOD_NOT_ALLOWED: Final = [(b"allow", b"POST")]
_NO_ANSWER: Final = (204, b"")

MSGPACK_TYPES: Final = frozenset({"application/msgpack", "application/x-msgpack", "application/vnd.msgpack"})
MSGPACK_OFF: Final = "Content-Type must be application/json; application/msgpack needs spec.mcp.binaryTransfer: true"


class UnreadableError(Exception):
    """A body that is no message in its form; the text is told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """How messages are written. `load` raises `UnreadableError`; `read_tensors` is there where arguments can be bytes."""

    load: Callable[[bytes], Any]
    dump: Callable[[Any], bytes]
    join: Callable[[Sequence[bytes]], bytes]
    read_tensors: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]] | None = None


def _load_json(body: bytes) -> Any:
    try:
        return json_body.load(body)
    except json_body.BadJsonError:
        raise UnreadableError(mcp.parse_error().message) from None


JSON: Final = Form(load=_load_json, dump=orjson.dumps, join=lambda messages: b"[" + b",".join(messages) + b"]")


async def msgpack_form() -> Form:
    """MessagePack; what it needs is loaded when the first such message comes, off the loop."""
    name = "modelservice_sidecar.msgpack_body"
    if name not in sys.modules:
        await asyncio.to_thread(importlib.import_module, name)
    from modelservice_sidecar import msgpack_body

    def load(body: bytes) -> Any:
        try:
            return msgpack_body.load(body)
        except msgpack_body.BadMessageError as error:
            raise UnreadableError(f"Parse error: the body is not MessagePack as it is taken here: {error}") from None

    async def read_tensors(arguments: dict[str, Any]) -> dict[str, Any]:
        if msgpack_body.is_heavy(arguments):
            return await asyncio.to_thread(msgpack_body.tensors, arguments)
        return msgpack_body.tensors(arguments)

    return Form(load=load, dump=msgpack_body.dump, join=msgpack_body.join, read_tensors=read_tensors)


class RpcEndpoint:
    """ASGI application of `/rpc`; see the module's docstring."""

    def __init__(self, *, calls: Calls, snapshot: Callable[[], Snapshot], telemetry: Telemetry, timing: Timing) -> None:
        self._calls = calls
        self._snapshot = snapshot
        self._telemetry = telemetry
        self._timing = timing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inbound = requests.of(scope)
        if scope["method"] != "POST":
            self._telemetry.rejected("method")
            await requests.answer_empty(inbound, send, 405, _METHOD_NOT_ALLOWED)
            return
        form, media_type = JSON, inbound.headers.get("content-type")
        if not is_json(media_type):
            binary = media_type is not None and media_type.partition(";")[0].strip().lower() in MSGPACK_TYPES
            if not binary or not self._snapshot().config.mcp.binary_transfer:
                self._telemetry.rejected("content_type")
                message = MSGPACK_OFF if binary else "Content-Type must be application/json"
                await requests.refuse(inbound, send, 415, message)
                return
            form = await msgpack_form()
            inbound.content_type = b"application/msgpack"
        exchange = Exchange(inbound, receive, send, streams=False, token=None, timing=self._timing)
        await exchange.run(self._answered(inbound, form))

    async def _answered(self, inbound: Inbound, form: Form) -> tuple[int, bytes]:
        try:
            body = form.load(inbound.body)
        except UnreadableError as unreadable:
            self._telemetry.rejected("parse")
            error = {"code": mcp.PARSE_ERROR, "message": str(unreadable)}
            return 400, _worded(form, inbound.ids, None, error=error)
        if not isinstance(body, list):
            status, answer = await self._one(inbound, body, len(inbound.body), form)
            return _NO_ANSWER if answer is None else (status, answer)
        if not 0 < len(body) <= rpc.MAX_BATCH:
            self._telemetry.rejected("invalid_request")
            error = {"code": rpc.INVALID_REQUEST, "message": f"A batch holds 1 to {rpc.MAX_BATCH} requests"}
            return 400, _worded(form, inbound.ids, None, error=error)
        answers = await asyncio.gather(*(self._one(inbound, item, 0, form) for item in body))
        told = [answer for _, answer in answers if answer is not None]
        return (200, form.join(told)) if told else _NO_ANSWER

    async def _one(self, inbound: Inbound, body: object, bytes_in: int, form: Form) -> tuple[int, bytes | None]:
        request = rpc.read(body)
        if isinstance(request, Rejection):
            self._telemetry.rejected("rpc")
            error = {"code": request.code, "message": request.message}
            return request.status, _worded(form, inbound.ids, request.id, error=error)
        ids = inbound.ids
        if request.meta:
            ids = inbound.ids = trace.choose(inbound.wanted, trace.wanted_in_meta(request.meta), new_hex)
        record = (
            CallRecord(ids=ids, era="rpc", message_id=request.id, bytes_in=bytes_in, user=inbound.user)
            if request.method == "call_tool"
            else None
        )
        status, answer = 499, None
        try:
            result = await self._result(request, record, inbound, form)
            status, answer = 200, _worded(form, ids, request.id, result=result)
        except CallError as failed:
            told = errors.telling(failed)
            if isinstance(failed, AccessError):
                requests.ask_for_scope(inbound, failed.scope)
            data: dict[str, Any] = {"outcome": told.outcome, "retryable": told.retryable}
            if failed.retry_after is not None:
                data["retryAfter"] = ceil(failed.retry_after)
            requests.say_when(inbound, failed.retry_after)
            error = {"code": told.code, "message": str(failed), "data": data}
            status, answer = told.status, _worded(form, ids, request.id, error=error)
            if (
                record is not None and record.outcome == "ok"
            ):  # it failed before the pipeline, which notes its own failures
                record.outcome, record.error = told.outcome, str(failed)[:300]
        finally:
            if record is not None:
                self._calls.finish(record, inbound.received, status, 0 if answer is None else len(answer))
        return status, answer if request.wants_answer else None

    async def _result(
        self, request: Request, record: CallRecord | None, inbound: Inbound, form: Form
    ) -> dict[str, Any]:
        identity = inbound.identity
        if record is not None:
            arguments = request.params.get("arguments") or {}
            if form.read_tensors is not None:
                arguments = await form.read_tensors(arguments)
            answer = await self._calls.run(
                request.params["name"],
                arguments,
                record=record,
                handed_over=inbound.headers.get(peers.HEADER) is not None,
                identity=identity,
                credentials=inbound.credentials,
                headers=inbound.headers,
                wants_tensors=form.read_tensors is not None,
            )
            return _call_result(answer)
        listing = request.method == "list_tools"
        access = self._snapshot().access
        refusal = access.may_list(identity) if listing else access.may_see(identity, request.params["name"])
        if refusal is not None:
            raise refusal
        await self._calls.until_looked(LIST_WAIT)
        now = self._snapshot().seen_by(identity)
        if listing:
            return {"tools": [tool.definition for tool in now.published.catalogue.tools]}
        tool = now.published.tools.get(request.params["name"])
        if tool is None:
            raise UnknownToolError(f"Unknown tool: {request.params['name'][:128]}")
        return tool.tool.definition


def _call_result(answer: Answer) -> dict[str, Any]:
    result: dict[str, Any] = {"content": answer.content}
    if answer.tensors is not None:
        result["tensors"] = {name: tensor.fields() for name, tensor in answer.tensors.items()}
    if answer.has_structured:
        result["structuredContent"] = answer.structured if answer.raw is None else orjson.Fragment(answer.raw)
    return result


def _worded(form: Form, ids: Ids, message_id: object, **outcome: Any) -> bytes:
    """An answer: `result` or `error`, with the call's ids beside it."""
    answer = {"jsonrpc": "2.0", "id": message_id, **outcome, "request_id": ids.request_id, "trace_id": ids.trace_id}
    return form.dump(answer)
