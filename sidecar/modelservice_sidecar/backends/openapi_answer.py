"""From a model server's HTTP answer to a tool's answer, or to the error that says what is wrong. Pure.

Owns the mapping of media types; statuses that are no success are `http_failure`'s.
"""

import base64
from typing import Any

import orjson

from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.backends.http_failure import failure
from modelservice_sidecar.core.errors import BackendAnswerInvalidError


def read(status: int, headers: dict[str, str], body: bytes, *, wrap: bool, request_id: str) -> Answer:
    """The answer in MCP's terms.

    Raises:
        CallError: the status is no success, or the body is not what it says it is.
    """
    if not 200 <= status < 300:
        raise failure(status, headers, body)
    media, _, parameters = headers.get("content-type", "").partition(";")
    media = media.strip().lower()
    if status in {204, 205} or not body:
        return Answer(content=[text_block("")])
    if media == "application/json" or media.endswith("+json"):
        return json_answer(body, wrap=wrap)
    if media.startswith(("image/", "audio/")):
        kind = media.partition("/")[0]
        return Answer(content=[{"type": kind, "data": base64.b64encode(body).decode(), "mimeType": media}])
    if media.startswith("text/") or media in {"application/xml", "application/x-ndjson", "application/jsonl"}:
        return Answer(content=[text_block(_decode(body, parameters))])
    resource = {
        "uri": f"modelservice://answers/{request_id}",
        "mimeType": media or "application/octet-stream",
        "blob": base64.b64encode(body).decode(),
    }
    return Answer(content=[{"type": "resource", "resource": resource}])


def json_answer(body: bytes, *, wrap: bool) -> Answer:
    """A JSON body as text and as structured content, which is always an object: clients of 2025 refuse anything else.

    Raises:
        BackendAnswerInvalidError: the body is not JSON. NaN and Infinity are not: passed on they would become null at one
            client and a parse error at the next, so they are refused here and named.
    """
    try:
        value = orjson.loads(body)
        written = body.decode("utf-8")
    except (orjson.JSONDecodeError, UnicodeDecodeError) as error:
        if (lines := _json_lines(body)) is not None:
            return Answer(content=[text_block("\n".join(lines))])
        hint = " (it holds NaN or Infinity, which JSON has not)" if b"NaN" in body or b"Infinity" in body else ""
        raise BackendAnswerInvalidError(f"The model server's answer says it is JSON but is not{hint}.") from error
    if wrap or not isinstance(value, dict):
        value = {"result": value}
        raw = b'{"result":' + body + b"}"
    else:
        raw = body
    # A line break inside would end an SSE data line; such bodies are written anew.
    one_line = b"\n" not in raw and b"\r" not in raw
    return Answer(content=[text_block(written)], structured=value, has_structured=True, raw=raw if one_line else None)


def _json_lines(body: bytes) -> list[str] | None:
    """The lines of a body that calls itself JSON and is one JSON value a line, as streams of tokens often are."""
    lines = [line for line in body.splitlines() if line.strip()]
    if len(lines) < 2:
        return None
    try:
        for line in lines:
            orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return [line.decode("utf-8", "replace") for line in lines]


def text_block(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def _decode(body: bytes, parameters: str) -> str:
    """Text by its declared charset; what cannot be decoded is shown as replacement characters rather than lost."""
    charset = parameters.partition("charset=")[2].partition(";")[0].strip(" \"'").lower() or "utf-8"
    if charset not in {"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1", "latin1", "windows-1252"}:
        charset = "utf-8"
    return body.decode(charset, "replace")
