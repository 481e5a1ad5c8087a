"""The command line on a real cluster: a model adopted, explained, called, traced and released by it and kubectl alone."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from kubectl_access import Namespace
from mcp_calls import ZERO
from model_servers import ADAPTER_IMAGE, digits, model_service

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def cli(namespace: Namespace, *arguments: str, stdin: str = "", code: int = 0) -> str:
    """Runs the command in the namespace; what it printed, where it ends as it should."""
    command = [sys.executable, "-m", "modelservice_cli", *arguments]
    if arguments[0] not in ("inject", "eject"):
        command += ["--namespace", namespace.name]
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, **namespace.cluster.environment},
        timeout=360,
        check=False,
    )
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}\n{done.stderr}{done.stdout}"
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


def cli_json(namespace: Namespace, *arguments: str) -> Any:
    return json.loads(cli(namespace, *arguments, "--output=json"))


@pytest.mark.promise("command-line")
def test_a_model_is_adopted_called_traced_and_released_from_a_terminal(namespace: Namespace) -> None:
    namespace.apply(digits())
    namespace.wait_for_rollout("deployment/digits")
    before = namespace.get("deployment", "digits")["spec"]["template"]
    preview = cli_json(namespace, "adopt", "deploy/digits", "--dry-run")
    assert preview["refusal"] is None
    assert not namespace.exists("modelservice", "digits")
    assert "is ready: " in cli(namespace, "adopt", "deploy/digits")
    assert namespace.get("deployment", "digits")["spec"]["template"] == preview["after"]
    namespace.wait_for_rollout("deployment/digits")
    (standing,) = cli_json(namespace, "status")
    assert (standing["name"], standing["ready"], standing["problems"]) == ("digits", True, [])

    assert "predict" in cli(namespace, "tools", "digits")
    result = cli_json(namespace, "call", "digits", "predict", f"pixels={json.dumps(ZERO)}")
    assert result["structuredContent"]["digit"] == 0
    printed = cli(namespace, "call", "digits", "predict", "@-", stdin=json.dumps({"pixels": ZERO}))
    assert json.loads(printed) == result["structuredContent"]
    assert "pixels" in cli(namespace, "call", "digits", "predict", "pixels=ink", code=1)
    assert "no-such-tool" in cli(namespace, "call", "digits", "no-such-tool", code=1)

    lines = [json.loads(line) for line in cli(namespace, "logs", "digits", "--output=json").splitlines()]
    call = next(line for line in lines if line["event"] == "call" and line["outcome"] == "ok")
    traced = cli(namespace, "logs", "digits", "--trace", call["trace_id"], "--output=json").splitlines()
    assert [json.loads(line)["request_id"] for line in traced] == [call["request_id"]]
    assert "hold no line" in cli(namespace, "logs", "digits", "--trace", TRACE, code=1)

    found = cli_json(namespace, "doctor")
    assert [each for each in found if each["level"] == "fail"] == []
    assert any("The operator may do what it needs" in each["what"] for each in found)

    assert "as it was before" in cli(namespace, "release", "digits", "--yes")
    assert namespace.get("deployment", "digits")["spec"]["template"] == before
    assert not namespace.exists("modelservice", "digits")


@pytest.mark.promise("manifests-by-pipe")
def test_an_injected_manifest_is_served_and_verified_in_manual_mode(namespace: Namespace) -> None:
    documents = (model_service(injection={"mode": "Manual"}), digits())
    manifests = "---\n".join(json.dumps(each) + "\n" for each in documents)
    injected = cli(namespace, "inject", "--image", ADAPTER_IMAGE, stdin=manifests)
    namespace.kubectl("apply", "-f", "-", stdin=injected)
    namespace.wait_for_rollout("deployment/digits")
    namespace.wait_for_condition("modelservice/digits", "Ready")
    result = cli_json(namespace, "call", "digits", "predict", f"pixels={json.dumps(ZERO)}")
    assert result["structuredContent"]["digit"] == 0
    namespace.kubectl("apply", "-f", "-", stdin=cli(namespace, "eject", stdin=injected))
    namespace.wait_for_rollout("deployment/digits")
    containers = namespace.get("deployment", "digits")["spec"]["template"]["spec"]["containers"]
    assert "mcp-adapter" not in [each["name"] for each in containers]
