"""The end of the chain: the model server, piece by piece where the caller wants progress.

Owns the choice between a whole answer and a streamed one.
"""

from contextlib import aclosing

from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.core.errors import BackendAnswerInvalidError, BackendUnreachableError
from modelservice_sidecar.pipeline.call import Call


async def ask_backend(call: Call) -> Answer:
    """The model server's answer."""
    if call.backend is None:
        raise BackendUnreachableError("The model server has not been found yet; try again in a moment.")
    call.asked = True
    on_progress = call.context.on_progress
    if on_progress is None:
        return await call.backend.call(call.tool.tool.spec, call.arguments, call.context)
    async with aclosing(call.backend.stream(call.tool.tool.spec, call.arguments, call.context)) as items:
        async for item in items:
            if isinstance(item, Answer):
                return item
            on_progress(item)
    raise BackendAnswerInvalidError("The model server's stream ended without an answer.")
