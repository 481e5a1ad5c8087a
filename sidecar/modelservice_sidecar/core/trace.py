"""Which request id and which trace a call belongs to, and whether the trace is recorded.

Owns the reading of ids in every spelling clients use, and their precedence. Never fails: an id that is malformed is replaced
by a new one, because a broken tracing header must not cost a call. New ids come in as an argument; there is no randomness here.

A trace is looked for in `_meta` first, which is MCP's place and the message's own, then in the headers, which may be a
gateway's. In each: W3C `traceparent`, B3 in one header, B3 in several, then a bare trace id.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}")
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_B3: Final = re.compile(r"([0-9a-f]{16}|[0-9a-f]{32})-([0-9a-f]{16})(?:-([01d])(?:-[0-9a-f]{16})?)?", re.IGNORECASE)
_TRACE_ID: Final = re.compile(r"[0-9a-f]{16}(?:[0-9a-f]{16})?", re.IGNORECASE)
_SPAN_ID: Final = re.compile(r"[0-9a-f]{16}", re.IGNORECASE)
_TRACESTATE: Final = re.compile(r"[\x20-\x7e]{1,512}")

_REQUEST_NAMES: Final = ("xrequestid", "requestid", "modelservice.dev/requestid", "xcorrelationid", "correlationid")
_TRACE_NAMES: Final = ("traceid", "xtraceid", "modelservice.dev/traceid")
_B3_NAMES: Final = ("b3", "xb3traceid", "xb3spanid", "xb3sampled", "xb3flags")
_NAMES: Final = frozenset((*_REQUEST_NAMES, *_TRACE_NAMES, *_B3_NAMES, "traceparent", "tracestate"))
"""Every name in its folded form: lower case, without `-` and `_`."""

REQUEST_ID_HEADERS: Final = ("x-request-id", "request-id", "x-correlation-id", "correlation-id")
"""Headers that name the request, the first one that is well formed wins. HTTP knows no letter case in names."""
TRACE_HEADERS: Final = ("traceparent", "b3", "x-b3-traceid", "trace-id", "x-trace-id")
"""Headers that name the trace, in the order of their precedence."""

_OTHER_HEADERS: Final = frozenset(
    ("request-id", "request_id", "x-correlation-id", "correlation-id", "trace-id", "trace_id", "x-trace-id")
) | {"b3", "x-b3-traceid", "x-b3-spanid", "x-b3-sampled", "x-b3-flags"}
"""What is looked at only where a caller sends it at all: most send `x-request-id` and `traceparent`, or nothing."""
_LENGTHS: Final = range(min(map(len, _NAMES)), max(map(len, _NAMES)) + 5)
"""Most keys of `_meta` are longer: they are passed over without being folded."""

NewHex = Callable[[int], str]
"""Called with a number of bytes; returns that many random bytes as lower-case hex."""


class Parent(NamedTuple):
    """The caller's place in a trace. `span_id` and `flags` are empty where it named none."""

    trace_id: str
    span_id: str = ""
    flags: str = ""


class Ids(NamedTuple):
    """The ids of one call. `span_id` is ours, `parent_id` the caller's; `flags` and `state` are handed on as they came.

    `decided`: the caller has said whether the trace is recorded, and its word stands.
    """

    request_id: str
    trace_id: str
    span_id: str
    flags: str = "00"
    state: str = ""
    parent_id: str = ""
    decided: bool = False

    @property
    def traceparent(self) -> str:
        """The header that makes the model server's spans children of ours."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"

    @property
    def recorded(self) -> bool:
        """Whether the trace's spans are kept."""
        return self.flags[-1] in _ODD


class Wanted(NamedTuple):
    """Ids as the caller sent them, unchecked. `others`: by folded name, those of other conventions."""

    request_id: object = None
    traceparent: object = None
    tracestate: object = None
    others: Mapping[str, object] | None = None


def wanted_in_headers(headers: Mapping[str, str]) -> Wanted:
    """The ids in a request's headers, whose names are in lower case."""
    others = None
    if not _OTHER_HEADERS.isdisjoint(headers):
        others = {_folded(name): headers[name] for name in _OTHER_HEADERS if name in headers}
    return Wanted(
        request_id=headers.get("x-request-id"),
        traceparent=headers.get("traceparent"),
        tracestate=headers.get("tracestate"),
        others=others,
    )


def wanted_in_meta(meta: Mapping[str, Any] | None) -> Wanted:
    """The ids in a JSON-RPC `_meta` object, keys in any letter case, with `-`, `_` or nothing between words."""
    if not meta:
        return _NOTHING
    folded = {_folded(key): value for key, value in meta.items() if len(key) in _LENGTHS}
    others = {key: value for key, value in folded.items() if key in _NAMES}
    if not others:
        return _NOTHING
    return Wanted(traceparent=others.get("traceparent"), tracestate=others.get("tracestate"), others=others)


def parse_traceparent(value: object) -> Parent | None:
    """What a W3C `traceparent` says, or `None` where it is not a valid one."""
    if not isinstance(value, str) or len(value) > 512:
        return None
    text = value.strip().lower()
    match = _TRACEPARENT.fullmatch(text)
    if match is None:
        return None
    version, trace_id, parent_id, flags = match.groups()
    # Version ff is forbidden; version 00 has exactly four fields; all-zero ids mean "none".
    if version == "ff" or not trace_id.strip("0") or not parent_id.strip("0"):
        return None
    if version == "00" and len(text) != 55:
        return None
    return Parent(trace_id, parent_id, flags)


def parse_others(others: Mapping[str, object]) -> Parent | None:
    """What B3 or a bare trace id says, or `None` where none of them is valid."""
    single = _B3.fullmatch(_text(others.get("b3")))
    if single is not None:
        trace_id, span_id, sampled = single.groups()
        return _parent(trace_id, span_id, _b3_flags(sampled or ""))
    if _TRACE_ID.fullmatch(_text(others.get("xb3traceid"))):
        span_id = _text(others.get("xb3spanid"))
        debug = _text(others.get("xb3flags")) == "1"
        return _parent(
            _text(others["xb3traceid"]),
            span_id if _SPAN_ID.fullmatch(span_id) else "",
            _b3_flags("d" if debug else _text(others.get("xb3sampled"))),
        )
    for name in _TRACE_NAMES:
        bare = _text(others.get(name)).replace("-", "")  # some write it as a UUID
        if _TRACE_ID.fullmatch(bare):
            return _parent(bare)
    return None


def choose(headers: Wanted, meta: Wanted, new_hex: NewHex) -> Ids:
    """The call's ids: request id from the header, else `_meta`; trace from `_meta` (MCP's place), else the header."""
    fresh = new_hex(40)  # all at once: each asking is a system call
    request_id = _request_id(headers) or _request_id(meta) or fresh[:32]
    for source in (meta, headers):
        parent = parse_traceparent(source.traceparent)
        if parent is not None:
            state = source.tracestate
            kept = state if isinstance(state, str) and _TRACESTATE.fullmatch(state) else ""
        elif source.others is not None:
            parent, kept = parse_others(source.others), ""
        if parent is not None:
            return Ids(
                request_id=request_id,
                trace_id=parent.trace_id,
                span_id=fresh[64:],
                flags=parent.flags or "00",
                state=kept,
                parent_id=parent.span_id,
                decided=bool(parent.flags),
            )
    return Ids(request_id=request_id, trace_id=fresh[32:64], span_id=fresh[64:])


def bound_of(ratio: float) -> int:
    """What `decide` compares with, so that this share of all new traces is recorded."""
    return round(ratio * (1 << 64))


def decide(ids: Ids, bound: int) -> Ids:
    """The ids with the decision whether the trace is recorded: the caller's, else by the trace id alone.

    The same rule as OpenTelemetry's `TraceIdRatioBased`, so that every service on the way decides alike.
    """
    if ids.decided or int(ids.trace_id[16:], 16) >= bound:
        return ids
    return ids._replace(flags="01", decided=True)


def _folded(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) and len(value) <= 512 else ""


def _b3_flags(sampled: str) -> str:
    return {"1": "01", "d": "01", "D": "01", "true": "01", "0": "00", "false": "00"}.get(sampled, "")


def _parent(trace_id: str, span_id: str = "", flags: str = "") -> Parent | None:
    """Ids in the form of W3C: lower case, 16 bytes. Without a span there is no one to decide for us."""
    if not trace_id.strip("0") or (span_id and not span_id.strip("0")):
        return None
    return Parent(trace_id.lower().zfill(32), span_id.lower(), flags)


def _request_id(source: Wanted) -> str | None:
    found = _valid_request_id(source.request_id)
    if found is not None or source.others is None:
        return found
    return next((valid for name in _REQUEST_NAMES if (valid := _valid_request_id(source.others.get(name)))), None)


def _valid_request_id(value: object) -> str | None:
    return value if isinstance(value, str) and _REQUEST_ID.fullmatch(value) else None


_ODD: Final = frozenset("13579bdf")
_NOTHING: Final = Wanted()
