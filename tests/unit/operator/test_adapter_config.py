"""The config document that the operator writes for adapters."""

from modelservice_api import v1alpha1
from modelservice_operator.core import adapter

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
