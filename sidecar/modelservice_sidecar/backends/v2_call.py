"""One inference over HTTP, both ways: tensors to a request, and an answer to tensors. Pure.

Owns the choice between bytes and JSON for one call, what JSON cannot tell, and what each kind of failure means. The form of
the messages is `core.v2_wire`'s. Imports numpy by way of it: import this module where a call is made.
"""

from collections.abc import Mapping
from typing import Any

from modelservice_sidecar.backends import http_failure
from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.backends.tensor_tool import MAX_TENSOR_BYTES
from modelservice_sidecar.core import codec, text, v2, v2_wire
from modelservice_sidecar.core.errors import (
    BackendAnswerInvalidError,
    CallError,
    InvalidArgumentsError,
)
from modelservice_sidecar.core.tensors import Tensor
from modelservice_sidecar.core.v2 import Model


def build(
    model: Model, tensors: Mapping[str, Tensor], controls: Mapping[str, Any], *, binary: bool, request_id: str
) -> HttpRequest:
    """The request; its tensors are not copied.

    Raises:
        InvalidArgumentsError: the server takes JSON only, which cannot tell a value.
    """
    if not binary:
        check_json(tensors)
    asked = v2_wire.InferRequest(inputs=tensors, binary_outputs=binary, id=request_id, parameters=controls)
    message = v2_wire.write_request(asked, binary=binary)
    headers = [(b"content-type", message.content_type.encode())]
    if message.header_length is not None:
        headers.append((v2_wire.HEADER_LENGTH.encode(), b"%d" % message.header_length))
    head, *tail = message.parts
    target = f"{model.path}/infer"
    return HttpRequest(method="POST", target=target, headers=headers, body=bytes(head), tail=tuple(tail))


def read(model: Model, status: int, headers: dict[str, str], body: bytes) -> Mapping[str, Tensor]:
    """The outputs by the model's names; binary ones are views of the body.

    Raises:
        CallError: the server refused or failed, or its answer cannot be read.
    """
    if status != 200:
        raise failure(model, status, headers, body)
    try:
        answer = v2_wire.parse_response(body, headers.get(v2_wire.HEADER_LENGTH), limit=MAX_TENSOR_BYTES)
    except v2_wire.WireError as error:
        raise BackendAnswerInvalidError(
            f"The model server's answer is no answer of the Open Inference Protocol: {text.clean(str(error), 300)}."
        ) from error
    return answer.outputs


def failure(model: Model, status: int, headers: dict[str, str], body: bytes) -> CallError:
    """The error of a status that is no success. 500 is no reason to try again: Triton answers so to many a bad request."""
    if status == 404:
        return v2.gone(model)
    # Triton sends its errors, which are JSON, as plain text.
    return http_failure.failure(status, {**headers, "content-type": "application/json"}, body)


def check_json(tensors: Mapping[str, Tensor]) -> None:
    """JSON has neither NaN nor bytes that are no text.

    Raises:
        InvalidArgumentsError: there is such a value.
    """
    for name, tensor in tensors.items():
        if not codec.is_finite(tensor):
            raise _untold(name, "NaN or an infinity")
        if tensor.datatype == "BYTES":
            try:
                for item in codec.split_bytes(tensor.data):
                    item.decode()
            except UnicodeDecodeError:
                raise _untold(name, "bytes that are no UTF-8 text") from None


def _untold(name: str, what: str) -> InvalidArgumentsError:
    return InvalidArgumentsError(
        f"Invalid arguments: {text.clean(name, 64)} holds {what}, and this model server takes JSON, which cannot tell that."
    )
