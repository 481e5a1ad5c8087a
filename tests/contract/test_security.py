"""The index of attacks names tests that exist, and what is true of the product's form and not of its behaviour holds.

tests/security.toml is the index; docs/reference/security.md is generated from it.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from modelservice_api import v1alpha1
from modelservice_operator.core import adapter, backend

TESTS = Path(__file__).resolve().parents[1]
REPOSITORY = TESTS.parent
INDEX: dict[str, dict[str, dict[str, Any]]] = tomllib.loads((TESTS / "security.toml").read_text(encoding="utf-8"))
GOALS = {"S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S13", "S14", "S15", "S16", "S19", "S20"}
REPORTS = {
    *range(1, 11), *range(13, 18), 20, 22, 26, 27, 29, 30, 32, 33, 34, 37, 38, 40, 41, 42, *range(46, 50), *range(51, 67)
}  # fmt: skip
ENTRIES = [(f"{part}.{name}", entry) for part, entries in INDEX.items() for name, entry in entries.items()]


@cache
def functions_of(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


def crd_fields() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field that a user may write, by its path."""
    [version] = yaml.safe_load((REPOSITORY / "crds/modelservices.modelservice.dev.yaml").read_text())["spec"][
        "versions"
    ]
    pending = [("spec", version["schema"]["openAPIV3Schema"]["properties"]["spec"])]
    while pending:
        path, schema = pending.pop()
        yield path, schema
        pending += [(f"{path}.{name}", field) for name, field in schema.get("properties", {}).items()]
        for key, suffix in (("items", "[]"), ("additionalProperties", ".<name>")):
            if isinstance(schema.get(key), dict):
                pending.append((path + suffix, schema[key]))


@pytest.mark.parametrize(("name", "entry"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_an_entry_names_tests_that_exist_or_says_what_it_waits_for(name: str, entry: dict[str, Any]) -> None:
    assert set(entry) in ({"goal", "tests"}, {"goal", "waits"}, {"report", "tests"}, {"report", "waits"})
    assert entry.get("waits", "None.").endswith(".")
    tests = entry.get("tests", [])
    assert ("waits" in entry) == (tests == [])
    for test in tests:
        file, _, function = test.partition("::")
        assert (TESTS / file).is_file(), file
        assert function in functions_of(TESTS / file), test


def test_every_report_to_learn_from_is_listed_and_has_a_test_or_waits_for_something() -> None:
    assert {int(number) for number in INDEX["reports"]} == REPORTS
    assert set(INDEX["goals"]) == GOALS


@pytest.mark.promise("hostile")
def test_no_field_of_a_model_service_is_an_address_that_something_connects_to() -> None:
    """Ports and paths are of the workload's own pod. Addresses that clients are told, or that are compared, are listed here."""
    compared = {
        "spec.mcp.allowedHosts": "compared with a request's Host",
        "spec.auth.publicUrl": "told to clients, and compared with a token's audience",
        "spec.auth.issuers": "names of issuers that the platform admin set up",
    }
    named = re.compile(r"ur[il]|host|endpoint|address|server|issuer|webhook|proxy", re.IGNORECASE)
    found = {path for path, _ in crd_fields() if named.search(path.rpartition(".")[2])}
    assert {path for path in found if path.removesuffix("[]") not in compared} == set()


@pytest.mark.promise("hostile")
def test_no_reference_of_a_model_service_leaves_its_namespace() -> None:
    assert [path for path, _ in crd_fields() if "namespace" in path.lower()] == []


@pytest.mark.promise("hostile")
def test_no_field_of_a_model_service_holds_an_object_of_kubernetes() -> None:
    """Fields without a schema are the arguments of a call and what a stage of another package is configured with."""
    free = {path for path, schema in crd_fields() if schema.get("x-kubernetes-preserve-unknown-fields")}
    refused = {"spec.canary", "spec.autoscaling"}  # reserved names: every value of them is refused
    assert free - refused == {"spec.warmUp.requests[].arguments", "spec.adapter.stages[].config"}
    embedded = [path for path, schema in crd_fields() if schema.get("x-kubernetes-embedded-resource")]
    assert embedded == []
    assert [path for path, _ in crd_fields() if re.search(r"template|manifest|podSpec", path)] == []


@pytest.mark.promise("hostile")
@pytest.mark.parametrize("user", [{}, {"securityContext": {"runAsUser": 0}}], ids=["plain", "root"])
def test_the_adapter_s_container_is_restricted_and_gets_no_credentials(user: dict[str, Any]) -> None:
    template = {"spec": {"containers": [{"name": "model", "ports": [{"containerPort": 8000}]}], **user}}
    target = backend.BackendTarget(container="model", port=8000)
    ports = adapter.choose_ports(template, v1alpha1.Mcp(), target, ours=False)
    assert isinstance(ports, adapter.Ports)
    spec = v1alpha1.ModelServiceSpec(workload_ref=v1alpha1.WorkloadRef(name="model"))
    made = adapter.render(name="m", spec=spec, template=template, backend=target, ports=ports, image="i").container
    context = made["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["runAsNonRoot"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context.get("privileged", False) is False
    # Its own configuration and nothing else is mounted; Kubernetes adds the token of the pod's account, which is the user's.
    assert [mount["mountPath"] for mount in made["volumeMounts"] if not mount["readOnly"]] == []
    assert len(made["volumeMounts"]) == 1
    assert [entry["name"] for entry in made["env"] if "valueFrom" in entry] == []
    assert "envFrom" not in made
    assert [port for port in made["ports"] if "hostPort" in port] == []
    assert [probe for probe in ("livenessProbe", "readinessProbe") if "host" in made[probe]["httpGet"]] == []
    # A CPU limit of a sidecar is paid for by every call that meets the end of its slice.
    assert "cpu" not in made["resources"]["limits"]


def test_the_adapter_needs_none_of_the_libraries_with_such_reports_or_a_version_without_them() -> None:
    pinned = dict(
        re.findall(r"^([a-z0-9-]+)==([0-9.]+)", (REPOSITORY / "requirements/sidecar.txt").read_text(), re.MULTILINE)
    )

    def version(name: str) -> tuple[int, ...]:
        return tuple(int(part) for part in pinned[name].split("."))

    assert version("pyjwt") >= (2, 13)
    assert version("orjson") >= (3, 11, 6)
    assert {"starlette", "fastapi", "msgpack", "mcp", "python-jose", "aiohttp"} & set(pinned) == set()
