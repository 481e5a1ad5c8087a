"""`modelservice inject` and `eject`: what goes through a pipe, and what comes out unchanged."""

import io
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube_objects import Modifier, deployment, model_service, observed, with_annotation, with_container, with_value
from modelservice_cli import documents, manifests
from modelservice_cli.__main__ import main
from modelservice_operator.core import injection, plan

MANUAL = with_value("spec.injection.mode", "Manual")
COMMENTED = """\
# Who pays for it.
apiVersion: v1
kind: ConfigMap
metadata: {name: costs}   # unusual spacing
data:
  on: yes
"""
ODD = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: odd
spec:
  selector: {matchLabels: {app: odd}}
  template:
    metadata: {labels: {app: odd, on: "on"}}
    spec:
      containers:
      - name: server
        image: example/server:1
        args: [on, 22:22, 2026-12-01, 0o7, 1e3, "8000", ~, "true"]
        command: ["sh", "-c", "first\\nsecond"]
        ports: [{containerPort: 8000}]
"""


def stream(*values: Any) -> str:
    return "---\n".join(value if isinstance(value, str) else yaml.safe_dump(value) for value in values)


def values(text: str) -> list[Any]:
    return [part.value for part in documents.split(text)]


@pytest.mark.promise("manifests-by-pipe")
def test_the_adapter_is_put_in_as_the_operators_patch_has_it_and_all_else_passes_in_order() -> None:
    service = model_service("fraud", MANUAL)
    text = stream(COMMENTED, deployment(), service, "")
    out = manifests.inject(text)
    before, injected, after = (part for part in documents.split(out) if part.value)
    assert before.text == COMMENTED
    assert after.value == service
    decided = plan.decide(observed(service, deployment(), adapter_image=manifests.observing.DEFAULT_IMAGE))
    assert decided.rendered is not None
    meta = injection.template_metadata("fraud", decided.rendered, default_container="server")
    template = injection.inject(deployment()["spec"]["template"], meta=meta, rendered=decided.rendered)
    assert injected.value["spec"]["template"] == template
    # With it committed, the operator finds nothing to do.
    assert plan.decide(observed(service, injected.value, adapter_image=manifests.observing.DEFAULT_IMAGE)).injected


@pytest.mark.promise("manifests-by-pipe")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_eject_gives_back_what_inject_was_given_and_twice_is_once(data: st.DataObject) -> None:
    modifiers: list[Modifier] = data.draw(
        st.lists(
            st.sampled_from(
                [
                    with_annotation("team", "risk"),
                    with_container({"name": "helper", "image": "example/helper:1"}),
                    with_value("spec.template.spec.volumes", [{"name": "scratch", "emptyDir": {}}]),
                    with_value("spec.template.spec.terminationGracePeriodSeconds", 90),
                    lambda obj: obj["spec"]["template"]["metadata"].update(
                        annotations={"kubectl.kubernetes.io/default-container": "server"}
                    ),
                    lambda obj: obj["spec"]["template"]["metadata"].update(annotations={"checksum": "1"}),
                    lambda obj: obj["spec"]["template"]["spec"].update(securityContext={"runAsUser": 0}),
                    lambda obj: obj["metadata"].pop("namespace"),
                ]
            ),
            max_size=5,
            unique_by=id,
        )
    )
    service = model_service("fraud", MANUAL, with_value("spec.backend", {"container": "server", "port": 8000}))
    text = stream(deployment("fraud", *modifiers), service)
    once = manifests.inject(text)
    assert values(once) != values(text)
    assert manifests.inject(once) == once
    assert values(manifests.eject(once)) == values(text)
    assert manifests.eject(text) == text


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_other_kinds_and_lists_are_read_too(kind: str) -> None:
    workload = {**deployment(), "kind": kind}
    service = model_service("fraud", MANUAL, with_value("spec.workloadRef.kind", kind))
    text = stream({"apiVersion": "v1", "kind": "List", "items": [workload, service]})
    out = manifests.inject(text)
    (listed,) = values(out)
    names = [each["name"] for each in listed["items"][0]["spec"]["template"]["spec"]["containers"]]
    assert names == ["server", "mcp-adapter"]
    assert values(manifests.eject(out)) == values(text)


def test_scalars_are_read_as_kubernetes_reads_them_and_written_so_that_nobody_reads_them_otherwise() -> None:
    out = manifests.inject(ODD, target="deploy/odd")
    (server, _) = values(out)[0]["spec"]["template"]["spec"]["containers"]
    assert server["args"] == ["on", "22:22", "2026-12-01", "0o7", "1e3", "8000", None, "true"]
    older = yaml.safe_load(out)["spec"]["template"]["spec"]["containers"][0]  # a reader of YAML 1.1
    assert older["args"] == server["args"]
    assert older["command"] == ["sh", "-c", "first\nsecond"]


def test_a_workload_without_a_model_service_gets_the_defaults_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    out = manifests.inject(stream(deployment()), target="deploy/fraud", name="cards", image="registry.test/adapter:9")
    (injected,) = values(out)
    (_, adapter) = injected["spec"]["template"]["spec"]["containers"]
    assert adapter["image"] == "registry.test/adapter:9"
    assert injected["spec"]["template"]["metadata"]["labels"]["modelservice.dev/name"] == "cards"


def test_whoever_forgets_manual_mode_is_told_what_comes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    manifests.inject(stream(deployment(), model_service()))
    assert "set injection.mode: Manual before you apply this" in capsys.readouterr().err


def run(text: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return main([*arguments, "-f", "-"])


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (stream(deployment()), 2, "There is no ModelService among the documents"),
        (stream(model_service("fraud", MANUAL)), 4, 'WorkloadNotFound: Deployment "fraud" does not exist'),
        (
            stream(
                deployment("fraud", with_container({"name": "two", "image": "x", "ports": [{"containerPort": 9000}]})),
                model_service("fraud", MANUAL),
            ),
            4,
            "AmbiguousBackend:",
        ),
        (
            stream(
                deployment(),
                model_service("fraud", MANUAL),
                model_service("other", MANUAL, with_value("spec.workloadRef.name", "fraud")),
            ),
            4,
            'is adopted by ModelService "fraud"',
        ),
        (
            stream(deployment(), model_service("fraud", with_value("spec.injection.mode", "Pod"))),
            4,
            "NotSupportedYet: This version cannot do spec.injection.mode",
        ),
        (stream(deployment(), model_service("fraud", with_value("spec", 3))), 2, "is not shaped as Kubernetes has it"),
        (
            stream(
                deployment("fraud", with_value("spec.template.spec.containers", "x")), model_service("fraud", MANUAL)
            ),
            2,
            "is not shaped as Kubernetes has it",
        ),
        ("a: [", 2, "is no YAML that can be read"),
        ("a: 1\n...\nb: 2\n", 2, "is no YAML that can be read"),
    ],
)
def test_what_is_refused_writes_nothing_and_says_why(
    text: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(text, monkeypatch, "inject") == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_a_standalone_model_service_leaves_the_workload_alone() -> None:
    text = stream(deployment(), model_service("fraud", with_value("spec.injection.mode", "Standalone")))
    assert manifests.inject(text) == text
