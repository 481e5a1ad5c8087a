"""Inference requests and answers of the Open Inference Protocol over HTTP, with its binary tensor extension.

Owns the form: JSON alone, or a JSON header of `Inference-Header-Content-Length` bytes with the tensors' bytes behind it in
the header's order. Both directions, for the model servers behind the adapter and for clients in front of it. Pure: who asked
and who answers is others' business. Sizes are compared before anything is converted, and tensors are views of the body, so
that binary ones cost no copy. Imports numpy by way of `core.codec`: import it where it is first needed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from modelservice_sidecar.core import codec
from modelservice_sidecar.core.tensors import Tensor

HEADER_LENGTH: Final = "inference-header-content-length"
BINARY_TYPE: Final = "application/octet-stream"
"""The media type of a body with binary tensors; JSON alone is `application/json`."""

MAX_TENSORS: Final = 1024

_BINARY_SIZE: Final = "binary_data_size"

Parameters = Mapping[str, bool | int | float | str]


class WireError(Exception):
    """A body is no such message. `path` says where, such as `inputs[0].shape`; the text says why."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedOutput:
    """One output that a request asks for. `binary` is `None` where it says nothing about the form."""

    name: str
    binary: bool | None = None
    parameters: Parameters = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class InferRequest:
    """What a request holds. No `outputs` means all of them. `binary_outputs` is the form where an output says none.

    `parameters` are those of the request that are not about the form.
    """

    inputs: Mapping[str, Tensor]
    outputs: tuple[WantedOutput, ...] = ()
    binary_outputs: bool = False
    id: str = ""
    parameters: Parameters = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class InferResponse:
    """What an answer holds."""

    outputs: Mapping[str, Tensor]
    model_name: str = ""
    model_version: str = ""
    id: str = ""
    parameters: Parameters = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A written message. `header_length` is absent where the body is JSON alone."""

    parts: tuple[bytes | bytearray | memoryview, ...]
    header_length: int | None

    @property
    def body(self) -> bytes:
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], bytes) else b"".join(self.parts)

    @property
    def content_type(self) -> str:
        return "application/json" if self.header_length is None else BINARY_TYPE


def split(body: bytes | memoryview, header_length: str | None) -> tuple[memoryview, memoryview]:
    """The JSON and the binary part of a body. `header_length` is that header's value.

    Raises:
        WireError: it is no length, or longer than the body.
    """
    view = memoryview(body)
    if header_length is None:
        return view, view[len(view) :]
    if not (header_length.isascii() and header_length.isdigit() and len(header_length) < 16):
        raise WireError("Inference-Header-Content-Length is not a number")
    length = int(header_length)
    if length > len(view):
        raise WireError(f"Inference-Header-Content-Length is {length}, the body has {len(view)} bytes")
    return view[:length], view[length:]


def read_request(document: object, binary: memoryview, *, limit: int) -> InferRequest:
    """The request in a decoded JSON part and the bytes behind it; `limit` is the most bytes that one tensor may have.

    Raises:
        WireError: see there.
    """
    fields = _object(document, "")
    parameters = _parameters(fields, "")
    binary_outputs = _flag(parameters.pop("binary_data_output", False), "parameters.binary_data_output")
    outputs: list[WantedOutput] = []
    for at, item in enumerate(_items(fields, "outputs", needed=False)):
        path = f"outputs[{at}]"
        wanted = _object(item, path)
        about = _parameters(wanted, path)
        asked = about.pop("binary_data", None)
        form = None if asked is None else _flag(asked, f"{path}.parameters.binary_data")
        outputs.append(WantedOutput(name=_text(wanted, "name", path), binary=form, parameters=about))
    return InferRequest(
        inputs=_read_tensors(fields, "inputs", binary, limit=limit, nulls=False),
        outputs=tuple(outputs),
        binary_outputs=binary_outputs,
        id=_text(fields, "id", "", default=""),
        parameters=parameters,
    )


def read_response(document: object, binary: memoryview, *, limit: int) -> InferResponse:
    """The answer in a decoded JSON part and the bytes behind it. In JSON data of floats, null counts as NaN: it is what
    several servers write for it.

    Raises:
        WireError: see there.
    """
    fields = _object(document, "")
    return InferResponse(
        outputs=_read_tensors(fields, "outputs", binary, limit=limit, nulls=True),
        model_name=_text(fields, "model_name", "", default=""),
        model_version=_text(fields, "model_version", "", default=""),
        id=_text(fields, "id", "", default=""),
        parameters=_parameters(fields, ""),
    )


def parse_response(body: bytes | memoryview, header_length: str | None, *, limit: int) -> InferResponse:
    """As `read_response`, from a whole body. The bare NaN and Infinity that Triton writes are understood.

    Raises:
        WireError: see there.
    """
    header, binary = split(body, header_length)
    try:
        document = orjson.loads(header)
    except orjson.JSONDecodeError:
        text = bytes(header)
        if b"NaN" not in text and b"Infinity" not in text:
            raise WireError("is not JSON") from None
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise WireError("is not JSON") from None
    return read_response(document, binary, limit=limit)


def write_request(request: InferRequest, *, binary: bool) -> Message:
    """A request whose tensors are bytes, or JSON."""
    fields: dict[str, Any] = {"id": request.id} if request.id else {}
    parameters: dict[str, Any] = dict(request.parameters)
    if request.binary_outputs:
        parameters["binary_data_output"] = True
    if parameters:
        fields["parameters"] = parameters
    if request.outputs:
        fields["outputs"] = [_written_output(wanted) for wanted in request.outputs]
    return _write(fields, "inputs", [(name, tensor, binary) for name, tensor in request.inputs.items()])


def write_response(response: InferResponse, binary: Mapping[str, bool]) -> Message:
    """An answer; `binary` says by name which outputs are bytes. In JSON, NaN and infinities become null."""
    fields: dict[str, Any] = {"model_name": response.model_name}
    if response.model_version:
        fields["model_version"] = response.model_version
    if response.id:
        fields["id"] = response.id
    if response.parameters:
        fields["parameters"] = dict(response.parameters)
    return _write(
        fields, "outputs", [(name, tensor, binary.get(name, False)) for name, tensor in response.outputs.items()]
    )


def _written_output(wanted: WantedOutput) -> dict[str, Any]:
    parameters: dict[str, Any] = dict(wanted.parameters)
    if wanted.binary is not None:
        parameters["binary_data"] = wanted.binary
    return {"name": wanted.name, "parameters": parameters} if parameters else {"name": wanted.name}


def _write(fields: dict[str, Any], key: str, tensors: Sequence[tuple[str, Tensor, bool]]) -> Message:
    written: list[dict[str, Any]] = []
    blobs: list[bytes | bytearray | memoryview] = []
    for name, tensor, as_bytes in tensors:
        entry: dict[str, Any] = {"name": name, "shape": tensor.shape, "datatype": tensor.datatype}
        if as_bytes:
            data = memoryview(tensor.data).cast("B")
            entry["parameters"] = {_BINARY_SIZE: len(data)}
            blobs.append(data)
        else:
            entry["data"] = orjson.Fragment(codec.to_flat_json(tensor))
        written.append(entry)
    header = orjson.dumps({**fields, key: written})
    any_binary = any(as_bytes for _, _, as_bytes in tensors)
    return Message(parts=(header, *blobs), header_length=len(header) if any_binary else None)


def _read_tensors(
    fields: Mapping[str, Any], key: str, binary: memoryview, *, limit: int, nulls: bool
) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    at = 0
    for number, item in enumerate(_items(fields, key, needed=True)):
        path = f"{key}[{number}]"
        entry = _object(item, path)
        name = _text(entry, "name", path)
        if name in found:
            raise WireError(f"{name[:64]!r} is there twice", f"{path}.name")
        size = _binary_size(entry, path)
        if size is None:
            found[name] = _json_tensor(entry, path, limit=limit, nulls=nulls)
            continue
        if size > len(binary) - at:
            raise WireError(
                f"is {size}, of the body {len(binary) - at} bytes are left", f"{path}.parameters.{_BINARY_SIZE}"
            )
        found[name] = _binary_tensor(entry, path, binary[at : at + size], limit=limit)
        at += size
    if at != len(binary):
        raise WireError(f"the body has {len(binary) - at} bytes that no tensor of {key} claims")
    return found


def _binary_size(entry: Mapping[str, Any], path: str) -> int | None:
    parameters = _parameters(entry, path)
    if any(name.startswith("shared_memory") for name in parameters):
        raise WireError("shared memory is not offered; send the tensor's bytes", f"{path}.parameters")
    size = parameters.get(_BINARY_SIZE)
    if size is None:
        return None
    if "data" in entry:
        raise WireError("has both data and binary_data_size", path)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise WireError("is not a size", f"{path}.parameters.{_BINARY_SIZE}")
    return size


def _binary_tensor(entry: Mapping[str, Any], path: str, data: memoryview, *, limit: int) -> Tensor:
    try:
        return codec.from_bytes(_text(entry, "datatype", path), entry.get("shape"), data, limit=limit)
    except codec.CodecError as error:
        raise WireError(str(error), path + error.path) from error


def _json_tensor(entry: Mapping[str, Any], path: str, *, limit: int, nulls: bool) -> Tensor:
    if "data" not in entry:
        raise WireError("has neither data nor binary_data_size", path)
    try:
        return codec.from_flat(
            entry["data"], _text(entry, "datatype", path), entry.get("shape"), limit=limit, nulls=nulls
        )
    except codec.CodecError as error:
        where = error.path if error.path.startswith(".") else f".data{error.path}"
        raise WireError(str(error), path + where) from error


def _object(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise WireError("is not an object", path)
    return value


def _items(fields: Mapping[str, Any], key: str, *, needed: bool) -> Sequence[object]:
    items = fields.get(key)
    if items is None and not needed:
        return ()
    if not isinstance(items, list):
        raise WireError("is not a list" if key in fields else "is missing", key)
    if len(items) > MAX_TENSORS:
        raise WireError(f"has {len(items)} entries, at most {MAX_TENSORS} are taken", key)
    return items


def _text(fields: Mapping[str, Any], key: str, path: str, *, default: str | None = None) -> str:
    value = fields.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise WireError("is not a string" if key in fields else "is missing", f"{path}.{key}".removeprefix("."))
    return value


def _parameters(fields: Mapping[str, Any], path: str) -> dict[str, Any]:
    parameters = fields.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise WireError("is not an object", f"{path}.parameters".removeprefix("."))
    return dict(parameters)


def _flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise WireError("is neither true nor false", path)
    return value
