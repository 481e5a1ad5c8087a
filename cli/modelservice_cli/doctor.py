"""`modelservice doctor`: whether a cluster and a namespace are fit for ModelServices, and what to do where they are not.

Owns the checks and their order. Changes nothing. What the operator must be allowed is the table that the chart grants; a test
holds the two equal.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from modelservice_api import crdgen, wellknown
from modelservice_cli import observing, standing, terminal
from modelservice_cli.kubectl import Kubectl, KubectlError
from modelservice_cli.observing import Operator
from modelservice_cli.outcome import NO, OK
from modelservice_cli.terminal import Colour
from modelservice_operator.core import injection, rollout, workload

Level = Literal["ok", "warn", "fail"]

RIGHTS: Final = (
    (f"{wellknown.PLURAL}.{wellknown.GROUP}", ("get", "list", "watch", "patch")),
    (f"{wellknown.PLURAL}.{wellknown.GROUP}/status", ("patch",)),
    ("deployments.apps", ("get", "list", "watch", "patch")),
    ("statefulsets.apps", ("get", "list", "watch", "patch")),
    ("daemonsets.apps", ("get", "list", "watch", "patch")),
    ("services", ("get", "list", "watch", "create", "patch", "delete")),
    ("configmaps", ("get", "list", "watch", "create", "patch", "delete")),
    ("persistentvolumeclaims", ("get",)),
    ("endpointslices.discovery.k8s.io", ("list", "watch")),
    ("events", ("create",)),
)
"""What the operator needs in a namespace that it serves."""

_CRD: Final = f"{wellknown.PLURAL}.{wellknown.GROUP}"
_CRD_ADVICE: Final = "apply the chart's: kubectl apply --server-side -f helm/modelservice/crds/"
_COLOURS: Final[dict[Level, Colour]] = {"ok": "green", "warn": "yellow", "fail": "red"}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line: how it is, what was looked at, what to do."""

    level: Level
    what: str
    advice: str = ""


def run(options: argparse.Namespace) -> int:
    """Look, print as it goes; 1 where something must be mended."""
    kubectl = Kubectl(context=options.context, kubeconfig=options.kubeconfig, namespace=options.namespace)
    kubectl.run("version", "--output=json")  # whether there is a cluster at all
    findings = []
    for finding in examine(kubectl):
        findings.append(finding)
        if options.output != "json":
            print(
                f"{terminal.painted(finding.level.ljust(4), _COLOURS[finding.level])}  {_worded(finding)}", flush=True
            )
    if options.output == "json":
        terminal.print_json([{"level": each.level, "what": each.what, "advice": each.advice} for each in findings])
    return NO if any(each.level == "fail" for each in findings) else OK


def examine(kubectl: Kubectl) -> Iterator[Finding]:
    """Every check. Those that need a kind that is not there are left out.

    Raises:
        CommandError: The cluster cannot be asked.
    """
    namespace = kubectl.current_namespace()
    known = _crd(kubectl)
    yield known
    operator = None
    for finding, found in _operators(kubectl, namespace):
        yield finding
        operator = operator or found
    if operator is not None:
        yield _rights(kubectl, operator, namespace)
    yield from _own_rights(kubectl, namespace)
    yield from _workloads(kubectl)
    if known.level != "fail":
        yield from _model_services(kubectl)


def _crd(kubectl: Kubectl) -> Finding:
    try:
        found = kubectl.find("customresourcedefinitions.apiextensions.k8s.io", _CRD)
    except KubectlError as error:
        if not error.is_forbidden:
            raise
        return Finding(level="warn", what="The CRD may not be read by you.", advice="an administrator's doctor can")
    if found is None:
        return Finding(level="fail", what="The ModelService CRD is not installed.", advice=_CRD_ADVICE)
    wanted = crdgen.build_crd()["spec"]["versions"][0]
    served = {str(each.get("name")): each for each in found["spec"]["versions"] if each.get("served")}
    live = served.get(wellknown.VERSION)
    if live is None:
        names = ", ".join(sorted(served)) or "none"
        return Finding(level="fail", what=f"The CRD serves {names} and not {wellknown.VERSION}.", advice=_CRD_ADVICE)
    if not injection.covers(live["schema"], wanted["schema"]):
        return Finding(
            level="warn",
            what="The CRD is not of this command's version.",
            advice=f"{_CRD_ADVICE}, of one version for both",
        )
    return Finding(level="ok", what="The ModelService CRD is installed and of this version.")


def _operators(kubectl: Kubectl, namespace: str) -> Iterator[tuple[Finding, Operator | None]]:
    try:
        found = observing.find_operators(kubectl)
    except KubectlError as error:
        if not error.is_forbidden:
            raise
        what = "Whether an operator runs cannot be seen: you may not list Deployments of all namespaces."
        yield Finding(level="warn", what=what, advice="an administrator's doctor can"), None
        return
    serving = [each for each in found if not each.namespaces or namespace in each.namespaces]
    if not found:
        yield Finding(level="fail", what="No operator is installed.", advice="helm install the chart"), None
    elif not serving:
        listed = ", ".join(sorted({name for each in found for name in each.namespaces}))
        what = f"The operator serves {listed} and not {namespace}."
        yield Finding(level="fail", what=what, advice="add it to the chart's watchNamespaces"), None
    for each in serving:
        name = f"Operator {each.namespace}/{each.name} {each.version}".strip()
        if each.ready:
            yield Finding(level="ok", what=f"{name} runs and serves {namespace}."), each
        else:
            advice = f"kubectl --namespace {each.namespace} describe deployment {each.name}"
            yield Finding(level="fail", what=f"{name} has no ready pod.", advice=advice), each
    if len(serving) > 1:
        what = f"{len(serving)} operators serve {namespace}, and would undo each other's work."
        yield Finding(level="fail", what=what, advice="uninstall all but one"), None


def _rights(kubectl: Kubectl, operator: Operator, namespace: str) -> Finding:
    account = f"system:serviceaccount:{operator.namespace}:{operator.account}"
    missing = []
    try:
        for resource, verbs in RIGHTS:
            missing += [f"{verb} {resource}" for verb in verbs if not kubectl.can_i(verb, resource, account)]
    except KubectlError as error:
        if not error.is_forbidden:
            raise
        what = "What the operator may do cannot be seen: you may not impersonate its account."
        return Finding(level="warn", what=what, advice="an administrator's doctor can")
    if missing:
        what = f"The operator may not {', '.join(missing)} in {namespace}."
        return Finding(level="fail", what=what, advice="install the chart with rbac.create, or grant it")
    return Finding(level="ok", what=f"The operator may do what it needs in {namespace}.")


def _own_rights(kubectl: Kubectl, namespace: str) -> Iterator[Finding]:
    wanted = (("create", _CRD), ("patch", _CRD), ("delete", _CRD), ("patch", "deployments.apps"))
    missing = [f"{verb} {resource}" for verb, resource in wanted if not kubectl.can_i(verb, resource)]
    if missing:
        what = f"You may not {', '.join(missing)} in {namespace}."
        yield Finding(level="warn", what=what, advice="ask for it before you adopt or release")
    else:
        yield Finding(level="ok", what=f"You may adopt and release in {namespace}.")


def _workloads(kubectl: Kubectl) -> Iterator[Finding]:
    seen = 0
    risky = False
    for plural in workload.ADOPTABLE.values():
        for found in kubectl.list(f"{plural}.apps"):
            seen += 1
            template = workload.pod_template(found)
            if workload.container_named(template, wellknown.ADAPTER_CONTAINER) is not None:
                continue  # adopted already: its status says how that went
            for risk in rollout.risks(found, observing.claim_modes(kubectl, found)):
                risky = True
                yield Finding(
                    level="warn",
                    what=f"{found['kind']} {found['metadata']['name']}: {risk.reason.name}: {risk.message}",
                    advice="adopt it with --set rollout.onRisk=SurgeZero, Recreate or Proceed",
                )
    if not risky:
        yield Finding(level="ok", what=f"None of {seen} workloads would be hard to roll out.")


def _model_services(kubectl: Kubectl) -> Iterator[Finding]:
    standings = [standing.read(each) for each in kubectl.list(observing.MODEL_SERVICES)]
    for each in standings:
        if not each.ready:
            what = f"ModelService {each.name} is not ready: {each.reason}: {each.message}"
            yield Finding(level="warn", what=what, advice=f"kubectl modelservice status {each.name}")
    if all(each.ready for each in standings):
        yield Finding(level="ok", what=f"All {len(standings)} ModelServices are ready.")


def _worded(finding: Finding) -> str:
    return f"{finding.what} To do: {finding.advice}." if finding.advice else finding.what
