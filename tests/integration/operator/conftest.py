"""A namespace of its own for every test, on one API server for the whole run, with our CRD established."""

from pathlib import Path

import pytest
import yaml
from kubernetes import client, watch

from kube_harness import Harness, api_client
from localcluster.api_server import ApiServer

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def kubeconfig(api_server: ApiServer) -> Path:
    """The API server with our CRD established."""
    crd = yaml.safe_load((REPOSITORY / "crds" / "modelservices.modelservice.dev.yaml").read_text(encoding="utf-8"))
    extensions = client.ApiextensionsV1Api(api_client(api_server.kubeconfig))
    extensions.create_custom_resource_definition(crd)
    selector = f"metadata.name={crd['metadata']['name']}"
    stream = watch.Watch()
    for event in stream.stream(extensions.list_custom_resource_definition, field_selector=selector, timeout_seconds=30):
        conditions = event["object"].status.conditions or []
        if any(found.type == "Established" and found.status == "True" for found in conditions):
            stream.stop()
    return api_server.kubeconfig


@pytest.fixture
def harness(kubeconfig: Path) -> Harness:
    made = client.CoreV1Api(api_client(kubeconfig)).create_namespace({"metadata": {"generateName": "test-"}})
    return Harness(kubeconfig, made.metadata.name)
