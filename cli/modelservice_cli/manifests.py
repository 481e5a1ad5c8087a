"""`modelservice inject` and `eject`: manifests through a pipe, with the adapter put in or taken out.

Owns which documents are changed and how. What is put in is decided and rendered by the operator's core, so it is what the
operator would write. Speaks to no cluster.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from modelservice_api import wellknown
from modelservice_cli import adopt, documents, observing, terminal
from modelservice_cli.outcome import OK, REFUSED, USAGE, CommandError
from modelservice_operator.core import injection, plan, workload
from modelservice_operator.core.observed import Rival

Object = Mapping[str, Any]
Change = Callable[[Object], Object]

ADDED_ANNOTATION: Final = f"{wellknown.GROUP}/added"
"""On an injected workload: which annotation of the pod template came with the adapter, where its name does not tell."""

_NAMESPACE: Final = "default"


def run(options: argparse.Namespace) -> int:
    """Read, change, write; the exit code. Nothing is written where one of the workloads is refused."""
    stream = _read(options.filename)
    try:
        if options.command == "inject":
            written = inject(stream, target=options.target, name=options.name, image=options.image)
        else:
            written = eject(stream)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # No API server has looked at these: a list may stand where the core may rely on a map.
        raise CommandError(
            f"A workload or ModelService among the documents is not shaped as Kubernetes has it ({error}); "
            "`kubectl apply --dry-run=server` says where.",
            USAGE,
        ) from error
    sys.stdout.write(written)
    return OK


def inject(stream: str, *, target: str = "", name: str = "", image: str = "") -> str:
    """The stream with the adapter in every workload that a ModelService of the stream, or `target`, names.

    Raises:
        CommandError: There is no ModelService, or one is refused.
    """
    parts = documents.split(stream)
    objects = [each for part in parts for each in _objects(part.value)]
    model_services = [each for each in objects if _is_model_service(each)]
    if target:
        model_services.append(adopt.build_model_service(target, name, [], ""))
    if not model_services:
        raise CommandError(
            "There is no ModelService among the documents; add one, or name the workload with --for deploy/NAME.", USAGE
        )
    completed = [_completed(each, number, objects) for number, each in enumerate(model_services)]
    changed: dict[int, Object] = {}
    for model_service in completed:
        if _mode(model_service) == "Standalone":
            continue
        found = next((each for each in objects if _is_meant(model_service, each)), None)
        injected = _injected(model_service, found, completed, objects, image)
        if found is not None:
            changed[id(found)] = injected
        if _mode(model_service) == "Workload" and not target:
            terminal.note(
                f"ModelService {model_service['metadata']['name']} has injection.mode Workload, in which the operator puts the "
                "adapter in and refuses one that was applied; set injection.mode: Manual before you apply this."
            )
    return _written(parts, lambda each: changed.get(id(each), each))


def eject(stream: str) -> str:
    """The stream without adapters: what `inject` was given, and what the operator was given.

    Raises:
        CommandError: It is no YAML.
    """
    return _written(documents.split(stream), lambda each: bare(each) if _is_workload(each) else each)


def bare(obj: Object) -> Object:
    """A workload without the adapter; itself where it has none."""
    template = workload.pod_template(obj)
    if workload.container_named(template, wellknown.ADAPTER_CONTAINER) is None:
        return obj
    metadata = dict(workload.metadata(obj))
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(wellknown.OWNER_ANNOTATION, None)
    added = annotations.pop(ADDED_ANNOTATION, "")
    metadata.pop("annotations", None)
    if annotations:
        metadata = {key: annotations if key == "annotations" else value for key, value in dict(obj["metadata"]).items()}
    meta = {
        "labels": {wellknown.NAME_LABEL: ""},
        "annotations": {wellknown.HASH_ANNOTATION: "", **({added: ""} if added else {})},
    }
    spec = {
        key: injection.eject(template, meta=meta) if key == "template" else value for key, value in obj["spec"].items()
    }
    return {key: metadata if key == "metadata" else spec if key == "spec" else value for key, value in obj.items()}


def _injected(
    model_service: Object, found: Object | None, all_of_them: Sequence[Object], objects: Sequence[Object], image: str
) -> Object:
    """The workload with the adapter, as the operator decides it.

    Raises:
        CommandError: It is refused, in the operator's words.
    """
    target = None if found is None else _placed(bare(found), model_service["metadata"]["namespace"])
    services = [_placed(each, "") for each in objects if each.get("kind") == "Service"]
    rivals = tuple(
        Rival(
            name=each["metadata"]["name"],
            uid=each["metadata"]["uid"],
            created=each["metadata"]["creationTimestamp"],
            deleting=False,
        )
        for each in all_of_them
        if each is not model_service
        and observing.reference_of(each) == observing.reference_of(model_service)
        and each["metadata"]["namespace"] == model_service["metadata"]["namespace"]
    )

    def decide(mode: str) -> plan.Plan:
        # Pods are replaced when and how the manifests' owner applies them; what that risks is not the operator's to refuse.
        spec = {
            **model_service["spec"],
            "injection": {**(model_service["spec"].get("injection") or {}), "mode": mode},
            "rollout": {**(model_service["spec"].get("rollout") or {}), "onRisk": "Proceed"},
        }
        return plan.decide(
            observing.assemble(
                model_service={**model_service, "spec": spec},
                target=target,
                services=services,
                rivals=rivals,
                image=image,
            )
        )

    mode = _mode(model_service)
    decided = decide(mode)
    if mode == "Manual" and decided.refusal is None:
        decided = decide("Workload")  # the same template, and told what is added to it and what stood there before
    refusal = decided.refusal or decided.held_back
    if refusal is not None or found is None or decided.workload is None or decided.rendered is None:
        reason = f"{refusal.reason.name}: {refusal.message}" if refusal else "nothing can be put in."
        raise CommandError(f"ModelService {model_service['metadata']['name']}: {reason}", REFUSED)
    start = bare(found)
    meta = decided.workload.document["spec"]["template"]["metadata"]
    template = injection.inject(workload.pod_template(start), meta=meta, rendered=decided.rendered)
    metadata = dict(workload.metadata(start))
    if wellknown.DEFAULT_CONTAINER_ANNOTATION in meta["annotations"]:
        metadata["annotations"] = {
            **(metadata.get("annotations") or {}),
            ADDED_ANNOTATION: wellknown.DEFAULT_CONTAINER_ANNOTATION,
        }
    return {**start, "metadata": metadata, "spec": {**start["spec"], "template": template}}


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}.", USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is no UTF-8 text: {error}.", USAGE) from error


def _written(parts: Sequence[documents.Document], change: Change) -> str:
    """The stream again; only documents that changed are written anew."""
    texts: list[str] = []
    for part in parts:
        value = _changed(part.value, change)
        marker = "---\n" if part.text.startswith("---") else ""
        texts.append(part.text if value == part.value else marker + documents.write(value))
    return documents.join(texts)


def _changed(value: Any, change: Change) -> Any:
    if not isinstance(value, Mapping):
        return value
    if value.get("kind") == "List" and isinstance(value.get("items"), list):
        return {**value, "items": [_changed(each, change) for each in value["items"]]}
    return change(value)


def _objects(value: Any) -> Iterator[Object]:
    if not isinstance(value, Mapping):
        return
    if value.get("kind") == "List" and isinstance(value.get("items"), list):
        for each in value["items"]:
            yield from _objects(each)
    elif isinstance(value.get("metadata"), Mapping) and value["metadata"].get("name"):
        yield value


def _is_model_service(obj: Object) -> bool:
    return obj.get("kind") == wellknown.KIND and str(obj.get("apiVersion", "")).startswith(f"{wellknown.GROUP}/")


def _is_workload(obj: Object) -> bool:
    return (obj.get("apiVersion"), obj.get("kind")) in workload.ADOPTABLE and isinstance(obj.get("spec"), Mapping)


def _is_meant(model_service: Object, obj: Object) -> bool:
    """Whether it is the workload that the ModelService names. A namespace that is left out is that of the other."""
    named = (obj.get("apiVersion"), obj.get("kind"), workload.metadata(obj).get("name"))
    places = {str(each.get("namespace") or "") for each in (workload.metadata(obj), model_service["metadata"])} - {""}
    return _is_workload(obj) and named == observing.reference_of(model_service) and len(places) < 2


def _mode(model_service: Object) -> str:
    return str(((model_service.get("spec") or {}).get("injection") or {}).get("mode") or "Workload")


def _completed(model_service: Object, number: int, objects: Sequence[Object]) -> dict[str, Any]:
    """With what the API server would add. The first of the stream is the oldest."""
    found = next((each for each in objects if _is_meant(model_service, each)), {})
    metadata = {
        "namespace": workload.metadata(found).get("namespace") or _NAMESPACE,
        "uid": f"00000000-0000-0000-0000-{number:012d}",
        "creationTimestamp": f"{number:012d}",
        "resourceVersion": "1",
        "generation": 1,
        **model_service["metadata"],
    }
    return {**model_service, "metadata": metadata, "spec": dict(model_service.get("spec") or {})}


def _placed(obj: Object, namespace: str) -> Object:
    return {**obj, "metadata": {"namespace": namespace, **workload.metadata(obj)}}
