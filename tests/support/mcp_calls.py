"""The official MCP client against a URL: what it lists and what it gets, in each protocol era.

Owns the picture that is sent to the digits example and the short synchronous calls that tests make.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import mcp
from mcp import types

MODERN = "2026-07-28"
ERAS = ("legacy", MODERN, "auto")

# A zero that somebody wrote: the first picture of scikit-learn's digits (UCI Optical Recognition of Handwritten Digits).
ZERO = [
    [0, 0, 5, 13, 9, 1, 0, 0],
    [0, 0, 13, 15, 10, 15, 5, 0],
    [0, 3, 15, 2, 0, 11, 8, 0],
    [0, 4, 12, 0, 0, 8, 8, 0],
    [0, 5, 8, 0, 0, 9, 8, 0],
    [0, 4, 11, 0, 1, 12, 7, 0],
    [0, 2, 14, 5, 10, 12, 0, 0],
    [0, 0, 6, 13, 10, 0, 0, 0],
]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One session with a server."""

    protocol: str
    tools: dict[str, types.Tool]
    answers: list[types.CallToolResult]


def converse(url: str, *calls: tuple[str, dict[str, Any]], mode: str = "auto") -> Seen:
    """Connects, lists the tools and makes the calls, one after another."""

    async def run() -> Seen:
        async with mcp.Client(url, mode=mode, read_timeout_seconds=30) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            answers = [await client.call_tool(name, arguments) for name, arguments in calls]
            return Seen(protocol=str(client.protocol_version), tools=tools, answers=answers)

    return asyncio.run(run())


def text_of(answer: types.CallToolResult) -> str:
    """The text blocks of an answer."""
    return "\n".join(block.text for block in answer.content if isinstance(block, types.TextContent))
