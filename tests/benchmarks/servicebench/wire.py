"""One call as each subject wants to hear it, and how its answer is recognised as right.

Owns the request bytes: the same sixteen numbers as plain JSON, as MCP 2026-07-28 and as MCP 2025-11-25. Pure.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import Any, Final

from servicebench.failure import BenchError

FEATURES: Final = [round(0.1 * number + 0.03125, 5) for number in range(16)]
SCORE: Final = round(sum(FEATURES), 6)
TOOL: Final = "predict"
MODERN_VERSION: Final = "2026-07-28"
OLDER_VERSION: Final = "2025-11-25"
_JSON: Final = {"Content-Type": "application/json"}
_MCP: Final = {**_JSON, "Accept": "application/json, text/event-stream"}


def answer(score: float) -> dict[str, Any]:
    """What the model server answers: about 200 bytes of JSON."""
    return {
        "score": score,
        "label": "legitimate",
        "model": "fraud-detector",
        "version": "2026.11.3",
        "probabilities": [0.9731, 0.0188, 0.0052, 0.0029],
        "explanation": "amount and hour of day weigh most in this decision",
    }


@dataclass(frozen=True, kw_only=True)
class Wire:
    """How a subject is asked. `mcp` says whether its answer is a JSON-RPC response."""

    path: str
    headers: dict[str, str]
    body: bytes = field(repr=False)
    mcp: bool

    @property
    def marker(self) -> str:
        """Stands in every right answer and in no other."""
        return f"{SCORE}"

    def verify(self, port: int, subject: str) -> None:
        """Ask once and look at the whole answer.

        Raises:
            BenchError: it is not the right one.
        """
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("POST", self.path, self.body, self.headers)
            reply = connection.getresponse()
            content = reply.read()
        except OSError as error:
            raise BenchError(f"{subject} cannot be asked: {error}") from error
        finally:
            connection.close()
        if reply.status != 200 or not self.is_right(content):
            raise BenchError(f"{subject} answers wrongly: HTTP {reply.status} {content[:300]!r}")

    def is_right(self, content: bytes) -> bool:
        """Whether this is the answer to this call."""
        try:
            value = json.loads(content)
            if self.mcp:
                value = {} if value["result"].get("isError", False) else value["result"]["structuredContent"]
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        return bool(value == answer(SCORE))


def plain() -> Wire:
    """The model server's own HTTP."""
    return Wire(path="/predict", headers=_JSON, body=json.dumps({"features": FEATURES}).encode(), mcp=False)


def modern() -> Wire:
    """MCP without a handshake: every request says which revision and which tool."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    }
    headers = {"Mcp-Protocol-Version": MODERN_VERSION, "Mcp-Method": "tools/call", "Mcp-Name": TOOL}
    return _call({"name": TOOL, "arguments": {"features": FEATURES}, "_meta": meta}, headers)


def older() -> Wire:
    """MCP of the `initialize` era, without a session."""
    return _call({"name": TOOL, "arguments": {"features": FEATURES}}, {"Mcp-Protocol-Version": OLDER_VERSION})


def _call(params: dict[str, Any], headers: dict[str, str]) -> Wire:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return Wire(path="/mcp", headers={**_MCP, **headers}, body=json.dumps(message).encode(), mcp=True)
