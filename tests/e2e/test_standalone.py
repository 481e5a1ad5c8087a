"""Standalone mode on a real cluster: the workload is not touched at all, and its clients find the tools all the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from installation import NAMESPACES, OPERATOR_NAMESPACE, Installation
from kubectl_access import Namespace
from mcp_calls import ZERO, converse
from model_servers import digits, model_service

CHART = Path(__file__).resolve().parents[2] / "helm" / "modelservice"


@pytest.fixture
def switch(installation: Installation) -> Iterator[Any]:
    """Switches the operator's rights for Standalone mode on or off; off again at the end."""

    def set_to(enabled: str) -> None:
        # Another test deletes one of the namespaces, and no Role can be made in what is not there.
        found = installation.cluster.kubectl("get", "namespaces", "-o", "jsonpath={.items[*].metadata.name}").split()
        served = ",".join(name for name in NAMESPACES if name in found)
        values = ("--set", f"standalone.enabled={enabled}", "--set", f"watchNamespaces={{{served}}}")
        flags = ("--namespace", OPERATOR_NAMESPACE, "--reuse-values", *values)
        installation.cluster.helm("upgrade", "modelservice", str(CHART), *flags, "--wait", "--timeout", "2m")

    yield set_to
    set_to("false")


def service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app.kubernetes.io/name": name}, "ports": [{"port": 80, "targetPort": 8000}]},
    }


@pytest.mark.promise("standalone")
@pytest.mark.promise("refuse-not-permitted")
def test_the_adapter_stands_alone_and_the_workload_never_changes(namespace: Namespace, switch: Any) -> None:
    namespace.apply(digits(), service("digits"))
    namespace.wait_for_rollout("deployment/digits")
    before = namespace.get("deployment", "digits")
    namespace.apply(model_service("digits", injection={"mode": "Standalone"}))
    message = namespace.wait_for_reason("digits", "Injected", "NotPermitted")
    assert "create" in message
    assert "deployments" in message
    switch("true")
    namespace.wait_for_condition("modelservice/digits", "Ready", seconds=180)
    status = namespace.get("modelservice", "digits")["status"]
    assert status["injection"]["mode"] == "Standalone"
    with namespace.forwarded("service/digits-mcp", 8931) as port:
        (answer,) = converse(f"http://127.0.0.1:{port}/mcp", ("predict", {"pixels": ZERO})).answers
        assert answer.structured_content is not None
        assert answer.structured_content["digit"] == 0
    after = namespace.get("deployment", "digits")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["metadata"].get("annotations") == before["metadata"].get("annotations")
    namespace.kubectl("delete", "modelservice", "digits", "--timeout=60s")
    assert not namespace.exists("deployment", "digits-mcp")
    assert not namespace.exists("service", "digits-mcp")
    assert namespace.get("deployment", "digits")["metadata"]["generation"] == before["metadata"]["generation"]
