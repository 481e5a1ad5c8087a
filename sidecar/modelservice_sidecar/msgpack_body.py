"""JSON-RPC messages in MessagePack, where arguments and results hold tensors as `{dtype, shape, bin}`, their bytes as they are.

Owns what counts as such a message, within bounds: the plain part is at most 200,000 bytes, no value is deeper than the
decoder's own bound, keys are strings, and bytes stand nowhere but in a tensor. Apart from tensors it means what the same JSON
would mean: no NaN, no extension types, and of repeated keys the last counts. Tensors are views of the body.

Imports msgspec and numpy: import it where the first such message comes.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Final

import msgspec
import orjson

from modelservice_sidecar.backends.tensor_tool import MAX_TENSOR_BYTES
from modelservice_sidecar.core import codec
from modelservice_sidecar.core.errors import InvalidArgumentsError
from modelservice_sidecar.core.rpc import MAX_BATCH
from modelservice_sidecar.core.tensors import MAX_RANK

MAX_PLAIN: Final = 200_000
"""Bytes of a message apart from its tensors: no value is shorter than a byte, so it is a bound on values too."""
_MAX_ARGUMENTS: Final = 1024

_Fields = Annotated[dict[str, msgspec.Raw], msgspec.Meta(max_length=_MAX_ARGUMENTS)]
_Items = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_BATCH)]


class TensorFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor as it came: nothing about it has been checked but its form."""

    dtype: str
    shape: Annotated[list[int], msgspec.Meta(max_length=MAX_RANK)]
    bin: memoryview


_message = msgspec.msgpack.Decoder(_Fields | _Items)
_fields = msgspec.msgpack.Decoder(_Fields)
_tensor = msgspec.msgpack.Decoder(TensorFields)
_any = msgspec.msgpack.Decoder()

_TENSOR_KEYS: Final = {"dtype", "shape", "bin"}
_PLAIN: Final = frozenset({type(None), bool, int, str})


class BadMessageError(Exception):
    """The body is no such message; the text says why."""


def load(body: bytes) -> Any:
    """The decoded message, or list of messages. Arguments that are tensors are `TensorFields`.

    Raises:
        BadMessageError: see the module's docstring.
    """
    reader = _Reader()
    try:
        message = _message.decode(body)
        if isinstance(message, list):
            return [reader.request(item) for item in message]
        return reader.message(message)
    except RecursionError:
        raise BadMessageError("it is nested too much") from None
    except msgspec.DecodeError as error:
        raise BadMessageError(str(error)[:200]) from error


def tensors(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with every tensor held against its own dtype, shape and size.

    Raises:
        InvalidArgumentsError: one is not what it says.
    """
    found: dict[str, Any] = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, TensorFields):
            try:
                found[name] = codec.from_bytes(value.dtype, value.shape, value.bin, limit=MAX_TENSOR_BYTES)
            except codec.CodecError as error:
                raise InvalidArgumentsError(f"Invalid arguments: $.{name[:64]}{error.path}: {error}") from error
    return found


def is_heavy(arguments: Mapping[str, Any]) -> bool:
    """Whether `tensors` takes more than about a millisecond: strings in bytes are walked over one by one."""
    strings = (value for value in arguments.values() if isinstance(value, TensorFields) and value.dtype == "BYTES")
    return sum(len(value.bin) for value in strings) > 16_384


def dump(message: Any) -> bytes:
    """A written message, in which JSON that was written before is read once more."""
    return msgspec.msgpack.encode(message, enc_hook=_written)


def join(messages: Sequence[bytes]) -> bytes:
    """Written messages as one list."""
    return msgspec.msgpack.encode([msgspec.Raw(message) for message in messages])


def load_answer(body: bytes) -> dict[str, Any]:
    """Another adapter's answer to one call: `result.tensors` holds tensors.

    Raises:
        BadMessageError: it is none.
    """
    try:
        message = dict(_any.decode(body).items())
        tensors_told = message["result"].get("tensors", {}) if "result" in message else {}
        for name, fields in tensors_told.items():
            tensors_told[name] = codec.from_fields(fields, limit=MAX_TENSOR_BYTES)
    except (msgspec.DecodeError, RecursionError, codec.CodecError, AttributeError, KeyError, TypeError) as error:
        raise BadMessageError("it is no answer") from error
    return message


class _Reader:
    """Decodes one body's plain parts, whose bytes it counts."""

    def __init__(self) -> None:
        self._left = MAX_PLAIN

    def message(self, fields: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
        return {name: self._params(raw) if name == "params" else self._plain(raw) for name, raw in fields.items()}

    def request(self, raw: msgspec.Raw) -> Any:
        try:
            return self.message(_fields.decode(raw))
        except msgspec.ValidationError:
            return self._plain(raw)  # no request, which is said in its place of the batch

    def _params(self, raw: msgspec.Raw) -> Any:
        try:
            params = _message.decode(raw)
        except msgspec.ValidationError:
            return self._plain(raw)
        if isinstance(params, list):  # by position: the name, then the arguments
            return [self._plain(item) if at != 1 else self._arguments(item) for at, item in enumerate(params)]
        return {
            name: self._arguments(item) if name == "arguments" else self._plain(item) for name, item in params.items()
        }

    def _arguments(self, raw: msgspec.Raw) -> Any:
        try:
            arguments = _fields.decode(raw)
        except msgspec.ValidationError:
            return self._plain(raw)
        return {name: self._argument(item) for name, item in arguments.items()}

    def _argument(self, raw: msgspec.Raw) -> Any:
        try:
            return _tensor.decode(raw)
        except msgspec.ValidationError as error:
            if _looks_like_tensor(raw):
                raise BadMessageError(f"a tensor is not {{dtype, shape, bin}}: {error}") from None
            return self._plain(raw)

    def _plain(self, raw: msgspec.Raw) -> Any:
        self._left -= len(memoryview(raw))
        if self._left < 0:
            raise BadMessageError(f"it holds more than {MAX_PLAIN} bytes beside tensors as {{dtype, shape, bin}}")
        value = _any.decode(raw)
        _check(value)
        return value


def _looks_like_tensor(raw: msgspec.Raw) -> bool:
    try:
        return set(_fields.decode(raw)) == _TENSOR_KEYS
    except msgspec.ValidationError:
        return False


def _check(value: Any) -> None:
    """Hold a decoded value to what JSON can tell."""
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind in _PLAIN:
            continue
        if kind is float:
            if not isfinite(item):
                raise BadMessageError("it holds NaN or an infinity")
        elif kind is list:
            pending += item
        elif kind is dict:
            if not all(isinstance(key, str) for key in item):
                raise BadMessageError("it has a key that is no string")
            pending += item.values()
        elif kind is bytes:
            raise BadMessageError("it holds bytes outside of a tensor {dtype, shape, bin}")
        else:
            raise BadMessageError("it holds a timestamp or a value of another extension type")


def _written(value: object) -> Any:
    if isinstance(value, orjson.Fragment):
        return orjson.loads(orjson.dumps(value))
    raise NotImplementedError(f"{type(value).__name__} has no form in MessagePack")
