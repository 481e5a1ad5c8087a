"""The second set-up of the conformance run: two adopted pods on a cluster, reached through their Service.

Owns the objects that this needs, in one namespace that an installed operator watches, and the way to the Service: a relay in
the cluster, since `kubectl port-forward` leads to a pod and not to a Service. kubectl's current context says which cluster. All
of it goes at the end.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
NAME = "conformance"
RELAY = f"{NAME}-relay"
RELAY_PORT = 9000
PYTHON = "/opt/digits/bin/python"
VERSION = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
IMAGE = f"modelservice/example-fastapi-digits:{VERSION}"
"""Has FastAPI, which is all that the fixture's model server needs."""
READY_SECONDS = 180

RELAY_PROGRAM = f"""
import asyncio, sys
async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()
async def relay(reader, writer):
    there_reader, there_writer = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
    await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))
async def main():
    await (await asyncio.start_server(relay, "0.0.0.0", {RELAY_PORT})).serve_forever()
asyncio.run(main())
"""

POD: dict[str, Any] = {
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
}


class ServiceError(Exception):
    """The set-up on the cluster did not come up; the text is a sentence for who started this."""


@contextmanager
def reached(namespace: str) -> Iterator[str]:
    """The URL of the MCP endpoint of two pods behind one Service.

    Raises:
        ServiceError: the cluster, the operator or one of the pods is not there.
    """
    try:
        _kubectl(
            namespace, "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": _objects()})
        )
        _kubectl(namespace, "wait", f"modelservice/{NAME}", "--for=condition=Ready", f"--timeout={READY_SECONDS}s")
        _kubectl(namespace, "rollout", "status", f"deployment/{NAME}", f"--timeout={READY_SECONDS}s")
        url = _kubectl(namespace, "get", "modelservice", NAME, "-o", "jsonpath={.status.address.url}")
        there = urlsplit(url)
        _kubectl(namespace, "apply", "-f", "-", stdin=json.dumps(_relay(str(there.hostname), there.port or 80)))
        _kubectl(namespace, "wait", f"pod/{RELAY}", "--for=condition=Ready", f"--timeout={READY_SECONDS}s")
        with _forwarded(namespace) as port:
            # The suite wants a name, not an address: its Host check takes localhost for granted.
            yield f"http://localhost:{port}{there.path}"
    finally:
        kinds = f"modelservice/{NAME}", f"deployment/{NAME}", f"configmap/{NAME}-program", f"pod/{RELAY}"
        _kubectl(namespace, "delete", *kinds, "--ignore-not-found", "--timeout=120s")


@contextmanager
def _forwarded(namespace: str) -> Iterator[int]:
    command = ["kubectl", "-n", namespace, "port-forward", f"pod/{RELAY}", f":{RELAY_PORT}", "--address=127.0.0.1"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        if match is None:
            raise ServiceError("kubectl port-forward did not start; its message stands above")
        yield int(match[1])
    finally:
        process.terminate()
        process.communicate()


def _kubectl(namespace: str, *arguments: str, stdin: str | None = None) -> str:
    command = ["kubectl", "--namespace", namespace, *arguments]
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=READY_SECONDS * 2, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"kubectl {arguments[0]}: {error}") from error
    if done.returncode != 0:
        raise ServiceError(f"kubectl {arguments[0]}: {done.stderr.strip()[-500:]}")
    return done.stdout


def _container(name: str, *command: str, port: int) -> dict[str, Any]:
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": [PYTHON, *command],
        "ports": [{"containerPort": port}],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _objects() -> list[dict[str, Any]]:
    labels = {"app.kubernetes.io/name": NAME}
    server = _container("server", "-B", "/program/model_server.py", "0.0.0.0:8000", port=8000)
    server["volumeMounts"] = [{"name": "program", "mountPath": "/program", "readOnly": True}]
    volume = {"name": "program", "configMap": {"name": f"{NAME}-program"}}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{NAME}-program"},
            "data": {"model_server.py": (HERE / "model_server.py").read_text(encoding="utf-8")},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": NAME, "labels": labels},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {**POD, "containers": [server], "volumes": [volume]},
                },
            },
        },
        {
            "apiVersion": "modelservice.dev/v1alpha1",
            "kind": "ModelService",
            "metadata": {"name": NAME},
            "spec": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}},
        },
    ]


def _relay(host: str, port: int) -> dict[str, Any]:
    container = _container("relay", "-c", RELAY_PROGRAM, host, str(port), port=RELAY_PORT)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": RELAY}, "spec": {**POD, "containers": [container]}}
