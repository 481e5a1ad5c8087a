"""`modelservice dev`: the adapter on a laptop, without Kubernetes.

Owns the conversation with the person at the terminal: what is waited for, which tools were found, where to connect, what to
do when something is wrong. The adapter itself is the one that runs in pods.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, Final, TextIO

from modelservice_api.adapter_config import AdapterConfig, BackendConfig, OpenAPIConfig
from modelservice_cli.place import Target, UsageError, parse_url
from modelservice_sidecar.__main__ import run as run_adapter
from modelservice_sidecar.app import Adapter, Options, create_app
from modelservice_sidecar.config_file import BadDocumentError, ConfigFile
from modelservice_sidecar.core.catalogue import Tool
from modelservice_sidecar.log import LineWriter
from modelservice_sidecar.server import Listen

EXIT_USAGE: Final = 2

HINTS: Final = {
    "Unreachable": "Start the model server, or name another one with --backend.",
    "NotRecognised": "If its OpenAPI document is elsewhere, say where with --openapi-path.",
    "Invalid": "Fix the document; it is read again by itself.",
    "NoTools": "What is published is chosen by include, exclude, tags and filter in the config document (--config).",
}
"""What to do about each state that is not `Ready`."""

_NAME_WIDTH: Final = 36
_DESCRIPTION_WIDTH: Final = 60


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl+C; the exit code."""
    try:
        target = parse_url(options.backend, "--backend")
        file = None if options.config is None else ConfigFile(Path(options.config))
        config = load_config(file, target, options.openapi_path)
    except UsageError as error:
        print(f"modelservice dev: {error}", file=sys.stderr)
        return EXIT_USAGE
    console = Console(sys.stdout, port=options.port)
    if not target.is_local:
        console.say(f"Calls are sent to {target.host}, which is not this machine.")
    console.say(f"Looking for a model server at {options.backend} …")
    adapter = create_app(
        config,
        options=Options(backend_host=target.host, backend_port=target.port, config_file=file),
        writer=console,
    )
    console.adapter = adapter
    listen = Listen(
        mcp_host="127.0.0.1", mcp_port=options.port, admin_host="127.0.0.1", admin_port=0, drain_seconds=0.0
    )
    return run_adapter(adapter, listen)


def load_config(file: ConfigFile | None, target: Target, openapi_path: str | None) -> AdapterConfig:
    """The config document, or one for this target.

    Raises:
        UsageError: the document cannot be obeyed.
    """
    if file is not None:
        try:
            config = file.read()
        except BadDocumentError as error:
            raise UsageError(str(error)) from error
        if config is None:
            raise UsageError(f"There is no {file.path}; write one or leave --config out")
        return config
    path = openapi_path or f"{target.prefix}/openapi.json"
    if not path.startswith("/"):
        raise UsageError(f"--openapi-path {path!r} must start with a slash, as /openapi.json does")
    return AdapterConfig(backend=BackendConfig(open_api=OpenAPIConfig(path=path)))


class Console(LineWriter):
    """The adapter's log, worded for a person: its life, its tools and one short line per call."""

    def __init__(self, out: TextIO, *, port: int) -> None:
        super().__init__()
        self._out = out
        self._port = port
        self.adapter: Adapter | None = None

    def say(self, text: str) -> None:
        """Print a line at once, also where the output is a pipe."""
        print(text, file=self._out, flush=True)

    def event(self, event: str, **fields: object) -> None:
        """Word what happened in the adapter's life; what a person need not know is left out."""
        if event == "backend":
            self._backend(str(fields["state"]), str(fields["message"]))
        elif event == "port_taken":
            self.say(f"Port {self._port} is in use. Say --port with another one, or stop who uses it.")
        elif event == "ready":
            self._port = int(str(fields["mcp_port"]))
        elif event == "config_loaded":
            self.say("The config document was read again.")
        elif event in {"config_rejected", "fault", "log"}:
            self.say(f"{event}: {fields.get('message') or fields.get('error')}")
        elif event == "draining":
            self.say("Stopping.")

    def line(self, fields: dict[str, object]) -> None:
        """Word one call."""
        if fields.get("event") == "call":
            said = f"{time.strftime('%H:%M:%S')}  {fields['tool'] or '?'}  {fields['outcome']}  {fields['ms']} ms"
            self.say(f"{said}  {fields['error']}" if fields.get("error") else said)

    def flush(self, *, patience: float = 0.0) -> None:
        """Nothing waits here."""

    def _backend(self, state: str, message: str) -> None:
        if state == "Ready" and self.adapter is not None:
            self.say(describe(self.adapter.catalogue.tools, self._port, self.adapter.config.mcp.path))
            if message:
                self.say(message)
        elif state in HINTS:
            self.say(f"{message} {HINTS[state]}")


def describe(tools: tuple[Tool, ...], port: int, path: str) -> str:
    """The tools as a table, and how to connect."""
    url = f"http://127.0.0.1:{port}{path}"
    client = json.dumps({"mcpServers": {"model": {"type": "http", "url": url}}})
    width = min(_NAME_WIDTH, max(len(tool.name) for tool in tools))
    rows = [f"  {tool.name:<{width}}  {_signature(tool.definition)}  {_summary(tool.definition)}" for tool in tools]
    count = "1 tool" if len(tools) == 1 else f"{len(tools)} tools"
    return "\n".join(["", f"{count} at {url}", "", *rows, "", f"Client configuration: {client}", ""])


def _signature(definition: dict[str, Any]) -> str:
    schema = definition["inputSchema"]
    required = set(schema.get("required", ()))
    return "(" + ", ".join(name if name in required else f"{name}?" for name in schema["properties"]) + ")"


def _summary(definition: dict[str, Any]) -> str:
    first = str(definition.get("description", "")).strip().splitlines()
    text = first[0] if first else ""
    return text if len(text) <= _DESCRIPTION_WIDTH else text[: _DESCRIPTION_WIDTH - 1] + "…"
