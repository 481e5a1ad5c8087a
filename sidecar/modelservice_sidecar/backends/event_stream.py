"""Streamed answers read as they come: server-sent events and newline-delimited JSON.

Owns the splitting into pieces. Pure; the bound on the whole answer is the connection pool's.
"""

from typing import Final, Literal

StreamKind = Literal["events", "lines"]

_KINDS: Final[dict[str, StreamKind]] = {
    "text/event-stream": "events",
    "application/x-ndjson": "lines",
    "application/ndjson": "lines",
    "application/jsonl": "lines",
    "application/jsonlines": "lines",
    "application/stream+json": "lines",
}


def stream_kind(content_type: str) -> StreamKind | None:
    """How an answer of this media type is cut into pieces, or `None` where it is not a stream."""
    return _KINDS.get(content_type.partition(";")[0].strip().lower())


class PieceReader:
    """Cuts a stream into pieces: an event's data, or a line."""

    def __init__(self, kind: StreamKind) -> None:
        self._events = kind == "events"
        self._partial: list[bytes] = []
        self._after_return = False
        self._first = True
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[str]:
        """The pieces that this chunk completes."""
        if self._after_return and chunk:
            chunk = chunk.removeprefix(b"\n")  # the second half of a line's end
            self._after_return = False
        if b"\r" in chunk:
            self._after_return = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *more = chunk.split(b"\n")
        self._partial.append(first)  # joined once: a long line comes in many chunks
        if not more:
            return []
        *lines, last = [b"".join(self._partial), *more]
        self._partial = [last]
        return [piece for line in lines for piece in self._line(line)]

    def finish(self) -> list[str]:
        """What is left when the stream ends. The format says an unfinished event is dropped; here it is kept, since the
        last words of an answer are worth more than the rule."""
        partial = b"".join(self._partial)
        self._partial = []
        last = self._line(partial) if partial else []
        return [*last, *self._event_end()]

    def _line(self, raw: bytes) -> list[str]:
        line = raw.decode("utf-8", "replace")
        if self._first:
            self._first = False
            line = line.removeprefix("\ufeff")
        if not self._events:
            return [line] if line.strip() else []
        if not line:
            return self._event_end()
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        return []

    def _event_end(self) -> list[str]:
        if not self._data:
            return []
        piece = "\n".join(self._data)
        self._data = []
        return [piece]
