"""Builders of raw Kubernetes objects: plain values with modifiers, one field changed at a time.

Owns what "an ordinary Deployment" and "an ordinary ModelService" are in tests.
"""

import copy
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from modelservice_operator.core import adapter, injection, naming
from modelservice_operator.core.observed import AdapterObservation, Observed

Modifier = Callable[[dict[str, Any]], None]

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
IMAGE = "modelservice/adapter:test"


def deployment(name: str = "fraud", *modifiers: Modifier, namespace: str = "ml") -> dict[str, Any]:
    """One container `server` that declares port 8000."""
    found: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "containers": [{"name": "server", "image": "example/server:1", "ports": [{"containerPort": 8000}]}]
                },
            },
        },
    }
    return modified(found, *modifiers)


def model_service(name: str = "fraud", *modifiers: Modifier, namespace: str = "ml") -> dict[str, Any]:
    """Adopts the Deployment of its own name."""
    found: dict[str, Any] = {
        "apiVersion": "modelservice.dev/v1alpha1",
        "kind": "ModelService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
    }
    return modified(found, *modifiers)


def modified(obj: dict[str, Any], *modifiers: Modifier) -> dict[str, Any]:
    """A copy with every modifier applied in order."""
    result = copy.deepcopy(obj)
    for modifier in modifiers:
        modifier(result)
    return result


def with_value(path: str, value: Any) -> Modifier:
    """Sets `path`, dotted; numbers index lists. Mappings on the way are made."""

    def modify(obj: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        node: Any = obj
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
        if isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value

    return modify


def with_annotation(key: str, value: str) -> Modifier:
    """Sets an annotation; keys hold dots, so `with_value` cannot."""
    return lambda obj: obj["metadata"].setdefault("annotations", {}).update({key: value})


def with_container(container: Mapping[str, Any]) -> Modifier:
    """Appends a container to a workload's pod template."""
    return lambda obj: obj["spec"]["template"]["spec"]["containers"].append(dict(container))


def with_spec(**blocks: Any) -> Modifier:
    """Merges blocks into `spec`."""
    return lambda obj: obj["spec"].update(blocks)


def observed(
    service: Mapping[str, Any] | None = None,
    workload: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Observed:
    """What a pass sees: a new ModelService and an ordinary Deployment, unless told otherwise.

    Args:
        service: The ModelService. `service_object` is the Kubernetes Service.
        changes: Fields of `Observed`; `missing=True` for no workload at all.
    """
    server_side = {
        "uid": "6217c01a-db50",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": "2026-12-01T11:00:00Z",
    }
    found = copy.deepcopy(dict(service if service is not None else model_service()))
    found["metadata"] = {**server_side, **found["metadata"]}
    if changes.pop("missing", False):
        changes["workload"] = None
    if "service_object" in changes:
        changes["service"] = changes.pop("service_object")
    values: dict[str, Any] = {
        "now": NOW,
        "model_service": found,
        "workload": workload if workload is not None else deployment(),
        "rivals": (),
        "live_uids": frozenset({found["metadata"]["uid"]}),
        "service": None,
        "config_map": None,
        "own_deployment": None,
        "adapters": AdapterObservation(),
        "claims": {},
        "services": (),
        "adapter_image": IMAGE,
    }
    return Observed(**{**values, **changes})


def adopted(obj: dict[str, Any], rendered: adapter.Rendered, *, uid: str, name: str = "fraud") -> dict[str, Any]:
    """A workload as the API server returns it once our document was applied: merged, with our managed fields."""
    meta = injection.template_metadata(name, rendered, default_container="server")
    result = copy.deepcopy(obj)
    result["spec"]["template"] = injection.inject(obj["spec"]["template"], meta=meta, rendered=rendered)
    result["metadata"].setdefault("annotations", {})["modelservice.dev/owner"] = naming.owner(
        obj["metadata"]["namespace"], name, uid
    )
    fields = {
        "f:spec": {
            "f:template": {
                "f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/default-container": {}}},
                "f:spec": {"f:containers": {'k:{"name":"mcp-adapter"}': {}}},
            }
        }
    }
    result["metadata"]["managedFields"] = [
        {"manager": naming.field_manager(uid), "operation": "Apply", "fieldsV1": fields}
    ]
    return result
