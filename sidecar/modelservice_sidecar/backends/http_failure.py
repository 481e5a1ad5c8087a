"""What an HTTP status that is no success means for a call, whatever kind of model server sent it. Pure.

Owns the mapping of statuses to errors. What is shown of a model server's error is its `detail` or message, reduced to places
and messages and cleaned; never a body as it came, which may hold traces, addresses or the input.
"""

from email.utils import parsedate_to_datetime
from math import ceil
from typing import Any, Final

import orjson

from modelservice_sidecar.core import text
from modelservice_sidecar.core.errors import (
    BackendBusyError,
    BackendDeniedError,
    BackendFailureError,
    BackendRefusedError,
    CallError,
)

BUSY: Final = frozenset({429, 503})
"""The server says that it did not take the request."""
MAX_DETAILS: Final = 8
_FEW_WORDS: Final = 300


def failure(status: int, headers: dict[str, str], body: bytes) -> CallError:
    """The error for a status that is no success."""
    if status in {401, 403}:
        return BackendDeniedError(f"The model server refuses the adapter (HTTP {status}); its owner must allow it.")
    if status in BUSY:
        wait = asked_to_wait(headers)
        when = " later" if wait is None else f" in {max(wait, 1)} s"
        return BackendBusyError(f"The model server is busy (HTTP {status}); try again{when}.", retry_after=wait)
    if 300 <= status < 400:
        return BackendFailureError(f"The model server answers with a redirect (HTTP {status}), which is not followed.")
    if 400 <= status < 500:
        reason = _detail(headers, body)
        return BackendRefusedError(
            f"The model server refuses the request (HTTP {status})" + (f": {reason}" if reason else ".")
        )
    return BackendFailureError(f"The model server failed (HTTP {status}).")


def asked_to_wait(headers: dict[str, str]) -> int | None:
    """The seconds that `Retry-After` asks for; a moment in it is read by the answer's own `Date`, so no clock is needed."""
    after = headers.get("retry-after", "")
    if after.isascii() and after.isdigit():
        return int(after) if len(after) < 6 else None
    try:
        seconds = (parsedate_to_datetime(after) - parsedate_to_datetime(headers["date"])).total_seconds()
    except (KeyError, TypeError, ValueError):
        return None
    return max(0, ceil(seconds)) if seconds < 100_000 else None


def _detail(headers: dict[str, str], body: bytes) -> str:
    """What FastAPI and problem+json say went wrong: `loc: msg` pairs or one sentence."""
    if "json" not in headers.get("content-type", "") or len(body) > 262_144:
        return ""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    detail = value.get("detail", value.get("message", value.get("error"))) if isinstance(value, dict) else None
    if isinstance(detail, dict):
        detail = detail.get("message")
    if isinstance(detail, str):
        return text.clean(detail, _FEW_WORDS)
    if not isinstance(detail, list):
        return ""
    said = [_one_detail(entry) for entry in detail[:MAX_DETAILS] if isinstance(entry, dict)]
    return text.clean("; ".join(line for line in said if line))


def _one_detail(entry: dict[str, Any]) -> str:
    message = entry.get("msg")
    if not isinstance(message, str):
        return ""
    raw_place = entry.get("loc")
    place = ".".join(str(part) for part in raw_place[:12]) if isinstance(raw_place, list) else ""
    short = text.clean(message, _FEW_WORDS)
    return f"{text.clean(place, 120)}: {short}" if place else short
