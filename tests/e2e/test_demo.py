"""`make demo` is what a new user sees first: it runs to its end, shows what it promises, and can be run again."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_fixtures import ClusterAccess

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER = os.environ.get("MODELSERVICE_CLUSTER_NAME", "modelservice-test")


def run_demo(environment: dict[str, str]) -> str:
    command = [sys.executable, "examples/demo/demo.py", "up"]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.promise("two-commands")
@pytest.mark.skipif(os.environ.get("CLUSTER") == "current", reason="the demo makes its cluster itself")
def test_the_demo_shows_tools_an_answer_and_both_latencies_and_can_be_run_again(cluster: ClusterAccess) -> None:
    suffix = secrets.token_hex(3)
    names = {"DEMO_NAMESPACE": f"demo-{suffix}", "DEMO_OPERATOR_NAMESPACE": f"demo-operators-{suffix}"}
    environment = {**os.environ, **cluster.environment, "MODELSERVICE_CLUSTER_NAME": CLUSTER, **names}
    try:
        shown = run_demo(environment)
        before, after = shown.split("containers after:")
        assert "mcp-adapter" not in before.split("containers before:")[1]
        assert "mcp-adapter" in after
        assert "predict(pixels: array)" in after
        assert '"digit": 0' in after
        assert "one call by the official MCP client" in after
        assert "directly to the model" in after
        assert "make demo-down" in after
        again = run_demo(environment)
        assert "releasing it first" in again
        assert '"digit": 0' in again
    finally:
        if cluster.kubectl("get", "namespace", names["DEMO_NAMESPACE"], "--ignore-not-found"):
            cluster.kubectl("--namespace", names["DEMO_NAMESPACE"], "delete", "modelservices", "--all", "--timeout=2m")
            cluster.kubectl("delete", "namespace", *names.values(), "--wait=false")
