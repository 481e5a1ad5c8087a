"""What adapter and worker say to each other: a head in MessagePack, then the tensors' bytes.

Owns the frames and their bounds. Imported on both sides, so it needs only msgspec. A frame is two lengths (of the head in 32
bits, of the body in 64, little-endian), the head, and the body. Each tensor begins in the body at a multiple of 64 bytes, so
that it can be used where it was received: runtimes want that alignment for vector instructions.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

PREFIX: Final = struct.Struct("<IQ")
ALIGNMENT: Final = 64
MAX_HEAD: Final = 64 * 1024 - PREFIX.size
"""Of a head: a few hundred tensors."""

MAX_BODY: Final = 1024 * 1024 * 1024
"""Of a body. What comes in is bounded before, by the size of a request; this one stops arithmetic that lies."""

EXIT_BARE_INTERPRETER: Final = 78
"""The worker's exit code where its interpreter lacks numpy or msgspec, so that it could not say anything."""

_PADDING: Final = bytes(ALIGNMENT)

Buffer = bytes | bytearray | memoryview


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of the body: its name, datatype, shape and number of bytes."""

    name: str
    datatype: str
    shape: list[int]
    size: int


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker is to run, and within which bounds. `expected` is the content of the signature file, if there is one."""

    artifact: str
    function: str
    threads: int
    max_answer: int
    has_device: bool = False
    memory_fraction: float | None = None
    weights: str = ""
    expected: dict[str, Any] | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do: load the model (once, first), load its weights again, or run it on the tensors of the body."""

    do: Literal["load", "weights", "run"]
    load: Load | None = None
    pieces: list[Piece] = []


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output as the runtime knows it. `datatype` may be the runtime's own word where the protocol has none.

    A dimension of -1 is free; `bounds` are (axis, least, most), where most -1 is none.
    """

    name: str
    datatype: str
    shape: list[int] | None
    bounds: list[tuple[int, int, int]] = []


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a model says about itself when it is loaded; absent lists are not known."""

    inputs: list[Told] | None = None
    outputs: list[Told] | None = None
    notes: list[str] = []


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """How it went. `refused`: the model does not want this input. `unusable`: the model cannot be run here at all."""

    outcome: Literal["done", "refused", "failed", "too_large", "unusable"]
    message: str = ""
    pieces: list[Piece] = []
    facts: Facts | None = None


class WireError(Exception):
    """The other side broke the protocol."""


encode: Final = msgspec.msgpack.Encoder().encode


def frame(head: Request | Reply, buffers: Sequence[Buffer] = ()) -> list[Buffer]:
    """A frame as parts to be written one after another; the tensors' bytes are not copied.

    Raises:
        WireError: the head is too large.
    """
    encoded = encode(head)
    if len(encoded) > MAX_HEAD:
        raise WireError(f"its inputs and outputs take {len(encoded)} bytes to name, {MAX_HEAD} are allowed")
    body = sum(padded(len(buffer)) for buffer in buffers)
    parts: list[Buffer] = [PREFIX.pack(len(encoded), body) + encoded]
    for buffer in buffers:
        if len(buffer):
            parts.append(buffer)
        if gap := padded(len(buffer)) - len(buffer):
            parts.append(_PADDING[:gap])
    return parts


def pieces(items: Sequence[Piece], body: memoryview) -> Iterator[tuple[Piece, memoryview]]:
    """Each piece with its bytes, uncopied.

    Raises:
        WireError: the pieces are not what the body holds.
    """
    at = 0
    for piece in items:
        if piece.size < 0 or at + piece.size > len(body):
            raise WireError("a tensor is longer than its frame")
        yield piece, body[at : at + piece.size]
        at += padded(piece.size)
    if at != len(body):
        raise WireError("the frame holds more than its tensors")


def padded(size: int) -> int:
    """The size up to where the next tensor begins."""
    return -(-size // ALIGNMENT) * ALIGNMENT
