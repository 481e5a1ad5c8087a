"""Dashboard, alerts and recording rules: what they ask for exists under that name and with those labels.

Expressions are read by a PromQL parser. Where promtool is installed, it also runs the rules over the series of
prometheus-rules.yaml, in which each alert fires in one pod and not in another.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

import operator_process
from docs_generator import generator
from modelservice_operator import settings
from modelservice_operator.core.signals import NO_SIGNALS

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "helm" / "modelservice"
RULES = CHART / "files" / "rules.yaml"
SERIES = Path(__file__).with_name("prometheus-rules.yaml")
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
GROUPS = yaml.safe_load(RULES.read_text())["groups"]
TARGET_LABELS = {"namespace", "pod", "job", "instance"}
"""What a scrape adds to every series."""

pytestmark = pytest.mark.promise("dashboards")


def known_series() -> dict[str, set[str]]:
    """Every name that a scrape of an adapter, or a recording rule, gives, and its labels."""
    known: dict[str, set[str]] = {}
    for family in generator().every_family():
        labels = set(family.labels) | TARGET_LABELS
        if family.kind == "counter":
            known[f"{family.name}_total"] = labels
        elif family.kind == "histogram":
            known |= {f"{family.name}_bucket": labels | {"le"}}
            known |= {f"{family.name}_sum": labels, f"{family.name}_count": labels}
        else:
            known[family.name] = labels
    for rule in recording():
        found = re.search(r"by \(([^)]*)\)", rule["expr"])
        assert found is not None
        known[rule["record"]] = {label.strip() for label in found[1].split(",")} - {"le"}
    return known


def recording() -> list[dict[str, Any]]:
    return [rule for group in GROUPS for rule in group["rules"] if "record" in rule]


def alerts() -> list[dict[str, Any]]:
    return [rule for group in GROUPS for rule in group["rules"] if "alert" in rule]


def expressions() -> list[tuple[str, str]]:
    """(where, PromQL) of all, with Grafana's variables filled in."""
    found = [(rule.get("record") or rule["alert"], rule["expr"]) for group in GROUPS for rule in group["rules"]]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "5m")
            found.append((panel["title"], re.sub(r"\$\w+", ".*", expression)))
    return found


def selectors(node: Any) -> list[promql_parser.VectorSelector]:
    """Every selector of a parsed expression."""
    match node:
        case promql_parser.VectorSelector():
            return [node]
        case promql_parser.MatrixSelector():
            return [node.vector_selector]
        case promql_parser.Call():
            return [selector for argument in node.args for selector in selectors(argument)]
        case promql_parser.AggregateExpr() | promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            return selectors(node.expr)
        case promql_parser.BinaryExpr():
            return selectors(node.lhs) + selectors(node.rhs)
        case promql_parser.SubqueryExpr():
            return selectors(node.expr)
        case _:
            return []


@pytest.mark.parametrize(("where", "expression"), expressions())
def test_every_expression_asks_for_series_and_labels_that_adapters_have(where: str, expression: str) -> None:
    known = known_series()
    found = selectors(promql_parser.parse(expression))
    assert found, f"{where} asks for no series"
    for selector in found:
        assert selector.name in known, f"{where}: {selector.name}"
        labels = {matcher.name for matcher in selector.matchers.matchers} - {"__name__"}
        assert labels <= known[selector.name], f"{where}: {selector.name} has no {labels - known[selector.name]}"


def test_every_alert_says_what_is_wrong_and_what_to_look_at() -> None:
    assert len(alerts()) >= 5
    for alert in alerts():
        assert set(alert["annotations"]) == {"summary", "description"}, alert["alert"]
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}
        assert alert["for"]


def test_every_outcome_of_a_call_is_a_caller_s_mistake_or_a_failure_of_ours() -> None:
    from modelservice_sidecar.core import errors

    [rule] = [rule for rule in recording() if rule["record"] == "modelservice:call_failures:rate5m"]
    found = re.search(r'outcome=~"([^"]*)"', rule["expr"])
    assert found is not None
    failures = set(found[1].split("|"))
    callers = {"unknown_tool", "invalid_arguments", "unauthenticated", "not_permitted", "rate_limited"}
    callers |= {"backend_refused", "tool_gone"}
    assert failures | callers == {told.outcome for told in errors.TABLE.values()}
    assert failures & callers == set()


def test_the_chart_brings_them_only_where_they_are_asked_for() -> None:
    helm = operator_process.helm()

    def render(*arguments: str) -> list[dict[str, Any]]:
        command = [helm, "template", "release", str(CHART), "--namespace", "operators", "--kube-version", "1.34.4"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    kinds = {"PodMonitor", "PrometheusRule", "ConfigMap"}
    assert not kinds & {each["kind"] for each in render()}
    switches = [f"monitoring.{name}.enabled=true" for name in ("podMonitor", "rules", "dashboard")]
    labels = "monitoring.rules.labels.release=prometheus,monitoring.podMonitor.labels.release=prometheus"
    objects = {each["kind"]: each for each in render("--set", ",".join([*switches, labels, "watchNamespaces={ml}"]))}
    assert kinds <= objects.keys()
    assert objects["PrometheusRule"]["spec"]["groups"] == GROUPS
    assert objects["PrometheusRule"]["metadata"]["labels"]["release"] == "prometheus"
    assert json.loads(objects["ConfigMap"]["data"]["modelservice.json"]) == DASHBOARD
    assert objects["ConfigMap"]["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert objects["PodMonitor"]["spec"]["namespaceSelector"] == {"matchNames": ["ml"]}
    [endpoint] = objects["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("mcp-admin", "/metrics")


@pytest.mark.promise("spans")
def test_what_the_chart_says_of_spans_and_logs_is_what_the_operator_reads() -> None:
    def environment(*values: str) -> dict[str, str]:
        command = [operator_process.helm(), "template", "release", str(CHART), "--kube-version", "1.34.4", *values]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        [deployment] = [each for each in yaml.safe_load_all(done.stdout) if each and each["kind"] == "Deployment"]
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}

    assert settings.from_environment(environment()).signals == NO_SIGNALS
    values = ["--set", "tracing.endpoint=http://collector.observability:4318,tracing.sampleRatio=0.25"]
    values += ["--set", "callLog.bodies=Redacted,callLog.redactKeys={iban},callLog.maxBodyBytes=512"]
    signals = settings.from_environment(environment(*values)).signals
    assert (signals.tracing.endpoint, signals.tracing.sample_ratio) == ("http://collector.observability:4318", 0.25)
    assert (signals.logging.bodies, signals.logging.redact_keys) == ("Redacted", ("iban",))
    assert signals.logging.max_body_bytes == 512


@pytest.mark.promise("chart-values-checked")
@pytest.mark.parametrize(
    "value",
    [
        "tracing.endpoint=collector:4318",
        "tracing.endpoint=http://user:secret@collector:4318",
        "tracing.sampleRatio=2",
        "tracing.ratio=0.1",
        "callLog.bodies=All",
        "callLog.maxBodyBytes=1",
        "monitoring.rules.enabled=perhaps",
        "monitoring.podMonitor.interval=often",
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_installed(value: str) -> None:
    command = [operator_process.helm(), "template", "release", str(CHART), "--set", value]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert value.split("=")[0].split(".")[0] in done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed; Debian has it in `prometheus`")
def test_promtool_runs_the_rules_as_their_series_say(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path / "rules.yaml")
    shutil.copy(SERIES, tmp_path / "test.yaml")
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "test.yaml"]):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
