"""The answer of a model that answers any number of times, and what is told of it while it does.

Owns the shape of such a result, `{"parts": [...]}`, and its bound. None at all is an empty list and no error.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from modelservice_sidecar.backends import tensor_tool
from modelservice_sidecar.backends.base import Answer, CallContext, Progress
from modelservice_sidecar.backends.tensor_tool import Given
from modelservice_sidecar.core import tensors, text
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import BackendAnswerInvalidError, BackendAnswerTooLargeError
from modelservice_sidecar.core.schema import Schema
from modelservice_sidecar.core.tensors import Signature, Tensor
from modelservice_sidecar.upstream import MAX_ANSWER

MAX_SHOWN: Final = 200
Part = Mapping[str, Tensor]


def output_schema(signature: Signature) -> Schema:
    """The schema of all parts together."""
    part = tensors.output_schema(signature)
    definitions = part.pop("$defs", None)
    schema: Schema = {
        "type": "object",
        "properties": {"parts": {"type": "array", "items": part, "description": "One for each answer of the model."}},
        "required": ["parts"],
    }
    return schema if definitions is None else {**schema, "$defs": definitions}


class Parts:
    """Collects the parts of one call."""

    def __init__(self, spec: ToolSpec, given: Given, context: CallContext) -> None:
        assert spec.signature is not None
        self._signature = spec.signature
        self._given = given
        self._context = context
        self._size = 0
        self._answers: list[Answer] = []

    async def add(self, part: Part) -> Progress:
        """Take one more in.

        Raises:
            BackendAnswerTooLargeError: together they are too large.
            BackendAnswerInvalidError: it is not what the model's metadata says.
        """
        self._size += sum(memoryview(tensor.data).nbytes for tensor in part.values())
        if self._size > MAX_ANSWER:
            raise BackendAnswerTooLargeError(
                f"The model's answers are together larger than {MAX_ANSWER // (1024 * 1024)} MiB."
            )
        number = len(self._answers)
        ids = self._context.ids
        named = replace(self._context, ids=ids._replace(request_id=f"{ids.request_id}/{number}"))
        answer = await tensor_tool.answer(self._signature, self._given, part, named)
        self._answers.append(answer)
        return Progress(value=number + 1, message=_shown(part, answer))

    def whole(self) -> Answer:
        """All parts as one answer.

        Raises:
            BackendAnswerInvalidError: the caller takes tensors, of which an answer holds one set.
        """
        if self._context.wants_tensors:
            if len(self._answers) != 1:
                raise BackendAnswerInvalidError(
                    f"The model answered {len(self._answers)} times, and an answer in bytes holds one; "
                    "call this tool over MCP or JSON-RPC."
                )
            return self._answers[0]
        raw = b'{"parts":[' + b",".join(answer.raw or b"{}" for answer in self._answers) + b"]}"
        resources = [block for answer in self._answers for block in answer.content if block["type"] != "text"]
        return Answer(content=[{"type": "text", "text": raw.decode()}, *resources], has_structured=True, raw=raw)


def _shown(part: Part, answer: Answer) -> str:
    """A part in short: its words where it is words, else its JSON."""
    if len(part) == 1 and (tensor := next(iter(part.values()))).datatype == "BYTES":
        return text.clean(_words(tensor), MAX_SHOWN)
    return text.clean(next((block["text"] for block in answer.content if block["type"] == "text"), ""), MAX_SHOWN)


def _words(tensor: Tensor) -> str:
    from modelservice_sidecar.core import codec

    return "".join(item.decode("utf-8", "replace") for item in codec.split_bytes(tensor.data))
