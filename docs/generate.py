"""Writes the reference pages that must never differ from what the product does.

Owns ``reference/promises.md`` (from ``tests/promises.toml``), ``reference/security.md`` (from ``tests/security.toml``),
``reference/reasons.md`` (from ``modelservice_api.conditions``), ``reference/crd.md`` (from the generated CRD),
``reference/metrics.md`` (from an adapter's own families), ``reference/chart-values.md`` (from the comments of the chart's
values) and ``reference/cli.md`` (from the command line's own parser). Run by ``make generate``; ``--check`` writes nothing
and fails where a page is old.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from modelservice_api import conditions, wellknown
from modelservice_api.adapter_config import (
    AdapterConfig,
    AuthConfig,
    BatcherConfig,
    CacheConfig,
    CircuitBreakerConfig,
    RateLimitingConfig,
    RateLimitStoreConfig,
    RetryConfig,
    TokenBucketConfig,
)
from modelservice_cli import outcome
from modelservice_cli.__main__ import build_parser
from modelservice_sidecar import metrics
from modelservice_sidecar.app import create_app

REPOSITORY = Path(__file__).resolve().parents[1]
CRD = REPOSITORY / "crds" / f"{wellknown.PLURAL}.{wellknown.GROUP}.yaml"
PROMISES = REPOSITORY / "tests" / "promises.toml"
SECURITY = REPOSITORY / "tests" / "security.toml"
VALUES = REPOSITORY / "helm" / "modelservice" / "values.yaml"
REFERENCE = REPOSITORY / "docs" / "reference"


def build_promises(promises: Mapping[str, Mapping[str, str]]) -> str:
    """The page of promises: what tests hold today, then what is not built yet and what brings it."""
    kept = [(name, entry) for name, entry in promises.items() if "deferred" not in entry]
    deferred = [(name, entry) for name, entry in promises.items() if "deferred" in entry]
    return _page(
        "Promises",
        "tests/promises.toml",
        "What users may rely on. Every promise of the first table is exercised by at least one test that names it.",
        _table(["promise", "what it says"], [[f"`{name}`", _with_source(entry)] for name, entry in kept]),
        "## Not yet",
        "Promised, not built. The last column says what brings it.",
        _table(
            ["promise", "what it says", "waits for"],
            [[f"`{name}`", _with_source(entry), entry["deferred"]] for name, entry in deferred],
        ),
    )


def _with_source(entry: Mapping[str, str]) -> str:
    source = entry.get("source")
    return entry["promise"] + (f" Source: {source}." if source else "")


def build_security(index: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The page of attacks: what is promised about hostile input, and reports about others that are tried here."""

    def proof(entry: Mapping[str, Any]) -> str:
        if "waits" in entry:
            return str(entry["waits"])
        return "<br>".join(f"`{test.rpartition('/')[2].replace('.py::', ': ')}`" for test in entry["tests"])

    return _page(
        "Security",
        "tests/security.toml",
        "What the adapter and the operator promise about hostile input, and the tests that try it. Tests stand below"
        " `tests/`, each after the name of its file. `make fuzz` looks for more: see"
        " [hostile input](../explanation/hostile-input.md).",
        _table(
            ["goal", "what it says", "tests"],
            [[name, entry["goal"], proof(entry)] for name, entry in index["goals"].items()],
        ),
        "## Reports to learn from",
        "Security reports and bugs of other MCP servers, gateways, operators and libraries. Each was tried on ours; the"
        " number is that of our collection.",
        _table(
            ["number", "report", "tests"],
            [[name, entry["report"], proof(entry)] for name, entry in index["reports"].items()],
        ),
    )


def build_reasons(reasons: Sequence[conditions.Reason]) -> str:
    """The page of condition types and reasons, as they stand in `kubectl describe`, in events and in logs."""
    return _page(
        "Conditions and reasons",
        "crds/modelservice_api/conditions.py",
        "A ModelService says where it stands in `status.conditions`. The same reason stands in the event and in the log.",
        "## Conditions",
        "`True` is the good side of all but `RolloutRisk`, `Degraded` and `Conflict`.",
        _table(
            ["type", "what it answers"], [[f"`{kind}`", text] for kind, text in conditions.CONDITION_SENTENCES.items()]
        ),
        "## Reasons",
        _table(["reason", "what it means"], [[f"`{reason.name}`", reason.sentence] for reason in reasons]),
    )


def build_crd(crd: Mapping[str, Any]) -> str:
    """The page of fields: spec and status of the served version, one row a field, rules below their object."""
    [version] = crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    names = crd["spec"]["names"]
    parts: list[str] = []
    for part in ("spec", "status"):
        rows = list(_field_rows(schema["properties"][part], part))
        parts += [f"## `{part}`", _table(["field", "type", "default", "allowed", "what it is"], rows)]
    rules = [[f"`{where}`", text] for where, text in _rules(schema, "")]
    if rules:
        parts += ["## Rules", "Checked by the API server when an object is written.", _table(["where", "rule"], rules)]
    return _page(
        f"{names['kind']} ({crd['spec']['group']}/{version['name']})",
        "crds/modelservice_api/v1alpha1.py",
        f"Short name `{names['shortNames'][0]}`. Only `spec.workloadRef.name` is needed; a field marked * is needed where"
        " the object around it is given.",
        *parts,
    )


def _field_rows(schema: Mapping[str, Any], path: str) -> Iterator[list[str]]:
    required = set(schema.get("required", []))
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        star = " *" if name in required else ""
        default = f"`{_plain(field['default'])}`" if "default" in field else ""
        yield [f"`{here}`{star}", _type_of(field), default, _allowed(field), field.get("description", "")]
        yield from _field_rows(field, here)
        if isinstance(field.get("items"), dict):
            yield from _field_rows(field["items"], here + "[]")
        if isinstance(field.get("additionalProperties"), dict):
            yield from _field_rows(field["additionalProperties"], here + ".<name>")


def _type_of(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type_of(field['items'])}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"map to {_type_of(field['additionalProperties'])}"
    return kind


def _allowed(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{_plain(value)}`" for value in field["enum"])
    parts = []
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        parts.append(f"{low} to {high}")
    elif low is not None or high is not None:
        parts.append(f"at least {low}" if low is not None else f"at most {high}")
    for key, unit in (("maxLength", "characters"), ("maxItems", "items"), ("maxProperties", "entries")):
        if key in field:
            parts.append(f"at most {field[key]} {unit}")
    if "pattern" in field:
        parts.append(f"`{field['pattern']}`")
    return ", ".join(parts)


def _rules(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", []):
        yield path or "(object)", rule.get("message", rule["rule"])
    for name, field in schema.get("properties", {}).items():
        yield from _rules(field, f"{path}.{name}".removeprefix("."))
    for key, suffix in (("items", "[]"), ("additionalProperties", ".<name>")):
        if isinstance(schema.get(key), dict):
            yield from _rules(schema[key], path + suffix)


def every_family() -> list[metrics.Family]:
    """The metrics of an adapter in which every stage is switched on."""
    bucket = TokenBucketConfig(max_tokens=1, refill_period=1)
    config = AdapterConfig(
        rate_limiting=RateLimitingConfig(
            per_user=bucket, store=RateLimitStoreConfig(host="store", prefix="p", failure_mode="Open")
        ),
        cache=CacheConfig(ttl=1),
        circuit_breaker=CircuitBreakerConfig(),
        retry=RetryConfig(),
        batcher=BatcherConfig(max_batch_size=2),
        auth=AuthConfig(),
    )
    return sorted(create_app(config).telemetry.families.values(), key=lambda family: family.name)


def build_metrics(families: Sequence[metrics.Family]) -> str:
    """The page of metrics, as Prometheus sees them."""
    rows = []
    for family in families:
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append([f"`{name}`", family.kind, labels, family.description])
    bounds = ", ".join(f"{bound:g}" for bound in metrics.DURATIONS)
    return _page(
        "Metrics",
        "the adapter's families (sidecar/modelservice_sidecar)",
        "`GET /metrics` on the adapter's admin port (`mcp-admin`, by default 8932): Prometheus' text format, or OpenMetrics"
        " where the scraper asks for it. Only OpenMetrics has exemplars: the trace id of the newest recorded call in each"
        " bucket of `mcp_server_operation_duration_seconds`. Families of a stage are there where it is switched on.",
        f"Histograms of seconds have the bounds {bounds}: those that OpenTelemetry names for MCP, and finer ones below.",
        "Labels hold published tool names and words from the code, and nothing that a caller sends: a call of a tool that"
        " is not published is counted with an empty name. `error_type` follows OpenTelemetry: `tool_error`, or the"
        " JSON-RPC code that the caller was told.",
        "A scrape is rendered off the loop and kept for a second, so it never stalls a call. How to collect the metrics,"
        " with a dashboard and alerts: [watch your models](../howto/watch-your-models.md).",
        _table(["metric", "type", "labels", "what it is"], rows),
    )


def build_values(text: str) -> str:
    """The page of chart values: each with its default and the comment above it."""
    rows = []
    comment: list[str] = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.removeprefix("#").strip())
            continue
        match = re.fullmatch(r"( *)([A-Za-z]+):(?: (.*))?", line)
        if match:
            indent = len(match[1])
            path = [(depth, name) for depth, name in path if depth < indent] + [(indent, match[2])]
            value = "" if match[3] is None else f"`{match[3]}`"
            if comment or value:
                rows.append(["`" + ".".join(name for _, name in path) + "`", value, " ".join(comment)])
        comment = []
    return _page(
        "Chart values",
        "helm/modelservice/values.yaml",
        "`helm install modelservice helm/modelservice --set NAME=VALUE`. A value that is not in this table is refused.",
        _table(["value", "default", "what it is"], rows),
    )


def build_cli(parser: argparse.ArgumentParser) -> str:
    """The page of commands: the exit codes, then each command with its arguments."""
    parts: list[str] = []
    for name, command in _commands(parser, ""):
        rows = [[f"`{_spelled(action)}`", _help(action)] for action in _actions(command) if action.dest != "help"]
        parts += [f"## `{name}`", command.description or ""]
        parts += [_table(["argument", "what it is"], rows)] if rows else []
    return _page(
        "Command line",
        "cli/modelservice_cli",
        "`modelservice COMMAND`, or `kubectl modelservice COMMAND`. What needs a cluster asks the `kubectl` on `PATH`, with its"
        " context and credentials. Colour, and lines that tell progress, are for terminals only; `NO_COLOR` takes the colour"
        " away. How to use it: [Use the command line](../howto/use-the-cli.md).",
        "## Exit codes",
        _table(["code", "what it means"], [[str(code), text] for code, text in outcome.EXIT_CODES.items()]),
        *parts,
    )


def _commands(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command that does something, in the order of the help."""
    nested = [action for action in _actions(parser) if isinstance(action.choices, Mapping)]
    if not nested:
        yield name, parser
    for action in nested:
        for word, command in dict(action.choices or {}).items():
            yield from _commands(command, f"{name} {word}".strip())


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001  argparse has no public way to list them


def _spelled(action: argparse.Action) -> str:
    value = str(action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper())
    if not action.option_strings:
        return value
    return ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}")


def _help(action: argparse.Action) -> str:
    return str(action.help or "") % vars(action)


def _plain(value: object) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )


def _page(title: str, source: str, *blocks: str) -> str:
    note = f"<!-- Generated from {source} by `make generate`. Do not edit. -->"
    return "\n\n".join([f"# {title}", note, *blocks]) + "\n"


def build_pages() -> dict[Path, str]:
    """Every generated page by its path."""
    return {
        REFERENCE / "promises.md": build_promises(tomllib.loads(PROMISES.read_text())),
        REFERENCE / "reasons.md": build_reasons(conditions.Reasons.all()),
        REFERENCE / "security.md": build_security(tomllib.loads(SECURITY.read_text())),
        REFERENCE / "crd.md": build_crd(yaml.safe_load(CRD.read_text())),
        REFERENCE / "chart-values.md": build_values(VALUES.read_text()),
        REFERENCE / "cli.md": build_cli(build_parser()),
        REFERENCE / "metrics.md": build_metrics(every_family()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the pages, or with ``--check`` says which are old."""
    parser = argparse.ArgumentParser(description="Writes the generated reference pages.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is not up to date")
    check = parser.parse_args(arguments).check
    old = [path for path, text in build_pages().items() if not path.is_file() or path.read_text() != text]
    for path in old:
        name = path.relative_to(REPOSITORY)
        if check:
            sys.stderr.write(f"{name} is not up to date; run: make generate\n")
        else:
            path.write_text(build_pages()[path])
            sys.stdout.write(f"wrote {name}\n")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
