"""Tensors between their forms: nothing is lost on the way, and nothing that lies about itself gets through."""

import base64
import struct
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from modelservice_api.adapter_config import Datatype
from modelservice_sidecar.core import codec
from modelservice_sidecar.core.codec import CodecError
from modelservice_sidecar.core.tensors import ITEM_SIZES, MAX_EXACT, Tensor

LIMIT = 1024 * 1024
NUMPY: dict[Datatype, str] = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@st.composite
def tensors(draw: st.DrawFn, *, finite: bool = True) -> Tensor:
    """Any tensor of any datatype, empty ones and scalars too."""
    datatype: Datatype = draw(st.sampled_from(sorted(ITEM_SIZES)))
    shape = draw(SHAPES)
    count = int(np.prod(shape, dtype=int))
    if datatype == "BYTES":
        texts = draw(st.lists(st.text(max_size=5), min_size=count, max_size=count))
        return Tensor(datatype="BYTES", shape=shape, data=codec.join_bytes([text.encode() for text in texts]))
    if datatype == "BF16":
        floats = st.floats(width=16, allow_nan=not finite, allow_infinity=not finite)
        return codec.from_array(draw(arrays.arrays("<f4", shape, elements=floats)), "BF16")
    elements = st.floats(width=ITEM_SIZES[datatype] * 8, allow_nan=False, allow_infinity=False)  # type: ignore[arg-type]
    kept = elements if finite and np.dtype(NUMPY[datatype]).kind == "f" else None
    return codec.from_array(draw(arrays.arrays(NUMPY[datatype], shape, elements=kept)))


def same(one: Tensor, other: Tensor) -> bool:
    return (one.datatype, one.shape, bytes(one.data)) == (other.datatype, other.shape, bytes(other.data))


@given(tensors())
@settings(max_examples=300, deadline=None)
def test_json_gives_back_the_same_bits(tensor: Tensor) -> None:
    told = orjson.loads(codec.to_json(tensor))
    # An empty list cannot tell the sizes below it, so only what it can tell comes back.
    back = codec.from_lists(told, tensor.datatype, limit=LIMIT)
    assert bytes(back.data) == bytes(tensor.data)
    assert back.shape == (tensor.shape if 0 not in tensor.shape else tensor.shape[: tensor.shape.index(0) + 1])


@given(tensors())
@settings(max_examples=300, deadline=None)
def test_the_flat_json_of_v2_gives_back_the_same_bits(tensor: Tensor) -> None:
    told = orjson.loads(codec.to_flat_json(tensor))
    assert same(codec.from_flat(told, tensor.datatype, list(tensor.shape), limit=LIMIT), tensor)
    if tensor.datatype not in {"INT64", "UINT64"}:
        nested = orjson.loads(codec.to_json(tensor))
        given_nested = nested if tensor.shape else [nested]
        assert same(codec.from_flat(given_nested, tensor.datatype, list(tensor.shape), limit=LIMIT), tensor)


@given(tensors(finite=False))
@settings(max_examples=300, deadline=None)
def test_bytes_base64_and_fields_give_back_the_same_bits(tensor: Tensor) -> None:
    raw = bytes(tensor.data)
    assert same(codec.from_bytes(tensor.datatype, list(tensor.shape), raw, limit=LIMIT), tensor)
    fields = {"dtype": tensor.datatype, "shape": list(tensor.shape), "data": base64.b64encode(raw).decode()}
    assert same(codec.from_base64(fields, limit=LIMIT), tensor)
    assert same(codec.from_fields(tensor.fields(), limit=LIMIT), tensor)


@given(tensors(finite=False))
@settings(max_examples=300, deadline=None)
def test_an_array_gives_back_the_same_bits_wherever_its_bytes_begin(tensor: Tensor) -> None:
    shifted = Tensor(datatype=tensor.datatype, shape=tensor.shape, data=memoryview(b"\x00" + bytes(tensor.data))[1:])
    back = codec.from_array(codec.array(shifted), tensor.datatype)
    if tensor.datatype != "BF16":  # whose NaNs all become one
        assert same(back, tensor)
    assert codec.to_json(shifted) == codec.to_json(tensor)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@settings(max_examples=300, deadline=None)
def test_bf16_is_the_nearest_with_ties_to_even(value: float) -> None:
    if abs(value) > 3.38e38:
        return
    found = float(codec.array(codec.from_lists([value], "BF16", limit=LIMIT))[0])
    bits = np.float32(value).view(np.uint32) & np.uint32(0xFFFF0000)
    below = float(np.uint32(bits).view(np.float32))
    above = float(np.uint32(bits + np.uint32(0x10000)).view(np.float32))
    nearest = min((below, above), key=lambda near: (abs(near - value), int(np.float32(near).view(np.uint32) >> 16) & 1))
    assert found == nearest


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_large_lists_are_converted_piece_by_piece_into_the_same_bits(rows: int) -> None:
    wanted = np.arange(rows * 7_001, dtype="<i4").reshape(rows, 7_001)
    assert bytes(codec.from_lists(wanted.tolist(), "INT32", limit=2**30).data) == wanted.tobytes()
    flat = np.arange(40_000, dtype="<f8") / 7
    assert bytes(codec.from_lists(flat.tolist(), "FP64", limit=2**30).data) == flat.tobytes()


@pytest.mark.parametrize(
    ("value", "datatype", "path", "message"),
    [
        ([[1.0, 2.0], [3.0]], "FP32", "[1]", "has 1 elements where the first of its kind has 2"),
        ([[1.0], 2.0], "FP32", "[1]", "has none where the first of its kind has 1"),
        ([1.0, [2.0]], "FP32", "[1]", "is a list where the first of its kind is not"),
        ([[1.0] * 20_000, [1.0] * 19_999], "FP32", "[1]", "has 19999 elements"),
        ([[1.0] * 20_000, [*[1.0] * 19_999, 1e39]], "FP32", "[1][19999]", "is beyond what FP32 can hold"),
        ([1e39], "FP32", "[0]", "is beyond what FP32 can hold"),
        ([0.0, 70_000.0], "FP16", "[1]", "is beyond what FP16 can hold"),
        ([3.4e38], "BF16", "[0]", "is beyond what BF16 can hold"),
        ([10**400], "FP64", "", "holds a number that FP64 cannot hold"),
        ([0, 300], "UINT8", "[1]", "is beyond what UINT8 can hold"),
        ([-1], "UINT64", "[0]", "is beyond what UINT64 can hold"),
        (["-1"], "UINT64", "[0]", "is beyond what UINT64 can hold"),
        (["99999999999999999999"], "INT64", "[0]", "is beyond what INT64 can hold"),
        ([2**53], "INT64", "[0]", "write it as a string"),
        ([2**53 + 1], "UINT64", "[0]", "write it as a string"),
        ([-(2**53) - 1], "INT64", "[0]", "write it as a string"),
        ([9007199254740994.0], "INT64", "[0]", "write it as a string"),
        ([1.5], "INT32", "[0]", "is no INT32"),
        (["\ud800"], "BYTES", "", "no Unicode text"),
    ],
)
def test_lists_that_are_no_tensor_are_refused_where_they_go_wrong(
    value: Any, datatype: Datatype, path: str, message: str
) -> None:
    with pytest.raises(CodecError, match=message.replace("^", "\\^")) as caught:
        codec.from_lists(value, datatype, limit=LIMIT)
    assert caught.value.path == path


def test_depth_costs_no_stack() -> None:
    deep: Any = 1.0
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(CodecError, match="nested deeper than 16 lists"):
        codec.from_lists(deep, "FP32", limit=LIMIT)
    with pytest.raises(CodecError, match="nested deeper than 16 lists"):
        codec.from_flat(deep, "FP32", [1], limit=LIMIT)


def test_integers_at_the_edge_are_exact_as_strings_and_as_numbers() -> None:
    ends = [str(-(2**63)), -MAX_EXACT, MAX_EXACT, str(2**63 - 1)]
    tensor = codec.from_lists(ends, "INT64", limit=LIMIT)
    assert codec.array(tensor).tolist() == [-(2**63), -MAX_EXACT, MAX_EXACT, 2**63 - 1]
    assert orjson.loads(codec.to_json(tensor)) == ends
    assert codec.array(codec.from_lists([1.0, -0.0], "INT8", limit=LIMIT)).tolist() == [1, 0]
    most = codec.from_lists(str(2**64 - 1), "UINT64", limit=LIMIT)
    assert (most.shape, codec.to_json(most)) == ((), b'"18446744073709551615"')


def test_what_is_no_number_is_null_in_json_and_found_by_its_place() -> None:
    tensor = codec.from_array(np.array([[1.0, 2.0], [np.inf, np.nan]], "<f4"))
    assert codec.to_json(tensor) == b"[[1.0,2.0],[null,null]]"
    assert codec.to_flat_json(tensor) == b"[1.0,2.0,null,null]"
    assert codec.non_finite_path(tensor) == "[1][0]"
    bits = codec.from_bytes("BF16", [2], struct.pack("<HH", 0x3F80, 0x7FC0), limit=LIMIT)
    assert (codec.is_finite(bits), codec.non_finite_path(bits)) == (False, "[1]")
    back = codec.from_flat([1.0, None], "FP16", [2], limit=LIMIT, nulls=True)
    assert np.isnan(codec.array(back)[1])
    with pytest.raises(CodecError, match="is no FP16"):
        codec.from_flat([1.0, None], "FP16", [2], limit=LIMIT)


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "path", "message"),
    [
        ("FP31", [1], b"\0" * 4, "", "'FP31' is no datatype"),
        ("fp32", [1], b"\0" * 4, "", "'fp32' is no datatype"),
        ("FP32", [2], b"\0" * 4, "", "has 4 bytes; shape \\[2\\] of FP32 needs 8"),
        ("FP32", [1], b"\0" * 5, "", "has 5 bytes"),
        ("FP32", [], b"", "", "has 0 bytes; shape \\[\\] of FP32 needs 4"),
        ("FP32", [2**40, 2**40], b"", ".shape", "is larger than"),
        ("FP32", [0, 2**62], b"", ".shape", "is larger than"),
        ("BYTES", [2**40], b"", ".shape", "is larger than"),
        ("FP32", [-1, -1], b"\0" * 4, ".shape", "not a size"),
        ("FP32", [True], b"\0" * 4, ".shape", "not a size"),
        ("FP32", [1.0], b"\0" * 4, ".shape", "not a size"),
        ("FP32", [1] * 17, b"\0" * 4, ".shape", "at most 16"),
        ("FP32", None, b"\0" * 4, ".shape", "not a list"),
        ("FP32", "12", b"\0" * 4, ".shape", "not a list"),
        ("UINT8", [1], b"\0" * (LIMIT + 1), "", "is larger than"),
        ("BOOL", [2], b"\0\2", "", "neither 0 nor 1"),
        ("BYTES", [1], b"\1\0\0", "", "within the length"),
        ("BYTES", [1], b"\2\0\0\0x", "", "within an element"),
        ("BYTES", [1], b"\xff\xff\xff\xffx", "", "within an element"),
        ("BYTES", [2], b"\1\0\0\0x", "", "has 1 elements, its shape says 2"),
        ("BYTES", [1], b"\0\0\0\0\0\0\0\0", "", "has 2 elements, its shape says 1"),
    ],
)
def test_bytes_that_are_not_what_they_say_are_refused(
    datatype: str, shape: Any, data: bytes, path: str, message: str
) -> None:
    with pytest.raises(CodecError, match=message) as caught:
        codec.from_bytes(datatype, shape, data, limit=LIMIT)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "text", ["AAA", "AAAAA", "AAAA=", "A===", "=AAA", "AA==AAAA", "AAA!", "AAA\n", "AA-_", "ÄAAA", "AAAA AAAA"]
)
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(CodecError, match="is not base64") as caught:
        codec.from_base64({"dtype": "UINT8", "shape": [3], "data": text}, limit=LIMIT)
    assert caught.value.path == ".data"


def test_long_base64_is_decoded_as_one_and_padding_within_is_refused() -> None:
    raw = bytes(range(256)) * 3000
    fields = {"dtype": "UINT8", "shape": [len(raw)], "data": base64.b64encode(raw).decode()}
    assert bytes(codec.from_base64(fields, limit=LIMIT).data) == raw
    piece = base64.b64encode(b"x" * (256 * 1024 * 3 // 4 - 2)).decode()
    assert piece.endswith("==")
    with pytest.raises(CodecError, match="is not base64"):
        codec.from_base64({"dtype": "UINT8", "shape": [196609], "data": piece + "AAAA"}, limit=LIMIT)


def test_a_lying_base64_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(CodecError, match="is larger than 10 bytes") as caught:
        codec.from_base64({"dtype": "UINT8", "shape": [3], "data": "!" * 1000}, limit=10)
    assert caught.value.path == ".data"
    with pytest.raises(CodecError, match="is larger than") as caught:
        codec.from_base64({"dtype": "FP64", "shape": [2**50], "data": "!"}, limit=LIMIT)
    assert caught.value.path == ".shape"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"dtype": "FP32", "shape": [1]}, ""),
        ({"dtype": "FP32", "shape": [1], "bin": "AAAA"}, ""),
        ({"dtype": "FP32", "shape": [1], "bin": b"\0\0\0\0", "more": 1}, ""),
        ({"dtype": 7, "shape": [1], "bin": b"\0\0\0\0"}, ".dtype"),
        ({"dtype": "FP32", "shape": {}, "bin": b"\0\0\0\0"}, ".shape"),
    ],
)
def test_maps_that_are_no_tensor_are_refused(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(CodecError) as caught:
        codec.from_fields(fields, limit=LIMIT)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("value", "datatype", "shape", "message"),
    [
        ([1, 2, 3], "FP32", [2, 2], "is a list of shape \\[3\\], where the shape is said to be \\[2, 2\\]"),
        ([[1, 2, 3, 4]], "FP32", [2, 2], "is a list of shape \\[1, 4\\]"),
        (1.0, "FP32", [], "is not a list"),
        ([True], "FP32", [1], "is no FP32"),
        (["1"], "INT64", [1], "is no INT64"),
        ([1.0], "INT64", [1], "is no INT64"),
        ([1], "BOOL", [1], "is no BOOL"),
        ([b"x"], "BYTES", [1], "is no BYTES"),
        ([256], "UINT8", [1], "is beyond what UINT8 can hold"),
        ([1], "FP1", [1], "is no datatype"),
        ([], "FP32", [2**60, 2**60], "is larger than"),
    ],
)
def test_flat_data_that_is_not_what_it_says_is_refused(value: Any, datatype: str, shape: Any, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        codec.from_flat(value, datatype, shape, limit=LIMIT)


def test_a_type_of_numpy_without_a_name_is_refused() -> None:
    with pytest.raises(CodecError, match="complex64 has no name"):
        codec.from_array(np.zeros(1, "c8"))
    swapped = codec.from_array(np.array([[1, 2], [3, 4]], ">i4").astype("<i4").T)
    assert codec.array(swapped).tolist() == [[1, 3], [2, 4]]
