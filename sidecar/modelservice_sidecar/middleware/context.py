"""Outermost layer: gives every request its ids and turns what nobody foresaw into a clean answer.

Owns the creation of `Inbound` and the last catch. What a fault of ours says to the caller is a request id; the detail is in
the log under that id.
"""

import os
from collections.abc import Callable

from modelservice_sidecar import inbound as requests
from modelservice_sidecar import log
from modelservice_sidecar.core import mcp, trace
from modelservice_sidecar.inbound import ASGIApp, Inbound, Receive, Scope, Send
from modelservice_sidecar.log import LineWriter

PLAIN_ERRORS_BELOW = "/v2"
"""Clients of the Open Inference Protocol read no JSON-RPC, whatever layer refuses them."""


def new_hex(size: int) -> str:
    """Random bytes as hex, for request, trace and span ids."""
    return os.urandom(size).hex()


class Context:
    """Pure ASGI middleware; see the module's docstring."""

    def __init__(self, app: ASGIApp, *, writer: LineWriter, monotonic: Callable[[], float]) -> None:
        self._app = app
        self._writer = writer
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = mcp.read_headers(scope["headers"])
        wanted = trace.wanted_in_headers(headers.values)
        ids = trace.choose(wanted, trace.Wanted(), new_hex)
        inbound = Inbound(headers=headers, ids=ids, wanted=wanted, received=self._monotonic())
        inbound.plain_errors = scope["path"].startswith(PLAIN_ERRORS_BELOW)
        scope[requests.KEY] = inbound
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            self._writer.event("fault", request_id=inbound.ids.request_id, error=log.fault(error))
            if inbound.started:
                raise
            message = f"Internal error; the adapter's log has the detail under request id {inbound.ids.request_id}"
            await requests.refuse(inbound, send, 500, message, code=mcp.INTERNAL_ERROR)
