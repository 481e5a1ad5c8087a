"""The plain API server: what integration tests rely on when they use the fixture ``api_server``."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster import processes, settings
from localcluster.api_server import ApiServer
from localcluster.errors import CommandError
from localcluster.programs import Programs


class Kubectl:
    """kubectl against one server."""

    def __init__(self, kubeconfig: Path) -> None:
        self._program = Programs(folders=settings.read_folders()).kube() / "kubectl"
        self._kubeconfig = kubeconfig

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return processes.run([self._program, "--kubeconfig", self._kubeconfig, *arguments], stdin=stdin).strip()

    def wait(self, thing: str, condition: str) -> None:
        """Waits for ``condition`` of something that is there or will be."""
        self("wait", "--for=create", "--timeout=30s", thing)
        self("wait", f"--for={condition}", "--timeout=30s", thing)


@pytest.fixture(scope="module")
def kubectl(api_server: ApiServer) -> Kubectl:
    return Kubectl(api_server.kubeconfig)


def test_deployments_get_replica_sets_and_deleting_one_collects_all_below_it(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=none", "--replicas=2")
    kubectl("wait", "--for=jsonpath={.status.replicas}=2", "--timeout=30s", "deployment/web")
    assert len(kubectl("get", "pods", "--selector=app=web", "--output=name").split()) == 2
    kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=30s")
    assert kubectl("get", "replicasets,pods", "--selector=app=web", "--output=name") == ""


def test_namespaces_get_a_service_account_and_go_when_they_are_deleted(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "short-lived")
    kubectl("wait", "--for=create", "--timeout=30s", "--namespace=short-lived", "serviceaccount/default")
    assert kubectl("create", "token", "default", "--namespace=short-lived").count(".") == 2
    kubectl("delete", "namespace", "short-lived", "--timeout=30s")
    assert kubectl("get", "namespace", "short-lived", "--ignore-not-found") == ""


def test_access_rules_hold_for_everyone_but_the_administrator(kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "nobody")
    with pytest.raises(CommandError, match="cannot list resource"):
        kubectl("get", "secrets", "--as=system:serviceaccount:default:nobody")
    assert kubectl("auth", "can-i", "*", "*") == "yes"


def test_rules_written_in_cel_refuse_what_breaks_them(kubectl: Kubectl) -> None:
    size = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "must be above 0"}]}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"size": size}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"kind": "Box", "plural": "boxes", "singular": "box"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    kubectl("apply", "--filename=-", stdin=json.dumps(definition))
    kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/boxes.example.org")
    box = {"apiVersion": "example.org/v1", "kind": "Box", "metadata": {"name": "empty"}, "size": 0}
    with pytest.raises(CommandError, match="must be above 0"):
        kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(box))
    kubectl("delete", "crd", "boxes.example.org", "--timeout=30s")


SERVE_FOR_EVER = """
import threading
from localcluster.api_server import ApiServer
with ApiServer() as server:
    print(*server.process_ids, flush=True)
    threading.Event().wait()
"""


def test_nothing_of_a_server_runs_on_when_its_owner_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(processes.__file__).parents[1])}
    owner = subprocess.Popen([sys.executable, "-c", SERVE_FOR_EVER], stdout=subprocess.PIPE, text=True, env=environment)
    with owner:
        assert owner.stdout is not None
        ends = [os.pidfd_open(int(pid)) for pid in owner.stdout.readline().split()]
        owner.kill()
    assert len(ends) == 3
    for end in ends:
        assert select.select([end], [], [], 10)[0] == [end]
        os.close(end)


def test_the_next_server_clears_away_the_folder_of_one_that_was_killed() -> None:
    folder = settings.read_folders().root / "api-servers" / "killed"
    folder.mkdir(parents=True)
    with ApiServer() as server:
        assert not folder.exists()
        assert server.kubeconfig.is_file()
    assert not server.kubeconfig.exists()
