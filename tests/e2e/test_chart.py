"""The chart in a cluster: installed, upgraded, uninstalled and installed anew around a workload that somebody uses.

Whatever happens to the operator, the user's pods are the same pods, and MCP clients go on calling them. The release and
both namespaces are this test's own, so that it disturbs no other.
"""

import json
import secrets
import tomllib
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster_fixtures import ClusterAccess
from kubectl_access import Namespace

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = str(REPOSITORY / "helm" / "modelservice")
EXAMPLE = REPOSITORY / "examples" / "fastapi-digits"
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
IMAGES = [f"modelservice/{name}:{VERSION}" for name in ("operator", "adapter", "example-fastapi-digits")]
CRD = "modelservices.modelservice.dev"


@dataclass(frozen=True, kw_only=True)
class Site:
    """A release in a namespace of its own, and a user's namespace that it serves."""

    operators: str
    users: Namespace

    def install(self, *values: str) -> str:
        """Installs or upgrades, waits until the operator is up, and returns what Helm tells the user."""
        command = ["upgrade", "chart-test", CHART, "--install", "--namespace", self.operators, "--wait"]
        served = f"watchNamespaces={{{self.users.name}}}"
        return self.users.cluster.helm(*command, "--timeout", "3m", "--set", served, *values)

    def uninstall(self) -> None:
        """Uninstalls and waits until the operator's pod is gone."""
        self.users.cluster.helm("uninstall", "chart-test", "--namespace", self.operators, "--wait")

    def pods(self) -> dict[str, list[int]]:
        """The user's pods by uid, each with its containers' restarts."""
        return {
            pod["metadata"]["uid"]: [state["restartCount"] for state in pod["status"]["containerStatuses"]]
            for pod in self.users.find_all("pods")
            if "deletionTimestamp" not in pod["metadata"]
        }

    def list_tools(self) -> dict[str, str]:
        """The tools and their descriptions, as a client is told through the Service."""
        port = self.users.get("service", "digits-mcp")["spec"]["ports"][0]["port"]
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "list_tools"}).encode()
        with self.users.forwarded("service/digits-mcp", port) as local:
            request = urllib.request.Request(
                f"http://127.0.0.1:{local}/rpc", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=30) as response:
                answer = json.load(response)
        return {tool["name"]: tool["description"] for tool in answer["result"]["tools"]}

    def describe_tool(self, text: str) -> None:
        """Changes the ModelService and waits until the operator in charge has looked at it."""
        patch = {"spec": {"tools": {"overrides": {"predict": {"description": text}}}}}
        self.users.kubectl("patch", "modelservice", "digits", "--type=merge", "--patch", json.dumps(patch))
        generation = self.users.get("modelservice", "digits")["metadata"]["generation"]
        observed = f"--for=jsonpath={{.status.observedGeneration}}={generation}"
        self.users.kubectl("wait", observed, "modelservice/digits", "--timeout=2m")
        self.users.wait_for_condition("modelservice/digits", "Ready")


@pytest.fixture
def site(cluster: ClusterAccess) -> Iterator[Site]:
    """Two namespaces that refuse every pod that is not `restricted`."""
    cluster.load(IMAGES)
    suffix = secrets.token_hex(3)
    site = Site(operators=f"operators-{suffix}", users=Namespace(cluster=cluster, name=f"users-{suffix}"))
    for name in (site.operators, site.users.name):
        cluster.kubectl("create", "namespace", name)
        cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield site
    # After a failure too: uninstalling takes the finalizers off, which would keep the user's namespace for ever.
    cluster.helm("uninstall", "chart-test", "--namespace", site.operators, "--ignore-not-found", "--wait")
    cluster.kubectl("delete", "namespace", site.operators, site.users.name, "--wait=false")


@pytest.mark.promise("operator-absent")
@pytest.mark.promise("one-rollout")
@pytest.mark.promise("images-restricted")
def test_upgrade_uninstall_and_reinstall_leave_the_users_pods_and_calls_alone(site: Site) -> None:
    users = site.users
    users.kubectl("apply", "--filename", str(EXAMPLE / "deployment.yaml"))
    users.wait_for_rollout("deployment/digits")
    before = users.get("deployment", "digits")["spec"]["template"]

    notes = site.install()
    assert f"kubectl apply -n {users.name}" in notes
    assert "kubectl delete modelservices --all" in notes

    users.kubectl("apply", "--filename", str(EXAMPLE / "modelservice.yaml"))
    users.wait_for_condition("modelservice/digits", "Ready")
    users.wait_for_rollout("deployment/digits")
    old = "--selector=app.kubernetes.io/name=digits,!modelservice.dev/name"
    users.kubectl("wait", "pods", old, "--for=delete", "--timeout=60s")
    adopted = site.pods()
    assert list(adopted.values()) == [[0, 0]]
    assert set(site.list_tools()) == {"predict", "describe"}

    # Another operator, which would use another adapter image for whatever is adopted from now on.
    site.install("--set", "adapter.image.tag=9.9.9,logLevel=DEBUG")
    site.describe_tool("told by the upgraded operator")
    assert site.pods() == adopted

    site.uninstall()
    assert site.pods() == adopted
    assert set(site.list_tools()) == {"predict", "describe"}
    assert users.exists("crd", CRD)
    left = users.get("modelservice", "digits")
    assert left["status"]["tools"]["count"] == 2
    assert "finalizers" not in left["metadata"]
    assert users.cluster.kubectl(
        "--namespace", site.operators, "get", "serviceaccounts,roles,jobs", "--output", "name"
    ) == ("serviceaccount/default\n")

    site.install()
    site.describe_tool("told by an operator that was installed anew")
    assert site.pods() == adopted

    users.kubectl("delete", "modelservice", "digits", "--timeout=2m")
    users.wait_for_rollout("deployment/digits")
    assert users.get("deployment", "digits")["spec"]["template"] == before
    site.uninstall()


@pytest.mark.promise("operator-absent")
def test_nothing_is_stuck_when_a_model_service_is_deleted_while_no_operator_runs(site: Site) -> None:
    users = site.users
    users.kubectl("apply", "--filename", str(EXAMPLE / "deployment.yaml"))
    users.kubectl("scale", "deployment/digits", "--replicas=0")
    before = users.get("deployment", "digits")["spec"]
    site.install()
    users.kubectl("apply", "--filename", str(EXAMPLE / "modelservice.yaml"))
    users.wait_for_condition("modelservice/digits", "Injected")

    operator = ("--namespace", site.operators, "scale", "deployment", "--all", "--replicas=0")
    users.cluster.kubectl(*operator)
    users.cluster.kubectl("--namespace", site.operators, "wait", "pods", "--all", "--for=delete", "--timeout=60s")
    users.kubectl("delete", "modelservice", "digits", "--wait=false")
    assert users.exists("modelservice", "digits"), "its finalizer waits for an operator"

    site.uninstall()
    users.wait_until_gone("modelservice/digits", seconds=60)
    assert users.get("deployment", "digits")["spec"] == before
    users.cluster.kubectl("delete", "namespace", users.name, "--timeout=60s")
    users.cluster.kubectl("create", "namespace", users.name)  # for the fixture, which expects to find it
