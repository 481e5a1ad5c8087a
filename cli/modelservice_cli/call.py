"""`modelservice tools NAME` and `modelservice call NAME TOOL key=value …`: an adopted model from this terminal.

Owns the way to the adapter (`kubectl port-forward` to its Service), the reading of arguments and what is printed.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from modelservice_cli import observing, terminal
from modelservice_cli.kubectl import Kubectl
from modelservice_cli.mcp_client import McpClient
from modelservice_cli.outcome import NO, OK, USAGE, CommandError
from modelservice_operator.core import naming


def run_tools(options: argparse.Namespace) -> int:
    """List the tools; the exit code."""
    with connected(options) as client:
        found = client.tools()
    if options.output == "json":
        terminal.print_json(found)
        return OK
    rows = [[str(tool.get("name")), _arguments_of(tool), _first_line(tool)] for tool in found]
    print(terminal.table(["TOOL", "ARGUMENTS", "WHAT IT DOES"], rows) if rows else "It offers no tools.")
    return OK


def run_call(options: argparse.Namespace) -> int:
    """Call one tool; the exit code says whether it succeeded."""
    arguments = parse_arguments(options.arguments)
    with connected(options) as client:
        progress = terminal.Progress()
        try:
            result = client.call(options.tool, arguments, progress.tell)
        finally:
            progress.end()
    failed = bool(result.get("isError"))
    if options.output == "json":
        terminal.print_json(result)
    else:
        print(as_text(result), file=sys.stderr if failed else sys.stdout)
    return NO if failed else OK


@contextmanager
def connected(options: argparse.Namespace) -> Iterator[McpClient]:
    """A client of the adapters of a ModelService, for as long as the block lasts.

    Raises:
        CommandError: There is no such ModelService, or no adapter of it can be reached.
    """
    kubectl = Kubectl(context=options.context, kubeconfig=options.kubeconfig, namespace=options.namespace)
    found = kubectl.get(observing.MODEL_SERVICES, options.name)
    service = kubectl.find("services", naming.service(options.name))
    if service is None:
        raise CommandError(
            f"ModelService {options.name} has no Service yet; `modelservice status {options.name}` says why.", NO
        )
    port = int(service["spec"]["ports"][0]["port"])
    # The name that the operator's own handshake uses: it is allowed whatever spec.mcp.allowedHosts says.
    host = f"{naming.service_host(found['metadata']['namespace'], options.name)}:{port}"
    path = ((found.get("spec") or {}).get("mcp") or {}).get("path") or "/mcp"
    with kubectl.forwarded(f"service/{service['metadata']['name']}", port) as local:
        yield McpClient(port=local, host=host, path=path, token=_token(options.token), timeout=options.timeout)


def parse_arguments(words: Sequence[str]) -> dict[str, Any]:
    """`key=value`, `key=@file` and `@file`; a value that is JSON is taken as such, any other is text.

    Raises:
        CommandError: A word is none of these, or a file cannot be read.
    """
    found: dict[str, Any] = {}
    for word in words:
        if word.startswith("@"):
            whole = _value(_file(word[1:]))
            if not isinstance(whole, dict):
                raise CommandError(f"{word[1:]} holds no JSON object with the tool's arguments.", USAGE)
            found |= whole
            continue
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise CommandError(f"{word!r} is no argument; write key=value, key=@FILE, or @FILE for all of them.", USAGE)
        found[key] = _value(_file(value[1:]) if value.startswith("@") else value)
    return found


def as_text(result: dict[str, Any]) -> str:
    """What a person reads of a result: its structured content, else its texts."""
    structured = result.get("structuredContent")
    if structured is not None and not result.get("isError"):
        return json.dumps(structured, indent=2, ensure_ascii=False)
    parts = []
    for block in result.get("content") or []:
        if block.get("type") == "text":
            parts.append(str(block.get("text")))
        else:
            parts.append(f"[{block.get('mimeType') or block.get('type')}: --output=json has it]")
    return "\n".join(parts)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _file(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}.", USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is no UTF-8 text: {error}.", USAGE) from error


def _token(given: str) -> str:
    token = (_file(given[1:]) if given.startswith("@") else given).strip()
    if not token.isascii() or not all(letter.isprintable() for letter in token):
        raise CommandError("--token holds letters that no token has; give the bare token, or @FILE.", USAGE)
    return token


def _arguments_of(tool: dict[str, Any]) -> str:
    schema = tool.get("inputSchema") or {}
    needed = set(schema.get("required") or [])
    return " ".join(name if name in needed else f"[{name}]" for name in schema.get("properties") or {}) or "-"


def _first_line(tool: dict[str, Any]) -> str:
    text = str(tool.get("description") or tool.get("title") or "").strip().partition("\n")[0]
    return text if len(text) <= 80 else text[:79] + "…"
