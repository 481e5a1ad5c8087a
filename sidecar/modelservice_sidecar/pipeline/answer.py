"""Stage `check_answer`: holds the model server to its own document.

Owns the error for an answer that breaks it. The check itself is compiled in `published`.
"""

from collections.abc import Awaitable
from typing import Final

from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.core.errors import BackendAnswerInvalidError
from modelservice_sidecar.pipeline.call import Call, Handler
from modelservice_sidecar.validation import Check

_SHOWN_ANSWER: Final = 4096


class CheckAnswer:
    """Clients refuse an answer that breaks a declared output schema.

    The caller still gets what was answered, inside the error: it may be right where the document is wrong.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Handler) -> None:
        self._inner = inner

    def __call__(self, call: Call) -> Awaitable[Answer]:
        check = call.tool.check_answer
        return self._inner(call) if check is None else self._checked(call, check)

    async def _checked(self, call: Call, check: Check) -> Answer:
        answer = await self._inner(call)
        problem = check(answer.structured) if answer.has_structured else "it is not JSON"
        if problem is None:
            return answer
        shown = next((block["text"] for block in answer.content if block.get("type") == "text"), "")[:_SHOWN_ANSWER]
        raise BackendAnswerInvalidError(
            f"The model server's answer does not match its own OpenAPI document ({problem}). It answered: {shown}"
        )
