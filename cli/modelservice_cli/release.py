"""`modelservice release`: delete a ModelService and wait until its workload is as it was.

Owns the question before it and the wait after it. The release itself is the operator's.
"""

import argparse
import sys

from modelservice_cli import observing, terminal, waiting
from modelservice_cli.kubectl import Kubectl
from modelservice_cli.outcome import NO, OK, USAGE, CommandError
from modelservice_operator.core import workload


def run(options: argparse.Namespace) -> int:
    """Release; the exit code."""
    kubectl = Kubectl(context=options.context, kubeconfig=options.kubeconfig, namespace=options.namespace)
    found = kubectl.get(observing.MODEL_SERVICES, options.name)
    target = observing.reference_of(found)
    described = f"{target[1]} {target[2]}"
    if not options.yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise CommandError("Nobody can be asked here; say --yes to release without a question.", USAGE)
        question = f"Release {described}? Its pods are replaced once, and MCP clients lose {options.name}."
        if not terminal.ask(question):
            terminal.note("Nothing was changed.")
            return NO
    kubectl.run("delete", observing.MODEL_SERVICES, options.name, "--wait=false")
    if not options.wait:
        print(f"ModelService {options.name} is being deleted; the operator releases {described}.")
        return OK
    waiting.until_released(kubectl, options.name, target, options.timeout)
    left = observing.find_workload(kubectl, found)
    if left is not None and workload.managers_of_adapter(left):
        raise CommandError(
            f"ModelService {options.name} is gone, but {described} still holds its adapter; "
            "an operator that runs takes it out: see `kubectl modelservice doctor`.",
            NO,
        )
    print(f"Released: {described} is as it was before.")
    return OK
