"""The `modelservice` command.

Owns the arguments and the exit codes: 0 as asked, 1 where `tools lint` has findings, 2 for wrong arguments, 3 where a port is
taken. Each subcommand is a module with a `run`; nothing is imported before its subcommand is chosen.
"""

import argparse
import sys
from importlib import import_module, metadata

DESCRIPTION = "Turn running model servers into MCP servers."


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand; the exit code."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    return int(import_module(f"modelservice_cli.{options.module}").run(options))


def build_parser() -> argparse.ArgumentParser:
    """Every subcommand with its arguments."""
    parser = argparse.ArgumentParser(prog="modelservice", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"modelservice {metadata.version('modelservice')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    dev = commands.add_parser(
        "dev",
        help="put the MCP adapter in front of a model server on this machine, without Kubernetes",
        description="Wait for a model server, show its operations as MCP tools and serve them until Ctrl+C.",
    )
    dev.add_argument(
        "--backend",
        default="http://127.0.0.1:8000",
        metavar="URL",
        help="the model server (default %(default)s); calls leave this machine only if you name another host",
    )
    dev.add_argument("--port", type=int, default=8931, help="where MCP is served on 127.0.0.1 (default %(default)s)")
    dev.add_argument("--openapi-path", metavar="PATH", help="where the OpenAPI document is (default /openapi.json)")
    dev.add_argument("--config", metavar="FILE", help="a config document as the operator writes it; reread on change")
    dev.set_defaults(module="dev")
    _add_tools(commands)
    return parser


def _add_tools(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    tools = commands.add_parser("tools", help="look at the tools that a model server would have")
    lint = tools.add_subparsers(dest="subcommand", metavar="COMMAND", required=True).add_parser(
        "lint",
        help="say what a language model would stumble over",
        description="Read the tools of a model server, an OpenAPI document or an MCP endpoint, and say what to better. "
        "Exit code 0: nothing, 1: findings, 2: there are no tools to read.",
    )
    lint.add_argument(
        "target",
        metavar="URL",
        help="a running model server, its OpenAPI document, an MCP endpoint (…/mcp), or a file with a document or a "
        "tools/list result",
    )
    lint.add_argument("--config", metavar="FILE", help="a config document: its filter and overrides are applied first")
    lint.add_argument("--format", choices=("text", "json"), default="text", help="how to print (default %(default)s)")
    lint.set_defaults(module="lint")


if __name__ == "__main__":
    sys.exit(main())
