"""`modelservice adopt`: write a ModelService for a running workload, or show what that would do.

Owns the ModelService that is written and the wait for it. What the operator will do is asked of its own core first, and what it
would refuse is refused here, in the same words, before anything is written.
"""

import argparse
from typing import Any, Final

import pydantic

from modelservice_api import wellknown
from modelservice_api.v1alpha1 import ModelServiceSpec
from modelservice_cli import documents, observing, preview, terminal, waiting
from modelservice_cli.kubectl import Kubectl
from modelservice_cli.outcome import OK, REFUSED, USAGE, CommandError
from modelservice_cli.preview import Preview
from modelservice_operator.core.workload import ADOPTABLE

MANAGER: Final = "modelservice-cli"

_SHORT: Final = {"deploy": "deployments", "sts": "statefulsets", "ds": "daemonsets"}


def run(options: argparse.Namespace) -> int:
    """Adopt, or show it; the exit code."""
    kubectl = Kubectl(context=options.context, kubeconfig=options.kubeconfig, namespace=options.namespace)
    document = build_model_service(options.workload, options.name, options.set, options.namespace)
    # The API server completes it, and refuses what its rules refuse, before anything is decided over it.
    intended = kubectl.apply(document, manager=MANAGER, dry_run=True)
    operator = observing.find_operator(kubectl, str(intended["metadata"]["namespace"]))
    seen = preview.look(kubectl, observing.observe(kubectl, intended, operator))
    if operator is None and not options.dry_run:
        terminal.note("No operator that serves this namespace can be seen; `kubectl modelservice doctor` says more.")
    if options.dry_run:
        _show(seen, intended, options.output)
        return OK if seen.refusal is None else REFUSED
    if seen.refusal is not None:
        raise CommandError(f"{seen.refusal.reason.name}: {seen.refusal.message} Nothing was written.", REFUSED)
    written = kubectl.apply(document, manager=MANAGER)
    name = str(written["metadata"]["name"])
    if options.wait:
        return waiting.until_ready(kubectl, name, options.timeout, options.output)
    if options.output == "json":
        terminal.print_json(written)
    else:
        print(f"ModelService {name} is written; `kubectl modelservice status {name}` says how it stands.")
    return OK


def build_model_service(workload: str, name: str, settings: list[str], namespace: str) -> dict[str, Any]:
    """The ModelService for `deploy/fraud` with `backend.port=8000` and the like.

    Raises:
        CommandError: An argument names nothing that can be.
    """
    kind, target = parse_workload(workload)
    spec: dict[str, Any] = {"workloadRef": {"apiVersion": "apps/v1", "kind": kind, "name": target}}
    for setting in settings:
        _set(spec, setting)
    try:
        ModelServiceSpec.model_validate(spec)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise CommandError(
            f"--set: spec.{path}: {first['msg']}; `kubectl explain modelservice.spec` lists the fields.", USAGE
        ) from error
    metadata = {"name": name or target, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": wellknown.API_VERSION, "kind": wellknown.KIND, "metadata": metadata, "spec": spec}


def parse_workload(text: str) -> tuple[str, str]:
    """(kind, name) of `deploy/fraud`, `statefulset/fraud`, `daemonsets.apps/fraud`.

    Raises:
        CommandError: It is none of these.
    """
    kind, slash, name = text.partition("/")
    plural = kind.lower().removesuffix(".apps").removesuffix("s")
    plural = _SHORT.get(kind.lower(), f"{plural}s")
    found = next((kind for (_, kind), known in ADOPTABLE.items() if known == plural), None)
    if not slash or not name or found is None:
        raise CommandError(f"{text!r} names no workload; write deploy/NAME, statefulset/NAME or daemonset/NAME.", USAGE)
    return found, name


def _set(spec: dict[str, Any], setting: str) -> None:
    path, equals, value = setting.partition("=")
    *parents, last = path.removeprefix("spec.").split(".")
    if not equals or not all([*parents, last]):
        raise CommandError(f"--set {setting!r} is not PATH=VALUE; write for example backend.port=8000.", USAGE)
    node = spec
    for part in parents:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise CommandError(f"--set {setting!r}: {part} holds a value already and no fields.", USAGE)
        node = child
    node[last] = documents.parse(value)


def _show(seen: Preview, intended: dict[str, Any], output: str) -> None:
    refusal = seen.refusal
    if output == "json":
        terminal.print_json(
            {
                "modelService": {key: intended[key] for key in ("apiVersion", "kind", "metadata", "spec")},
                "subject": seen.subject,
                "refusal": None
                if refusal is None
                else {"condition": refusal.condition, "reason": refusal.reason.name, "message": refusal.message},
                "before": seen.before,
                "after": seen.after,
                "owned": seen.owned,
                "notes": seen.notes,
            }
        )
        return
    for line in seen.notes:
        print(line)
    if refusal is not None:
        print(terminal.painted(f"Refused, {refusal.reason.name}: {refusal.message}", "red"))
        return
    print(terminal.painted_diff(seen.diff) if seen.diff else f"Nothing changes in {seen.subject}.")
    if seen.owned:
        print(f"Written beside it: {', '.join(seen.owned)}.")
    print("Nothing was written: this is a dry run.")
