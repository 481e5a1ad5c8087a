"""The command line with a real kubectl against a real API server; the operator's passes are made by the test."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_harness import IMAGE, Harness
from kube_objects import deployment, model_service, with_container, with_value
from localcluster import settings
from localcluster.programs import Programs
from modelservice_cli import manifests, observing
from modelservice_cli.__main__ import main
from modelservice_operator.core import injection

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def kubectl(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Path:
    """kubectl on PATH, with the test's namespace as the context's own."""
    program = Path(Programs(folders=settings.read_folders()).kube() / "kubectl")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", str(harness.kubeconfig))
    return program


@pytest.fixture
def cli(harness: Harness, kubectl: Path, capsys: pytest.CaptureFixture[str]) -> "Cli":
    return Cli(harness.namespace, capsys)


class Cli:
    """The command in this process, in the test's namespace."""

    def __init__(self, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._namespace = namespace
        self._capsys = capsys
        self.out = ""
        self.err = ""

    def __call__(self, *arguments: str) -> int:
        self._capsys.readouterr()
        code = main([*arguments, "--namespace", self._namespace])
        self.out, self.err = self._capsys.readouterr()
        assert "Traceback" not in self.err
        return code

    def json(self, *arguments: str) -> Any:
        self(*arguments, "--output=json")
        return json.loads(self.out)


def as_user(kubectl: Path, harness: Harness, *arguments: str, stdin: str = "") -> str:
    command = [str(kubectl), "--namespace", harness.namespace, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def operator(harness: Harness) -> Iterator[None]:
    """An operator as the chart installs it, as far as its Deployment says: no pod of it runs here."""
    found = deployment("msop", namespace=harness.namespace)
    labels = {
        "app.kubernetes.io/part-of": "modelservice",
        "app.kubernetes.io/component": "operator",
        "app.kubernetes.io/version": "0.1.0",
    }
    found["metadata"]["labels"] = labels
    found["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "MODELSERVICE_NAMESPACES", "value": harness.namespace},
        {"name": "MODELSERVICE_ADAPTER_IMAGE", "value": IMAGE},
        {
            "name": "MODELSERVICE_AUTH",
            "value": '{"issuers": {"corp": {"issuer": "https://x.test", "jwksUri": "https://x.test/k"}}}',
        },
    ]
    harness.create(found)
    yield
    harness.delete("deployments", "msop")


@pytest.mark.promise("adopt-preview")
def test_the_dry_run_shows_the_very_template_that_adoption_makes_and_writes_nothing(
    harness: Harness, cli: Cli, operator: None
) -> None:
    before = harness.create(deployment("fraud", namespace=harness.namespace))
    seen = cli.json("adopt", "deploy/fraud", "--dry-run", "--set", "backend.port=8000")
    assert harness.find("modelservices", "fraud") is None
    untouched = harness.get("deployments", "fraud")
    assert untouched["spec"] == before["spec"]
    assert not [each for each in untouched["metadata"]["managedFields"] if "modelservice" in each["manager"]]
    assert seen["before"] == before["spec"]["template"]
    assert seen["owned"] == ["ConfigMap/fraud-mcp-config", "Service/fraud-mcp"]
    assert cli("adopt", "deploy/fraud", "--dry-run") == 0
    assert f"+    image: {IMAGE}" in cli.out
    assert "Nothing was written" in cli.out
    assert "\x1b" not in cli.out
    assert cli("adopt", "deploy/fraud", "--set", "backend.port=8000", "--no-wait") == 0
    harness.reconcile("fraud")
    assert harness.get("deployments", "fraud")["spec"]["template"] == seen["after"]
    assert cli("adopt", "deploy/fraud", "--set", "backend.port=8000", "--dry-run") == 0
    assert "Nothing changes in Deployment/fraud." in cli.out


@pytest.mark.promise("adopt-preview")
def test_gpu_settings_are_part_of_the_preview(harness: Harness, cli: Cli, operator: None) -> None:
    harness.create(deployment("fraud", with_value("spec.replicas", 0), namespace=harness.namespace))
    asked = ["adopt", "deploy/fraud", "--set", "gpu={manage: true, count: 1}"]
    seen = cli.json(*asked, "--dry-run")
    assert seen["after"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert cli(*asked, "--no-wait") == 0
    harness.reconcile("fraud")
    assert injection.covers(harness.get("deployments", "fraud")["spec"]["template"], seen["after"])


@pytest.mark.promise("adopt-preview")
@pytest.mark.parametrize(
    ("settings_", "reason"),
    [
        (["backend.container=other"], "BackendContainerNotFound"),
        (["canary={a: 1}"], "NotSupportedYet"),
        (["mcp.port=8000"], "PortConflict"),
        (["auth.issuers=[nobody]"], "UnknownIssuer"),
    ],
)
def test_what_the_operator_would_refuse_is_refused_in_its_words_before_anything_is_written(
    harness: Harness, cli: Cli, operator: None, settings_: Sequence[str], reason: str
) -> None:
    harness.create(deployment("fraud", namespace=harness.namespace))
    flags = [flag for setting in settings_ for flag in ("--set", setting)]
    assert cli("adopt", "deploy/fraud", *flags, "--dry-run") == 4
    shown = cli.json("adopt", "deploy/fraud", *flags, "--dry-run")["refusal"]
    assert shown["reason"] == reason
    assert cli("adopt", "deploy/fraud", *flags) == 4
    assert f"{reason}: {shown['message']} Nothing was written." in cli.err
    assert harness.find("modelservices", "fraud") is None
    if reason != "UnknownIssuer":  # the harness's operator has no issuers of its own
        spec = {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "fraud"}}
        for setting in settings_:
            path, _, value = setting.partition("=")
            with_value(path, yaml.safe_load(value))(spec)
        harness.create({**model_service("fraud", namespace=harness.namespace), "spec": spec})
        status = harness.reconcile("fraud")
        told = {found["reason"]: found["message"] for found in status["conditions"] if found["type"] != "Ready"}
        assert told[reason] == shown["message"]


def test_a_known_issuer_and_a_risk_that_was_agreed_to_are_no_obstacles(
    harness: Harness, cli: Cli, operator: None
) -> None:
    gpu = with_value("spec.template.spec.containers.0.resources", {"limits": {"nvidia.com/gpu": "1"}})
    room = with_value("spec.strategy", {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    harness.create(deployment("fraud", gpu, room, namespace=harness.namespace))
    asked = ["adopt", "deploy/fraud", "--set", "auth.issuers=[corp]", "--dry-run"]
    assert cli(*asked) == 4
    assert "Refused, NoDeviceToSurge:" in cli.out
    assert cli(*asked, "--set", "rollout.onRisk=SurgeZero") == 0
    assert "the update strategy becomes" in cli.out


def test_what_only_the_api_server_can_refuse_is_told_too(harness: Harness, cli: Cli) -> None:
    harness.create(deployment("fraud", namespace=harness.namespace))
    assert cli("adopt", "deploy/fraud", "--set", "mcp.port=80") == 4
    assert "port must be 1024 or higher" in cli.err
    assert cli("adopt", "deploy/fraud", "--set", "backend.prt=80") == 2
    assert "spec.backend.prt" in cli.err
    assert cli("adopt", "deploy/nobody") == 4
    assert 'WorkloadNotFound: Deployment "nobody" does not exist' in cli.err


@pytest.mark.promise("command-line")
def test_adopt_waits_for_the_operators_word(harness: Harness, cli: Cli, kubectl: Path) -> None:
    harness.create(deployment("fraud", namespace=harness.namespace))
    assert cli("adopt", "deploy/fraud", "--timeout=0") == 1
    assert "ModelService fraud is not ready within 0 s." in cli.out
    assert "No operator has looked at it yet" in cli.out
    harness.merge_as_user("modelservices", "fraud", {"spec": {"suspend": True}})
    harness.reconcile("fraud")
    harness.merge_as_user("modelservices", "fraud", {"spec": {"suspend": None}})
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-12-01T00:00:00Z",
    }
    generation = harness.get("modelservices", "fraud")["metadata"]["generation"]
    given = {
        "observedGeneration": generation,
        "conditions": [ready],
        "tools": {"count": 2},
        "address": {"url": "http://x/mcp"},
    }
    patch = [
        "patch",
        "modelservice",
        "fraud",
        "--subresource=status",
        "--type=merge",
        "-p",
        json.dumps({"status": given}),
    ]
    as_user(kubectl, harness, *patch)
    assert cli("adopt", "deploy/fraud", "--timeout=30") == 0
    assert cli.out == "ModelService fraud is ready: 2 tools at http://x/mcp\n"


@pytest.mark.promise("command-line")
def test_status_is_a_table_and_says_why_and_what_to_do(harness: Harness, cli: Cli) -> None:
    assert cli("status") == 0
    assert "There are no ModelServices" in cli.out
    two = with_container({"name": "two", "image": "x", "ports": [{"containerPort": 9000}]})
    harness.create(deployment("fraud", two, namespace=harness.namespace))
    harness.create(model_service("fraud", namespace=harness.namespace))
    harness.reconcile("fraud")
    assert cli("status") == 1
    assert cli.out.splitlines()[1].split()[:3] == ["fraud", "no", "AmbiguousBackend"]
    assert "set spec.backend.container" in cli.out
    (told,) = cli.json("status", "fraud")
    assert (told["ready"], told["reason"]) == (False, "AmbiguousBackend")
    assert cli("status", "nobody") == 1
    assert '"nobody" not found' in cli.err
    assert main(["status", "--all-namespaces"]) == 1


@pytest.mark.promise("manifests-by-pipe")
def test_injected_manifests_are_applied_by_kubectl_and_the_operator_finds_them_right(
    harness: Harness, kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manual = with_value("spec.injection.mode", "Manual")
    plain = "---\n".join(
        yaml.safe_dump(found)
        for found in (
            deployment("fraud", namespace=harness.namespace),
            model_service("fraud", manual, namespace=harness.namespace),
        )
    )
    injected = manifests.inject(plain, image=IMAGE)
    as_user(kubectl, harness, "apply", "-f", "-", stdin=injected)
    harness.reconcile("fraud")
    status = harness.reconcile("fraud")
    told = {found["type"]: found for found in status["conditions"]}
    assert (told["Injected"]["status"], told["Injected"]["reason"]) == ("True", "Injected")
    as_user(kubectl, harness, "apply", "-f", "-", stdin=manifests.eject(injected))
    names = [each["name"] for each in harness.get("deployments", "fraud")["spec"]["template"]["spec"]["containers"]]
    assert names == ["server"]
    assert manifests.ADDED_ANNOTATION not in harness.get("deployments", "fraud")["metadata"].get("annotations", {})


@pytest.mark.promise("command-line")
def test_doctor_finds_what_is_missing_and_what_is_risky(harness: Harness, cli: Cli, operator: None) -> None:
    gpu = with_value("spec.template.spec.containers.0.resources", {"limits": {"nvidia.com/gpu": "1"}})
    room = with_value("spec.strategy", {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    harness.create(deployment("risky", gpu, room, namespace=harness.namespace))
    harness.create(model_service("waiting", namespace=harness.namespace))
    assert cli("doctor") == 1
    lines = cli.out.splitlines()
    assert "ok    The ModelService CRD is installed and of this version." in lines
    assert any(line.startswith(f"fail  Operator {harness.namespace}/msop 0.1.0 has no ready pod.") for line in lines)
    (rights,) = [line for line in lines if "The operator may not" in line]
    assert "patch deployments.apps" in rights
    assert "patch modelservices.modelservice.dev/status" in rights
    assert f"ok    You may adopt and release in {harness.namespace}." in lines
    assert any(line.startswith("warn  Deployment risky: NoDeviceToSurge:") for line in lines)
    assert any(line.startswith("warn  ModelService waiting is not ready: NotSeen:") for line in lines)
    found = cli.json("doctor")
    assert {each["level"] for each in found} == {"ok", "warn", "fail"}


def test_doctor_of_a_user_with_few_rights_says_what_it_could_not_see(
    harness: Harness, cli: Cli, kubectl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_user(kubectl, harness, "create", "serviceaccount", "author")
    as_user(
        kubectl,
        harness,
        "create",
        "rolebinding",
        "author",
        "--clusterrole=view",
        f"--serviceaccount={harness.namespace}:author",
    )
    rules = "--resource=modelservices.modelservice.dev"
    as_user(kubectl, harness, "create", "role", "reader", "--verb=get,list", rules)
    as_user(
        kubectl,
        harness,
        "create",
        "rolebinding",
        "reader",
        "--role=reader",
        f"--serviceaccount={harness.namespace}:author",
    )
    token = as_user(kubectl, harness, "create", "token", "author").strip()
    config = yaml.safe_load(harness.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    assert cli("doctor") == 0
    assert "warn  The CRD may not be read by you." in cli.out
    assert "Whether an operator runs cannot be seen" in cli.out
    assert "warn  You may not create modelservices.modelservice.dev" in cli.out
    assert cli("adopt", "deploy/fraud") == 4
    assert "(Forbidden)" in cli.err


@pytest.mark.promise("command-line")
def test_release_waits_until_the_workload_is_as_it_was(harness: Harness, cli: Cli) -> None:
    before = harness.create(deployment("fraud", with_value("spec.replicas", 0), namespace=harness.namespace))
    harness.create(model_service("fraud", namespace=harness.namespace))
    harness.reconcile("fraud")
    assert cli("release", "fraud") == 2
    assert "say --yes" in cli.err
    codes: list[int] = []
    releasing = threading.Thread(target=lambda: codes.append(cli("release", "fraud", "--yes", "--timeout=60")))
    releasing.start()
    harness.wait_for("modelservices", "fraud", lambda found: bool(found["metadata"].get("deletionTimestamp")))
    harness.reconcile("fraud")
    releasing.join(timeout=90)
    assert codes == [0]
    assert cli.out == "Released: Deployment fraud is as it was before.\n"
    assert harness.get("deployments", "fraud")["spec"] == before["spec"]
    assert cli("release", "fraud", "--yes") == 1


def test_release_without_an_operator_says_what_it_waits_for(harness: Harness, cli: Cli) -> None:
    harness.create(deployment("fraud", with_value("spec.replicas", 0), namespace=harness.namespace))
    harness.create(model_service("fraud", namespace=harness.namespace))
    harness.reconcile("fraud")
    assert cli("release", "fraud", "--yes", "--timeout=0") == 1
    assert "ModelService fraud waits for the operator to release the workload." in cli.err
    harness.reconcile("fraud")


def test_kubectl_finds_the_plugin_and_completes_its_words(harness: Harness, kubectl: Path, tmp_path: Path) -> None:
    for name, module in (("kubectl-modelservice", "__main__"), ("kubectl_complete-modelservice", "completion")):
        program = tmp_path / name
        start = f"import sys; sys.argv[0] = {name!r}; from modelservice_cli.{module} import main; sys.exit(main())"
        program.write_text(f"#!{sys.executable}\n{start}\n")
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    def ask(*words: str) -> str:
        command = [str(kubectl), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

    assert ask("modelservice", "--help").startswith("usage: kubectl modelservice ")
    assert "adopt\tturn a running workload into an MCP server\n" in ask("__complete", "modelservice", "a")
    harness.create(deployment("fraud", namespace=harness.namespace))
    harness.create(model_service("fraud", namespace=harness.namespace))
    said = ask("__complete", "modelservice", "status", "--namespace", harness.namespace, "fr")
    assert said.splitlines()[0].strip() == "fraud"
    said = ask("__complete", "modelservice", "adopt", f"--namespace={harness.namespace}", "")
    assert said.splitlines()[0].strip() == "deployment/fraud"


def test_the_default_image_is_the_charts(harness: Harness) -> None:
    values = yaml.safe_load((REPOSITORY / "helm" / "modelservice" / "values.yaml").read_text())
    chart = yaml.safe_load((REPOSITORY / "helm" / "modelservice" / "Chart.yaml").read_text())
    assert f"{values['adapter']['image']['repository']}:{chart['appVersion']}" == observing.DEFAULT_IMAGE
