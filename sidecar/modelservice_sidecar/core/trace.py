"""Which request id and which trace a call belongs to.

Owns the reading of ids in every spelling clients use. Never fails: an id that is malformed is replaced by a new one,
because a broken tracing header must not cost a call. New ids come in as an argument; there is no randomness here.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}")
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.IGNORECASE)
_LENGTHS: Final = frozenset(map(len, ("request_id", "modelservice.dev/requestid", "traceparent", "tracestate")))
"""Most keys of `_meta` are others: they are passed over without being folded."""
_TRACESTATE: Final = re.compile(r"[\x20-\x7e]{1,512}")

NewHex = Callable[[int], str]
"""Called with a number of bytes; returns that many random bytes as lower-case hex."""


class Ids(NamedTuple):
    """The ids of one call. `span_id` is ours; `flags` and `state` are handed on as they came."""

    request_id: str
    trace_id: str
    span_id: str
    flags: str = "00"
    state: str = ""

    @property
    def traceparent(self) -> str:
        """The header that makes the model server's spans children of ours."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


class Wanted(NamedTuple):
    """Ids as the caller sent them, unchecked."""

    request_id: object = None
    traceparent: object = None
    tracestate: object = None


def wanted_in_meta(meta: Mapping[str, Any] | None) -> Wanted:
    """The ids in a JSON-RPC `_meta` object, keys in any letter case."""
    if not meta:
        return _NOTHING
    folded = {key.lower(): value for key, value in meta.items() if len(key) in _LENGTHS}
    if not folded:
        return _NOTHING
    return Wanted(
        request_id=folded.get("request_id") or folded.get("modelservice.dev/requestid"),
        traceparent=folded.get("traceparent"),
        tracestate=folded.get("tracestate"),
    )


def parse_traceparent(value: object) -> tuple[str, str] | None:
    """Trace id and flags of a W3C `traceparent`, or `None` where it is not a valid one."""
    if not isinstance(value, str) or len(value) > 512:
        return None
    match = _TRACEPARENT.fullmatch(value.strip())
    if match is None:
        return None
    version, trace_id, parent_id, flags = (part.lower() for part in match.groups())
    # Version ff is forbidden; version 00 has exactly four fields; all-zero ids mean "none".
    if version == "ff" or not trace_id.strip("0") or not parent_id.strip("0"):
        return None
    if version == "00" and len(value.strip()) != 55:
        return None
    return trace_id, flags


def choose(headers: Wanted, meta: Wanted, new_hex: NewHex) -> Ids:
    """The call's ids: request id from the header, else `_meta`; trace from `_meta` (MCP's place), else the header."""
    fresh = new_hex(40)  # all at once: each asking is a system call
    request_id = _valid_request_id(headers.request_id) or _valid_request_id(meta.request_id) or fresh[:32]
    for source in (meta, headers):
        parsed = parse_traceparent(source.traceparent)
        if parsed is not None:
            trace_id, flags = parsed
            state = source.tracestate
            kept = state if isinstance(state, str) and _TRACESTATE.fullmatch(state) else ""
            return Ids(request_id=request_id, trace_id=trace_id, span_id=fresh[64:], flags=flags, state=kept)
    return Ids(request_id=request_id, trace_id=fresh[32:64], span_id=fresh[64:])


def _valid_request_id(value: object) -> str | None:
    return value if isinstance(value, str) and _REQUEST_ID.fullmatch(value) else None


_NOTHING: Final = Wanted()
