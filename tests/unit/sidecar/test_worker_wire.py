"""Frames between adapter and worker: what goes in comes out, aligned, and a frame that lies is refused."""

import pytest

from modelservice_sidecar.core import codec
from modelservice_sidecar.core.tensors import ITEM_SIZES
from modelservice_sidecar.worker import wire
from modelservice_sidecar.worker.process import Launch, environment
from modelservice_sidecar.worker.runtimes import arrays
from modelservice_sidecar.worker.wire import Load, Piece, Request


def test_each_tensor_begins_where_runtimes_want_it() -> None:
    buffers = [b"a", b"", bytes(64), bytes(65)]
    items = [
        Piece(name=str(number), datatype="UINT8", shape=[len(data)], size=len(data))
        for number, data in enumerate(buffers)
    ]
    parts = b"".join(wire.frame(Request(do="run", pieces=items), buffers))
    head, body = wire.PREFIX.unpack_from(parts)
    content = parts[wire.PREFIX.size + head :]
    assert len(content) == body == 64 + 0 + 64 + 128
    assert [bytes(data) for _, data in wire.pieces(items, memoryview(content))] == buffers


@pytest.mark.parametrize(("sizes", "body"), [([65], 64), ([-1], 64), ([1], 128), ([64, 1], 64)])
def test_pieces_that_are_not_what_the_body_holds_are_refused(sizes: list[int], body: int) -> None:
    items = [Piece(name="x", datatype="UINT8", shape=[size], size=size) for size in sizes]
    with pytest.raises(wire.WireError):
        list(wire.pieces(items, memoryview(bytes(body))))


def test_a_head_that_is_too_large_is_refused_before_it_is_sent() -> None:
    items = [Piece(name="x" * 200, datatype="UINT8", shape=[1], size=1) for _ in range(400)]
    with pytest.raises(wire.WireError, match="65524 are allowed"):
        wire.frame(Request(do="run", pieces=items))


def test_workers_know_the_datatypes_that_the_adapter_knows() -> None:
    """The worker has its own table, for it cannot import the adapter's."""
    assert {*arrays.NUMPY_TYPES, "BYTES"} == set(ITEM_SIZES)
    for name in arrays.NUMPY_TYPES:
        given = bytes(range(ITEM_SIZES[name]))  # type: ignore[index]
        value = arrays.from_bytes(name, [1], memoryview(given if name != "BOOL" else b"\1"))
        assert bytes(arrays.to_bytes(value)) == (given if name != "BOOL" else b"\1")


def test_strings_go_to_a_worker_and_back() -> None:
    items = [b"", b"\xff\x00", "é".encode()]
    value = arrays.from_bytes("BYTES", [3], memoryview(codec.join_bytes(items)))
    assert value.array.tolist() == items
    assert arrays.to_bytes(value) == codec.join_bytes(items)


def test_a_worker_inherits_only_what_it_needs() -> None:
    load = Load(artifact="m", function="main", threads=2, max_answer=1)
    given = {
        "PATH": "/bin",
        "HOME": "/root",
        "AWS_SECRET_ACCESS_KEY": "x",
        "CUDA_VISIBLE_DEVICES": "7",
        "OMP_NUM_THREADS": "64",
    }
    found = environment(Launch(runtime="onnx", load=load, devices="1"), given)
    assert found["PATH"] == "/bin"
    assert not found.keys() & {"HOME", "AWS_SECRET_ACCESS_KEY"}
    assert (found["CUDA_VISIBLE_DEVICES"], found["OMP_NUM_THREADS"]) == ("1", "2")
    assert environment(Launch(runtime="onnx", load=load), given)["CUDA_VISIBLE_DEVICES"] == ""
