"""The operator as a process, with exactly the rights that the chart grants.

Owns how tests run `python -m modelservice_operator`: its kubeconfig holds a token of the service account that the chart
makes, bound to the chart's own rules, so a missing verb fails the test that needs it.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from kube_harness import IMAGE, api_client
from localcluster import packages, programs, settings

REPOSITORY = Path(__file__).resolve().parents[2]
_STARTUP_SECONDS = 60


def helm() -> str:
    """The helm program: the machine's, or the one that the cluster command builds and keeps."""
    found = packages.find("helm")
    return str(found or programs.Programs(folders=settings.read_folders()).tool(programs.HELM))


def grant_chart_rights(kubeconfig: Path, folder: Path, *values: str) -> Path:
    """Installs the chart's service account and rules, nothing else; a kubeconfig of that account, in `folder`."""
    chart = REPOSITORY / "helm" / "modelservice"
    rendered = subprocess.run(
        [
            helm(),
            "template",
            "modelservice",
            str(chart),
            "--namespace",
            "default",
            "--kube-version",
            "1.34.0",
            "--no-hooks",
            *values,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    api = api_client(kubeconfig)
    core, rbac = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
    account = ""
    for document in yaml.safe_load_all(rendered):
        namespace = (document or {}).get("metadata", {}).get("namespace", "default")
        match (document or {}).get("kind"):
            case "ServiceAccount":
                account = document["metadata"]["name"]
                core.create_namespaced_service_account(namespace, document)
            case "ClusterRole":
                rbac.create_cluster_role(document)
            case "ClusterRoleBinding":
                rbac.create_cluster_role_binding(document)
            case "Role":
                rbac.create_namespaced_role(namespace, document)
            case "RoleBinding":
                rbac.create_namespaced_role_binding(namespace, document)
    request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[]))
    token = core.create_namespaced_service_account_token(account, "default", request).status.token
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    for user in config["users"]:
        user["user"] = {"token": token}
    target = folder / "operator.kubeconfig"
    target.write_text(json.dumps(config), encoding="utf-8")
    target.chmod(0o600)
    return target


class OperatorProcess:
    """One operator process; ended by `stop`, `kill` or the end of the block that made it."""

    def __init__(self, kubeconfig: Path, log: Path, *, namespaces: str = "", auth: str = "") -> None:
        self.port = _free_port()
        scope = {"MODELSERVICE_NAMESPACES": namespaces} if namespaces else {"MODELSERVICE_CLUSTER_WIDE": "true"}
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "modelservice_operator"],
                env={
                    **{key: value for key, value in os.environ.items() if not key.startswith("MODELSERVICE_")},
                    **scope,
                    "KUBECONFIG": str(kubeconfig),
                    "MODELSERVICE_ADAPTER_IMAGE": IMAGE,
                    "MODELSERVICE_HEALTH_PORT": str(self.port),
                    "MODELSERVICE_AUTH": auth,
                },
                stdout=output,
                stderr=output,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def wait_for_log(self, text: str, seconds: int = 90) -> None:
        """Follows the log until it says a text."""
        follow = f"tail -n +1 -F {self._log} | grep -m1 -F '{text}'"
        found = subprocess.run(["timeout", str(seconds), "bash", "-c", follow], capture_output=True, check=False)
        assert found.returncode == 0, f"the log does not say {text!r} within {seconds} s: {self.log[-3000:]}"

    def kill(self) -> None:
        """SIGKILL: nothing of the process gets to say goodbye."""
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> int:
        """SIGTERM, as a rollout of the operator sends; the exit code."""
        self.process.terminate()
        return self.process.wait(30)


@contextlib.contextmanager
def running_operator(kubeconfig: Path, log: Path, *, namespaces: str = "", auth: str = "") -> Iterator[OperatorProcess]:
    """An operator for the length of a block."""
    operator = OperatorProcess(kubeconfig, log, namespaces=namespaces, auth=auth)
    try:
        yield operator
    finally:
        if operator.process.poll() is None:
            operator.kill()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
