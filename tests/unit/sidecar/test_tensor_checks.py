"""Arguments of tensor tools that do not fit: one sentence each, with the argument's path, before anything is converted."""

from typing import Any

import pytest

from modelservice_sidecar.core import tensors
from modelservice_sidecar.core.tensors import Signature, Tensor, TensorSpec
from modelservice_sidecar.tensor_checks import compile_tensor_check


def batched(name: str, *shape: int, datatype: Any = "FP32", optional: bool = False) -> TensorSpec:
    return tensors.batch_axis(TensorSpec(name=name, datatype=datatype, shape=shape, optional=optional), 16)


ADD = compile_tensor_check(
    Signature(inputs=(batched("a", 2), batched("b", -1, datatype="INT64", optional=True)), outputs=(), max_batch=16)
)
SCALARS = compile_tensor_check(
    Signature(inputs=(batched("score"), batched("label", datatype="BYTES", optional=True)), outputs=(), max_batch=16)
)
PLAIN = compile_tensor_check(
    Signature(
        inputs=(
            TensorSpec(name="flag", datatype="BOOL", shape=(), optional=True),
            TensorSpec(name="small", datatype="UINT8", shape=(1,), optional=True),
            TensorSpec(name="wide", datatype="UINT64", shape=(-1,), optional=True),
        ),
        outputs=(),
    )
)

DEEP: Any = 1.0
for _ in range(900):
    DEEP = [DEEP]


def as_bytes(datatype: str, *shape: int, **more: Any) -> dict[str, Any]:
    return {"dtype": datatype, "shape": list(shape), "encoding": "base64", "data": "", **more}


def raw(datatype: Any, *shape: int) -> Tensor:
    return Tensor(datatype=datatype, shape=shape, data=b"")


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": [[1, 2.5]]},
        {"a": [1, 2]},
        {"a": [[1, 2], [3, 4]], "b": [[1], ["9223372036854775807"]]},
        {"a": [1, 2], "b": [1, 2, 3]},
        {"a": as_bytes("FP32", 1, 2), "b": [[7]]},
        {"a": as_bytes("FP32", 2)},
        {"a": raw("FP32", 16, 2)},
        {"a": raw("FP32", 2), "b": raw("INT64", 0)},
    ],
)
def test_every_form_of_the_same_argument_is_taken(arguments: dict[str, Any]) -> None:
    assert ADD(arguments) is None


@pytest.mark.promise("input-checked")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "$: lacks a"),
        ({"b": [[1]]}, "$: lacks a"),
        ({"a": [[1, 2]], "c": 1}, "$.c: is no argument of this tool; its arguments are a, b"),
        ({"a": None}, '$.a: the value is not of type "array" (FP32[1..16, 2])'),
        ({"a": "x"}, '$.a: the value is not of type "array" (FP32[1..16, 2])'),
        ({"a": 1}, '$.a: the value is not of type "array" (FP32[1..16, 2])'),
        ({"a": []}, "$.a: the value has less than 1 item (FP32[1..16, 2])"),
        ({"a": [[]]}, "$.a[0]: the value has less than 2 items (FP32[1..16, 2])"),
        ({"a": [[1, 2], [3]]}, "$.a[1]: the value has less than 2 items (FP32[1..16, 2])"),
        ({"a": [[1, 2], 3]}, '$.a[1]: the value is not of type "array" (FP32[1..16, 2])'),
        ({"a": [[1, 2]] * 17}, "$.a: the value has more than 16 items (FP32[1..16, 2])"),
        ({"a": [[1, "2"]]}, '$.a[0][1]: the value is not of type "number" (FP32[1..16, 2])'),
        ({"a": [[True, 2]]}, '$.a[0][0]: the value is not of type "number" (FP32[1..16, 2])'),
        ({"a": [[1, None]]}, '$.a[0][1]: the value is not of type "number" (FP32[1..16, 2])'),
        ({"a": [[[1, 2]]]}, "$.a[0]: the value has less than 2 items (FP32[1..16, 2])"),
        ({"a": [[1, 2]], "b": [1]}, "$.b: has no batch axis, but a has one; give it to all arguments or to none"),
        ({"a": [1, 2], "b": [[1]]}, "$.a: has no batch axis, but b has one; give it to all arguments or to none"),
        ({"a": [[1, 2]], "b": [[1], [2]]}, "$.b: has 2 rows, a has 1"),
        ({"a": [[1, 2]], "b": as_bytes("INT64", 3, 1)}, "$.b: has 3 rows, a has 1"),
        ({"a": [[1, 2]], "b": [[1.5]]}, '$.b[0][0]: the value is not of types "integer", "string" (INT64[1..16, ?])'),
        ({"a": as_bytes("FP64", 1, 2)}, "$.a: is FP64, FP32[1..16, 2] is needed"),
        ({"a": as_bytes("float32" * 9, 1, 2)}, "$.a: is float32float32float32float32floa, FP32[1..16, 2] is needed"),
        ({"a": as_bytes("FP32", 17, 2)}, "$.a: has size 17 in dimension 0, FP32[1..16, 2] allows 1 to 16"),
        ({"a": as_bytes("FP32", 1, 2, 1)}, "$.a: has 3 dimensions, FP32[1..16, 2] needs 2"),
        ({"a": as_bytes("FP32", 3)}, "$.a: has size 3 in dimension 0, FP32[1..16, 2] allows 2"),
        ({"a": as_bytes("FP32", 1, 2, shape=[1, -2])}, "$.a.shape[1]: the value is less than the minimum of 0"),
        ({"a": as_bytes("FP32", shape=[1] * 17)}, "$.a.shape: the value has more than 16 items"),
        ({"a": as_bytes("FP32", 1, 2, data=7)}, '$.a.data: the value is not of type "string"'),
        ({"a": {"dtype": "FP32", "shape": [1, 2], "data": ""}}, '$.a: "encoding" is a required property'),
        ({"a": raw("FP16", 1, 2)}, "$.a: is FP16, FP32[1..16, 2] is needed"),
        ({"a": raw("FP32", 1, 3)}, "$.a: has size 3 in dimension 1, FP32[1..16, 2] allows 2"),
        ([1], "$: is not an object"),
    ],
)
def test_what_does_not_fit_is_one_sentence_with_its_place(arguments: Any, told: str) -> None:
    assert ADD(arguments) == told


def test_nesting_without_end_is_one_sentence_too() -> None:
    told = ADD({"a": DEEP})
    assert told is not None
    assert told.startswith("$.a")
    assert len(told) < 200


@pytest.mark.parametrize("value", [2**53 + 1, 2**53, -(2**53) - 1, 2**63 - 1])
def test_an_integer_that_json_readers_may_spoil_is_asked_for_as_a_string(value: int) -> None:
    told = "$.b[0][0]: the integer is beyond 2^53, where JSON readers lose digits; write it as a string of its digits"
    assert ADD({"a": [[1, 2]], "b": [[value]]}) == f"{told} (INT64[1..16, ?])"
    assert ADD({"a": [[1, 2]], "b": [[str(value)]]}) is None


def test_a_string_that_is_no_integer_is_not_taken_for_one() -> None:
    for value in ("", "1.5", "1e3", "0x10", " 1", "1_000", "٣", "9" * 21):
        told = "$.b[0][0]: the string is no integer in decimal digits (INT64[1..16, ?])"
        assert ADD({"a": [[1, 2]], "b": [[value]]}) == told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"score": 1.5}, None),
        ({"score": [1.5, 2]}, None),
        ({"score": 1.5, "label": "x"}, None),
        ({"score": [1.5], "label": ["x"]}, None),
        ({"score": raw("FP32")}, None),
        ({"score": []}, "$.score: the value has less than 1 item (FP32[1..16])"),
        ({"score": "x"}, '$.score: the value is not of type "number" (FP32[1..16])'),
        ({"score": [[1.5]]}, '$.score[0]: the value is not of type "number" (FP32[1..16])'),
        ({"score": 1.5, "label": ["x"]}, "$.score: has no batch axis, but label has one; give it to all arguments or to none"),
        ({"score": [1.5], "label": [7]}, '$.label[0]: the value is not of type "string" (BYTES[1..16])'),
    ],
)  # fmt: skip
def test_one_row_of_a_scalar_is_the_scalar_itself(arguments: dict[str, Any], told: str | None) -> None:
    assert SCALARS(arguments) == told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, None),
        ({"flag": True, "small": [255], "wide": [0, "18446744073709551615"]}, None),
        ({"flag": 1}, '$.flag: the value is not of type "boolean" (BOOL[])'),
        ({"flag": [True]}, '$.flag: the value is not of type "boolean" (BOOL[])'),
        ({"small": [256]}, "$.small[0]: the value is greater than the maximum of 255 (UINT8[1])"),
        ({"small": [-1]}, "$.small[0]: the value is less than the minimum of 0 (UINT8[1])"),
        ({"small": [1, 2]}, "$.small: the value has more than 1 item (UINT8[1])"),
        ({"small": 1}, '$.small: the value is not of type "array" (UINT8[1])'),
        ({"wide": [-1]}, "$.wide[0]: the value is less than the minimum of 0 (UINT64[?])"),
    ],
)
def test_without_a_batch_axis_shapes_are_as_they_are(arguments: dict[str, Any], told: str | None) -> None:
    assert PLAIN(arguments) == told
