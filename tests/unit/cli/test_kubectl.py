"""What kubectl's failures come to, by a scripted kubectl: the ones a healthy API server never gives."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelservice_cli import doctor, outcome
from modelservice_cli.__main__ import main
from modelservice_cli.kubectl import Kubectl
from modelservice_cli.outcome import CommandError

Script = Callable[[str], None]


@pytest.fixture
def kubectl_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Puts a shell script in kubectl's place."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def write(script: str) -> None:
        program = tmp_path / "kubectl"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return write


def failing(said: str) -> str:
    return f"cat >&2 <<'END'\n{said}\nEND\nexit 1"


@pytest.mark.promise("command-line")
@pytest.mark.parametrize(
    ("said", "code", "told"),
    [
        (
            "dial tcp 127.0.0.1:6443: connect: connection refused",
            3,
            "kubectl cluster-info",
        ),
        (
            """E1201 05:00:00.000000   12 memcache.go:265] "Unhandled Error" err="no server API group list"
Unable to connect to the server: dial tcp: lookup nowhere: no such host""",
            3,
            "Unable to connect to the server: dial tcp: lookup nowhere: no such host.",
        ),
        ('error: the server doesn\'t have a resource type "modelservices"', 3, "install the chart"),
        ('error: context "nowhere" does not exist', 3, "Name a context with --context"),
        ('Error from server (NotFound): modelservices.modelservice.dev "fraud" not found', 1, '"fraud" not found.'),
        ("error: You must be logged in to the server (Unauthorized)", 4, "Ask for that right"),
        (
            "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?",
            3,
            "kubectl cluster-info",
        ),
        ("something new", 1, "something new."),
    ],
)
def test_each_failure_has_its_code_and_says_what_to_do(
    kubectl_is: Script, capsys: pytest.CaptureFixture[str], said: str, code: int, told: str
) -> None:
    kubectl_is(failing(said))
    assert main(["status", "fraud"]) == code
    err = capsys.readouterr().err
    assert err.startswith("modelservice status: ")
    assert told in err
    assert err.count("\n") == 1
    assert "memcache" not in err


def test_no_kubectl_at_all(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["status"]) == 3
    assert "There is no kubectl on PATH; install it" in capsys.readouterr().err


def test_a_kubectl_that_hangs_is_ended(kubectl_is: Script) -> None:
    kubectl_is("exec sleep 60")
    with pytest.raises(CommandError, match=r"did not answer within 0 s") as caught:
        Kubectl().run("get", "pods", timeout=0.2)
    assert caught.value.code == 3


def test_where_to_look_is_passed_on(kubectl_is: Script, tmp_path: Path) -> None:
    kubectl_is('for word; do echo "$word"; done')
    said = Kubectl(context="c", kubeconfig="/k", namespace="n").run("get", "pods")
    assert said.splitlines() == ["--kubeconfig=/k", "--context=c", "--namespace=n", "get", "pods"]


def test_a_port_forward_ends_with_the_block_and_tells_why_it_did_not_come_up(
    kubectl_is: Script, tmp_path: Path
) -> None:
    kubectl_is(f"echo $$ >{tmp_path}/pid\necho 'Forwarding from 127.0.0.1:4321 -> 8931'\nexec sleep 60")
    with Kubectl().forwarded("service/fraud-mcp", 8931) as port:
        assert port == 4321
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    kubectl_is(failing("error: unable to forward port because pod is not running. Current status=Pending"))
    with pytest.raises(CommandError, match=r"pod is not running"), Kubectl().forwarded("service/fraud-mcp", 8931):
        pass
    kubectl_is("exec sleep 60")
    with pytest.raises(CommandError, match="is not up after"), Kubectl().forwarded("service/x", 1, timeout=0.2):
        pass


def line(pod: str, **fields: Any) -> str:
    return f"[pod/{pod}/mcp-adapter] {json.dumps({'event': 'call', 'outcome': 'ok', 'tool': 'score', 'ms': 1.5, **fields})}"


def test_logs_of_all_pods_are_those_of_one_id_in_time_order(
    kubectl_is: Script, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace, other = "a" * 32, "b" * 32
    (tmp_path / "said").write_text(
        "\n".join(
            [
                line("fraud-2", time=20.5, trace_id=trace, request_id="r2", error="too late", outcome="timeout"),
                line("fraud-1", time=10.25, trace_id=trace, request_id="r1"),
                line("fraud-1", time=15, trace_id=other, request_id="r3"),
                "[pod/fraud-1/mcp-adapter] not json",
                "[pod/fraud-1/mcp-adapter] {}",
            ]
        )
    )
    kubectl_is(f'case "$1" in logs) cat {tmp_path}/said;; *) echo "{{}}";; esac')
    assert main(["logs", "fraud", "--trace", trace]) == 0
    assert capsys.readouterr().out == (
        f"00:00:10.250  fraud-1  score  ok  1.5 ms  trace {trace}  request r1\n"
        f"00:00:20.500  fraud-2  score  timeout  1.5 ms  trace {trace}  request r2  too late\n"
    )
    assert main(["logs", "fraud", "--trace", "r3", "--follow", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["pod"] == "fraud-1"
    assert main(["logs", "fraud", "--trace", "nothing"]) == 1
    assert "hold no line of nothing" in capsys.readouterr().err


def test_words_of_a_call_may_stand_between_options(kubectl_is: Script, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl_is(failing('Error from server (NotFound): modelservices.modelservice.dev "fraud" not found'))
    assert main(["call", "fraud", "score", "--output=json", "a=1", "b=2"]) == 1
    assert "not found" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["call", "fraud", "score", "--outptu=json"])
    assert caught.value.code == outcome.USAGE


@pytest.mark.parametrize("given", ["-1", "5d", "x", ""])
def test_a_time_limit_is_seconds_or_a_short_duration(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["adopt", "deploy/fraud", f"--timeout={given}"])
    assert caught.value.code == outcome.USAGE
    assert "invalid" in capsys.readouterr().err


def test_doctor_asks_for_what_the_chart_grants() -> None:
    text = (Path(__file__).parents[3] / "helm" / "modelservice" / "templates" / "_rules.tpl").read_text()
    granted: dict[str, set[str]] = {}
    optional = text.split("{{- if .Values.standalone.enabled }}")[1].split("{{- end }}")[0]
    rule = re.compile(r"apiGroups: \[(.*?)\]\n\s+resources: \[(.*?)\]\n\s+verbs: \[(.*?)\]")
    for group, resources, verbs in rule.findall(text.replace(optional, "")):
        for resource in resources.split(", "):
            name, _, subresource = resource.partition("/")
            full = ".".join(part for part in (name, group.strip('"')) if part)
            granted.setdefault(f"{full}/{subresource}" if subresource else full, set()).update(verbs.split(", "))
    del granted["namespaces"]  # of the whole cluster, and not of the namespace that is looked at
    assert {resource: set(verbs) for resource, verbs in doctor.RIGHTS} == granted
