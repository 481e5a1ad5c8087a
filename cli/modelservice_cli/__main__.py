"""The `modelservice` command.

Owns the arguments and the exit codes: 0 as asked, 1 where `tools lint` or `model validate` has findings, 2 for wrong arguments,
3 where a port is taken. Each subcommand is a module with a `run`; nothing is imported before its subcommand is chosen.
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
    _add_model(commands)
    _add_tvm(commands)
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


def _add_model(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    model = commands.add_parser("model", help="look at model files")
    validate = model.add_subparsers(dest="subcommand", metavar="COMMAND", required=True).add_parser(
        "validate",
        help="load model files and hold them against their metadata",
        description="Load each model file in a process of its own, as the adapter would, and compare it with the "
        "metadata.json beside it. This runs what is in the file: name only files that you trust. "
        "Exit code 0: all match, 1: differences, 2: something could not be checked.",
    )
    validate.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a model file, its metadata.json, or a folder: of one version, of all (models/), or of several such",
    )
    validate.add_argument(
        "--python",
        default="",
        metavar="FILE",
        help="the interpreter that holds the model's runtime (default: this one)",
    )
    validate.add_argument(
        "--format", choices=("text", "json"), default="text", help="how to print (default %(default)s)"
    )
    validate.set_defaults(module="model")


def _add_tvm(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    python = "the interpreter that holds %s (default: the one that runs this command)"
    tvm = commands.add_parser("tvm", help="compile models with TVM, and check compiled ones")
    actions = tvm.add_subparsers(dest="action", metavar="COMMAND", required=True)
    build = actions.add_parser(
        "build",
        help="compile a .pt2 or .onnx file",
        description="Compile a model; write the code, its weights and its signature file side by side.",
    )
    build.add_argument("model", metavar="MODEL", help="a .pt2 file of torch.export, or a .onnx file")
    build.add_argument("-o", "--output", required=True, metavar="FILE.so", help="the code; the others stand beside it")
    build.add_argument("--target", default="", metavar="TRIPLE", help="LLVM's name of the system (default: this one)")
    build.add_argument(
        "--mcpu", default="", metavar="NAME", help="the oldest CPU that is to run it (default x86-64-v3)"
    )
    build.add_argument(
        "--bound",
        action="append",
        default=[],
        metavar="NAME=LEAST:MOST",
        help="sizes of a free dimension by the model's name for it; callers are held to them",
    )
    build.add_argument("--description", default="", metavar="TEXT", help="what the tool does, for those who choose it")
    build.add_argument("--python", default="", metavar="FILE", help=python % "TVM and PyTorch or onnx")
    check = actions.add_parser(
        "check",
        help="say whether this machine can run a compiled model",
        description="Compare what the code needs with this machine and an interpreter's TVM. Exit code 1: it cannot run.",
    )
    check.add_argument("artifact", metavar="FILE.so", help="the code; its signature file stands beside it")
    check.add_argument("--python", default="", metavar="FILE", help=python % "TVM")
    tvm.set_defaults(module="tvm")


if __name__ == "__main__":
    sys.exit(main())
