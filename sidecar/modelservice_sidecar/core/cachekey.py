"""Which calls are the same call, and the bounded store of their answers.

Owns the key of a call and the store's two bounds, bytes and time. Pure: the time is passed in, on a clock that never steps.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import orjson

from modelservice_sidecar.core.tensors import Tensor

_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS

Value = TypeVar("Value")


def key(
    tool: str, arguments: Mapping[str, Any], *, version: str, scope: str = "", wants_tensors: bool = False
) -> bytes | None:
    """A digest that two calls share only if one answer serves both; `None` where the arguments have no canonical form.

    Args:
        tool: the published name.
        arguments: checked ones; tensors in them count with their bytes. The order of object members does not count; `1` and
            `1.0` are not the same, since a model may tell them apart.
        version: the model's.
        scope: among whom answers are shared, for example one user; empty is everybody.
        wants_tensors: the answer is bytes and not JSON.
    """
    try:
        written = orjson.dumps([tool, version, scope, wants_tensors, arguments], default=_tensor, option=_OPTIONS)
    except TypeError:  # an integer beyond 64 bits, a lone surrogate, a key that is no string
        return None
    return hashlib.blake2b(written, digest_size=32).digest()


def _tensor(value: object) -> object:
    if not isinstance(value, Tensor):
        raise TypeError
    # No argument out of JSON has this form where a tensor may stand, and a tensor's digest cannot be chosen.
    return {"tensor": [value.datatype, value.shape, hashlib.blake2b(value.data, digest_size=32).hexdigest()]}


class _Entry(NamedTuple, Generic[Value]):
    value: Value
    size: int
    until: float


class Store(Generic[Value]):
    """Values of at most `max_bytes` together, none for longer than `ttl` seconds; the least recently used goes first."""

    def __init__(self, *, max_bytes: int, ttl: float) -> None:
        self._max_bytes = max_bytes
        self._ttl = ttl
        self._entries: dict[bytes, _Entry[Value]] = {}
        self.size = 0
        """Bytes that are held."""
        self.evicted = 0
        """How many went for want of room."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes, now: float) -> Value | None:
        """The value, unless it is too old."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        del self._entries[key]
        if entry.until <= now:
            self.size -= entry.size
            return None
        self._entries[key] = entry  # now the most recently used
        return entry.value

    def put(self, key: bytes, value: Value, size: int, now: float) -> None:
        """Keep the value, unless it is larger than the store."""
        self._drop(key)
        if size > self._max_bytes:
            return
        self._entries[key] = _Entry(value, size, now + self._ttl)
        self.size += size
        while self.size > self._max_bytes:
            self._drop(next(iter(self._entries)))
            self.evicted += 1

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.size = 0

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry.size
