"""Calls of models that the adapter runs itself: the config that names their files, and how they are asked through MCP.

Owns what the benchmarks of worker processes have in common. The files are made as tests make them.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servicebench import wire
from servicebench.wire import Wire

sys.path.insert(
    0, str(Path(__file__).resolve().parents[2] / "support")
)  # real runtimes are started as tests start them
import artifact_models

__all__ = ["ToolWire", "artifact_models", "tool"]


@dataclass(frozen=True, kw_only=True)
class ToolWire(Wire):
    """A call of one tool, and the structured answer that is right."""

    expected: dict[str, Any] = field(repr=False)

    @property
    def marker(self) -> str:
        return f'"structuredContent":{json.dumps(self.expected, separators=(",", ":"))}'

    def is_right(self, content: bytes) -> bool:
        try:
            return bool(json.loads(content)["result"]["structuredContent"] == self.expected)
        except (ValueError, KeyError, TypeError):
            return False


def tool(name: str, arguments: dict[str, Any], expected: dict[str, Any]) -> ToolWire:
    """A `tools/call` of that tool."""
    asked = wire.modern()
    message = json.loads(asked.body)
    message["params"] |= {"name": name, "arguments": arguments}
    headers = {**asked.headers, "Mcp-Name": name}
    return ToolWire(path=asked.path, headers=headers, body=json.dumps(message).encode(), mcp=True, expected=expected)
