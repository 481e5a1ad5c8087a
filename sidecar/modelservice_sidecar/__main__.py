"""The container's command: `python -m modelservice_sidecar --config … --mcp-port … --admin-port … --backend-port …`.

Owns the arguments and the exit codes: 0 after a graceful end, 2 for wrong arguments, 3 where a port is taken. Ports are
arguments because old and new pods of a rollout read one ConfigMap; everything else is in the config document.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

import uvloop

from modelservice_api import wellknown
from modelservice_api.adapter_config import AdapterConfig, AuthConfig
from modelservice_sidecar.app import Adapter, Options, create_app
from modelservice_sidecar.config_file import BadDocumentError, ConfigFile
from modelservice_sidecar.log import LineWriter
from modelservice_sidecar.server import Listen, PortTakenError, serve

EXIT_PORT_TAKEN = 3
CLOSED = AdapterConfig(auth=AuthConfig())
"""Tokens are asked for and no issuer is trusted."""
_CONFIG = Path("/etc/modelservice/config.json")


def main(arguments: list[str] | None = None) -> int:
    """Run the adapter until a signal ends it; the exit code."""
    options = _parser().parse_args(arguments)
    writer = LineWriter()
    file = ConfigFile(options.config or _CONFIG)
    config = load(file, writer, named=options.config is not None)
    adapter = create_app(
        config,
        options=Options(
            backend_host=options.backend_host,
            backend_port=options.backend_port,
            config_file=file,
            credential=credential(),
        ),
        writer=writer,
    )
    listen = Listen(
        mcp_host=options.bind,
        mcp_port=options.mcp_port,
        admin_host=options.admin_bind,
        admin_port=options.admin_port,
        drain_seconds=options.drain_seconds,
        drain_most_seconds=max(options.drain_seconds, options.drain_most_seconds),
    )
    return run(adapter, listen)


def run(adapter: Adapter, listen: Listen) -> int:
    """Serve on a loop of its own; the exit code."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(adapter, listen))
    except PortTakenError as error:
        adapter.writer.event("port_taken", message=f"{error}. Choose another port or stop who uses it.")
        adapter.writer.flush(patience=0.5)
        return EXIT_PORT_TAKEN
    return 0


def load(file: ConfigFile, writer: LineWriter, *, named: bool) -> AdapterConfig:
    """The document. Where it is bad, or is not there although it was `named`, nobody gets in: it may ask for tokens."""
    try:
        config = file.read()
    except BadDocumentError as error:
        writer.event("config_rejected", message=f"{error}. Nobody gets in until it is right.")
        return CLOSED
    if config is None and named:
        writer.event("config_missing", message=f"There is no {file.path}; nobody gets in until it is there.")
        return CLOSED
    if config is None:
        writer.event("config_missing", message=f"There is no {file.path}; starting with the defaults.")
        return AdapterConfig()
    return config


def credential() -> str:
    """What the model server asks of the adapter: in the environment, and nowhere else from here on.

    Raises:
        SystemExit: it cannot be a header's value; says so without showing it.
    """
    value = os.environ.pop(wellknown.CREDENTIAL_VARIABLE, "").strip()
    if not all("\x20" <= letter <= "\x7e" for letter in value):
        raise SystemExit(f"{wellknown.CREDENTIAL_VARIABLE} holds letters that no HTTP header may have")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m modelservice_sidecar", description="The MCP adapter beside a model server."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"the config document (default {_CONFIG}, if any)")
    parser.add_argument("--mcp-port", type=_port, default=8931, metavar="PORT", help="MCP and JSON-RPC (default 8931)")
    parser.add_argument("--admin-port", type=_port, default=8932, metavar="PORT", help="probes, metrics (default 8932)")
    parser.add_argument(
        "--backend-host",
        default="127.0.0.1",
        metavar="HOST",
        help="the model server's, where it is in another pod (default 127.0.0.1)",
    )
    parser.add_argument(
        "--backend-port",
        type=_port,
        default=8000,
        metavar="PORT",
        help="the model server's, on loopback (default 8000)",
    )
    parser.add_argument("--bind", default="0.0.0.0", metavar="ADDRESS")  # noqa: S104 - reached through the pod's address
    parser.add_argument("--admin-bind", default="0.0.0.0", metavar="ADDRESS")  # noqa: S104 - the kubelet's probes
    parser.add_argument("--drain-seconds", type=_seconds, default=5.0, metavar="SECONDS")
    parser.add_argument("--drain-most-seconds", type=_seconds, default=20.0, metavar="SECONDS")
    return parser


def _port(value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) > 65535:
        raise argparse.ArgumentTypeError(f"{value!r} is not a port (0 to 65535)")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of seconds (0 to 3600)")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
