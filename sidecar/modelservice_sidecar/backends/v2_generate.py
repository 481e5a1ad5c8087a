"""A model that answers in parts, over HTTP: Triton's generate extension. Pure.

Owns the flat JSON of that extension, in which a tensor is one value or one list: so only models whose inputs and outputs have
one dimension at most can be called so. The others need gRPC.
"""

from collections.abc import Mapping
from math import prod

import orjson

from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.backends.tensor_tool import MAX_TENSOR_BYTES
from modelservice_sidecar.core import codec, text
from modelservice_sidecar.core.errors import BackendAnswerInvalidError, BackendFailureError, InvalidArgumentsError
from modelservice_sidecar.core.tensors import Tensor, TensorSpec
from modelservice_sidecar.core.v2 import Model


def build(model: Model, tensors: Mapping[str, Tensor]) -> HttpRequest:
    """The request for these inputs.

    Raises:
        InvalidArgumentsError: more than one row.
    """
    fields: dict[str, object] = {}
    for name, tensor in tensors.items():
        if model.signature.batched and tensor.shape[0] != 1:
            raise InvalidArgumentsError(
                f"Invalid arguments: {text.clean(name, 64)} has {tensor.shape[0]} rows; this model takes one row in a call."
            )
        fields[name] = orjson.Fragment(codec.to_flat_json(tensor))
    return HttpRequest(
        method="POST",
        target=f"{model.path}/generate_stream",
        headers=[(b"content-type", b"application/json"), (b"accept", b"text/event-stream")],
        body=orjson.dumps(fields),
    )


def read_part(model: Model, piece: str) -> Mapping[str, Tensor]:
    """The outputs in one event.

    Raises:
        BackendFailureError: the event says that the model failed.
        BackendAnswerInvalidError: it is no such event.
    """
    try:
        event = orjson.loads(piece)
    except orjson.JSONDecodeError as error:
        raise BackendAnswerInvalidError("An event of the model server's stream is not JSON.") from error
    if not isinstance(event, dict):
        raise BackendAnswerInvalidError("An event of the model server's stream is not a JSON object.")
    if "error" in event and not any(spec.name == "error" for spec in model.signature.outputs):
        raise BackendFailureError("The model failed while it answered.")
    rows = (1,) if model.signature.batched else ()
    return {spec.name: _output(spec, rows, event[spec.name]) for spec in model.signature.outputs if spec.name in event}


def _output(spec: TensorSpec, rows: tuple[int, ...], value: object) -> Tensor:
    leaves = value if isinstance(value, list) else [value]
    sizes = spec.shape[len(rows) :]
    known = prod(size for size in sizes if size > 0)
    shape = [*rows, *(len(leaves) // max(known, 1) if size < 0 else size for size in sizes)]
    try:
        return codec.from_flat(leaves, spec.datatype, shape, limit=MAX_TENSOR_BYTES, nulls=True)
    except codec.CodecError as error:
        raise BackendAnswerInvalidError(
            f"The output {text.clean(spec.name, 64)} in the model server's stream {error}."
        ) from error
