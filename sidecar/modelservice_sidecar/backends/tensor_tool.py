"""Tools whose arguments and results are tensors: what V2 servers, TVM, PyTorch and ONNX have in common.

Owns the step from a signature to a `ToolSpec`, from checked arguments to tensors, and from a model's tensors to an answer.
Knows no model server. numpy is loaded by the first value that is converted.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from modelservice_sidecar.backends.base import Answer, CallContext
from modelservice_sidecar.core import catalogue, tensors, text
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import BackendAnswerInvalidError, InvalidArgumentsError
from modelservice_sidecar.core.tensors import Signature, Tensor, TensorSpec

MAX_TENSOR_BYTES: Final = 1024 * 1024 * 1024
"""Of one tensor. The real bound of what comes in is `limits.maxBodyBytes`; this one stops arithmetic that lies."""

OFF_LOOP: Final = 1000
"""Microseconds of conversion, estimated, from which it leaves the event loop: a hop to a thread costs a tenth of that."""

_JSON_NUMBER: Final = 0.04
_JSON_STRING: Final = 0.4
_BASE64_CHARACTER: Final = 0.0035
_ELEMENT_OF_BYTES: Final = 0.25
_BYTE: Final = 0.0001
"""Microseconds each, measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """The arguments of one call as the model wants them, by the model's own names. `unbatched`: the caller left the batch
    axis out of them, and out of what it expects back."""

    tensors: dict[str, Tensor]
    unbatched: bool


def spec_of(name: str, signature: Signature, *, identity: str, description: str, binding: Any) -> ToolSpec:
    """The tool of one model. `identity` tells models of one tool name apart; the description is cleaned here."""
    named = with_arguments(signature)
    return ToolSpec(
        name=catalogue.tool_name(name, identity),
        operation_id=name,
        description=text.clean(f"{description} {_shapes(named)}".strip()),
        input_schema=tensors.input_schema(named),
        output_schema=tensors.output_schema(named),
        signature=named,
        binding=binding,
    )


def with_arguments(signature: Signature) -> Signature:
    """The signature with a name for callers on every tensor."""

    def named(specs: tuple[TensorSpec, ...], taken: Sequence[str] = ()) -> tuple[TensorSpec, ...]:
        keys = tensors.argument_names([*taken, *(spec.name for spec in specs)])[len(taken) :]
        return tuple(replace(spec, argument=key) for spec, key in zip(specs, keys, strict=True))

    controls = [control.name for control in signature.controls]
    return replace(signature, inputs=named(signature.inputs, controls), outputs=named(signature.outputs))


async def read(signature: Signature, arguments: Mapping[str, Any]) -> Given:
    """The tensors of arguments that passed the signature's check.

    Raises:
        InvalidArgumentsError: lists of unequal length, bytes that are not what their shape says, values out of range.
    """
    if sum(map(_cost_of_reading, arguments.values())) < OFF_LOOP:
        return _read(signature, arguments)
    return await asyncio.to_thread(_read, signature, arguments)


async def answer(signature: Signature, given: Given, outputs: Mapping[str, Tensor], context: CallContext) -> Answer:
    """The model's outputs, by its own names, as an answer: tensors where the caller takes bytes, else JSON.

    Raises:
        BackendAnswerInvalidError: an output is missing or has another datatype or shape than the signature says, or holds
            NaN or an infinity where the signature's policy makes that an error.
    """
    if context.wants_tensors:
        return Answer(content=[], tensors=_checked(signature, given, outputs))
    if sum(map(_cost_of_wording, outputs.values())) < OFF_LOOP:
        return _worded(signature, given, outputs, context)
    return await asyncio.to_thread(_worded, signature, given, outputs, context)


def _read(signature: Signature, arguments: Mapping[str, Any]) -> Given:
    from modelservice_sidecar import tensor_checks
    from modelservice_sidecar.core import codec

    found: dict[str, Tensor] = {}
    unbatched = False
    for spec in signature.inputs:
        if spec.key not in arguments:
            continue
        value = arguments[spec.key]
        skip_batch = signature.batched and tensor_checks.is_unbatched(spec, value)
        unbatched = unbatched or skip_batch
        try:
            tensor = value if isinstance(value, Tensor) else _convert(spec, value)
        except codec.CodecError as error:
            raise InvalidArgumentsError(f"Invalid arguments: $.{spec.key}{error.path}: {error}") from error
        problem = tensors.shape_problem(spec, tensor.shape, skip_batch=skip_batch)
        if problem is not None:
            raise InvalidArgumentsError(f"Invalid arguments: $.{spec.key}: {problem}")
        where = None if signature.nulls else codec.non_finite_path(tensor)
        if where is not None:
            raise InvalidArgumentsError(
                f"Invalid arguments: $.{spec.key}{where}: is NaN or an infinity, which this tool does not take"
            )
        found[spec.name] = replace(tensor, shape=(1, *tensor.shape)) if skip_batch else tensor
    return Given(tensors=found, unbatched=unbatched)


def _convert(spec: TensorSpec, value: Any) -> Tensor:
    from modelservice_sidecar.core import codec

    if isinstance(value, dict):
        return codec.from_base64(value, limit=MAX_TENSOR_BYTES)
    return codec.from_lists(value, spec.datatype, limit=MAX_TENSOR_BYTES)


def _checked(signature: Signature, given: Given, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The outputs by the callers' names, held against the signature, without the batch axis where none came in."""
    found: dict[str, Tensor] = {}
    for spec in signature.outputs:
        tensor = outputs.get(spec.name)
        if tensor is None:
            raise BackendAnswerInvalidError(f"The model's answer lacks its output {spec.key}.")
        problem = tensors.shape_problem(spec, tensor.shape)
        if tensor.datatype != spec.datatype:
            problem = f"is {tensor.datatype}"
        if problem is not None:
            raise BackendAnswerInvalidError(f"The model's output {spec.key} {problem}; its metadata says {spec}.")
        if given.unbatched and tensor.shape[:1] != (1,):
            raise BackendAnswerInvalidError(f"The model answered one row with {tensor.shape[0]} rows of {spec.key}.")
        found[spec.key] = replace(tensor, shape=tensor.shape[1:]) if given.unbatched else tensor
    return found


def _worded(signature: Signature, given: Given, outputs: Mapping[str, Tensor], context: CallContext) -> Answer:
    from modelservice_sidecar.core import codec

    parts: list[bytes] = []
    resources: list[dict[str, Any]] = []
    for key, tensor in _checked(signature, given, outputs).items():
        where = None if signature.nulls else codec.non_finite_path(tensor)
        if where is not None:
            raise BackendAnswerInvalidError(
                f"The model's output {key}{where} is NaN or an infinity, which JSON cannot tell; "
                "spec.model.nonFinite: Null makes them null."
            )
        if len(tensor.data) <= tensors.INLINE_BYTES:
            value = codec.to_json(tensor)
        else:
            uri = f"modelservice://answers/{context.ids.request_id}/{key}"
            value = orjson.dumps({"dtype": tensor.datatype, "shape": tensor.shape, "resource": uri})
            resources.append({"uri": uri, "mimeType": tensors.TENSOR_MIME, "blob": codec.to_base64(tensor)})
        parts.append(orjson.dumps(key) + b":" + value)
    raw = b"{" + b",".join(parts) + b"}"
    content: list[dict[str, Any]] = [{"type": "text", "text": raw.decode()}]
    content += [{"type": "resource", "resource": resource} for resource in resources]
    return Answer(content=content, has_structured=True, raw=raw)


def _cost_of_reading(value: Any) -> float:
    """Microseconds, looking at the first of each level only."""
    if isinstance(value, Tensor):
        return _cost_of_bytes(value)
    if isinstance(value, dict):
        return len(value.get("data", "")) * _BASE64_CHARACTER
    size = 1
    while isinstance(value, list) and value:
        size *= len(value)
        value = value[0]
    return size * (_JSON_STRING if isinstance(value, str) else _JSON_NUMBER)


def _cost_of_wording(tensor: Tensor) -> float:
    if len(tensor.data) > tensors.INLINE_BYTES:
        return len(tensor.data) * _BASE64_CHARACTER / 2
    return tensor.elements * (_JSON_NUMBER if tensor.datatype != "BYTES" else _JSON_STRING)


def _cost_of_bytes(tensor: Tensor) -> float:
    return tensor.elements * _ELEMENT_OF_BYTES if tensor.datatype == "BYTES" else len(tensor.data) * _BYTE


def _shapes(signature: Signature) -> str:
    takes = ", ".join(f"{spec.key} {spec}" for spec in signature.inputs)
    gives = ", ".join(f"{spec.key} {spec}" for spec in signature.outputs)
    batch = f" One row may be given without the first dimension; at most {signature.max_batch} rows."
    return f"Takes {takes}; gives {gives}.{batch if signature.batched else ''}"
