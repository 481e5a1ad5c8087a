"""The generated CRD in a real API server: what it refuses, what it accepts, what it shows.

A bad document is either refused by the API server with a message that names the field, or accepted and then answered by
the operator with a condition; both kinds stand in one table.
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_harness import Harness
from kube_objects import deployment, model_service, with_spec

REPOSITORY = Path(__file__).parents[3]
TENSOR = {"name": "x", "datatype": "FP32", "shape": [1]}
BUCKET = {"maxTokens": 1, "refillPeriod": "1s"}

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("auth without an issuer", {"auth": {"issuers": []}}, "spec.auth.issuers"),
    ("auth that names none", {"auth": {"anonymousTools": ["status"]}}, "spec.auth.issuers"),
    ("an issuer by its address", {"auth": {"issuers": ["https://idp.test"]}}, "spec.auth.issuers[0]"),
    ("a public URL with a query", {"auth": {"issuers": ["a"], "publicUrl": "https://x/?a=b"}}, "spec.auth.publicUrl"),
    ("a public URL that is a script", {"auth": {"issuers": ["a"], "publicUrl": "javascript:x"}}, "spec.auth.publicUrl"),
    ("no workload", {"workloadRef": None}, "spec.workloadRef"),
    ("a workload without a name", {"workloadRef": {"kind": "Deployment"}}, "spec.workloadRef.name"),
    ("an empty workload name", {"workloadRef": {"name": ""}}, "spec.workloadRef.name"),
    ("a workload name of 254 characters", {"workloadRef": {"name": "x" * 254}}, "spec.workloadRef.name"),
    ("a number for a name", {"workloadRef": {"name": 7}}, "spec.workloadRef.name"),
    ("suspend that is no boolean", {"suspend": "yes"}, "spec.suspend"),
    ("an unknown injection mode", {"injection": {"mode": "Magic"}}, "spec.injection.mode"),
    ("an unknown placement", {"injection": {"placement": "first"}}, "spec.injection.placement"),
    ("an unknown backend type", {"backend": {"type": "Carrier pigeon"}}, "spec.backend.type"),
    ("backend port 0", {"backend": {"port": 0}}, "spec.backend.port"),
    ("backend port 65536", {"backend": {"port": 65536}}, "spec.backend.port"),
    ("a backend port in quotes", {"backend": {"port": "8000"}}, "spec.backend.port"),
    ("a container name of 64 characters", {"backend": {"container": "c" * 64}}, "spec.backend.container"),
    ("an OpenAPI path that is a URL", {"backend": {"openAPI": {"path": "http://evil"}}}, "spec.backend.openAPI.path"),
    ("an OpenAPI path with a query", {"backend": {"openAPI": {"path": "/a?b=c"}}}, "spec.backend.openAPI.path"),
    ("257 patterns", {"backend": {"openAPI": {"include": ["a"] * 257}}}, "spec.backend.openAPI.include"),
    ("a V2 block on an OpenAPI server", {"backend": {"type": "OpenAPI", "v2": {}}}, "v2 needs type"),
    ("an OpenAPI block on a V2 server", {"backend": {"type": "V2", "openAPI": {}}}, "openAPI needs type"),
    ("a TVM block on a Torch server", {"backend": {"type": "Torch", "tvm": {"artifact": "/m"}}}, "tvm needs type"),
    ("an artifact that is missing", {"backend": {"type": "TVM", "tvm": {}}}, "spec.backend.tvm.artifact"),
    ("a model version of 64 characters", {"model": {"version": "1" * 64}}, "spec.model.version"),
    ("an unknown datatype", {"model": {"inputs": [{**TENSOR, "datatype": "FP8"}]}}, "spec.model.inputs[0].datatype"),
    ("a negative dimension", {"model": {"inputs": [{**TENSOR, "shape": [-2]}]}}, "spec.model.inputs[0].shape[0]"),
    ("17 dimensions", {"model": {"inputs": [{**TENSOR, "shape": [1] * 17}]}}, "spec.model.inputs[0].shape"),
    ("a tool name with a space", {"tools": {"overrides": {"a": {"name": "a b"}}}}, "spec.tools.overrides.a.name"),
    (
        "a tool name of 65 characters",
        {"tools": {"overrides": {"a": {"name": "a" * 65}}}},
        "spec.tools.overrides.a.name",
    ),
    (
        "a description of 1025 characters",
        {"tools": {"overrides": {"a": {"description": "d" * 1025}}}},
        "overrides.a.description",
    ),
    ("an unknown pinning", {"tools": {"pinning": "Glue"}}, "spec.tools.pinning"),
    ("MCP port 0", {"mcp": {"port": 0}}, "spec.mcp.port"),
    ("a privileged MCP port", {"mcp": {"port": 80}}, "port must be 1024 or higher"),
    ("MCP on the model server's port", {"mcp": {"port": 8000}, "backend": {"port": 8000}}, "must differ"),
    ("MCP path /", {"mcp": {"path": "/"}}, "path must be longer"),
    ("MCP path /rpc", {"mcp": {"path": "/rpc"}}, "taken by JSON-RPC"),
    ("65 allowed hosts", {"mcp": {"allowedHosts": ["a"] * 65}}, "spec.mcp.allowedHosts"),
    ("a timeout without a unit", {"limits": {"timeout": "30"}}, "spec.limits.timeout"),
    ("a negative timeout", {"limits": {"timeout": "-1s"}}, "spec.limits.timeout"),
    ("a timeout of 0s", {"limits": {"timeout": "0s"}}, "spec.limits.timeout"),
    ("a body limit of 1 byte", {"limits": {"maxBodyBytes": 1}}, "spec.limits.maxBodyBytes"),
    ("a body limit of 2 GiB", {"limits": {"maxBodyBytes": 2**31}}, "spec.limits.maxBodyBytes"),
    ("no concurrency", {"limits": {"maxConcurrency": 0}}, "spec.limits.maxConcurrency"),
    (
        "a bucket without a period",
        {"rateLimiting": {"perUser": {"maxTokens": 1}}},
        "spec.rateLimiting.perUser.refillPeriod",
    ),
    (
        "a bucket of 0 tokens",
        {"rateLimiting": {"shared": {**BUCKET, "maxTokens": 0}}},
        "spec.rateLimiting.shared.maxTokens",
    ),
    ("a bucket per user without tokens to know users by", {"rateLimiting": {"perUser": BUCKET}}, "perUser needs auth"),
    (
        "a tool's bucket per user without tokens to know users by",
        {"rateLimiting": {"tools": [{"name": "a", "shared": BUCKET}, {"name": "b", "perUser": BUCKET}]}},
        "perUser needs auth",
    ),
    (
        "a store whose failure nobody decided about",
        {"rateLimiting": {"store": {"serviceName": "limits"}}},
        "spec.rateLimiting.store.failureMode",
    ),
    (
        "a store in another namespace",
        {"rateLimiting": {"store": {"serviceName": "limits.other", "failureMode": "Open"}}},
        "spec.rateLimiting.store.serviceName",
    ),
    ("a cache without a lifetime", {"cache": {}}, "spec.cache.ttl"),
    ("101 percent", {"retry": {"budgetPercent": 101}}, "spec.retry.budgetPercent"),
    ("a batch of 0", {"batcher": {"maxBatchSize": 0}}, "spec.batcher.maxBatchSize"),
    ("2^31 GPUs", {"gpu": {"count": 2**31}}, "spec.gpu.count"),
    ("an unknown answer to risk", {"rollout": {"onRisk": "Hope"}}, "spec.rollout.onRisk"),
    ("an image with a space", {"adapter": {"image": "a b"}}, "spec.adapter.image"),
    (
        "a quantity that is none",
        {"adapter": {"resources": {"limits": {"memory": "1e400Gi"}}}},
        "resources.limits.memory",
    ),
    ("a negative quantity", {"adapter": {"resources": {"requests": {"cpu": "-1"}}}}, "resources.requests.cpu"),
    ("a quantity with two units", {"adapter": {"resources": {"requests": {"cpu": "1m1"}}}}, "resources.requests.cpu"),
    ("a GPU for the adapter", {"adapter": {"resources": {"limits": {"nvidia.com/gpu": "1"}}}}, "never gets a GPU"),
    ("canary that is a list", {"canary": []}, "spec.canary"),
]

ANSWERED: list[tuple[str, dict[str, Any], str]] = [
    ("a canary", {"canary": {"trafficPercent": 101}}, "NotSupportedYet"),
    ("autoscaling", {"autoscaling": {"minReplicas": 9, "maxReplicas": 1}}, "NotSupportedYet"),
    ("an issuer that nobody set up", {"auth": {"issuers": ["platform"]}}, "UnknownIssuer"),
    ("pod mode", {"injection": {"mode": "Pod"}}, "NotSupportedYet"),
    ("a model of the adapter's own", {"backend": {"type": "ONNX"}}, "NotSupportedYet"),
    (
        "a kind without pods",
        {"workloadRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "fraud"}},
        "UnsupportedKind",
    ),
    (
        "a Rollout",
        {"workloadRef": {"kind": "Rollout", "apiVersion": "argoproj.io/v1alpha1", "name": "x"}},
        "UnsupportedKind",
    ),
    ("a workload that is not there", {"workloadRef": {"name": "nobody"}}, "WorkloadNotFound"),
    ("a name that cannot exist", {"workloadRef": {"name": "../../secrets"}}, "WorkloadNotFound"),
    ("the model server's declared port", {"mcp": {"port": 8000}}, "PortConflict"),
    ("a container that is not there", {"backend": {"container": "model"}}, "BackendContainerNotFound"),
]


@pytest.fixture
def document(harness: Harness) -> Iterator[dict[str, Any]]:
    found = model_service("fraud", namespace=harness.namespace)
    yield found
    harness.delete_if_there("modelservices", "fraud")


@pytest.mark.promise("refuse")
@pytest.mark.parametrize(("blocks", "names"), [pytest.param(*rest, id=sentence) for sentence, *rest in REFUSED])
def test_the_api_server_refuses_and_names_the_field(
    harness: Harness, document: dict[str, Any], blocks: dict[str, Any], names: str
) -> None:
    with_spec(**blocks)(document)
    if document["spec"]["workloadRef"] is None:
        del document["spec"]["workloadRef"]
    assert names in harness.refusal_of(document)


@pytest.mark.promise("refuse")
@pytest.mark.parametrize(("blocks", "reason"), [pytest.param(*rest, id=sentence) for sentence, *rest in ANSWERED])
def test_the_operator_answers_what_the_api_server_accepts(
    harness: Harness, document: dict[str, Any], blocks: dict[str, Any], reason: str
) -> None:
    workload = harness.apply_as_user(deployment("fraud", namespace=harness.namespace))
    with_spec(**blocks)(document)
    harness.create(document)
    harness.reconcile("fraud")
    status = harness.get("modelservices", "fraud")["status"]
    assert {found["type"]: found["reason"] for found in status["conditions"]}["Ready"] == reason
    assert harness.get("deployments", "fraud")["metadata"]["generation"] == workload["metadata"]["generation"]


def test_unknown_fields_are_reported_to_whoever_asks_for_strictness(harness: Harness, document: dict[str, Any]) -> None:
    with_spec(replicas=3)(document)
    assert 'unknown field "spec.replicas"' in harness.refusal_of(document, strict=True)


def test_the_workload_of_a_model_service_cannot_change(harness: Harness, document: dict[str, Any]) -> None:
    harness.create(document)
    changed = copy.deepcopy(document)
    changed["spec"]["workloadRef"]["name"] = "other"
    assert "workloadRef cannot change" in harness.refusal_of(changed, replace=True)


def test_every_block_of_the_design_is_accepted_and_named_in_the_refusal(harness: Harness) -> None:
    document = yaml.safe_load((REPOSITORY / "tests/integration/operator/every-block.yaml").read_text(encoding="utf-8"))
    document["metadata"]["namespace"] = harness.namespace
    harness.apply_as_user(deployment("fraud", namespace=harness.namespace))
    harness.create(document)
    harness.reconcile("fraud")
    conditions = {found["type"]: found for found in harness.get("modelservices", "fraud")["status"]["conditions"]}
    assert conditions["Accepted"]["reason"] == "NotSupportedYet"
    for field in ("backend.tvm", "rollout.autoReleaseAfter"):
        assert f"spec.{field}" in conditions["Accepted"]["message"]
    harness.delete_if_there("modelservices", "fraud")


def test_kubectl_shows_what_a_user_looks_for_first(harness: Harness, document: dict[str, Any]) -> None:
    harness.create(document)
    table = harness.table("modelservices")
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Ready",
        "Reason",
        "Tools",
        "Backend",
        "URL",
        "Age",
    ]


def test_a_status_that_the_operator_writes_is_stored_whole(harness: Harness, document: dict[str, Any]) -> None:
    harness.apply_as_user(deployment("fraud", namespace=harness.namespace))
    harness.create(document)
    told = harness.reconcile("fraud")
    stored = harness.get("modelservices", "fraud")["status"]
    assert json.loads(json.dumps(told)) == stored
