"""Finding the model server in a pod template: one container and one port, or a refusal that says what to set.

Owns the rule (R17 of the injection study): an explicit name first, then the sources of `_SOURCES` in their order; the first
that knows any port decides. Where it knows several, none is taken: never a guess and never a position in a list. Containers
of meshes and log shippers are known by their exact names and are never the model server unless named.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from modelservice_api import v1alpha1, wellknown
from modelservice_api.conditions import Reasons
from modelservice_operator.core import workload
from modelservice_operator.core.refusal import Refusal

Source = Literal["spec", "ports", "probes", "services", "environment", "arguments"]
"""Where the port was read: `spec.backend.port`, declared container ports, probes, Services that select the pods, a variable
such as PORT, or the command line."""


@dataclass(frozen=True, kw_only=True)
class BackendTarget:
    """The model server inside the pod."""

    container: str
    port: int
    source: Source = field(default="spec", compare=False)


Container = Mapping[str, Any]
Services = Sequence[workload.KubeObject]


def resolve(template: Mapping[str, Any], spec: v1alpha1.Backend, services: Services = ()) -> BackendTarget | Refusal:
    """The model server that `spec` means in `template`. `services` are those of the namespace, in any order."""
    candidates = [
        container for container in workload.containers(template) if container.get("name") != wellknown.ADAPTER_CONTAINER
    ]
    if spec.container is not None:
        chosen = [container for container in candidates if container.get("name") == spec.container]
        if not chosen:
            return Refusal(
                reason=Reasons.BACKEND_CONTAINER_NOT_FOUND,
                message=f"spec.backend.container is {spec.container!r}; the pod template has {_names(candidates)}.",
            )
        candidates = chosen
    else:
        candidates = [container for container in candidates if container.get("name") not in wellknown.HELPER_CONTAINERS]
    if spec.port is not None:
        return _named(candidates, spec.port)
    return _choose(candidates, [service for service in services if selects(service, template)])


def _named(candidates: list[Container], port: int) -> BackendTarget | Refusal:
    """The container of a port that the ModelService names."""
    matching = [container for container in candidates if port in _declared(container)]
    if len(matching) == 1:
        return BackendTarget(container=str(matching[0]["name"]), port=port)
    if len(candidates) == 1:
        # An undeclared port is fine: declaring one is only documentation (Kubernetes API, ContainerPort).
        return BackendTarget(container=str(candidates[0]["name"]), port=port)
    return Refusal(
        reason=Reasons.AMBIGUOUS_BACKEND,
        message=f"Port {port} could belong to {_names(candidates)}; set spec.backend.container.",
    )


def _choose(candidates: list[Container], services: Services) -> BackendTarget | Refusal:
    for source, read in _SOURCES:
        found = [
            BackendTarget(container=str(container["name"]), port=port, source=source)
            for container in candidates
            for port in dict.fromkeys(read(container, services))
        ]
        if source == "services" and len(candidates) > 1:
            continue  # a Service knows the port and not the container
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(f"{target.container}:{target.port}" for target in found)
            return Refusal(
                reason=Reasons.AMBIGUOUS_BACKEND,
                message=f"By its {_WORDS[source]} the model server could be {listed}; "
                "set spec.backend.container and spec.backend.port.",
            )
    if len(candidates) == 1:
        return Refusal(
            reason=Reasons.BACKEND_PORT_UNKNOWN,
            message=f"Container {candidates[0]['name']!r} declares no TCP port, and neither its probes nor a Service, a "
            "variable or an argument names one; set spec.backend.port.",
        )
    return Refusal(
        reason=Reasons.AMBIGUOUS_BACKEND,
        message=f"No container declares a TCP port and there are {len(candidates)} that could be the model server "
        f"({_names(candidates)}); set spec.backend.container and spec.backend.port.",
    )


def _declared(container: Container) -> Iterator[int]:
    for number, _, protocol in workload.declared_ports(container):
        if protocol == "TCP":
            yield number


def _declared_for_http(container: Container, _: Services) -> Iterator[int]:
    """Declared ports, less those whose names say that they speak something else, by the `protocol[-suffix]` convention."""
    ports = [(number, name) for number, name, protocol in workload.declared_ports(container) if protocol == "TCP"]
    speaking = [number for number, name in ports if not speaks_otherwise(name)]
    yield from speaking or [number for number, _ in ports]


def _probed(container: Container, _: Services) -> Iterator[int]:
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        for handler in ("httpGet", "tcpSocket"):
            port = ((container.get(probe) or {}).get(handler) or {}).get("port")
            if isinstance(port, int):  # a name would be that of a declared port, and there is none
                yield port


def _served(_: Container, services: Services) -> Iterator[int]:
    for service in services:
        for port in (service.get("spec") or {}).get("ports") or []:
            target = port.get("targetPort", port.get("port"))
            if port.get("protocol", "TCP") == "TCP" and isinstance(target, int):
                yield target


def _in_environment(container: Container, _: Services) -> Iterator[int]:
    for entry in container.get("env") or []:
        value = str(entry.get("value") or "")
        if entry.get("name") in _PORT_VARIABLES and _is_port(value):
            yield int(value)


def _in_arguments(container: Container, _: Services) -> Iterator[int]:
    words = [str(word) for word in (*(container.get("command") or []), *(container.get("args") or []))]
    if len(words) > 1 and words[0].rpartition("/")[2] in {"sh", "bash"}:
        words = " ".join(words).split()
    for word, following in zip(words, [*words, ""][1:], strict=True):
        flag, equals, value = word.partition("=")
        if flag in _PORT_FLAGS:
            text = value if equals else following
            if _is_port(text):
                yield int(text)
        elif flag in _BIND_FLAGS:
            text = (value if equals else following).rpartition(":")[2]
            if _is_port(text):
                yield int(text)


_SOURCES: tuple[tuple[Source, Callable[[Container, Services], Iterator[int]]], ...] = (
    ("ports", _declared_for_http),
    ("probes", _probed),
    ("services", _served),
    ("environment", _in_environment),
    ("arguments", _in_arguments),
)

_WORDS: Mapping[Source, str] = {
    "spec": "own name",
    "ports": "declared ports",
    "probes": "probes",
    "services": "Services",
    "environment": "environment",
    "arguments": "arguments",
}

_OTHER_PROTOCOLS = frozenset({"grpc", "metrics", "prometheus", "prom", "debug", "admin"})
_PORT_VARIABLES = frozenset({"PORT", "HTTP_PORT", "SERVER_PORT", "UVICORN_PORT", "MLSERVER_HTTP_PORT", "VLLM_PORT"})
_PORT_FLAGS = frozenset({"--port", "-p", "--http-port", "--http_port", "--server-port", "--rest_api_port"})
"""Of uvicorn, vLLM, SGLang, llama.cpp's server, TGI, MLServer, Triton, TensorFlow Serving."""
_BIND_FLAGS = frozenset({"--bind", "-b", "--http-address", "--listen"})
"""Of gunicorn, hypercorn and others: `address:port`."""


def speaks_otherwise(port_name: str) -> bool:
    """Whether a port's name says that it speaks something else than a model's HTTP."""
    return port_name.partition("-")[0] in _OTHER_PROTOCOLS


def _is_port(text: str) -> bool:
    return re.fullmatch(r"[0-9]{2,5}", text) is not None and 0 < int(text) < 65536


def selects(service: workload.KubeObject, template: Mapping[str, Any]) -> bool:
    """Whether a Service selects the workload's pods. Ours is no source: it was made from what is looked for here."""
    labels = (service.get("metadata") or {}).get("labels") or {}
    if labels.get(wellknown.MANAGED_BY_LABEL) == wellknown.MANAGED_BY:
        return False
    selector = (service.get("spec") or {}).get("selector") or {}
    pod = (template.get("metadata") or {}).get("labels") or {}
    return bool(selector) and all(pod.get(key) == value for key, value in selector.items())


def _names(candidates: list[Container]) -> str:
    return ", ".join(repr(str(container.get("name"))) for container in candidates) or "no container that could be it"
