"""A small MCP client: lists tools and calls one, over HTTP on this machine.

Owns that one conversation, in the era without handshakes, which every adapter speaks. Bounded in time and bytes.
"""

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from modelservice_cli.outcome import NO, REFUSED, UNREACHABLE, USAGE, CommandError

REVISION: Final = "2026-07-28"
MAX_ANSWER: Final = 256 * 1024 * 1024
MAX_PAGES: Final = 100
_PREFIX: Final = "io.modelcontextprotocol"
_CLIENT: Final = {"name": "modelservice-cli", "version": "1"}

OnProgress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class McpClient:
    """One server behind a local port. `host` is the name under which the server knows itself."""

    port: int
    host: str
    path: str
    token: str = ""
    timeout: float = 60.0

    def tools(self) -> list[dict[str, Any]]:
        """Every page of `tools/list`.

        Raises:
            CommandError: It refuses, or does not answer.
        """
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
            found += page.get("tools") or []
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        return found

    def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        """The result of one call, an error of the tool included.

        Raises:
            CommandError: It refuses, there is no such tool, or it does not answer.
        """
        if not tool.isascii() or not tool.isprintable():
            raise CommandError(f"There is no tool {tool!r}; `modelservice tools` lists them.", USAGE)
        params = {"name": tool, "arguments": dict(arguments)}
        return self._ask("tools/call", params, name=tool, on_progress=on_progress)

    def _ask(
        self, method: str, params: dict[str, Any], *, name: str = "", on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        meta: dict[str, Any] = {
            f"{_PREFIX}/protocolVersion": REVISION,
            f"{_PREFIX}/clientCapabilities": {},
            f"{_PREFIX}/clientInfo": _CLIENT,
            **({"progressToken": 1} if on_progress else {}),
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "Host": self.host,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Mcp-Protocol-Version": REVISION,
            "Mcp-Method": method,
            **({"Mcp-Name": name} if name else {}),
            **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        try:
            connection.request("POST", self.path, json.dumps(message).encode(), headers)
            return _result(connection.getresponse(), on_progress)
        except TimeoutError as error:
            raise CommandError(
                f"{method} was not answered within {self.timeout:.0f} s; --timeout gives it longer.", NO
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise CommandError(
                f"The connection to the adapter broke ({error}); look at `modelservice status`, then try again.",
                UNREACHABLE,
            ) from error
        finally:
            connection.close()


def _result(response: http.client.HTTPResponse, on_progress: OnProgress | None) -> dict[str, Any]:
    if response.status in {401, 403}:
        told = response.getheader("WWW-Authenticate") or response.read(4096).decode("utf-8", "replace")
        raise CommandError(
            f"The MCP server answers HTTP {response.status} ({told.strip()}); give a token that it trusts with --token.",
            REFUSED,
        )
    for message in _messages(response):
        if message.get("method") == "notifications/progress" and on_progress is not None:
            on_progress(_progress(message.get("params") or {}))
        elif isinstance(message.get("result"), dict):
            found: dict[str, Any] = message["result"]
            return found
        elif isinstance(message.get("error"), dict):
            raise CommandError(f"The MCP server says: {message['error'].get('message')}", NO)
    raise CommandError(
        f"The server answers HTTP {response.status} and no MCP; look at `modelservice status`.", UNREACHABLE
    )


def _messages(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """One JSON body, or the events of a stream as they come."""
    if (response.getheader("Content-Type") or "").split(";")[0].strip() == "text/event-stream":
        data: list[str] = []
        read = 0
        for raw in response:
            read += len(raw)
            if read > MAX_ANSWER:
                break
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif not line and data:
                yield from _parsed("\n".join(data))
                data = []
    else:
        yield from _parsed(response.read(MAX_ANSWER).decode("utf-8", "replace"))


def _parsed(text: str) -> Iterator[dict[str, Any]]:
    try:
        message = json.loads(text)
    except ValueError:
        return
    if isinstance(message, dict):
        yield message


def _progress(params: Mapping[str, Any]) -> str:
    done, total = params.get("progress"), params.get("total")
    told = f"{done} of {total}" if total is not None else f"{done}"
    return f"{told} {params['message']}" if params.get("message") else told
