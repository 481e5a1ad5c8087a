"""Who a caller is and what it may do: scopes, and the tools they are asked for.

Owns the decision as pure functions over values; how an identity is proven is `core.tokens` and `auth`. What is not allowed is
refused: a lane that forgets to hand on an identity gets nothing but what anybody may have.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from modelservice_sidecar.core.errors import AccessError, NotPermittedError, UnauthenticatedError

LIST_SCOPE: Final = "mcp:tools:list"
CALL_SCOPE: Final = "mcp:tools:call"
ALL_SCOPES: Final = f"{LIST_SCOPE} {CALL_SCOPE}"
SCOPE_PREFIX: Final = "mcp:tools:"
"""What of a token's scopes is ours; the rest is not kept."""
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """A caller whose token was verified. `issuer` is the platform admin's name for it; `expires` is seconds since the epoch."""

    subject: str
    issuer: str
    scopes: frozenset[str]
    expires: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """What a ModelService asks of its callers.

    `required` false asks nothing. `anonymous_tools` are the published names that need no token; every other does, also one
    that appears later.
    """

    required: bool = False
    anonymous_tools: frozenset[str] = field(default_factory=frozenset)

    @property
    def takes_anonymous(self) -> bool:
        """Whether a request without a token may come in at all."""
        return not self.required or bool(self.anonymous_tools)

    def sees_all(self, identity: Identity | None) -> bool:
        """Whether the caller sees every tool in a list; others see the anonymous ones, if there are any."""
        return not self.required or (identity is not None and LIST_SCOPE in identity.scopes)

    def may_list(self, identity: Identity | None) -> AccessError | None:
        """Why the caller gets no list at all, `None` where it gets one."""
        if self.takes_anonymous or self.sees_all(identity):
            return None
        return _list_refusal(identity)

    def may_see(self, identity: Identity | None, tool: str) -> AccessError | None:
        """Why the tool does not stand in the caller's list, `None` where it does."""
        return None if tool in self.anonymous_tools or self.sees_all(identity) else _list_refusal(identity)

    def may_call(self, identity: Identity | None, tool: str) -> AccessError | None:
        """Why the caller may not call the tool, `None` where it may."""
        if not self.required or tool in self.anonymous_tools:
            return None
        if identity is not None and (CALL_SCOPE in identity.scopes or f"{CALL_SCOPE}:{tool}" in identity.scopes):
            return None
        # The name is the caller's own text where no such tool is published; it ends in a header.
        needed = f"{CALL_SCOPE}:{tool}" if _TOOL_NAME.fullmatch(tool) else CALL_SCOPE
        return _refusal(identity, f"Calling this tool needs a token with the scope {CALL_SCOPE} or {needed}.", needed)


def _list_refusal(identity: Identity | None) -> AccessError:
    return _refusal(identity, f"Listing tools needs a token with the scope {LIST_SCOPE}.", LIST_SCOPE)


def _refusal(identity: Identity | None, message: str, scope: str) -> AccessError:
    kind = UnauthenticatedError if identity is None else NotPermittedError
    return kind(message, scope=scope)
