"""The worker's loop: a frame in, the model, a frame out.

Owns the reading and writing of frames in the worker and the meaning of what a runtime raises. Runs in the worker only.
"""

import importlib
import socket
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from modelservice_sidecar.worker import wire
from modelservice_sidecar.worker.runtimes import arrays
from modelservice_sidecar.worker.runtimes.arrays import Model, RefusedError, UnusableError, Value
from modelservice_sidecar.worker.wire import Buffer, Facts, Load, Piece, Reply, Request

_MAX_MESSAGE: Final = 2000
_KEPT_BODY: Final = 64 * 1024


def serve(connection: socket.socket, runtime: str) -> None:
    """Answer requests until the other side is gone."""
    decode = msgspec.msgpack.Decoder(Request).decode
    model: Model | None = None
    room = _aligned(_KEPT_BODY)
    limit = 0
    while True:
        prefix = bytearray(wire.PREFIX.size)
        if not _receive(connection, memoryview(prefix)):
            return
        head_size, body_size = wire.PREFIX.unpack(prefix)
        head = bytearray(head_size)
        body = room[:body_size] if body_size <= _KEPT_BODY else _aligned(body_size)
        if not (_receive(connection, memoryview(head)) and _receive(connection, body)):
            return
        request = decode(head)
        buffers: list[Buffer] = []
        try:
            if request.do == "load":
                assert request.load is not None
                limit = request.load.max_answer
                model, reply = _load(runtime, request.load)
            elif model is None:
                reply = Reply(outcome="failed", message="nothing is loaded")
            elif request.do == "weights":
                model.load_weights()
                reply = Reply(outcome="done")
            else:
                reply, buffers = _run(model, request.pieces, body, limit)
            parts = wire.frame(reply, buffers)
        except RefusedError as error:
            parts = wire.frame(Reply(outcome="refused", message=_text(error)))
        except (UnusableError, wire.WireError) as error:
            parts = wire.frame(Reply(outcome="unusable", message=_text(error)))
        except Exception as error:  # noqa: BLE001 - whatever a runtime raises is told to the adapter, and the worker lives on
            parts = wire.frame(Reply(outcome="failed", message=f"{type(error).__name__}: {_text(error)}"))
        _send(connection, parts)


def _load(runtime: str, load: Load) -> tuple[Model, Reply]:
    module: Any = importlib.import_module(f"modelservice_sidecar.worker.runtimes.{runtime}")
    model: Model = module.load(load)
    facts: Facts = model.facts
    return model, Reply(outcome="done", facts=facts)


def _run(model: Model, items: list[Piece], body: memoryview, limit: int) -> tuple[Reply, list[Buffer]]:
    inputs: dict[str, Value] = {}
    for piece, data in wire.pieces(items, body):
        inputs[piece.name] = arrays.from_bytes(piece.datatype, piece.shape, data)
    answered: Mapping[str, Value] = model.run(inputs)
    found: list[Piece] = []
    buffers: list[Buffer] = []
    total = 0
    for name, value in answered.items():
        buffer = arrays.to_bytes(value)
        total += wire.padded(len(buffer))
        if total > limit:
            return Reply(outcome="too_large", message=f"The model's answer is larger than {limit} bytes."), []
        found.append(Piece(name=name, datatype=value.datatype, shape=list(value.array.shape), size=len(buffer)))
        buffers.append(buffer)
    return Reply(outcome="done", pieces=found), buffers


def _receive(connection: socket.socket, view: memoryview) -> bool:
    """Fill the view; false where the other side is gone."""
    while view:
        try:
            count = connection.recv_into(view)
        except ConnectionError:
            return False
        if not count:
            return False
        view = view[count:]
    return True


def _send(connection: socket.socket, parts: list[Buffer]) -> None:
    views = [memoryview(part) for part in parts]
    while views:
        try:
            sent = connection.sendmsg(views[:16])
        except ConnectionError:
            return  # the next read says so too
        while views and sent >= len(views[0]):
            sent -= len(views.pop(0))
        if sent:
            views[0] = views[0][sent:]


def _aligned(size: int) -> memoryview:
    room = np.empty(size + wire.ALIGNMENT, np.uint8)
    start = -room.ctypes.data % wire.ALIGNMENT
    return room[start : start + size].data


def _text(error: Exception) -> str:
    return str(error)[:_MAX_MESSAGE]
