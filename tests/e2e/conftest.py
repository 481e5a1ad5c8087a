"""The product installed on a real cluster as a user installs it, and a namespace with a model server for each test.

Owns the installation: images loaded, chart installed by helm with its default, namespaced rights. Namespaces are made
beforehand because those rights name them. Tests use kubectl, helm and the official MCP client, nothing of ours.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_fixtures import ClusterAccess
from installation import NAMESPACE, NAMESPACES, OPERATOR_NAMESPACE, Installation
from kubectl_access import Namespace
from model_servers import VERSION

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = tuple(f"modelservice/{name}:{VERSION}" for name in ("operator", "adapter", "example-fastapi-digits"))


@pytest.fixture(scope="session")
def installation(cluster: ClusterAccess) -> Iterator[Installation]:
    """The chart, installed for a list of namespaces."""
    cluster.load(IMAGES)
    made = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES]
    cluster.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
    cluster.helm(
        *("upgrade", "--install", "modelservice", str(REPOSITORY / "helm" / "modelservice")),
        *("--namespace", OPERATOR_NAMESPACE, "--create-namespace", "--wait", "--timeout", "3m"),
        *("--set", f"watchNamespaces={{{','.join(NAMESPACES)}}}"),
    )
    yield Installation(cluster=cluster)
    if os.environ.get("CLUSTER") == "current":
        cluster.helm("uninstall", "modelservice", "--namespace", OPERATOR_NAMESPACE, "--wait")
        cluster.kubectl("delete", "namespace", OPERATOR_NAMESPACE, *NAMESPACES, "--ignore-not-found")


@pytest.fixture
def namespace(installation: Installation) -> Iterator[Namespace]:
    """A namespace that the operator watches, empty again after the test: the next one counts objects too."""
    namespace = Namespace(cluster=installation.cluster, name=NAMESPACE)
    yield namespace
    # Workloads first: released ones would start new pods, and a program that is only starting does not hear SIGTERM yet.
    for kinds in ("deployments", "modelservices", "services,events,replicasets,pods"):
        namespace.kubectl("delete", kinds, "--all", "--timeout=120s")
