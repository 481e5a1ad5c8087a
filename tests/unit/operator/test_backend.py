"""Where the model server listens is read from what people write, in a fixed order, and never guessed."""

from typing import Any

import pytest

from modelservice_api import v1alpha1
from modelservice_operator.core import backend
from modelservice_operator.core.backend import BackendTarget
from modelservice_operator.core.refusal import Refusal


def template(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "fraud"}}, "spec": {"containers": list(containers)}}


def server(name: str = "server", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "example/model:1", **fields}


def service(target: object = 8000, *, selector: dict[str, str] | None = None, **labels: str) -> dict[str, Any]:
    chosen = {"app": "fraud"} if selector is None else selector
    port = {"port": 80, "targetPort": target}
    return {"metadata": {"name": "fraud", "labels": labels}, "spec": {"selector": chosen, "ports": [port]}}


def found(pod: dict[str, Any], *services: dict[str, Any], **spec: Any) -> tuple[str, int, str] | Refusal:
    result = backend.resolve(pod, v1alpha1.Backend.model_validate(spec), services)
    return (result.container, result.port, result.source) if isinstance(result, BackendTarget) else result


HTTP = [{"name": "http", "containerPort": 8000}]
TRITON = [
    {"name": "http", "containerPort": 8000},
    {"name": "grpc", "containerPort": 8001},
    {"name": "metrics", "containerPort": 8002},
]
PROBE = {"readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}}}

FOUND: list[tuple[str, dict[str, Any], tuple[Any, ...], tuple[str, int, str]]] = [
    ("a declared port", template(server(ports=HTTP)), (), ("server", 8000, "ports")),
    ("Triton's three ports", template(server(ports=TRITON)), (), ("server", 8000, "ports")),
    ("one port that is named otherwise", template(server(ports=TRITON[1:2])), (), ("server", 8001, "ports")),
    ("a probe", template(server(**PROBE)), (), ("server", 8080, "probes")),
    (
        "two probes of one port",
        template(server(**PROBE, livenessProbe={"tcpSocket": {"port": 8080}})),
        (),
        ("server", 8080, "probes"),
    ),
    ("a Service", template(server()), (service(),), ("server", 8000, "services")),
    ("a declared port before a probe", template(server(ports=HTTP, **PROBE)), (), ("server", 8000, "ports")),
    ("a variable", template(server(env=[{"name": "PORT", "value": "9000"}])), (), ("server", 9000, "environment")),
    ("a flag", template(server(command=["uvicorn", "app:app", "--port", "8001"])), (), ("server", 8001, "arguments")),
    ("a flag with =", template(server(args=["--model=x", "--port=8001"])), (), ("server", 8001, "arguments")),
    (
        "an address to bind",
        template(server(args=["gunicorn", "-b", "0.0.0.0:8123", "app"])),
        (),
        ("server", 8123, "arguments"),
    ),
    (
        "a shell's command line",
        template(server(command=["sh", "-c", "exec vllm serve m --port 8002"])),
        (),
        ("server", 8002, "arguments"),
    ),
    (
        "a mesh's container beside it",
        template(server(**PROBE), server("istio-proxy", ports=[{"containerPort": 15090}])),
        (),
        ("server", 8080, "probes"),
    ),
    ("another container without a word", template(server(**PROBE), server("helper")), (), ("server", 8080, "probes")),
]


@pytest.mark.promise("adopt")
@pytest.mark.parametrize(("pod", "services", "expected"), [pytest.param(*rest, id=name) for name, *rest in FOUND])
def test_the_first_source_that_knows_a_port_decides(
    pod: dict[str, Any], services: tuple[Any, ...], expected: tuple[str, int, str]
) -> None:
    assert found(pod, *services) == expected


REFUSED: list[tuple[str, dict[str, Any], tuple[Any, ...], str, str]] = [
    ("nothing at all", template(server()), (), "BackendPortUnknown", "set spec.backend.port"),
    (
        "two declared ports",
        template(server(ports=[{"containerPort": 8000}, {"containerPort": 9000}])),
        (),
        "AmbiguousBackend",
        "By its declared ports the model server could be server:8000, server:9000",
    ),
    (
        "two Services that differ",
        template(server()),
        (service(8000), service(9000)),
        "AmbiguousBackend",
        "By its Services the model server could be server:8000, server:9000",
    ),
    (
        "two containers and a Service",
        template(server(), server("other")),
        (service(),),
        "AmbiguousBackend",
        "there are 2 that could be the model server",
    ),
    ("a Service of other pods", template(server()), (service(selector={"app": "x"}),), "BackendPortUnknown", "set"),
    ("a Service without a selector", template(server()), (service(selector={}),), "BackendPortUnknown", "set"),
    ("a named target of no port", template(server()), (service("http"),), "BackendPortUnknown", "set"),
    (
        "our own Service",
        template(server()),
        (service(8931, **{"app.kubernetes.io/managed-by": "modelservice-operator"}),),
        "BackendPortUnknown",
        "set",
    ),
    (
        "a variable from elsewhere",
        template(server(env=[{"name": "PORT", "valueFrom": {}}, {"name": "HTTP_PORT", "value": "$(PORT)"}])),
        (),
        "BackendPortUnknown",
        "set",
    ),
    ("a flag without a number", template(server(args=["--port", "auto"])), (), "BackendPortUnknown", "set"),
]


@pytest.mark.promise("refuse-ambiguous-backend")
@pytest.mark.promise("refuse-backend-port-unknown")
@pytest.mark.parametrize(
    ("pod", "services", "reason", "says"), [pytest.param(*rest, id=name) for name, *rest in REFUSED]
)
def test_what_is_not_clear_is_refused_and_lists_what_it_could_be(
    pod: dict[str, Any], services: tuple[Any, ...], reason: str, says: str
) -> None:
    refusal = found(pod, *services)
    assert isinstance(refusal, Refusal)
    assert refusal.reason.name == reason
    assert says in refusal.message


def test_a_name_in_the_spec_comes_before_every_source() -> None:
    pod = template(server(ports=HTTP), server("helper", ports=[{"containerPort": 9000}]))
    assert found(pod, container="helper") == ("helper", 9000, "ports")
    assert found(pod, port=9000) == ("helper", 9000, "spec")
    assert found(template(server()), port=7000) == ("server", 7000, "spec")
