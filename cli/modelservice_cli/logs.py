"""`modelservice logs`: the lines of all adapters of a ModelService, those of one call where an id is given, in time order.

Owns which lines are shown and how they are worded. Their fields are the adapter's (`docs/reference/log-lines.md`).
"""

import argparse
import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from modelservice_api import wellknown
from modelservice_cli import observing, terminal
from modelservice_cli.kubectl import Kubectl
from modelservice_cli.outcome import NO, OK, CommandError
from modelservice_operator.core import naming

_PREFIX: Final = re.compile(r"^\[pod/([^/\]]+)/[^\]]+\] (.*)$")
_MOST_PODS: Final = "100"


def run(options: argparse.Namespace) -> int:
    """Print the lines; the exit code says whether there were any."""
    kubectl = Kubectl(context=options.context, kubeconfig=options.kubeconfig, namespace=options.namespace)
    kubectl.get(observing.MODEL_SERVICES, options.name)
    flags = [
        "logs",
        f"--selector={wellknown.NAME_LABEL}={naming.label_value(options.name)}",
        f"--container={wellknown.ADAPTER_CONTAINER}",
        "--prefix",
        "--tail=-1",
        f"--max-log-requests={_MOST_PODS}",
        *([f"--since={options.since}"] if options.since else []),
    ]
    if options.follow:
        with kubectl.started(*flags, "--follow") as said:
            for record in matching(said, options.trace):
                _print(record, options.output)
        return OK
    found = sorted(matching(kubectl.run(*flags).splitlines(), options.trace), key=lambda record: record["time"])
    for record in found:
        _print(record, options.output)
    if not found:
        wanted = f" of {options.trace}" if options.trace else ""
        raise CommandError(
            f"The adapters' logs hold no line{wanted}; ids are in the answers' headers and in traces, and pods that have "
            "gone took their lines along.",
            NO,
        )
    return OK


def matching(lines: Iterable[str], trace: str) -> Iterator[dict[str, Any]]:
    """The records of one trace id or request id, or all; each with its pod."""
    for line in lines:
        found = _PREFIX.match(line.rstrip("\n"))
        if found is None:
            continue
        try:
            record = json.loads(found[2])
        except ValueError:
            continue
        if not isinstance(record, dict) or not isinstance(record.get("time"), int | float):
            continue
        if not trace or trace in (record.get("trace_id"), record.get("request_id")):
            yield {"pod": found[1], **record}


def as_text(record: dict[str, Any]) -> str:
    """One record in one line."""
    at = datetime.fromtimestamp(record["time"], UTC).strftime("%H:%M:%S.%f")[:-3]
    if record.get("event") != "call":
        hidden = {"time", "pod", "event"}
        rest = " ".join(f"{key}={value}" for key, value in record.items() if key not in hidden)
        return f"{at}  {record['pod']}  {record.get('event')}  {rest}".rstrip()
    outcome = str(record.get("outcome"))
    parts = [
        at,
        str(record["pod"]),
        str(record.get("tool") or "?"),
        terminal.painted(outcome, "green" if outcome == "ok" else "red"),
        f"{record.get('ms')} ms",
        f"model {record['backend_ms']} ms" if record.get("backend_ms") is not None else "",
        f"trace {record.get('trace_id')}",
        f"request {record.get('request_id')}",
        str(record.get("error") or ""),
    ]
    return "  ".join(part for part in parts if part)


def _print(record: dict[str, Any], output: str) -> None:
    print(json.dumps(record, ensure_ascii=False) if output == "json" else as_text(record), flush=True)
