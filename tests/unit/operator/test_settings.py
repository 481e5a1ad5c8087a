"""What the operator refuses to start with, and how it says so."""

import dataclasses

import pytest

from kube_objects import observed
from modelservice_api.adapter_config import AdapterConfig
from modelservice_operator import settings
from modelservice_operator.core import plan

GOOD = {"MODELSERVICE_NAMESPACES": "ml, team-b", "MODELSERVICE_ADAPTER_IMAGE": "modelservice/adapter:1"}


def test_namespaces_are_a_list() -> None:
    found = settings.from_environment(GOOD)
    assert found.namespaces == ("ml", "team-b")
    assert not found.cluster_wide
    assert (found.health_port, found.log_level) == (8080, "INFO")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"MODELSERVICE_NAMESPACES": ""}, "MODELSERVICE_NAMESPACES"),
        ({"MODELSERVICE_CLUSTER_WIDE": "true"}, "MODELSERVICE_CLUSTER_WIDE"),
        ({"MODELSERVICE_ADAPTER_IMAGE": ""}, "MODELSERVICE_ADAPTER_IMAGE"),
        ({"MODELSERVICE_HEALTH_PORT": "http"}, "MODELSERVICE_HEALTH_PORT"),
        ({"MODELSERVICE_HEALTH_PORT": "65536"}, "MODELSERVICE_HEALTH_PORT"),
        ({"MODELSERVICE_LOG_LEVEL": "LOUD"}, "MODELSERVICE_LOG_LEVEL"),
        (
            {"MODELSERVICE_TRACING": '{"endpoint": "collector:4318"}'},
            "the chart's tracing: .*endpoint is not a plain http",
        ),
        ({"MODELSERVICE_TRACING": '{"sampleRatio": 2}'}, "the chart's tracing: sampleRatio"),
        ({"MODELSERVICE_CALL_LOG": '{"redactPatterns": ["("]}'}, "the chart's callLog: .*no regular expression"),
        ({"MODELSERVICE_CALL_LOG": '{"bodies": "All"}'}, "the chart's callLog: bodies"),
        ({"MODELSERVICE_AUTH": '{"issuers": {"corp": {"issuer": 1}}}'}, "the chart's auth: issuers.corp.issuer"),
    ],
)
def test_an_unusable_variable_is_named(change: dict[str, str], names: str) -> None:
    with pytest.raises(settings.SettingsError, match=names):
        settings.from_environment({**GOOD, **change})


def test_where_spans_go_and_what_is_logged_reaches_every_adapter_s_document() -> None:
    found = settings.from_environment(
        {
            **GOOD,
            "MODELSERVICE_TRACING": '{"endpoint": "http://collector.observability:4318", "sampleRatio": 0.1}',
            "MODELSERVICE_CALL_LOG": '{"bodies": "Redacted", "redactKeys": ["iban"]}',
        }
    )
    seen = dataclasses.replace(observed(), signals=found.signals)
    [config_map] = [change for change in plan.decide(seen).owned if change["kind"] == "ConfigMap"]
    config = AdapterConfig.model_validate_json(config_map["data"]["config.json"])
    assert (config.tracing, config.logging) == (found.signals.tracing, found.signals.logging)
    assert (config.tracing.sample_ratio, config.logging.redact_keys) == (0.1, ("iban",))
