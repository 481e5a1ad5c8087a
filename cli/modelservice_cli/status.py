"""`modelservice status`: a table of ModelServices, and for each that is not ready why, and what to do.

Owns what is printed. Reads nothing but the objects' own status.
"""

import argparse
from datetime import UTC, datetime

from modelservice_cli import observing, standing, terminal
from modelservice_cli.kubectl import Kubectl
from modelservice_cli.outcome import NO, OK
from modelservice_cli.standing import Standing
from modelservice_cli.waiting import as_document, problem_lines


def run(options: argparse.Namespace) -> int:
    """Print how they stand; the exit code says whether all are ready."""
    kubectl = Kubectl(context=options.context, kubeconfig=options.kubeconfig, namespace=options.namespace)
    if options.name:
        found = [kubectl.get(observing.MODEL_SERVICES, options.name)]
    else:
        found = kubectl.list(observing.MODEL_SERVICES, *(["--all-namespaces"] if options.all_namespaces else []))
    standings = [standing.read(each) for each in found]
    if options.output == "json":
        terminal.print_json([as_document(each) for each in standings])
    elif not standings:
        print("There are no ModelServices; `kubectl modelservice adopt deploy/NAME` makes one.")
    else:
        print(as_text(standings, datetime.now(UTC), namespaces=options.all_namespaces))
        if options.name and standings[0].tools:
            print(f"\nTools: {', '.join(standings[0].tools)}")
    return OK if all(each.ready for each in standings) else NO


def as_text(standings: list[Standing], now: datetime, *, namespaces: bool) -> str:
    """The table, then a paragraph for each ModelService with something to better."""
    head = [*(["NAMESPACE"] if namespaces else []), "NAME", "READY", "REASON", "TOOLS", "BACKEND", "URL", "AGE"]
    rows = [
        [
            *([each.namespace] if namespaces else []),
            each.name,
            "yes" if each.ready else "no",
            each.reason,
            str(each.tool_count),
            each.backend or "-",
            each.url or "-",
            _age(each.created, now),
        ]
        for each in standings
    ]
    parts = [terminal.table(head, rows)]
    for each in standings:
        if each.problems:
            name = f"{each.namespace}/{each.name}" if namespaces else each.name
            verdict = "is ready, but:" if each.ready else "is not ready:"
            parts.append("\n".join([f"{terminal.painted(name, 'bold')} {verdict}", *problem_lines(each)]))
    return "\n\n".join(parts)


def _age(created: str, now: datetime) -> str:
    """As kubectl tells it, roughly."""
    try:
        seconds = int((now - datetime.fromisoformat(created)).total_seconds())
    except ValueError:
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{max(0, seconds)}s"
