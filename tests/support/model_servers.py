"""Manifests of model servers for tests on a cluster: the digits example, and servers that misbehave.

Owns what a user's manifests look like; nothing in them knows of modelservice.
"""

import tomllib
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
ADAPTER_IMAGE = f"modelservice/adapter:{VERSION}"
DIGITS_IMAGE = f"modelservice/example-fastapi-digits:{VERSION}"

_HTML_SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"<!doctype html><title>not here</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


def digits(name: str = "digits", *, replicas: int = 1) -> dict[str, Any]:
    """The example's own Deployment under a name."""
    found: dict[str, Any] = yaml.safe_load(
        (REPOSITORY / "examples/fastapi-digits/deployment.yaml").read_text(encoding="utf-8")
    )
    labels = {"app.kubernetes.io/name": name[:63].rstrip(".-")}
    found["metadata"] = {"name": name, "labels": labels}
    found["spec"]["replicas"] = replicas
    found["spec"]["selector"] = {"matchLabels": labels}
    found["spec"]["template"]["metadata"]["labels"] = labels
    return found


def html_server(name: str) -> dict[str, Any]:
    """A web server on loopback that answers every path with HTML."""
    found = digits(name)
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["/opt/digits/bin/python", "-c", _HTML_SERVER]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        del container[probe]
    return found


def model_service(name: str = "digits", **spec: Any) -> dict[str, Any]:
    """Adopts the Deployment of its own name."""
    return {
        "apiVersion": "modelservice.dev/v1alpha1",
        "kind": "ModelService",
        "metadata": {"name": name},
        "spec": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, **spec},
    }
