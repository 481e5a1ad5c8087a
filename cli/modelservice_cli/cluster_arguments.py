"""The arguments of the commands that speak to a cluster.

Owns their names, defaults and help. What a command does is in its own module.
"""

import argparse
from collections.abc import Sequence
from typing import Final

Commands = argparse._SubParsersAction  # noqa: SLF001  argparse's only name for it

WORKLOAD_TIMEOUT: Final = 300


def spelled_out(words: Sequence[str]) -> list[str]:
    """`tools NAME` is `tools list NAME`."""
    if len(words) > 1 and words[0] == "tools" and words[1] not in {"list", "lint", "-h", "--help", ""}:
        return ["tools", "list", *words[1:]]
    return list(words)


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Every command of this file."""
    _add_adopt(commands)
    _add_manifests(commands)
    _add_status(commands)
    _add_call(commands)
    _add_logs(commands)
    _add_doctor(commands)
    _add_release(commands)
    _add_completion(commands)


def add_tools_list(actions: "Commands[argparse.ArgumentParser]") -> None:
    """`tools list NAME`, for which `tools NAME` is short."""
    tools = actions.add_parser(
        "list",
        help="list the tools of an adopted model; `tools NAME` is short for it",
        description="List the tools that MCP clients see, through kubectl port-forward.",
    )
    tools.add_argument("name", metavar="NAME", help="the ModelService")
    _add_server(tools)
    _add_output(tools)
    _add_cluster(tools)
    tools.set_defaults(module="call", entry="run_tools")


def _add_adopt(commands: "Commands[argparse.ArgumentParser]") -> None:
    adopt = commands.add_parser(
        "adopt",
        help="turn a running workload into an MCP server",
        description="Write a ModelService for a workload and wait until MCP clients can use it. What the operator would "
        "refuse is refused here, in its words, before anything is written.",
    )
    adopt.add_argument("workload", metavar="WORKLOAD", help="deploy/NAME, statefulset/NAME or daemonset/NAME")
    adopt.add_argument(
        "--name", default="", metavar="TEXT", help="the ModelService's name (default: the workload's own)"
    )
    adopt.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="a field of spec, such as backend.port=8000; values are YAML; may be given again",
    )
    adopt.add_argument(
        "--dry-run",
        action="store_true",
        help="write nothing; print what would change in the pod template, or why it would be refused",
    )
    _add_wait(adopt, "until it is ready")
    _add_output(adopt)
    _add_cluster(adopt)
    adopt.set_defaults(module="adopt")


def _add_manifests(commands: "Commands[argparse.ArgumentParser]") -> None:
    inject = commands.add_parser(
        "inject",
        help="put the adapter into manifests, through a pipe",
        description="Read manifests, put the adapter into every workload that a ModelService among them names, and print "
        "them. Other documents stay as they are. For injection.mode Manual; needs no cluster.",
    )
    eject = commands.add_parser(
        "eject",
        help="take the adapter out of manifests, through a pipe",
        description="Read manifests and print them without the adapter: what inject was given. Needs no cluster.",
    )
    for each in (inject, eject):
        each.add_argument(
            "-f",
            "--filename",
            default="-",
            metavar="FILE",
            help="the manifests; - is standard input (default %(default)s)",
        )
        each.set_defaults(module="manifests")
    inject.add_argument(
        "--for",
        dest="target",
        default="",
        metavar="KIND/NAME",
        help="a workload among them that has no ModelService there: it gets one's defaults",
    )
    inject.add_argument(
        "--name", default="", metavar="TEXT", help="with --for: the ModelService's name (default: the workload's own)"
    )
    inject.add_argument(
        "--image", default="", metavar="IMAGE", help="the adapter's image (default: the chart's of this version)"
    )


def _add_status(commands: "Commands[argparse.ArgumentParser]") -> None:
    status = commands.add_parser(
        "status",
        help="how ModelServices stand, and why one is not ready",
        description="Print a table of ModelServices, and for each that is not ready why, and what to do. "
        "Exit code 0: all are ready, 1: one is not.",
    )
    status.add_argument("name", nargs="?", default="", metavar="NAME", help="one ModelService (default: all)")
    status.add_argument("-A", "--all-namespaces", action="store_true", help="those of every namespace")
    _add_output(status)
    _add_cluster(status)
    status.set_defaults(module="status")


def _add_call(commands: "Commands[argparse.ArgumentParser]") -> None:
    call = commands.add_parser(
        "call",
        help="call a tool of an adopted model",
        description="Call one tool through kubectl port-forward and print its result. Exit code 1: the tool says an error.",
    )
    call.add_argument("name", metavar="NAME", help="the ModelService")
    call.add_argument("tool", metavar="TOOL", help="the tool, as `tools NAME` lists it")
    call.add_argument(
        "arguments",
        nargs="*",
        metavar="KEY=VALUE",
        help="arguments; a value that is JSON is taken as such, any other is text; KEY=@FILE reads the value from a file, "
        "@FILE all arguments, @- standard input",
    )
    _add_server(call)
    _add_output(call)
    _add_cluster(call)
    call.set_defaults(module="call", entry="run_call")


def _add_logs(commands: "Commands[argparse.ArgumentParser]") -> None:
    logs = commands.add_parser(
        "logs",
        help="what all adapters of a model logged, of one call or of all",
        description="Print the lines of every adapter pod of a ModelService in time order. Exit code 1: there are none.",
    )
    logs.add_argument("name", metavar="NAME", help="the ModelService")
    logs.add_argument("--trace", default="", metavar="ID", help="only lines of this trace id or request id")
    logs.add_argument("--since", default="", metavar="DURATION", help="only lines of this time, such as 10m")
    logs.add_argument("--follow", action="store_true", help="go on with new lines, as they come, until Ctrl+C")
    _add_output(logs)
    _add_cluster(logs)
    logs.set_defaults(module="logs")


def _add_doctor(commands: "Commands[argparse.ArgumentParser]") -> None:
    doctor = commands.add_parser(
        "doctor",
        help="whether the cluster is fit for ModelServices, and what to do where it is not",
        description="Look at the CRD, the operator and its rights, your rights, workloads that would be hard to roll out, and "
        "ModelServices that are not ready. Changes nothing. Exit code 1: something must be mended.",
    )
    _add_output(doctor)
    _add_cluster(doctor)
    doctor.set_defaults(module="doctor")


def _add_release(commands: "Commands[argparse.ArgumentParser]") -> None:
    release = commands.add_parser(
        "release",
        help="give a workload back as it was",
        description="Delete a ModelService and wait until its workload runs as it did before.",
    )
    release.add_argument("name", metavar="NAME", help="the ModelService")
    release.add_argument("-y", "--yes", action="store_true", help="do not ask")
    _add_wait(release, "until every pod is one without the adapter")
    _add_cluster(release)
    release.set_defaults(module="release")


def _add_completion(commands: "Commands[argparse.ArgumentParser]") -> None:
    completion = commands.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description="Print a script for a shell, or for kubectl (as kubectl_complete-modelservice on PATH).",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish", "kubectl"), help="for which")
    completion.set_defaults(module="completion")


def _add_wait(parser: argparse.ArgumentParser, until: str) -> None:
    parser.add_argument("--no-wait", dest="wait", action="store_false", help=f"do not wait {until}")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=WORKLOAD_TIMEOUT,
        metavar="SECONDS",
        help="how long to wait at most (default %(default)s)",
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token", default="", metavar="TOKEN", help="a token that spec.auth trusts; @FILE reads it from a file"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=60,
        metavar="SECONDS",
        help="how long an answer may take (default %(default)s)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="how to print (default %(default)s)"
    )


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--namespace", default="", metavar="NAMESPACE", help="as for kubectl")
    parser.add_argument("--context", default="", metavar="CONTEXT", help="as for kubectl")
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="as for kubectl")


def _seconds(text: str) -> float:
    """Seconds, or a duration such as 90s and 5m, as kubectl takes it."""
    units = {"s": 1, "m": 60, "h": 3600}
    number = text.rstrip("smh")
    value = float(number) * units.get(text[len(number) :] or "s", float("nan"))
    if not 0 <= value <= 86400:
        raise ValueError(text)
    return value
