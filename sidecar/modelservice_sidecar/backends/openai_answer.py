"""From what an OpenAI-compatible server answers, at once or in pieces, to a tool's answer. Pure.

Owns the reading of completions, their streamed chunks, and embeddings. Takes what servers really send: errors inside a
stream that began with 200, a last chunk with usage and no choices, streams without `[DONE]`.
"""

import base64
from array import array
from sys import byteorder
from typing import Any, Final, NamedTuple

import orjson

from modelservice_sidecar.backends import http_failure
from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.backends.event_stream import PieceReader
from modelservice_sidecar.core import tensors, text
from modelservice_sidecar.core.errors import BackendAnswerInvalidError, BackendFailureError, CallError


class Told(NamedTuple):
    """A tool's answer and the tokens that it cost; 0 where the server does not say."""

    answer: Answer
    tokens_in: int = 0
    tokens_out: int = 0


class Generated:
    """A text that is being written: chunks go in, its newest piece comes out, and in the end the whole answer."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._reason: str | None = None
        self._model: str | None = None
        self._usage: dict[str, int] = {}
        self._began = False
        self._ended = False

    def add(self, data: str) -> None:
        """Take the data of one event.

        Raises:
            CallError: it is an error of the model server, or nothing that is known.
        """
        if self._ended:
            return
        if data.strip() == _DONE:
            self._ended = True
            return
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            if data.lstrip().startswith('{"error"'):  # transformers serve does not escape what it quotes there
                raise _failure(None) from error
            raise BackendAnswerInvalidError("The model server's stream holds an event that is no JSON.") from error
        self.take(_checked(chunk))

    def take(self, value: dict[str, Any]) -> None:
        """Take a chunk, or a whole answer, which differs in where its text stands."""
        choices = value.get("choices")
        if not isinstance(choices, list):
            raise BackendAnswerInvalidError("The model server's answer has no list of choices.")
        if isinstance(model := value.get("model"), str):
            self._model = model
        if usage := _usage(value):
            self._usage = usage  # the last word counts: some servers send a sum with every chunk
        for choice in choices:
            if not isinstance(choice, dict) or choice.get("index", 0) != 0:
                continue  # only one was asked for
            self._began = True
            if said := _text(choice):
                self.pieces.append(said)
            if isinstance(reason := choice.get("finish_reason"), str):
                self._reason = reason

    def told(self) -> Told:
        """The whole answer.

        Raises:
            BackendAnswerInvalidError: nothing came, or not all of it.
        """
        said = "".join(self.pieces)
        if not self._began:
            raise BackendAnswerInvalidError("The model server's answer holds no text.")
        if self._reason is None and not self._ended:
            raise BackendAnswerInvalidError(
                f"The model server's stream ended in the middle of its answer. It had written: {text.clean(said, 4096)}"
            )
        structured: dict[str, Any] = {"text": said}
        if self._reason is not None:
            structured["finish_reason"] = text.clean(self._reason, 64)
        return _told([_text_block(said)], structured, self._model, self._usage)


def read_stream(body: bytes) -> Told:
    """A whole stream that came although none was asked for.

    Raises:
        CallError: it holds an error, or nothing that is known.
    """
    reader, generated = PieceReader("events"), Generated()
    for data in [*reader.feed(body), *reader.finish()]:
        generated.add(data)
    return generated.told()


def read_generated(body: bytes) -> Told:
    """The answer of a chat or a completion.

    Raises:
        CallError: it is an error in spite of its status, or nothing that is known.
    """
    generated = Generated()
    generated.take(_loaded(body))
    generated.add(_DONE)
    return generated.told()


def read_vectors(body: bytes, *, expected: int, request_id: str) -> Told:
    """The answer of an embedding: one vector for each input, all of one length, in the order of the inputs.

    Raises:
        CallError: it is an error in spite of its status, or not that many vectors.
    """
    value = _loaded(body)
    data = value.get("data")
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        raise BackendAnswerInvalidError("The model server's answer has no list of vectors.")
    if len(data) != expected:
        raise BackendAnswerInvalidError(f"The model server answered {len(data)} vectors for {expected} texts.")
    indices = [entry.get("index", place) for place, entry in enumerate(data)]
    if sorted(index for index in indices if type(index) is int) != list(range(expected)):
        raise BackendAnswerInvalidError("The model server's vectors do not say which text each one belongs to.")
    vectors = [entry.get("embedding") for _, entry in sorted(zip(indices, data, strict=True), key=lambda pair: pair[0])]
    dimensions = len(vectors[0]) if isinstance(vectors[0], list) else 0
    for vector in vectors:
        if not isinstance(vector, list) or len(vector) != dimensions or not dimensions:
            raise BackendAnswerInvalidError("The model server's vectors are not lists of one length.")
        if not all(type(number) in _NUMBERS for number in vector):
            raise BackendAnswerInvalidError("The model server's vectors hold something else than numbers.")
    said = f"{expected} vector{'s' if expected > 1 else ''} of {dimensions} numbers"
    content = [_text_block(f"{said}.")]
    told: object = vectors
    if expected * dimensions * 4 > tensors.INLINE_BYTES:
        uri = f"modelservice://answers/{request_id}/vectors"
        told = {"dtype": "FP32", "shape": [expected, dimensions], "resource": uri}
        resource = {"uri": uri, "mimeType": tensors.TENSOR_MIME, "blob": _packed(vectors)}
        content.append({"type": "resource", "resource": resource})
    model = value.get("model")
    structured = {"vectors": told, "dimensions": dimensions}
    return _told(content, structured, model if isinstance(model, str) else None, _usage(value))


def _told(content: list[dict[str, Any]], structured: dict[str, Any], model: str | None, usage: dict[str, int]) -> Told:
    if model is not None:
        structured["model"] = text.clean(model, 256)
    if usage:
        structured["usage"] = usage
    answer = Answer(content=content, structured=structured, has_structured=True)
    return Told(answer, usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0))


def _loaded(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        hint = " (it holds NaN or Infinity, which JSON has not)" if b"NaN" in body or b"Infinity" in body else ""
        raise BackendAnswerInvalidError(f"The model server's answer is no JSON{hint}.") from error
    return _checked(value)


def _checked(value: object) -> dict[str, Any]:
    """The value, unless it is an error: servers that have begun to stream can only say so inside."""
    if not isinstance(value, dict):
        raise BackendAnswerInvalidError("The model server's answer is no JSON object.")
    failed = value.get("error")
    if failed is None and value.get("object") == "error":
        failed = value
    if failed is not None:
        raise _failure(failed)
    return value


def _failure(failed: object) -> CallError:
    """What an error inside a successful answer means: its code, where it has one, is an HTTP status."""
    code = failed.get("code") if isinstance(failed, dict) else None
    if type(code) is int and 400 <= code < 500:
        return http_failure.failure(code, {"content-type": "application/json"}, orjson.dumps({"error": failed}))
    if code == 503:
        return http_failure.failure(code, {}, b"")
    return BackendFailureError("The model server failed in the middle of its answer.")


def _text(choice: dict[str, Any]) -> str:
    """What a choice says: in `delta` where it is a chunk of a chat, in `message` where it is the whole, else beside them."""
    holder = choice.get("delta", choice.get("message"))
    said = holder.get("content") if isinstance(holder, dict) else choice.get("text")
    return said if isinstance(said, str) else ""


def _usage(value: dict[str, Any]) -> dict[str, int]:
    usage = value.get("usage")
    if not isinstance(usage, dict):
        return {}
    return {name: count for name in _COUNTS if type(count := usage.get(name)) is int and count >= 0}


def _packed(vectors: list[list[float]]) -> str:
    packed = array("f", [number for vector in vectors for number in vector])
    if byteorder == "big":
        packed.byteswap()
    return base64.b64encode(packed.tobytes()).decode()


def _text_block(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


_DONE: Final = "[DONE]"
_NUMBERS: Final = frozenset({int, float})
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "total_tokens")
