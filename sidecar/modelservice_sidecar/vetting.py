"""Whether what was found may be published: it is what the ModelService declares, and it has answered its warm-up calls.

Owns the two questions and their wording. Publishes nothing and looks for nothing itself.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from modelservice_api.adapter_config import ModelConfig, WarmUpRequestConfig
from modelservice_sidecar.backends.base import Backend, CallContext, Description
from modelservice_sidecar.core import model_spec
from modelservice_sidecar.core.errors import CallError
from modelservice_sidecar.core.trace import Ids
from modelservice_sidecar.published import Published

_MAX_TOLD: Final = 8


def conflict(declared: ModelConfig, description: Description) -> str | None:
    """What the model says otherwise than was declared, in sentences, or `None`."""
    if not declared.inputs and not declared.outputs:
        return None
    signatures = [spec.signature for spec in description.tools if spec.signature is not None]
    if len(signatures) != 1:
        found = f"{len(signatures)} of its models take tensors" if signatures else "none of its tools takes tensors"
        return (
            f"spec.model declares the tensors of one model, and of this {description.kind} server {found}; "
            "name one in spec.backend, or leave inputs and outputs out."
        )
    told = model_spec.differences(declared, signatures[0])
    more = f" And {len(told) - _MAX_TOLD} more." if len(told) > _MAX_TOLD else ""
    return " ".join(told[:_MAX_TOLD]) + more if told else None


async def warm_up(
    backend: Backend,
    published: Published,
    requests: Sequence[WarmUpRequestConfig],
    *,
    seconds: float,
    new_ids: Callable[[], Ids],
    on_call: Callable[[str], None],
) -> str | None:
    """Make the calls one after another, each within `seconds`; what went wrong with the first that failed, or `None`.

    `on_call` is told which one begins.
    """
    for number, request in enumerate(requests, start=1):
        which = f"Warm-up call {number} of {len(requests)}, {request.tool}"
        on_call(f"{which}, is being made.")
        tool = published.tools.get(request.tool)
        if tool is None:
            return (
                f"{which}, names no published tool; there are {', '.join(list(published.tools)[:_MAX_TOLD]) or 'none'}."
            )
        problem = tool.check_arguments(request.arguments)
        if problem is not None:
            return f"{which}, has wrong arguments: {problem}"
        context = CallContext(ids=new_ids(), deadline=asyncio.get_running_loop().time() + seconds)
        try:
            async with asyncio.timeout(seconds):
                await backend.call(tool.tool.spec, dict(request.arguments), context)
        except TimeoutError:
            return f"{which}, had no answer within {seconds:g} s."
        except CallError as error:
            return f"{which}, failed: {error}"
    return None
