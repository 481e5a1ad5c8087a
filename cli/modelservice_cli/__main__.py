"""The `modelservice` command, which is `kubectl modelservice` as well.

Owns the arguments, and how a command ends: exit codes are those of `outcome`, and what can be foreseen is told in words. Each
subcommand is a module with a `run`; nothing is imported before its subcommand is chosen.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path

from modelservice_cli import cluster_arguments, outcome

DESCRIPTION = "Turn running model servers into MCP servers."
COMPLETE = "__complete"
"""What shells ask with; the rest of the line follows."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; the exit code."""
    words = cluster_arguments.spelled_out(sys.argv[1:] if arguments is None else arguments)
    parser = build_parser()
    if words[:1] == [COMPLETE]:
        return int(import_module("modelservice_cli.completion").answer(parser, words[1:]))
    options, rest = parser.parse_known_args(words)
    if rest and options.command == "call" and not any(word.startswith("-") for word in rest):
        # argparse takes a list of words only where it stands together; here options may come between them.
        options.arguments += rest
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command is None:
        parser.print_help()
        return outcome.OK
    module = import_module(f"modelservice_cli.{options.module}")
    try:
        return int(getattr(module, getattr(options, "entry", "run"))(options))
    except outcome.CommandError as error:
        print(f"{parser.prog} {options.command}: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return outcome.INTERRUPTED
    except BrokenPipeError:
        # Who reads has seen enough; Python must not try to flush the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return outcome.OK


def build_parser() -> argparse.ArgumentParser:
    """Every subcommand with its arguments."""
    is_plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    parser = argparse.ArgumentParser(
        prog="kubectl modelservice" if is_plugin else "modelservice", description=DESCRIPTION
    )
    parser.add_argument("--version", action="version", version=f"modelservice {metadata.version('modelservice')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    cluster_arguments.add(commands)
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
    tools = commands.add_parser("tools", help="look at the tools that a model server has or would have")
    actions = tools.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    cluster_arguments.add_tools_list(actions)
    lint = actions.add_parser(
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
