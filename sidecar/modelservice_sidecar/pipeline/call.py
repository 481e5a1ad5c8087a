"""What goes through the pipeline: one call, and the shape of everything that takes one.

Owns the two values that all stages share. Knows no stage.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from modelservice_sidecar.backends.base import Answer, Backend, CallContext
from modelservice_sidecar.published import PublishedTool


@dataclass(kw_only=True, slots=True)
class Call:
    """One call on its way. `credentials` is the caller's Authorization header, for a hand-over and nothing else.

    `asked`: the model server was asked. `expired`: the call's time was up. Stages need both to tell a slow model server from
    a caller that left.
    """

    tool: PublishedTool
    arguments: dict[str, Any]
    context: CallContext
    backend: Backend | None
    credentials: str | None = field(default=None, repr=False)
    asked: bool = False
    expired: bool = False

    @property
    def user(self) -> str:
        """Who calls, for counting and keeping apart: the verified subject at its issuer; empty where nobody has to say."""
        identity = self.context.identity
        return "" if identity is None else f"{identity.issuer}\n{identity.subject}"


Handler = Callable[[Call], Awaitable[Answer]]
"""The rest of the chain. A stage that only lets through or refuses is a plain function and gives the awaitable on."""
