"""The config document that the operator writes for adapters."""

import pytest

from modelservice_api import adapter_config, v1alpha1
from modelservice_operator.core import adapter
from modelservice_operator.core.backend import BackendTarget

PORTS = adapter.Ports(mcp=8931, mcp_name="mcp", admin=8932, admin_name="mcp-admin")


def config_of(**spec: object) -> dict[str, object]:
    given = {"workloadRef": {"name": "fraud"}, **spec}
    built = adapter.build_config(
        namespace="ml", name="fraud", spec=v1alpha1.ModelServiceSpec.model_validate(given), ports=PORTS
    )
    return built.model_dump(by_alias=True, exclude_defaults=True, mode="json")


def test_a_spec_that_says_nothing_leaves_everything_to_discovery() -> None:
    assert config_of() == {
        "server": {"name": "fraud"},
        "peers": {"host": "fraud-mcp.ml.svc", "port": 8931},
    }


def test_every_word_about_the_model_server_reaches_the_adapter() -> None:
    found = config_of(
        backend={"type": "V2", "v2": {"models": ["fraud"], "grpcPort": 8001}},
        model={
            "version": "1.1",
            "inputs": [{"name": "features", "datatype": "FP32", "shape": [-1, 256]}],
            "outputs": [{"name": "score", "datatype": "FP32", "shape": [-1, 1]}],
            "nonFinite": "Null",
        },
        mcp={"binaryTransfer": True},
        warmUp={"requests": [{"tool": "fraud", "arguments": {"features": [0.5]}}]},
    )
    assert found == {
        "server": {"name": "fraud", "version": "1.1"},
        "backend": {"type": "V2", "v2": {"models": ["fraud"], "grpcPort": 8001}},
        "model": {
            "inputs": [{"name": "features", "datatype": "FP32", "shape": [-1, 256]}],
            "outputs": [{"name": "score", "datatype": "FP32", "shape": [-1, 1]}],
            "nonFinite": "Null",
        },
        "mcp": {"binaryTransfer": True},
        "warmUp": [{"tool": "fraud", "arguments": {"features": [0.5]}}],
        "peers": {"host": "fraud-mcp.ml.svc", "port": 8931},
    }
    assert config_of(backend={"type": "OpenAI", "openAI": {"models": ["small"]}})["backend"] == {
        "type": "OpenAI",
        "openAI": {"models": ["small"]},
    }


@pytest.mark.promise("limits")
def test_every_block_of_the_pipeline_reaches_the_adapter_in_seconds_and_absent_ones_switch_nothing_on() -> None:
    found = config_of(
        rateLimiting={
            "perUser": {"maxTokens": 60, "refillPeriod": "1m"},
            "shared": {"maxTokens": 600, "refillPeriod": "60s"},
            "tools": [{"name": "predict", "shared": {"maxTokens": 5, "refillPeriod": "500ms"}}],
            "store": {"serviceName": "limits", "failureMode": "Closed"},
        },
        cache={"ttl": "5m", "maxBytes": 2048, "scope": "Shared"},
        circuitBreaker={"consecutiveFailures": 3, "openDuration": "4s"},
        retry={"maxAttempts": 4, "budgetPercent": 20},
        batcher={"maxBatchSize": 8, "maxLatency": "7ms"},
        adapter={"stages": [{"name": "redact", "config": {"words": ["x"], "deep": {"n": None}}}]},
    )
    assert {key: found[key] for key in sorted(found) if key not in {"server", "peers"}} == {
        "batcher": {"maxBatchSize": 8, "maxLatency": 0.007},
        "cache": {"maxBytes": 2048, "scope": "Shared", "ttl": 300.0},
        "circuitBreaker": {"consecutiveFailures": 3, "openDuration": 4.0},
        "rateLimiting": {
            "perUser": {"maxTokens": 60, "refillPeriod": 60.0},
            "shared": {"maxTokens": 600, "refillPeriod": 60.0},
            "tools": [{"name": "predict", "shared": {"maxTokens": 5, "refillPeriod": 0.5}}],
            "store": {"host": "limits.ml.svc", "prefix": "ml/fraud", "failureMode": "Closed"},
        },
        "retry": {"budgetPercent": 20, "maxAttempts": 4},
        "stages": [{"name": "redact", "config": {"words": ["x"], "deep": {"n": None}}}],
    }
    defaults = config_of(cache={"ttl": "1s"}, circuitBreaker={}, retry={}, batcher={"maxBatchSize": 2})
    blocks = ("cache", "circuitBreaker", "retry", "batcher")
    assert [defaults[block] for block in blocks] == [{"ttl": 1.0}, {}, {}, {"maxBatchSize": 2}]


@pytest.mark.promise("limits")
def test_a_stage_s_own_configuration_arrives_as_it_was_written_also_where_it_says_null() -> None:
    written = adapter_config.AdapterConfig(stages=(adapter_config.StageConfig(name="x", config={"a": None, "b": []}),))
    read = adapter_config.AdapterConfig.model_validate_json(written.to_json())
    assert read == written


@pytest.mark.promise("headers-forwarded")
@pytest.mark.promise("backend-credential")
def test_headers_and_how_the_adapter_shows_itself_reach_the_adapter_but_no_secret_does() -> None:
    found = config_of(
        backend={
            "forwardHeaders": ["x-tenant"],
            "credential": {"secretKeyRef": {"name": "model-key"}, "header": "x-api-key", "scheme": ""},
        }
    )
    assert found["backend"] == {"forwardHeaders": ["x-tenant"], "credential": {"header": "x-api-key", "scheme": ""}}
    spec = v1alpha1.ModelServiceSpec.model_validate(
        {"workloadRef": {"name": "fraud"}, "backend": {"credential": {"secretKeyRef": {"name": "model-key"}}}}
    )
    rendered = adapter.render(
        name="fraud",
        spec=spec,
        template={},
        backend=BackendTarget(container="server", port=8000),
        ports=PORTS,
        image="modelservice/adapter:1",
    )
    assert rendered.container["env"][1:] == [
        {
            "name": "MODELSERVICE_BACKEND_CREDENTIAL",
            "valueFrom": {"secretKeyRef": {"name": "model-key", "key": "token", "optional": True}},
        }
    ]
