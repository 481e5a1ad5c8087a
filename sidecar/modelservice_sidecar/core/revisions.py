"""The MCP revisions and what differs between them, as tables.

Owns every fact that a new revision would change. Adding one means a row here and, where it brings a new shape, a rule in
`mcp`. Nothing here decides; `mcp` reads.
"""

from typing import Final

MODERN: Final = ("2026-07-28",)
"""Revisions without a handshake: every request describes itself in `params._meta` and in headers."""

HANDSHAKE: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions opened with `initialize`, oldest first."""

ALL: Final = HANDSHAKE + MODERN
OFFERED_TO_STRANGERS: Final = "2025-11-25"
"""What `initialize` offers a client whose revision we do not know."""
ASSUMED: Final = "2025-03-26"
"""What a request without a version header is taken for (MCP 2025-11-25, transports)."""

MODERN_METHODS: Final = frozenset({"server/discover", "tools/list", "tools/call", "subscriptions/listen"})
HANDSHAKE_METHODS: Final = frozenset({"initialize", "ping", "tools/list", "tools/call"})

NAME_HEADER_PARAM: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose `Mcp-Name` header must equal a parameter of the body (SEP-2243)."""
