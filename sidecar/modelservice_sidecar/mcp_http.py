"""The `/mcp` endpoint: MCP 2026-07-28 and the `initialize` era on one URL, without sessions.

Owns the HTTP side (methods, media types, streams) and the wording of results in MCP. What a request is, `core.mcp` decides;
what a call does, `calls` and the pipeline.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import orjson

from modelservice_sidecar import inbound as requests
from modelservice_sidecar import json_body
from modelservice_sidecar.backends.base import Answer, Progress
from modelservice_sidecar.calls import LIST_WAIT, Calls, Snapshot
from modelservice_sidecar.core import catalogue, errors, mcp, revisions, trace
from modelservice_sidecar.core.errors import AccessError, CallError
from modelservice_sidecar.core.mcp import Notification, Rejection, Route
from modelservice_sidecar.exchange import EVENT_STREAM, STREAM_HEADERS, Exchange, Timing, frame
from modelservice_sidecar.inbound import Inbound, Receive, Scope, Send
from modelservice_sidecar.middleware.context import new_hex
from modelservice_sidecar.subscriptions import Stream, Subscriptions, TooManyStreamsError
from modelservice_sidecar.telemetry import CallRecord, Telemetry

REQUEST_ID_KEY: Final = "modelservice.dev/requestId"
TRACE_ID_KEY: Final = "modelservice.dev/traceId"
RETRY_AFTER_KEY: Final = "modelservice.dev/retryAfter"
DISCOVER_TTL_MS: Final = 60_000

_METHOD_NOT_ALLOWED: Final = [(b"allow", b"POST")]
_RETRY: Final = [(b"retry-after", b"1")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepts:
    """Which media types the caller takes."""

    json: bool
    stream: bool


class McpEndpoint:
    """ASGI application of `/mcp`; see the module's docstring."""

    def __init__(
        self,
        *,
        calls: Calls,
        snapshot: Callable[[], Snapshot],
        subscriptions: Subscriptions,
        telemetry: Telemetry,
        timing: Timing,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._calls = calls
        self._snapshot = snapshot
        self._subscriptions = subscriptions
        self._telemetry = telemetry
        self._timing = timing
        self._wall = wall

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inbound = requests.of(scope)
        if scope["method"] != "POST":
            # No stream is offered on GET and no session can be deleted, in either era.
            self._telemetry.rejected("method")
            await requests.answer_empty(inbound, send, 405, _METHOD_NOT_ALLOWED)
            return
        accepts = read_accept(inbound.headers.get("accept"), http_1_0=scope["http_version"] == "1.0")
        if not accepts.json:
            self._telemetry.rejected("accept")
            await requests.refuse(inbound, send, 406, "Accept must allow application/json and text/event-stream")
            return
        if not is_json(inbound.headers.get("content-type")):
            self._telemetry.rejected("content_type")
            await requests.refuse(inbound, send, 415, "Content-Type must be application/json")
            return
        verdict = self._classify(inbound)
        if isinstance(verdict, Route):
            await self._route(verdict, inbound, accepts, receive, send)
        elif isinstance(verdict, Notification):
            await requests.answer_empty(inbound, send, 202)
        else:
            await self._reject(verdict, inbound, send)

    def _classify(self, inbound: Inbound) -> mcp.Verdict:
        try:
            body = json_body.load(inbound.body)
        except json_body.BadJsonError:
            return mcp.parse_error()
        verdict = mcp.classify(inbound.headers, body)
        if isinstance(verdict, Route):
            meta = verdict.params.get("_meta")
            if isinstance(meta, dict):
                in_meta = trace.wanted_in_meta(meta)
                if in_meta.others is not None:
                    inbound.ids = trace.choose(inbound.wanted, in_meta, new_hex)
        return verdict

    async def _route(self, route: Route, inbound: Inbound, accepts: Accepts, receive: Receive, send: Send) -> None:
        if route.method == "tools/call":
            await self._call(route, inbound, accepts, receive, send)
        elif route.method == "subscriptions/listen":
            await self._listen(route, inbound, accepts, receive, send)
        else:
            if route.method == "tools/list":
                refusal = self._snapshot().access.may_list(inbound.identity)
                if refusal is not None:
                    await self._deny(refusal, route, inbound, send)
                    return
                await self._calls.until_looked(LIST_WAIT)
            try:
                result = _SIMPLE[route.method](self._snapshot().seen_by(inbound.identity), route)
            except catalogue.BadCursorError:
                status = 400 if route.era == "modern" else 200
                rejection = Rejection(code=mcp.INVALID_PARAMS, message="Unknown cursor", status=status, id=route.id)
                await self._reject(rejection, inbound, send)
                return
            if route.method != "ping":  # whose answer is empty by definition
                result = _stamped(result, route, inbound, self._snapshot())
            self._calls.finish_other(route.method, inbound.received)
            await requests.answer(
                inbound, send, 200, orjson.dumps({"jsonrpc": "2.0", "id": route.id, "result": result})
            )

    async def _reject(self, rejection: Rejection, inbound: Inbound, send: Send) -> None:
        self._telemetry.rejected(_REASONS.get(rejection.code, "other"))
        message = requests.rpc_error(rejection.code, rejection.message, rejection.id, rejection.data)
        await requests.answer(inbound, send, rejection.status, orjson.dumps(message))

    async def _deny(self, refusal: AccessError, route: Route, inbound: Inbound, send: Send) -> None:
        told = errors.telling(refusal)
        self._telemetry.rejected(told.outcome)
        requests.ask_for_scope(inbound, refusal.scope)
        message = requests.rpc_error(told.code, str(refusal), route.id)
        await requests.answer(inbound, send, told.status, orjson.dumps(message))

    async def _call(self, route: Route, inbound: Inbound, accepts: Accepts, receive: Receive, send: Send) -> None:
        token = mcp.progress_token(route.params)
        exchange = Exchange(inbound, receive, send, streams=accepts.stream, token=token, timing=self._timing)
        record = CallRecord(
            ids=inbound.ids,
            era=route.era,
            revision=route.revision,
            message_id=route.id,
            bytes_in=len(inbound.body),
            user=inbound.user,
        )
        tells = exchange.progress if token is not None and accepts.stream else None
        await exchange.run(self._called(route, inbound, record, tells))

    async def _called(
        self, route: Route, inbound: Inbound, record: CallRecord, on_progress: Callable[[Progress], None] | None
    ) -> tuple[int, bytes]:
        """Run the call and word its outcome; it is accounted for whatever happens."""
        status, body = 499, b""
        try:
            try:
                answer = await self._calls.run(
                    route.params["name"],
                    route.params.get("arguments") or {},
                    record=record,
                    on_progress=on_progress,
                    identity=inbound.identity,
                    credentials=inbound.credentials,
                    headers=inbound.headers,
                )
                result = _result(answer)
            except CallError as error:
                told = errors.telling(error)
                if not told.tool_error:
                    status = told.status if route.era == "modern" else 200
                    if isinstance(error, AccessError):  # a matter of HTTP: clients act on the status and its challenge
                        status = told.status
                        requests.ask_for_scope(inbound, error.scope)
                    body = orjson.dumps(requests.rpc_error(told.code, str(error), route.id))
                    return status, body
                result = {"content": [{"type": "text", "text": str(error)}], "isError": True}
                if error.retry_after is not None:
                    result["_meta"] = {RETRY_AFTER_KEY: ceil(error.retry_after)}
            status = 200
            stamped = _stamped(result, route, inbound, self._snapshot())
            body = orjson.dumps({"jsonrpc": "2.0", "id": route.id, "result": stamped})
            return status, body
        finally:
            self._calls.finish(record, inbound.received, status, len(body))

    async def _listen(self, route: Route, inbound: Inbound, accepts: Accepts, receive: Receive, send: Send) -> None:
        if not accepts.stream:
            await requests.refuse(inbound, send, 406, "subscriptions/listen needs Accept: text/event-stream")
            return
        refusal = self._snapshot().access.may_list(inbound.identity)
        if refusal is not None:
            await self._deny(refusal, route, inbound, send)
            return
        try:
            async with self._subscriptions.open() as stream:
                gone = asyncio.ensure_future(requests.disconnected(receive))
                gone.add_done_callback(lambda _: stream.wake.set())
                try:
                    await self._serve_stream(route, inbound, stream, gone, send)
                finally:
                    gone.cancel()
                    with suppress(asyncio.CancelledError):
                        await gone
        except TooManyStreamsError:
            self._telemetry.rejected("listen_limit")
            message = requests.rpc_error(mcp.INTERNAL_ERROR, "No further stream can be opened now", route.id)
            await requests.answer(inbound, send, 503, orjson.dumps(message), extra=_RETRY)

    async def _serve_stream(
        self, route: Route, inbound: Inbound, stream: Stream, gone: "asyncio.Future[None]", send: Send
    ) -> None:
        meta = {mcp.SUBSCRIPTION_ID_KEY: route.id}
        hears = route.params["notifications"].get("toolsListChanged") is True
        acknowledged = {"notifications": {"toolsListChanged": True} if hears else {}, "_meta": meta}
        await send(inbound.start(200, EVENT_STREAM, None, STREAM_HEADERS))
        await _send_frame(send, _notification("notifications/subscriptions/acknowledged", acknowledged))
        loop = asyncio.get_running_loop()
        expires = float("inf") if inbound.identity is None else inbound.identity.expires
        while not stream.closed and self._wall() < expires:  # a stream does not outlive the token that opened it
            left = max(0.0, expires - self._wall())
            ping = loop.call_later(min(self._timing.beat * 2, left), stream.wake.set)
            await stream.wake.wait()
            ping.cancel()
            stream.wake.clear()
            if gone.done():
                return
            if stream.changed and hears:
                await _send_frame(send, _notification("notifications/tools/list_changed", {"_meta": meta}))
            elif not stream.closed:
                await send({"type": "http.response.body", "body": b": ping\r\n\r\n", "more_body": True})
            stream.changed = False
        result = _stamped({"_meta": dict(meta)}, route, inbound, self._snapshot())
        await _send_frame(send, {"jsonrpc": "2.0", "id": route.id, "result": result}, last=True)


def read_accept(value: str | None, *, http_1_0: bool = False) -> Accepts:
    """What the Accept header allows. HTTP/1.0 has no chunks, so no stream is sent to it."""
    if value == "application/json, text/event-stream":
        return Accepts(json=True, stream=not http_1_0)
    types = {part.partition(";")[0].strip().lower() for part in (value or "").split(",")}
    every = "*/*" in types
    return Accepts(
        json=every or bool(types & {"application/json", "application/*"}),
        stream=(every or bool(types & {"text/event-stream", "text/*"})) and not http_1_0,
    )


def is_json(content_type: str | None) -> bool:
    """Whether a Content-Type says JSON in UTF-8."""
    if content_type == "application/json":
        return True
    media, _, parameters = (content_type or "").partition(";")
    charset = parameters.lower().partition("charset=")[2].strip(" \"'")
    return media.strip().lower() == "application/json" and charset in {"", "utf-8", "utf8"}


def _result(answer: Answer) -> dict[str, Any]:
    result: dict[str, Any] = {"content": answer.content, "isError": False}
    if answer.has_structured:
        result["structuredContent"] = answer.structured if answer.raw is None else orjson.Fragment(answer.raw)
    return result


def _stamped(result: dict[str, Any], route: Route, inbound: Inbound, now: Snapshot) -> dict[str, Any]:
    """The result with the call's ids, and with what every modern result carries."""
    meta: dict[str, Any] = {
        **result.get("_meta", {}),
        REQUEST_ID_KEY: inbound.ids.request_id,
        TRACE_ID_KEY: inbound.ids.trace_id,
    }
    if route.era == "modern":
        result["resultType"] = "complete"
        meta[mcp.SERVER_INFO_KEY] = _server_info(now)
    result["_meta"] = meta
    return result


def _server_info(now: Snapshot) -> dict[str, str]:
    return {"name": now.config.server.name, "version": now.config.server.version}


def _discover(now: Snapshot, _route: Route) -> dict[str, Any]:
    result: dict[str, Any] = {
        "supportedVersions": list(revisions.MODERN),
        "capabilities": {"tools": {"listChanged": True}},
        "ttlMs": DISCOVER_TTL_MS,
        "cacheScope": _cache_scope(now),
    }
    if now.config.server.instructions:
        result["instructions"] = now.config.server.instructions
    return result


def _initialize(now: Snapshot, route: Route) -> dict[str, Any]:
    result: dict[str, Any] = {
        "protocolVersion": route.revision,
        # Without a session there is no stream on which a handshake client could hear of a change.
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": _server_info(now),
    }
    if now.config.server.instructions:
        result["instructions"] = now.config.server.instructions
    return result


def _list(now: Snapshot, route: Route) -> dict[str, Any]:
    listing = now.published.listing(route.params.get("cursor"))
    result: dict[str, Any] = {"tools": listing.tools_json}
    if listing.next_cursor is not None:
        result["nextCursor"] = listing.next_cursor
    if route.era == "modern":
        result |= {"ttlMs": now.list_ttl_ms, "cacheScope": _cache_scope(now)}
    return result


def _cache_scope(now: Snapshot) -> str:
    """What was told to one caller is not for others where callers differ."""
    return "private" if now.access.required else "public"


def _ping(_now: Snapshot, _route: Route) -> dict[str, Any]:
    return {}


def _notification(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


async def _send_frame(send: Send, message: dict[str, Any], *, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": frame(orjson.dumps(message)), "more_body": not last})


_SIMPLE: Final[dict[str, Callable[[Snapshot, Route], dict[str, Any]]]] = {
    "server/discover": _discover,
    "initialize": _initialize,
    "ping": _ping,
    "tools/list": _list,
}

_REASONS: Final = {
    mcp.PARSE_ERROR: "parse",
    mcp.INVALID_REQUEST: "invalid_request",
    mcp.METHOD_NOT_FOUND: "unknown_method",
    mcp.INVALID_PARAMS: "invalid_params",
    mcp.HEADER_MISMATCH: "header_mismatch",
    mcp.UNSUPPORTED_VERSION: "unsupported_version",
}
