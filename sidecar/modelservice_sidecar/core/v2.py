"""What an Open Inference Protocol server says about itself and its models, read into signatures.

Owns the meaning of the server's metadata, of the list of models, and of one model's metadata and Triton config. Pure, and
without numpy. Everything here comes from a server that may be broken or lie: each answer is bounded, and one that makes no
sense costs one model, with a sentence, and never the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

from modelservice_api.adapter_config import Datatype, ModelConfig, TensorConfig
from modelservice_sidecar.core import tensors, text
from modelservice_sidecar.core.errors import BackendToolGoneError
from modelservice_sidecar.core.tensors import Control, Signature, TensorSpec

MAX_MODELS: Final = 256
MAX_TENSORS: Final = 128
MAX_NAME: Final = 256
MAX_SIZE: Final = 2**40
"""Of one dimension: more cannot be meant."""

BYTES_ONLY: Final[frozenset[Datatype]] = frozenset({"FP16", "BF16"})
"""Datatypes that have no form in JSON."""

SEQUENCE: Final = (
    Control(
        name="sequence_id",
        schema={
            "type": ["integer", "string"],
            "minimum": 1,
            "maximum": tensors.MAX_EXACT,
            "minLength": 1,
            "maxLength": 128,
            "description": "Calls with one id belong together, in the order in which they are made.",
        },
        required=True,
    ),
    Control(
        name="sequence_start",
        schema={"type": "boolean", "default": False, "description": "True on the first call of a sequence."},
    ),
    Control(
        name="sequence_end",
        schema={"type": "boolean", "default": False, "description": "True on the last call of a sequence."},
    ),
)
"""What callers of a model with state say beside its tensors; on the wire they are parameters of the same names."""


class UnusableModelError(Exception):
    """A model cannot become a tool; the text says why, without the model's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """What a server says about itself. `binary`: it takes tensors as bytes. `has_config`: it tells each model's config."""

    name: str
    version: str
    binary: bool = False
    has_config: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """The models that are listed, and whether others are on their way. One with versions is known to be ready."""

    ready: Mapping[str, tuple[str, ...]]
    loading: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """One model and how to call it. `path` is where its endpoints are.

    `decoupled`: it answers a call any number of times. `needs_bytes`: JSON cannot tell its tensors. `batches_itself`: the
    server joins calls that come together.
    """

    name: str
    path: str
    platform: str
    signature: Signature
    decoupled: bool = False
    needs_bytes: bool = False
    batches_itself: bool = False


def read_server(document: object) -> Server | None:
    """The server of `GET /v2`, or `None` where that is no answer of an Open Inference Protocol server."""
    if not isinstance(document, dict):
        return None
    name, extensions = document.get("name"), document.get("extensions")
    if not isinstance(name, str) or not isinstance(extensions, list):
        return None
    version = document.get("version")
    shown = text.clean(version, 32) if isinstance(version, str) else ""
    binary = "binary_tensor_data" in extensions or (name == "kserve" and _release(shown) >= (0, 14))
    return Server(
        name=text.clean(name, 64), version=shown, binary=binary, has_config="model_configuration" in extensions
    )


def read_index(document: object) -> Index | None:
    """The models of a repository index (`[{name, version, state}]`) or of a plain list (`{"models": [name]}`)."""
    if isinstance(document, dict):
        names = document.get("models")
        if not isinstance(names, list):
            return None
        return Index(ready={name: () for name in names if isinstance(name, str)})
    if not isinstance(document, list):
        return None
    ready: dict[str, tuple[str, ...]] = {}
    loading = False
    for entry in document:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            continue
        state = entry.get("state")
        if state == "READY":
            version = entry.get("version")
            ready[entry["name"]] = (*ready.get(entry["name"], ()), version if isinstance(version, str) else "")
        loading = loading or state == "LOADING"
    return Index(ready=ready, loading=loading)


def read_model(name: str, metadata: object, config: object | None, declared: ModelConfig) -> Model:
    """One model. `config` is Triton's, where the server has such; `declared` speaks where the server says nothing.

    Raises:
        UnusableModelError: what the server says makes no sense, or is not enough.
    """
    if not isinstance(metadata, dict):
        raise UnusableModelError("its metadata is not a JSON object")
    more = config if isinstance(config, dict) else {}
    inputs = _tensors(metadata, "inputs", declared.inputs, complete=bool(more))
    outputs = _tensors(metadata, "outputs", declared.outputs, complete=bool(more))
    hidden, facts = _sequence_inputs(more), _config_inputs(more)
    inputs = tuple(_with_facts(spec, facts) for spec in inputs if spec.name not in hidden)
    max_batch = _max_batch(more, (*inputs, *outputs))
    if max_batch:
        inputs, outputs = _batched(inputs, max_batch), _batched(outputs, max_batch)
    signature = Signature(
        inputs=inputs,
        outputs=outputs,
        max_batch=max_batch,
        nulls=declared.non_finite == "Null",
        controls=SEQUENCE if _is_sequence(more) else (),
    )
    platform = metadata.get("platform") or more.get("backend")
    return Model(
        name=name,
        path=path_of(name),
        platform=text.clean(platform, 64) if isinstance(platform, str) else "",
        signature=signature,
        decoupled=_is_decoupled(more),
        needs_bytes=any(spec.datatype in BYTES_ONLY for spec in (*inputs, *outputs)),
        batches_itself="dynamic_batching" in more,
    )


def path_of(name: str) -> str:
    """Where a model's endpoints are."""
    return f"/v2/models/{quote(name, safe='')}"


def is_flat(signature: Signature) -> bool:
    """Whether every tensor has one dimension at most beside the batch axis, and outputs one free one at most."""
    first = 1 if signature.batched else 0
    is_list = all(len(spec.shape) - first <= 1 for spec in signature.inputs)
    is_told = all(sum(size < 0 for size in spec.shape[first:]) <= 1 for spec in signature.outputs)
    has_json = all(spec.datatype not in BYTES_ONLY for spec in (*signature.inputs, *signature.outputs))
    return is_list and is_told and has_json and not signature.controls


def is_usable_name(name: str) -> bool:
    """Whether a model's name can stand in a path: no name reaches another endpoint."""
    return 0 < len(name) <= MAX_NAME and name not in {".", ".."} and "/" not in name and name.isprintable()


def description(model: Model, server: Server) -> str:
    """A sentence for callers; the server has none to offer."""
    by = f"{server.name}, {model.platform}" if model.platform else server.name
    streamed = " It answers in parts." if model.decoupled else ""
    state = " It remembers earlier calls with the same sequence_id." if model.signature.controls else ""
    return f"Runs the model {text.clean(model.name, MAX_NAME)} ({by}).{streamed}{state}"


def gone(model: Model) -> BackendToolGoneError:
    """The error of a call to a model that was unloaded."""
    return BackendToolGoneError(
        f"The model server no longer has the model {text.clean(model.name, 128)}; list the tools again."
    )


def _tensors(
    metadata: Mapping[str, Any], key: str, declared: Sequence[TensorConfig], *, complete: bool
) -> tuple[TensorSpec, ...]:
    entries = metadata.get(key)
    if entries is None or entries == []:
        if not declared and complete and key == "inputs":
            return ()  # a server with configs leaves nothing out: this model takes none
        if not declared:
            raise UnusableModelError(
                f"its metadata names no {key}, and spec.model.{key} does not say what the server leaves out"
            )
        return tuple(TensorSpec(name=one.name, datatype=one.datatype, shape=one.shape) for one in declared)
    if not isinstance(entries, list) or len(entries) > MAX_TENSORS:
        raise UnusableModelError(f"{key} in its metadata is not a list of at most {MAX_TENSORS} tensors")
    found = tuple(_tensor(entry, f"{key}[{number}]") for number, entry in enumerate(entries))
    if len({spec.name for spec in found}) < len(found):
        raise UnusableModelError(f"{key} in its metadata name one tensor twice")
    return found


def _tensor(entry: object, where: str) -> TensorSpec:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not 0 < len(entry["name"]) <= MAX_NAME:
        raise UnusableModelError(f"{where} in its metadata has no usable name")
    datatype, shape = entry.get("datatype"), entry.get("shape")
    if datatype not in tensors.ITEM_SIZES:
        shown = text.clean(str(datatype), 32)
        raise UnusableModelError(f"{where} in its metadata has the datatype {shown!r}, which is none of the protocol's")
    if not isinstance(shape, list) or len(shape) > tensors.MAX_RANK:
        raise UnusableModelError(f"{where}.shape in its metadata is not a list of at most {tensors.MAX_RANK} sizes")
    return TensorSpec(name=entry["name"], datatype=datatype, shape=tuple(_size(size, where) for size in shape))


def _size(size: object, where: str) -> int:
    if isinstance(size, str) and size.removeprefix("-").isdecimal() and len(size) < 16:
        size = int(size)  # protobuf's JSON writes 64-bit integers as strings
    if not isinstance(size, int) or isinstance(size, bool) or not -1 <= size <= MAX_SIZE:
        raise UnusableModelError(f"{where}.shape in its metadata holds something that is not a size")
    return size


def _config_inputs(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {entry["name"]: entry for entry in _list(config.get("input")) if isinstance(entry.get("name"), str)}


def _with_facts(spec: TensorSpec, facts: Mapping[str, Mapping[str, Any]]) -> TensorSpec:
    """What only the config says: whether an input may be left out, and whether its rows may differ in length.

    `reshape` needs nothing: metadata and `dims` both say what callers send.
    """
    about = facts.get(spec.name)
    if about is None:
        return spec
    return replace(spec, optional=about.get("optional") is True, ragged=about.get("allow_ragged_batch") is True)


def _sequence_inputs(config: Mapping[str, Any]) -> set[str]:
    """Inputs that the server itself fills: where a sequence starts and ends, whose it is, and its state."""
    sequence = config.get("sequence_batching")
    if not isinstance(sequence, dict):
        return set()
    named = [entry.get("name") for entry in _list(sequence.get("control_input"))]
    named += [entry.get("input_name") for entry in _list(sequence.get("state"))]
    return {name for name in named if isinstance(name, str)}


def _is_sequence(config: Mapping[str, Any]) -> bool:
    return isinstance(config.get("sequence_batching"), dict)


def _is_decoupled(config: Mapping[str, Any]) -> bool:
    policy = config.get("model_transaction_policy")
    return isinstance(policy, dict) and policy.get("decoupled") is True


def _max_batch(config: Mapping[str, Any], specs: Sequence[TensorSpec]) -> int:
    """The most rows, where axis 0 of every tensor is the batch axis: the metadata then begins each shape with -1."""
    size = config.get("max_batch_size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MAX_SIZE:
        return 0
    if any(spec.shape[:1] != (-1,) for spec in specs):
        raise UnusableModelError(f"its config says max_batch_size {size}, but not every shape has a batch axis")
    return size


def _batched(specs: tuple[TensorSpec, ...], max_batch: int) -> tuple[TensorSpec, ...]:
    return tuple(tensors.batch_axis(replace(spec, shape=spec.shape[1:]), max_batch) for spec in specs)


def _list(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _release(version: str) -> tuple[int, int]:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)
