"""The Open Inference Protocol's messages, both ways: what is written is read back, and what lies about itself is refused."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelservice_sidecar.core import codec, v2_wire
from modelservice_sidecar.core.tensors import Tensor
from modelservice_sidecar.core.v2_wire import InferRequest, InferResponse, WantedOutput, WireError

LIMIT = 1024 * 1024

TENSORS = {
    "floats": codec.from_array(np.array([[1.5, -2.25]], "<f4")),
    "half": codec.from_array(np.array([0.1], "<f2")),
    "brain": codec.from_array(np.array([1.25, 3.0], "<f4"), "BF16"),
    "wide": codec.from_array(np.array([2**53 + 1, -(2**63)], "<i8")),
    "flags": codec.from_array(np.array([True, False])),
    "texts": codec.from_array(np.array(["ä", "", "z"], object)),
    "scalar": codec.from_array(np.array(7, "u1")),
    "none": codec.from_array(np.zeros((0, 3), "<f8")),
}


def bits(tensors: Any) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (tensor.datatype, tensor.shape, bytes(tensor.data)) for name, tensor in tensors.items()}


def read(body: bytes, header_length: int | None) -> InferRequest:
    header, binary = v2_wire.split(body, None if header_length is None else str(header_length))
    return v2_wire.read_request(orjson.loads(header), binary, limit=LIMIT)


@pytest.mark.parametrize("binary", [True, False])
def test_a_request_is_read_back_as_it_was_written(binary: bool) -> None:
    request = InferRequest(
        inputs=TENSORS,
        outputs=(WantedOutput(name="a", binary=True), WantedOutput(name="b", parameters={"classification": 3})),
        binary_outputs=True,
        id="7",
        parameters={"priority": 1},
    )
    written = v2_wire.write_request(request, binary=binary)
    assert written.content_type == ("application/octet-stream" if binary else "application/json")
    back = read(written.body, written.header_length)
    assert (bits(back.inputs), back.outputs, back.binary_outputs, back.id, back.parameters) == (
        bits(TENSORS), request.outputs, True, "7", {"priority": 1},
    )  # fmt: skip


def test_an_answer_is_read_back_where_some_tensors_are_bytes_and_some_are_json() -> None:
    response = InferResponse(outputs=TENSORS, model_name="m", model_version="1", id="x", parameters={"p": True})
    written = v2_wire.write_response(response, {"floats": True, "texts": True})
    back = v2_wire.parse_response(written.body, str(written.header_length), limit=LIMIT)
    assert bits(back.outputs) == bits(TENSORS)
    assert (back.model_name, back.model_version, back.id, back.parameters) == ("m", "1", "x", {"p": True})
    alone = v2_wire.write_response(response, {})
    assert alone.header_length is None
    assert bits(v2_wire.parse_response(alone.body, None, limit=LIMIT).outputs) == bits(TENSORS)


def test_binary_tensors_are_views_of_the_body() -> None:
    written = v2_wire.write_request(InferRequest(inputs=TENSORS), binary=True)
    body = written.body
    tensor = read(body, written.header_length).inputs["floats"]
    assert isinstance(tensor.data, memoryview)
    assert tensor.data.obj is body


def test_numbers_that_are_none_are_understood_in_answers_and_nowhere_else() -> None:
    body = b'{"outputs":[{"name":"o","datatype":"FP32","shape":[4],"data":[NaN,-Infinity,null,1]}]}'
    found = codec.array(v2_wire.parse_response(body, None, limit=LIMIT).outputs["o"])
    assert np.isnan(found[0])
    assert found.tolist()[1] == -np.inf
    assert np.isnan(found[2])
    with pytest.raises(WireError, match="is not JSON"):
        v2_wire.parse_response(b'{"outputs":[NaN', None, limit=LIMIT)
    with pytest.raises(WireError, match=r"inputs\[0\].data\[0\]: is no FP32"):
        read(b'{"inputs":[{"name":"a","datatype":"FP32","shape":[1],"data":[null]}]}', None)


def test_nested_and_flat_data_are_one_tensor() -> None:
    def tensor(data: Any) -> Tensor:
        entry = {"name": "a", "datatype": "INT16", "shape": [2, 2], "data": data}
        return read(orjson.dumps({"inputs": [entry]}), None).inputs["a"]

    assert bits({"a": tensor([[1, 2], [3, 4]])}) == bits({"a": tensor([1, 2, 3, 4])})


FP32: dict[str, Any] = {"name": "a", "datatype": "FP32", "shape": [2]}


def sized(size: Any) -> dict[str, Any]:
    return {**FP32, "parameters": {"binary_data_size": size}}


@pytest.mark.parametrize(
    ("document", "binary", "told"),
    [
        ([], b"", "is not an object"),
        ({}, b"", "inputs: is missing"),
        ({"inputs": {}}, b"", "inputs: is not a list"),
        ({"inputs": [7]}, b"", "inputs[0]: is not an object"),
        ({"inputs": [{}]}, b"", "inputs[0].name: is missing"),
        ({"inputs": [{"name": 7}]}, b"", "inputs[0].name: is not a string"),
        ({"inputs": [{"name": "a"}]}, b"", "inputs[0]: has neither data nor binary_data_size"),
        ({"inputs": [{**FP32, "data": [1, 2]}] * 2}, b"", "inputs[1].name: 'a' is there twice"),
        ({"inputs": [{**FP32, "data": [1, True]}]}, b"", "inputs[0].data[1]: is no FP32"),
        ({"inputs": [{**FP32, "data": [1]}]}, b"", "inputs[0].data: is a list of shape [1], where the shape is said to be [2]"),
        ({"inputs": [{**FP32, "shape": [-1], "data": [1]}]}, b"", "inputs[0].shape: holds something that is not a size"),
        ({"inputs": [{**FP32, "shape": [2**40, 2**40], "data": [1]}]}, b"", "inputs[0].shape: is larger than 1048576 bytes"),
        ({"inputs": [{"name": "a", "shape": [1], "data": [1]}]}, b"", "inputs[0].datatype: is missing"),
        ({"inputs": [{**FP32, "datatype": "FP8", "data": [1, 2]}]}, b"", "inputs[0].datatype: 'FP8' is no datatype"),
        ({"inputs": [{**FP32, "parameters": []}]}, b"", "inputs[0].parameters: is not an object"),
        ({"inputs": [sized(-1)]}, b"", "binary_data_size: is not a size"),
        ({"inputs": [sized(True)]}, b"", "binary_data_size: is not a size"),
        ({"inputs": [sized(9)]}, b"12345678", "binary_data_size: is 9, of the body 8 bytes are left"),
        ({"inputs": [sized(4)]}, b"1234", "inputs[0]: has 4 bytes; shape [2] of FP32 needs 8"),
        ({"inputs": [sized(8)]}, b"123456789", "the body has 1 bytes that no tensor of inputs claims"),
        ({"inputs": [{**sized(8), "data": [1, 2]}]}, b"12345678", "inputs[0]: has both"),
        ({"inputs": [{**FP32, "parameters": {"shared_memory_region": "r"}}]}, b"", "inputs[0].parameters: shared memory"),
        ({"inputs": [], "outputs": 1}, b"", "outputs: is not a list"),
        ({"inputs": [], "outputs": [{}]}, b"", "outputs[0].name: is missing"),
        ({"inputs": [], "outputs": [{"name": "o", "parameters": {"binary_data": 1}}]}, b"", "binary_data: is neither"),
        ({"inputs": [], "parameters": {"binary_data_output": "yes"}}, b"", "parameters.binary_data_output: is neither"),
        ({"inputs": [], "id": 7}, b"", "id: is not a string"),
        ({"inputs": [FP32] * 1025}, b"", "inputs: has 1025 entries, at most 1024 are taken"),
    ],
)  # fmt: skip
def test_a_request_that_lies_is_refused_where_it_does(document: Any, binary: bytes, told: str) -> None:
    with pytest.raises(WireError) as caught:
        v2_wire.read_request(document, memoryview(binary), limit=LIMIT)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("length", "told"),
    [
        ("11", "is 11, the body has 10"), ("-1", "not a number"), ("1e1", "not a number"), ("٣", "not a number"),
        ("9" * 20, "not a number"), ("", "not a number"),
    ],
)  # fmt: skip
def test_a_header_length_that_cannot_be_is_refused(length: str, told: str) -> None:
    with pytest.raises(WireError, match=told):
        v2_wire.split(b"0123456789", length)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(FP32),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["inputs", "outputs", "name", "shape", "datatype", "data", "parameters", "binary_data_size"]),
        inner, max_size=4,
    ),
    max_leaves=20,
), st.binary(max_size=12))  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_whatever_comes_is_a_request_or_a_wire_error(document: Any, binary: bytes) -> None:
    for reader in (v2_wire.read_request, v2_wire.read_response):
        try:
            reader(document, memoryview(binary), limit=LIMIT)
        except WireError as error:
            assert str(error)
