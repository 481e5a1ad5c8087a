"""The `/rpc` endpoint: `list_tools`, `call_tool` and `get_tool_info` over plain JSON-RPC 2.0.

Owns the HTTP side and the wording of results and errors there: a failed call is a JSON-RPC error, and every answer carries
`request_id` and `trace_id` beside `result` or `error`. The same pipeline serves `/mcp`.
"""

import asyncio
from collections.abc import Callable
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
        if not is_json(inbound.headers.get("content-type")):
            self._telemetry.rejected("content_type")
            await requests.refuse(inbound, send, 415, "Content-Type must be application/json")
            return
        exchange = Exchange(inbound, receive, send, streams=False, token=None, timing=self._timing)
        await exchange.run(self._answered(inbound))

    async def _answered(self, inbound: Inbound) -> tuple[int, bytes]:
        try:
            body = json_body.load(inbound.body)
        except json_body.BadJsonError:
            self._telemetry.rejected("parse")
            message = mcp.parse_error().message
            return 400, _worded(inbound.ids, None, error={"code": mcp.PARSE_ERROR, "message": message})
        if not isinstance(body, list):
            status, answer = await self._one(inbound, body, len(inbound.body))
            return _NO_ANSWER if answer is None else (status, answer)
        if not 0 < len(body) <= rpc.MAX_BATCH:
            self._telemetry.rejected("invalid_request")
            error = {"code": rpc.INVALID_REQUEST, "message": f"A batch holds 1 to {rpc.MAX_BATCH} requests"}
            return 400, _worded(inbound.ids, None, error=error)
        answers = await asyncio.gather(*(self._one(inbound, item, 0) for item in body))
        told = [answer for _, answer in answers if answer is not None]
        return (200, b"[" + b",".join(told) + b"]") if told else _NO_ANSWER

    async def _one(self, inbound: Inbound, body: object, bytes_in: int) -> tuple[int, bytes | None]:
        request = rpc.read(body)
        if isinstance(request, Rejection):
            self._telemetry.rejected("rpc")
            error = {"code": request.code, "message": request.message}
            return request.status, _worded(inbound.ids, request.id, error=error)
        ids = inbound.ids
        if request.meta:
            ids = inbound.ids = trace.choose(inbound.wanted, trace.wanted_in_meta(request.meta), new_hex)
        record = (
            CallRecord(ids=ids, era="rpc", bytes_in=bytes_in, user=inbound.user)
            if request.method == "call_tool"
            else None
        )
        status, answer = 499, None
        try:
            result = await self._result(request, record, inbound)
            status, answer = 200, _worded(ids, request.id, result=result)
        except CallError as failed:
            told = errors.telling(failed)
            if isinstance(failed, AccessError):
                requests.ask_for_scope(inbound, failed.scope)
            data: dict[str, Any] = {"outcome": told.outcome, "retryable": told.retryable}
            if failed.retry_after is not None:
                data["retryAfter"] = ceil(failed.retry_after)
            requests.say_when(inbound, failed.retry_after)
            error = {"code": told.code, "message": str(failed), "data": data}
            status, answer = told.status, _worded(ids, request.id, error=error)
        finally:
            if record is not None:
                self._calls.finish(record, inbound.received, status, 0 if answer is None else len(answer))
        return status, answer if request.wants_answer else None

    async def _result(self, request: Request, record: CallRecord | None, inbound: Inbound) -> dict[str, Any]:
        identity = inbound.identity
        if record is not None:
            answer = await self._calls.run(
                request.params["name"],
                request.params.get("arguments") or {},
                record=record,
                handed_over=inbound.headers.get(peers.HEADER) is not None,
                identity=identity,
                credentials=inbound.credentials,
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
    if answer.has_structured:
        result["structuredContent"] = answer.structured if answer.raw is None else orjson.Fragment(answer.raw)
    return result


def _worded(ids: Ids, message_id: object, **outcome: Any) -> bytes:
    """An answer: `result` or `error`, with the call's ids beside it."""
    answer = {"jsonrpc": "2.0", "id": message_id, **outcome, "request_id": ids.request_id, "trace_id": ids.trace_id}
    return orjson.dumps(answer)
