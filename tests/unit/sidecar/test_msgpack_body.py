"""MessagePack bodies: they mean what the same JSON means, tensors are views of them, and no bytes whatever do harm."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from modelservice_sidecar import msgpack_body
from modelservice_sidecar.core.errors import InvalidArgumentsError
from modelservice_sidecar.core.tensors import Tensor
from modelservice_sidecar.msgpack_body import BadMessageError, TensorFields

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)  # fmt: skip
FIELDS = {"dtype": "FP32", "shape": [1], "bin": b"\0\0\x80?"}


def call(arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "call_tool", "params": {"name": "t", "arguments": arguments}}


@given(JSON, st.dictionaries(st.text(), JSON, max_size=5))
@settings(max_examples=300, deadline=None)
def test_what_json_can_tell_is_read_as_it_was_written(value: Any, arguments: dict[str, Any]) -> None:
    for message in ({"params": value, "id": value}, call(arguments), call(value), [call(arguments), {"x": value}]):
        assert msgpack_body.load(msgpack_body.dump(message)) == message


@given(st.binary(max_size=200))
@example(
    b"\x81\xa6params\x81\xa9arguments\x81\xa1a\x83\xa5dtype\xa0\xa5shape\x91\xcf" + b"\xff" * 8 + b"\xa3bin\xc4\x00"
)
@settings(max_examples=1000, deadline=None)
def test_any_bytes_are_a_message_or_an_error(body: bytes) -> None:
    try:
        message = msgpack_body.load(body)
        for one in message if isinstance(message, list) else [message]:
            if isinstance(one, dict) and isinstance(one.get("params"), dict):
                arguments = one["params"].get("arguments")
                if isinstance(arguments, dict):
                    msgpack_body.tensors(arguments)
    except (BadMessageError, InvalidArgumentsError) as error:
        assert len(str(error)) < 400


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_message_with_one_byte_changed_or_cut_off_is_a_message_or_an_error(data: st.DataObject) -> None:
    body = bytearray(msgpack_body.dump(call({"a": FIELDS, "b": [1, 2.5, "x"]})))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    for changed in (bytes(body), bytes(body[:at])):
        try:
            msgpack_body.load(changed)
        except BadMessageError as error:
            assert len(str(error)) < 400


def test_a_tensor_is_a_view_of_the_body_wherever_arguments_stand() -> None:
    by_name = msgpack_body.dump(call({"a": FIELDS}))
    by_position = msgpack_body.dump({"params": ["t", {"a": FIELDS}]})
    for body, find in ((by_name, lambda params: params["arguments"]), (by_position, lambda params: params[1])):
        fields = find(msgpack_body.load(body)["params"])["a"]
        assert isinstance(fields, TensorFields)
        assert np.shares_memory(np.frombuffer(fields.bin, "u1"), np.frombuffer(body, "u1"))
        tensor = msgpack_body.tensors({"a": fields, "b": 1})["a"]
        assert (tensor.datatype, tensor.shape, bytes(tensor.data)) == ("FP32", (1,), FIELDS["bin"])


def test_only_arguments_are_tensors() -> None:
    for message in (
        {"params": {"name": FIELDS}},
        {"id": FIELDS},
        {"params": [FIELDS]},
        call({"a": {"inner": FIELDS}}),
        call(FIELDS),
    ):
        with pytest.raises(BadMessageError, match="bytes outside of a tensor"):
            msgpack_body.load(msgspec.msgpack.encode(message))
    assert msgpack_body.load(msgpack_body.dump(call({"a": {"bin": 1, "x": 2}})))  # a plain object of another tool


def test_tensors_do_not_count_towards_the_bound_and_all_else_does_together() -> None:
    large = {"dtype": "UINT8", "shape": [10_000_000], "bin": bytes(10_000_000)}
    assert msgpack_body.load(msgpack_body.dump(call({"a": large})))
    half = "x" * 120_000
    assert msgpack_body.load(msgpack_body.dump(call({"a": half})))
    with pytest.raises(BadMessageError, match="more than 200000 bytes"):
        msgpack_body.load(msgpack_body.dump([call({"a": half}), call({"a": half})]))


def test_an_answer_of_another_adapter_is_read_and_a_broken_one_is_not() -> None:
    tensor = Tensor(datatype="FP32", shape=(1,), data=FIELDS["bin"])  # type: ignore[arg-type]
    body = msgpack_body.dump({"result": {"content": [], "tensors": {"y": tensor.fields()}}})
    assert msgpack_body.load_answer(body)["result"]["tensors"]["y"] == tensor
    assert msgpack_body.load_answer(msgpack_body.dump({"error": {"code": 1}})) == {"error": {"code": 1}}
    for bad in (b"", b"\x05", b"\x81\xa6result\x01", body[:-1], msgpack_body.dump({"result": {"tensors": {"y": {}}}})):
        with pytest.raises(BadMessageError):
            msgpack_body.load_answer(bad)
