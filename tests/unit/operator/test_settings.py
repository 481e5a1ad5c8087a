"""What the operator refuses to start with, and how it says so."""

import pytest

from modelservice_operator import settings

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
        ({"MODELSERVICE_AUTH": '{"issuers": {"corp": {"issuer": 1}}}'}, "the chart's auth: issuers.corp.issuer"),
    ],
)
def test_an_unusable_variable_is_named(change: dict[str, str], names: str) -> None:
    with pytest.raises(settings.SettingsError, match=names):
        settings.from_environment({**GOOD, **change})
