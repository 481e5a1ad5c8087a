"""Injection is additive, idempotent, order-free and exactly reversible, for any pod template."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_objects import deployment
from modelservice_api import v1alpha1, wellknown
from modelservice_operator.core import adapter, backend, injection, workload

LABELS = st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(max_size=8), min_size=1, max_size=3)
SHORT_NAMES = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
VOLUME_NAMES = st.from_regex(r"v[a-z0-9]{0,6}", fullmatch=True)
QUANTITIES = st.sampled_from(["1", "500m", "64Mi", "1Gi"])


def _items(names: st.SearchStrategy[str], extra: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    item = st.fixed_dictionaries({"name": names}, optional=extra)
    return st.lists(item, unique_by=lambda found: found["name"], max_size=4)


PORTS = st.lists(
    st.fixed_dictionaries(
        {"containerPort": st.integers(1, 65535)}, optional={"name": st.from_regex(r"[a-z]{1,8}", fullmatch=True)}
    ),
    min_size=1,
    max_size=3,
)
CONTAINERS = _items(
    st.from_regex(r"c[a-z0-9]{0,6}", fullmatch=True),
    {
        "image": st.just("example/image:1"),
        "ports": PORTS,
        "env": st.lists(
            st.fixed_dictionaries({"name": st.just("A"), "value": st.text(max_size=3)}), min_size=1, max_size=2
        ),
        "resources": st.fixed_dictionaries({"limits": st.dictionaries(st.just("cpu"), QUANTITIES, min_size=1)}),
        "readinessProbe": st.just({"httpGet": {"path": "/", "port": 8000}}),
        "command": st.just(["serve"]),
    },
).filter(bool)
TEMPLATES = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {"containers": CONTAINERS},
            optional={
                "volumes": _items(
                    st.from_regex(r"v[a-z0-9]{0,6}", fullmatch=True), {"emptyDir": st.just({"medium": "Memory"})}
                ).filter(bool),
                "initContainers": CONTAINERS,
                "terminationGracePeriodSeconds": st.integers(0, 600),
                "securityContext": st.fixed_dictionaries({"runAsUser": st.sampled_from([0, 1000])}),
                "nodeSelector": LABELS,
            },
        )
    },
    optional={
        "metadata": st.dictionaries(st.sampled_from(["labels", "annotations"]), LABELS, min_size=1),
    },
)


def render(template: dict[str, Any], port: int = 8000) -> tuple[adapter.Rendered, dict[str, dict[str, str]]]:
    target = backend.BackendTarget(container="c", port=port)
    ports = adapter.choose_ports(template, v1alpha1.Mcp(), target, ours=False)
    assert isinstance(ports, adapter.Ports)
    spec = v1alpha1.ModelServiceSpec(workload_ref=v1alpha1.WorkloadRef(name="fraud"))
    rendered = adapter.render(name="fraud", spec=spec, template=template, backend=target, ports=ports, image="image:1")
    return rendered, injection.template_metadata("fraud", rendered, default_container="c")


@pytest.mark.promise("release")
@settings(max_examples=100)
@given(TEMPLATES)
def test_ejecting_gives_the_template_back(template: dict[str, Any]) -> None:
    rendered, meta = render(template)
    before = copy.deepcopy(template)
    injected = injection.inject(template, meta=meta, rendered=rendered)
    assert injection.eject(injected, meta=meta) == before
    assert template == before


@given(TEMPLATES)
def test_injecting_twice_is_injecting_once(template: dict[str, Any]) -> None:
    rendered, meta = render(template)
    once = injection.inject(template, meta=meta, rendered=rendered)
    assert injection.inject(once, meta=meta, rendered=rendered) == once
    assert injection.exists(once, meta=meta, rendered=rendered)
    assert not injection.exists(template, meta=meta, rendered=rendered)


@given(TEMPLATES)
def test_the_adapter_is_rendered_alike_before_and_after_it_was_injected(template: dict[str, Any]) -> None:
    rendered, meta = render(template)
    injected = injection.inject(template, meta=meta, rendered=rendered)
    target = backend.BackendTarget(container="c", port=8000)
    assert adapter.choose_ports(injected, v1alpha1.Mcp(), target, ours=True) == rendered.ports


@pytest.mark.promise("no-touch")
@settings(max_examples=100)
@given(TEMPLATES)
def test_nothing_of_the_users_is_changed_and_the_adapter_stands_last(template: dict[str, Any]) -> None:
    rendered, meta = render(template)
    injected = injection.inject(template, meta=meta, rendered=rendered)
    spec, before = injected["spec"], template["spec"]
    assert spec["containers"][:-1] == before["containers"]
    assert spec["containers"][-1]["name"] == wellknown.ADAPTER_CONTAINER
    assert spec["volumes"][:-1] == before.get("volumes", [])
    unchanged = {key: value for key, value in spec.items() if key not in ("containers", "volumes")}
    assert unchanged == {key: value for key, value in before.items() if key not in ("containers", "volumes")}
    for key in ("labels", "annotations"):
        old = (template.get("metadata") or {}).get(key) or {}
        assert {name: injected["metadata"][key][name] for name in old} == old


@given(TEMPLATES, st.randoms(use_true_random=False))
def test_the_order_of_the_users_entries_does_not_matter(template: dict[str, Any], random: Any) -> None:
    rendered, _ = render(template)
    shuffled = copy.deepcopy(template)
    random.shuffle(shuffled["spec"]["containers"])
    random.shuffle(shuffled["spec"].get("volumes", []))
    assert render(shuffled)[0] == rendered


@given(TEMPLATES)
def test_the_adapters_ports_are_nobody_elses(template: dict[str, Any]) -> None:
    rendered, _ = render(template)
    declared = {
        number for found in workload.all_containers(template) for number, _, _ in workload.declared_ports(found)
    }
    names = {name for found in workload.all_containers(template) for _, name, _ in workload.declared_ports(found)}
    assert not {rendered.ports.mcp, rendered.ports.admin} & (declared | {8000})
    assert not {rendered.ports.mcp_name, rendered.ports.admin_name} & names
    assert rendered.ports.mcp != rendered.ports.admin


def test_the_apply_document_holds_our_entries_and_nothing_else() -> None:
    target = deployment()
    rendered, meta = render(target["spec"]["template"])
    document = injection.apply_document(workload_object=target, owner="ml/fraud/uid", meta=meta, rendered=rendered)
    assert document == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "fraud", "namespace": "ml", "annotations": {"modelservice.dev/owner": "ml/fraud/uid"}},
        "spec": {
            "template": {
                "metadata": {
                    "labels": {"modelservice.dev/name": "fraud"},
                    "annotations": {
                        "modelservice.dev/adapter-hash": rendered.hash,
                        "kubectl.kubernetes.io/default-container": "c",
                    },
                },
                "spec": {"containers": [rendered.container], "volumes": [rendered.volume]},
            }
        },
    }


def test_a_quantity_that_the_api_server_respelled_is_no_difference() -> None:
    template = deployment()["spec"]["template"]
    rendered, meta = render(template)
    injected = injection.inject(template, meta=meta, rendered=rendered)
    injected["spec"]["containers"][-1]["resources"] = {
        "requests": {"cpu": "0.05", "memory": "65536Ki"},
        "limits": {"memory": "128Mi"},
    }
    assert injection.exists(injected, meta=meta, rendered=rendered)
    injected["spec"]["containers"][-1]["resources"]["requests"]["cpu"] = "60m"
    assert not injection.exists(injected, meta=meta, rendered=rendered)
