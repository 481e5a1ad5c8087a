"""Putting the adapter into a pod template and taking it out again, on values.

Owns three views of the same act: the server-side apply document (what the API server merges), `inject` (what the merged
template then is) and `eject` (what releasing it gives back). `eject(inject(t)) == t` holds for every template without
an adapter; nothing of a user's container is ever read into the document or changed.
"""

from collections.abc import Mapping
from typing import Any

from modelservice_api import wellknown
from modelservice_operator.core import naming, quantities, workload
from modelservice_operator.core.adapter import Rendered

Template = Mapping[str, Any]


def template_metadata(name: str, rendered: Rendered, *, default_container: str | None) -> dict[str, dict[str, str]]:
    """Labels and annotations that are ours on the pod template.

    The label is what the Service selects, so that only pods that hold the adapter are its endpoints. `default_container`
    keeps `kubectl logs` and `exec` on the user's container; it is None where the template already names one.
    """
    annotations = {wellknown.HASH_ANNOTATION: rendered.hash}
    if default_container is not None:
        annotations[wellknown.DEFAULT_CONTAINER_ANNOTATION] = default_container
    return {"labels": {wellknown.NAME_LABEL: naming.label_value(name)}, "annotations": annotations}


def apply_document(
    *, workload_object: workload.KubeObject, owner: str, meta: Mapping[str, Mapping[str, str]], rendered: Rendered
) -> dict[str, Any]:
    """The whole of what this ModelService owns on the workload, rendered from scratch (R7)."""
    document = release_document(workload_object)
    document["metadata"]["annotations"] = {wellknown.OWNER_ANNOTATION: owner}
    document["spec"] = {
        "template": {
            "metadata": {"labels": dict(meta["labels"]), "annotations": dict(meta["annotations"])},
            "spec": {"containers": [dict(rendered.container)], "volumes": [dict(rendered.volume)]},
        }
    }
    return document


def release_document(workload_object: workload.KubeObject) -> dict[str, Any]:
    """The empty apply: the API server removes all that the field manager owned alone."""
    meta = workload.metadata(workload_object)
    return {
        "apiVersion": workload_object["apiVersion"],
        "kind": workload_object["kind"],
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
    }


def inject(template: Template, *, meta: Mapping[str, Mapping[str, str]], rendered: Rendered) -> dict[str, Any]:
    """`template` with the adapter: the merge that the API server makes of `apply_document`."""
    spec = dict(template.get("spec") or {})
    spec["containers"] = _with_item(spec.get("containers"), rendered.container)
    spec["volumes"] = _with_item(spec.get("volumes"), rendered.volume)
    metadata = dict(template.get("metadata") or {})
    for key in ("labels", "annotations"):
        metadata[key] = {**(metadata.get(key) or {}), **meta[key]}
    return {**template, "metadata": metadata, "spec": spec}


def eject(template: Template, *, meta: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """`template` without the adapter: the merge that the API server makes of `release_document`.

    Lists and maps that held nothing but ours go with it, as the API server removes an emptied field that no one owns.
    """
    spec = dict(template.get("spec") or {})
    _set_or_drop(spec, "containers", _without_item(spec.get("containers"), wellknown.ADAPTER_CONTAINER))
    _set_or_drop(spec, "volumes", _without_item(spec.get("volumes"), wellknown.CONFIG_VOLUME))
    metadata = dict(template.get("metadata") or {})
    for key in ("labels", "annotations"):
        kept = {name: value for name, value in (metadata.get(key) or {}).items() if name not in meta[key]}
        _set_or_drop(metadata, key, kept)
    result = {**template}
    _set_or_drop(result, "metadata", metadata)
    _set_or_drop(result, "spec", spec)
    return result


def mode_of(model_service: workload.KubeObject) -> str:
    """The mode of a ModelService as the API server sent it, whether or not the rest of its spec can be read."""
    asked: Mapping[str, Any] = (model_service.get("spec") or {}).get("injection") or {}
    return str(asked.get("mode") or "Workload")


def stands(target: workload.KubeObject, *, name: str, uid: str, mode: str) -> bool:
    """Whether the adapter in this workload, or in the adapter's own Deployment, is that of this ModelService.

    What we applied to a workload is told by our field manager. In Manual mode its owner committed it: then the label says
    whose it is. The adapter's own Deployment names its owner.
    """
    if mode == "Standalone":
        return any(str(ref.get("uid")) == uid for ref in workload.metadata(target).get("ownerReferences") or [])
    if mode != "Manual":
        return workload.owns_adapter(target, naming.field_manager(uid))
    template = workload.pod_template(target)
    labels = (template.get("metadata") or {}).get("labels") or {}
    return workload.container_named(template, wellknown.ADAPTER_CONTAINER) is not None and labels.get(
        wellknown.NAME_LABEL
    ) == naming.label_value(name)


def patch_document(
    *, workload_object: workload.KubeObject, meta: Mapping[str, Mapping[str, str]], rendered: Rendered
) -> dict[str, Any]:
    """What the workload's owner commits in Manual mode: a strategic merge patch, for `kustomize` or `kubectl patch`."""
    document = apply_document(workload_object=workload_object, owner="", meta=meta, rendered=rendered)
    document["metadata"] = {"name": document["metadata"]["name"]}
    return document


def exists(template: Template, *, meta: Mapping[str, Mapping[str, str]], rendered: Rendered) -> bool:
    """Whether the adapter stands in `template` just as rendered, whatever defaults the API server filled in."""
    container = workload.container_named(template, wellknown.ADAPTER_CONTAINER)
    volumes = workload.pod_spec(template).get("volumes") or []
    volume = next((item for item in volumes if item.get("name") == wellknown.CONFIG_VOLUME), None)
    live = template.get("metadata") or {}
    return (
        container is not None
        and volume is not None
        and covers(container, rendered.container)
        and covers(volume, rendered.volume)
        and all(covers(live.get(key) or {}, meta[key]) for key in ("labels", "annotations"))
    )


def covers(live: Any, wanted: Any) -> bool:
    """Every leaf of `wanted` stands in `live` with an equal value; lists compare in order."""
    match wanted:
        case Mapping():
            return isinstance(live, Mapping) and all(
                key in live and (covers(live[key], value) or _is_same_quantity(live[key], value))
                for key, value in wanted.items()
            )
        case list():
            return (
                isinstance(live, list)
                and len(live) == len(wanted)
                and all(covers(there, here) for there, here in zip(live, wanted, strict=True))
            )
        case _:
            return bool(live == wanted)


def _is_same_quantity(live: Any, wanted: Any) -> bool:
    """The API server rewrites `0.5` as `500m`; that is no difference."""
    if not (isinstance(live, str) and isinstance(wanted, str)):
        return False
    first, second = quantities.parse(live), quantities.parse(wanted)
    return first is not None and first == second


def _with_item(items: Any, item: Mapping[str, Any]) -> list[Any]:
    """`items` with `item` in the place of its namesake, else at the end."""
    current = list(items or [])
    if any(existing.get("name") == item["name"] for existing in current):
        return [dict(item) if existing.get("name") == item["name"] else existing for existing in current]
    return [*current, dict(item)]


def _without_item(items: Any, name: str) -> list[Any]:
    return [item for item in items or [] if item.get("name") != name]


def _set_or_drop(mapping: dict[str, Any], key: str, value: Any) -> None:
    if value:
        mapping[key] = value
    else:
        mapping.pop(key, None)
