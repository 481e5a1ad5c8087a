"""From a signature to a tool, from checked arguments to tensors, from a model's tensors to an answer."""

import asyncio
import base64
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pytest

from modelservice_sidecar import validation
from modelservice_sidecar.backends import tensor_tool
from modelservice_sidecar.backends.base import Answer, CallContext
from modelservice_sidecar.backends.tensor_tool import Given
from modelservice_sidecar.core import codec, tensors
from modelservice_sidecar.core.errors import BackendAnswerInvalidError, CallError, InvalidArgumentsError
from modelservice_sidecar.core.tensors import Signature, Tensor, TensorSpec
from modelservice_sidecar.core.trace import Ids

LIMIT = 2**30


def signature(
    *inputs: TensorSpec, outputs: tuple[TensorSpec, ...] = (), batch: int = 0, nulls: bool = False
) -> Signature:
    def shaped(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(tensors.batch_axis(spec, batch) if batch else spec for spec in specs)

    made = Signature(inputs=shaped(inputs), outputs=shaped(outputs), max_batch=batch, nulls=nulls)
    return tensor_tool.with_arguments(made)


def spec(name: str, *shape: int, datatype: Any = "FP32", optional: bool = False) -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=shape, optional=optional)


def read(found: Signature, **arguments: Any) -> Given:
    return asyncio.run(tensor_tool.read(found, arguments))


def answer(found: Signature, outputs: Mapping[str, Tensor], *, unbatched: bool = False, binary: bool = False) -> Answer:
    ids = Ids(request_id="r1", trace_id="t" * 32, span_id="s" * 16)
    context = CallContext(ids=ids, deadline=0.0, wants_tensors=binary)
    return asyncio.run(tensor_tool.answer(found, Given(tensors={}, unbatched=unbatched), outputs, context))


def fp32(*values: Any) -> Tensor:
    return codec.from_array(np.array(values, "<f4"))


def test_t2_the_batch_axis_is_added_to_every_input_and_taken_off_every_output() -> None:
    found = signature(spec("a", 2), spec("in/b", datatype="BYTES"), outputs=(spec("out:s", -1),), batch=16)
    given = read(found, a=[1, 2], in_b="x")
    assert given.unbatched
    assert {name: tensor.shape for name, tensor in given.tensors.items()} == {"a": (1, 2), "in/b": (1,)}
    told = answer(found, {"out:s": fp32([1.5, 2.5])}, unbatched=True)
    assert told.raw == b'{"out_s":[1.5,2.5]}'
    whole = read(found, a=[[1, 2], [3, 4]], in_b=["x", "y"])
    assert (whole.unbatched, whole.tensors["a"].shape) == (False, (2, 2))


def test_an_input_that_was_left_out_is_left_out() -> None:
    found = signature(spec("a", 2), spec("b", 2, optional=True))
    assert list(read(found, a=[1, 2]).tensors) == ["a"]


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ({"dtype": "FP32", "shape": [2], "encoding": "base64", "data": base64.b64encode(bytes(8)).decode()}, (1, 2)),
        (Tensor(datatype="FP32", shape=(1, 2), data=bytes(8)), (1, 2)),
        (Tensor(datatype="FP32", shape=(2,), data=memoryview(bytes(8))), (1, 2)),
    ],
)
def test_bytes_are_taken_as_they_are(value: Any, shape: tuple[int, ...]) -> None:
    given = read(signature(spec("a", 2), batch=4), a=value)
    assert (given.tensors["a"].shape, bytes(given.tensors["a"].data)) == (shape, bytes(8))


NAN = base64.b64encode(np.array([1.0, np.nan], "<f4").tobytes()).decode()


def as_base64(data: str, *shape: int, datatype: str = "FP32") -> dict[str, Any]:
    return {"dtype": datatype, "shape": list(shape), "encoding": "base64", "data": data}


@pytest.mark.promise("input-checked")
@pytest.mark.parametrize(
    ("found", "value", "told"),
    [
        (spec("a", -1, -1), [[1, 2], [3]], "$.a[1]: has 1 elements where the first of its kind has 2"),
        (spec("a", 2), [1, 1e39], "$.a[1]: is beyond what FP32 can hold"),
        (spec("a", 2), as_base64(NAN, 2), "$.a[1]: is NaN or an infinity, which this tool does not take"),
        (spec("a", 2), as_base64("AAA", 2), "$.a.data: is not base64"),
        (spec("a", 2), as_base64("AAAA", 2), "$.a: has 3 bytes; shape [2] of FP32 needs 8"),
        (spec("a", -1), as_base64("", 2**40, 2**40), "$.a.shape: is larger than 1073741824 bytes"),
        (spec("a", -1), as_base64("", 2.0), "$.a.shape: holds something that is not a size"),  # type: ignore[arg-type]
        (spec("a", -1, datatype="BOOL"), as_base64("Ag==", 1, datatype="BOOL"), "neither 0 nor 1"),
        (spec("a", -1, datatype="BYTES"), as_base64("/////w==", 1, datatype="BYTES"), "$.a: ends within an element"),
        (spec("a", -1, datatype="INT64"), ["9" * 20], "$.a[0]: is beyond what INT64 can hold"),
        (spec("a", -1), Tensor(datatype="FP32", shape=(2,), data=fp32(1, np.inf).data), "$.a[1]: is NaN"),
    ],
)
def test_what_only_conversion_can_see_is_one_sentence_with_its_place(found: TensorSpec, value: Any, told: str) -> None:
    with pytest.raises(InvalidArgumentsError) as caught:
        read(signature(found), a=value)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_that_are_no_number_go_in_and_come_out_as_null_where_that_is_the_policy() -> None:
    found = signature(spec("a", 2), outputs=(spec("s", 2),), nulls=True)
    given = read(found, a=as_base64(NAN, 2))
    told = answer(found, {"s": given.tensors["a"]})
    assert told.raw == b'{"s":[1.0,null]}'
    described = tensor_tool.spec_of("m", found, identity="m", description="", binding=None)
    assert validation.compile_check(described.output_schema or {})(orjson.loads(told.raw)) is None


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        ({}, "lacks its output s"),
        ({"s": fp32(1, 2, 3)}, "output s has size 3 in dimension 0, FP32[2] allows 2; its metadata says FP32[2]"),
        ({"s": codec.from_array(np.array([1, 2], "<i4"))}, "output s is INT32; its metadata says FP32[2]"),
        ({"s": fp32(1, np.nan)}, "output s[1] is NaN or an infinity"),
    ],
)
def test_outputs_that_are_not_what_the_signature_says_are_errors(outputs: dict[str, Tensor], told: str) -> None:
    with pytest.raises(BackendAnswerInvalidError) as caught:
        answer(signature(outputs=(spec("s", 2),)), outputs)
    assert told in str(caught.value)


def test_more_rows_than_went_in_are_an_error() -> None:
    found = signature(outputs=(spec("s", 2),), batch=4)
    with pytest.raises(BackendAnswerInvalidError, match="answered one row with 2 rows of s"):
        answer(found, {"s": fp32([1, 2], [3, 4])}, unbatched=True)


def test_a_large_output_is_a_resource_of_its_bytes_and_a_small_one_beside_it_is_not() -> None:
    large = codec.from_array(np.arange(20_000, dtype="<f4"))
    found = signature(outputs=(spec("big", -1), spec("one", 1)))
    told = answer(found, {"big": large, "one": fp32(0.1)})
    shown = orjson.loads(told.raw or b"")
    assert shown == {
        "big": {"dtype": "FP32", "shape": [20000], "resource": "modelservice://answers/r1/big"}, "one": [0.1],
    }  # fmt: skip
    resource = told.content[1]["resource"]
    assert resource["uri"] == shown["big"]["resource"]
    assert base64.b64decode(resource["blob"]) == bytes(large.data)
    described = tensor_tool.spec_of("m", found, identity="m", description="", binding=None)
    assert validation.compile_check(described.output_schema or {})(shown) is None


def test_who_takes_bytes_gets_tensors_as_they_are() -> None:
    found = signature(outputs=(spec("s", 2),), batch=4)
    told = answer(found, {"s": fp32([1, np.nan])}, unbatched=True, binary=True)
    assert told.tensors is not None
    assert told.tensors["s"].shape == (2,)
    assert np.isnan(codec.array(told.tensors["s"])[1])
    assert told.raw is None


@pytest.mark.parametrize(
    "value",
    [
        [[0.5] * 1000] * 300,
        as_base64(base64.b64encode(bytes(1_200_000)).decode(), 300, 1000),
        codec.from_array(np.zeros((300, 1000), "<f8")),
    ],
)
def test_large_values_give_the_same_off_the_loop(value: Any) -> None:
    datatype = value.datatype if isinstance(value, Tensor) else "FP32"
    given = read(signature(spec("a", -1, 1000, datatype=datatype)), a=value)
    assert given.tensors["a"].shape == (300, 1000)


def test_what_takes_long_leaves_the_event_loop_and_what_is_quick_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    monkeypatch.setattr(codec, "non_finite_path", lambda _: threads.append(threading.get_ident()))
    found = signature(spec("a", -1), outputs=(spec("s", -1),))
    here = threading.get_ident()
    for small in ([0.5] * 1000, as_base64(base64.b64encode(bytes(4000)).decode(), 1000), fp32(*[0.5] * 1000)):
        read(found, a=small)
    answer(found, {"s": fp32(*[0.5] * 1000)})
    assert threads == [here] * 4
    threads.clear()
    size = 4 * 1024 * 1024
    large = Tensor(datatype="FP32", shape=(size,), data=bytes(size * 4))
    for value in ([0.5] * 100_000, as_base64(base64.b64encode(bytes(2_000_000)).decode(), 500_000), large):
        read(found, a=value)
    answer(found, {"s": large})
    assert len(threads) == 4
    assert here not in threads


def test_a_tool_says_its_shapes_and_has_a_name_clients_take() -> None:
    found = signature(spec("a b", 2), outputs=(spec("s", -1),), batch=8)
    made = tensor_tool.spec_of("my model", found, identity="my model:1", description="Adds.", binding=7)
    assert (made.name, made.operation_id, made.binding) == ("my_model", "my model", 7)
    assert made.description == (
        "Adds. Takes a_b FP32[1..8, 2]; gives s FP32[1..8, ?]. One row may be given without the first dimension; "
        "at most 8 rows."
    )


def test_every_error_is_one_that_callers_may_see() -> None:
    for failing in (
        lambda: read(signature(spec("a", -1)), a=[1, [2]]),
        lambda: answer(signature(outputs=(spec("s"),)), {}),
    ):
        with pytest.raises(CallError):
            failing()
