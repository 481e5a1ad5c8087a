"""Calls the demo's model twice: as an MCP client does, with the official SDK, and directly over HTTP.

Owns the picture that is shown, the two calls and their timing. Knows URLs and nothing of Kubernetes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import mcp

ROUNDS = 30
INK = " .:-=+*#%@@@@@@@@"

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
ARGUMENTS = {"pixels": ZERO}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What an MCP client sees of the model, and how long a call takes it."""

    protocol: str
    server: str
    tools: list[mcp.types.Tool]
    tool: str
    answer: Any
    milliseconds: float
    """Median over `ROUNDS` calls on one connection, in milliseconds."""


@dataclass(frozen=True, kw_only=True)
class Direct:
    """The same call without MCP."""

    answer: Any
    milliseconds: float


def draw(picture: list[list[int]]) -> list[str]:
    """The picture as lines of characters, two to a pixel."""
    return ["".join(INK[pixel] * 2 for pixel in row) for row in picture]


def choose_tool(names: list[str]) -> str:
    """The prediction among the model's tools, whatever the service's author called its operation."""
    return next(name for name in names if name.startswith("predict"))


async def call_as_client(url: str) -> Seen:
    """Connects, lists the tools and reads the picture, with the official MCP client."""
    async with mcp.Client(url, read_timeout_seconds=30) as client:
        tools = (await client.list_tools()).tools
        tool = choose_tool([tool.name for tool in tools])
        result = await client.call_tool(tool, ARGUMENTS)
        if result.is_error:
            raise RuntimeError(f"the tool {tool} answered with an error: {result.content}")
        return Seen(
            protocol=str(client.protocol_version),
            server=f"{client.server_info.name} {client.server_info.version}" if client.server_info else "",
            tools=tools,
            tool=tool,
            answer=result.structured_content,
            milliseconds=await _median(lambda: client.call_tool(tool, ARGUMENTS)),
        )


async def call_directly(url: str) -> Direct:
    """Reads the picture with a plain HTTP request to the model server."""
    async with httpx2.AsyncClient(timeout=30) as client:
        response = await client.post(f"{url}/predict", json=ARGUMENTS)
        response.raise_for_status()
        return Direct(
            answer=response.json(),
            milliseconds=await _median(lambda: client.post(f"{url}/predict", json=ARGUMENTS)),
        )


async def _median(call: Callable[[], Awaitable[Any]]) -> float:
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        await call()
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times)
