"""What may be seen of arguments and results in a log line: bounded in size, with secrets taken out. Pure.

Owns the rules: which names of properties hide their value, which texts are hidden wherever they stand, and how much is shown.
What is long is cut, what is many is counted; no input makes this take long or raise.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

HIDDEN: Final = "[redacted]"
MAX_NODES: Final = 512
MAX_DEPTH: Final = 8
MAX_ITEMS: Final = 16
MAX_TEXT: Final = 512
_SEARCHED: Final = 4096
"""Characters of a text in which patterns are searched; no more than `MAX_TEXT` of them are shown."""

_KEYS: Final = frozenset(
    ("password", "passwd", "passphrase", "secret", "token", "apikey", "authorization", "credential", "privatekey")
) | {"accesskey", "cookie", "sessionid", "signature", "bearer"}
"""A property whose name has one of these words in it is hidden, whatever its letter case and hyphens."""

_PATTERNS: Final = (
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",  # a JSON Web Token
    r"(?i:bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}",
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,40}-----)?",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|sk-[A-Za-z0-9_-]{16,}|AIza[A-Za-z0-9_-]{30,})",
    r"(?<=://)[^/\s:@]{1,128}:[^/\s@]{1,128}(?=@)",  # a password in a URL
)


class Redactor:
    """The rules of one configuration. `max_bytes` bounds what is shown, as JSON."""

    def __init__(self, keys: Iterable[str] = (), patterns: Sequence[str] = (), max_bytes: int = 2048) -> None:
        self._keys = frozenset(map(_folded, keys))
        self._patterns = [re.compile(pattern) for pattern in (*_PATTERNS, *patterns)]
        self._max_bytes = max_bytes

    def show(self, value: Any) -> Any:
        """The value as it may be seen: JSON types only; as text where it is too large for more."""
        shown = _Walk(self).value(value, 0)
        encoded = orjson.dumps(shown)
        if len(encoded) <= self._max_bytes:
            return shown
        return f"{encoded[: self._max_bytes].decode(errors='ignore')}… ({len(encoded)} bytes)"

    def text(self, value: str) -> str:
        """A text without what the patterns find, and not too long."""
        searched = value[:_SEARCHED].encode(errors="replace").decode()  # lone surrogates are no JSON
        for pattern in self._patterns:
            searched = pattern.sub(HIDDEN, searched)
        return searched if len(searched) <= MAX_TEXT else f"{searched[:MAX_TEXT]}… ({len(value)} characters)"

    def hides(self, key: str) -> bool:
        """Whether a property of that name is hidden."""
        folded = _folded(key)
        return folded in self._keys or any(word in folded for word in _KEYS)


class _Walk:
    """One walk over a value, with what is left of its bound."""

    def __init__(self, rules: Redactor) -> None:
        self._rules = rules
        self._left = MAX_NODES

    def value(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if value is None or isinstance(value, bool | int | float):
            return value if not isinstance(value, int) or abs(value) < 1 << 63 else str(value)[:64]
        if isinstance(value, str):
            return self._rules.text(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return f"({memoryview(value).nbytes} bytes)"
        if depth >= MAX_DEPTH or self._left <= 0:
            return "…"
        if isinstance(value, Mapping):
            return self._object(value, depth)
        if isinstance(value, list | tuple):
            shown = [self.value(item, depth + 1) for item in value[:MAX_ITEMS]]
            return shown if len(value) <= MAX_ITEMS else [*shown, f"… ({len(value)} items)"]
        return f"({type(value).__name__})"  # tensors: their kind says more than their numbers

    def _object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for number, (key, item) in enumerate(value.items()):
            if number == MAX_ITEMS * 4 or self._left <= 0:
                shown["…"] = f"({len(value)} properties)"
                break
            name = str(key)
            shown[self._rules.text(name[:128])] = HIDDEN if self._rules.hides(name) else self.value(item, depth + 1)
        return shown


def _folded(name: str) -> str:
    return name[:128].lower().replace("-", "").replace("_", "").replace(" ", "")
