"""What servers say about themselves and their models, read into signatures; and the parts of a streamed answer."""

import subprocess
import sys
from typing import Any

import pytest

from modelservice_api.adapter_config import ModelConfig, TensorConfig
from modelservice_sidecar.backends import tensor_tool, v2_call, v2_generate, v2_ragged
from modelservice_sidecar.core import codec, v2
from modelservice_sidecar.core.errors import BackendAnswerInvalidError, BackendFailureError, InvalidArgumentsError
from modelservice_sidecar.core.tensors import Tensor
from modelservice_sidecar.core.v2 import Model, UnusableModelError

NOTHING = ModelConfig()


def tensor(name: str, datatype: str = "FP32", shape: Any = (-1,)) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


def read(inputs: Any, outputs: Any, config: Any = None, declared: ModelConfig = NOTHING) -> Model:
    return v2.read_model("m", {"name": "m", "inputs": inputs, "outputs": outputs}, config, declared)


def floats(*values: float, shape: tuple[int, ...] | None = None) -> Tensor:
    found = codec.from_lists(list(values), "FP32", limit=1024)
    return found if shape is None else Tensor(datatype="FP32", shape=shape, data=found.data)


def test_the_adapter_loads_neither_numpy_nor_grpc_to_know_this_kind_of_server() -> None:
    code = (
        "import sys, modelservice_sidecar.backends.v2; "
        "print([name for name in ('numpy', 'grpc', 'tritonclient', 'google') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("document", "binary", "has_config"),
    [
        (
            {"name": "triton", "version": "2.51.0", "extensions": ["binary_tensor_data", "model_configuration"]},
            True,
            True,
        ),
        ({"name": "mlserver", "version": "1.7.1", "extensions": []}, False, False),
        ({"name": "kserve", "version": "0.21.0", "extensions": ["model_repository_extension"]}, True, False),
        ({"name": "kserve", "version": "0.9.0", "extensions": []}, False, False),
        ({"name": "kserve", "version": "dev", "extensions": []}, False, False),
    ],
)
def test_what_a_server_can_do_is_what_it_says_or_is_known_to_do(document: Any, binary: bool, has_config: bool) -> None:
    server = v2.read_server(document)
    assert server is not None
    assert (server.binary, server.has_config) == (binary, has_config)


@pytest.mark.parametrize("document", [None, [], {}, {"name": "x"}, {"name": 1, "extensions": []}, "triton"])
def test_what_is_no_server_is_none(document: object) -> None:
    assert v2.read_server(document) is None


def test_an_index_tells_versions_and_what_is_coming() -> None:
    index = v2.read_index(
        [
            {"name": "a", "version": "1", "state": "READY"},
            {"name": "a", "version": "2", "state": "READY"},
            {"name": "b", "version": "1", "state": "LOADING"},
            {"name": "c", "state": "UNAVAILABLE", "reason": "unloaded"},
            {"name": 5, "state": "READY"},
            "nonsense",
        ]
    )
    assert index is not None
    assert (dict(index.ready), index.loading) == ({"a": ("1", "2")}, True)
    plain = v2.read_index({"models": ["x", 5]})
    assert plain is not None
    assert dict(plain.ready) == {"x": ()}
    assert v2.read_index("x") is None


@pytest.mark.promise("triton-tools")
def test_the_batch_axis_of_the_metadata_gets_the_config_s_bound() -> None:
    config = {
        "max_batch_size": 16,
        "input": [{"name": "b", "optional": True}, {"name": "a", "allow_ragged_batch": True}],
    }
    signature = read(
        [tensor("a", shape=(-1, -1)), tensor("b", shape=(-1, 3))], [tensor("y", shape=(-1, 2))], config
    ).signature
    assert signature.max_batch == 16
    assert [str(spec) for spec in signature.inputs] == ["FP32[1..16, ?]", "FP32[1..16, 3]"]
    assert [spec.optional for spec in signature.inputs] == [False, True]
    assert [spec.ragged for spec in signature.inputs] == [True, False]


def test_without_a_config_all_is_required_and_nothing_is_a_batch_axis() -> None:
    signature = read([tensor("a", shape=(-1, 2))], [tensor("y")]).signature
    assert (signature.max_batch, str(signature.inputs[0]), signature.inputs[0].optional) == (0, "FP32[?, 2]", False)


@pytest.mark.promise("triton-tools")
def test_what_the_server_itself_fills_is_no_input_and_a_sequence_is_said_by_its_caller() -> None:
    config = {
        "sequence_batching": {
            "control_input": [{"name": "START", "control": []}, {"name": "CORRID"}],
            "state": [{"input_name": "memory", "output_name": "memory_out"}],
        }
    }
    model = read([tensor(name) for name in ("x", "START", "CORRID", "memory", "sequence_id")], [tensor("y")], config)
    assert [spec.name for spec in model.signature.inputs] == ["x", "sequence_id"]
    spec = tensor_tool.spec_of("m", model.signature, identity="m", description="", binding=model)
    assert spec.input_schema["required"] == ["x", "sequence_id_2", "sequence_id"]
    assert set(spec.input_schema["properties"]) == {
        "x",
        "sequence_id_2",
        "sequence_id",
        "sequence_start",
        "sequence_end",
    }


def test_what_is_declared_speaks_only_where_the_server_says_nothing() -> None:
    declared = ModelConfig(
        inputs=(TensorConfig(name="mine", datatype="INT8", shape=(2,)),),
        outputs=(TensorConfig(name="out", datatype="INT8"),),
    )
    model = read([], None, declared=declared)
    assert [(spec.name, str(spec)) for spec in (*model.signature.inputs, *model.signature.outputs)] == [
        ("mine", "INT8[2]"),
        ("out", "INT8[]"),
    ]
    assert read([tensor("a")], [tensor("y")], declared=declared).signature.inputs[0].name == "a"
    with pytest.raises(UnusableModelError, match=r"spec\.model\.inputs"):
        read([], [tensor("y")])
    # Triton leaves nothing out: a model without inputs has none.
    assert read([], [tensor("y")], {"max_batch_size": 0}).signature.inputs == ()


def test_sizes_may_be_written_as_protobuf_writes_them() -> None:
    assert str(read([tensor("a", shape=("-1", "3"))], [tensor("y")]).signature.inputs[0]) == "FP32[?, 3]"


@pytest.mark.parametrize(
    ("name", "usable"),
    [("a b", True), ("é%2F", True), ("a/b", False), ("..", False), (".", False), ("", False), ("a\n", False)],
)
def test_a_name_never_reaches_another_endpoint(name: str, usable: bool) -> None:
    assert v2.is_usable_name(name) == usable
    assert v2.path_of("a b/é?#%") == "/v2/models/a%20b%2F%C3%A9%3F%23%25"


def test_buffers_are_handed_on_as_they_are() -> None:
    model = read([tensor("a", shape=(2,))], [tensor("y")])
    data = memoryview(bytearray(8))
    given = {"a": Tensor(datatype="FP32", shape=(2,), data=data)}
    request = v2_call.build(model, given, {"sequence_id": 3}, binary=True, request_id="r1")
    assert request.target == "/v2/models/m/infer"
    assert dict(request.headers)[b"inference-header-content-length"] == b"%d" % len(request.body)
    assert b'"sequence_id":3' in request.body
    assert [memoryview(part).obj for part in request.tail] == [data.obj]


@pytest.mark.parametrize("data", [b"\x02\0\0\0\xff\xfe", b"\x01\0\0\0\x80"])
def test_bytes_that_are_no_text_are_not_written_as_json(data: bytes) -> None:
    model = read([tensor("a", "BYTES", (1,))], [tensor("y")])
    given = {"a": Tensor(datatype="BYTES", shape=(1,), data=data)}
    with pytest.raises(InvalidArgumentsError, match="no UTF-8 text"):
        v2_call.build(model, given, {}, binary=False, request_id="r")


FLAT = read(
    [tensor("prompt", "BYTES", (-1, 1))],
    [tensor("text", "BYTES", (-1, -1)), tensor("score", "FP32", (-1, 1))],
    {"max_batch_size": 4, "model_transaction_policy": {"decoupled": True}},
)


def test_a_model_that_answers_in_parts_goes_over_http_only_if_it_is_flat() -> None:
    assert FLAT.decoupled
    assert v2.is_flat(FLAT.signature)
    assert not v2.is_flat(read([tensor("x", shape=(2, 2))], [tensor("y")]).signature)
    assert not v2.is_flat(read([tensor("x")], [tensor("y", shape=(-1, -1))]).signature)
    assert not v2.is_flat(read([tensor("x", "BF16")], [tensor("y")]).signature)


def test_a_streamed_event_is_read_into_tensors_of_the_model_s_shapes() -> None:
    part = v2_generate.read_part(FLAT, '{"model_name":"m","text":["a","b"],"score":0.5}')
    assert {name: (one.datatype, one.shape) for name, one in part.items()} == {
        "text": ("BYTES", (1, 2)),
        "score": ("FP32", (1, 1)),
    }
    assert codec.split_bytes(part["text"].data) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("piece", "error"),
    [
        ('{"error":"hunter2"}', BackendFailureError),
        ("<html>", BackendAnswerInvalidError),
        ("[]", BackendAnswerInvalidError),
        ('{"score":"x"}', BackendAnswerInvalidError),
        ('{"score":[1,2]}', BackendAnswerInvalidError),
    ],
)
def test_an_event_that_is_no_part_of_an_answer_is_an_error_without_its_text(piece: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        v2_generate.read_part(FLAT, piece)
    assert "hunter2" not in str(caught.value)


def test_more_than_one_row_is_not_sent_where_an_answer_in_parts_could_not_tell_them_apart() -> None:
    prompt = codec.from_lists([["a"], ["b"]], "BYTES", limit=99)
    with pytest.raises(InvalidArgumentsError, match="has 2 rows"):
        v2_generate.build(FLAT, {"prompt": prompt})
    one = codec.from_lists([["a"]], "BYTES", limit=99)
    assert v2_generate.build(FLAT, {"prompt": one}).body == b'{"prompt":["a"]}'


RAGGED = tensor_tool.with_arguments(
    read(
        [tensor("rows", shape=(-1, -1)), tensor("bias", shape=(-1, 1))],
        [tensor("y", shape=(-1, -1))],
        {"max_batch_size": 4, "input": [{"name": "rows", "allow_ragged_batch": True}]},
    ).signature
)


def test_rows_of_different_lengths_are_cut_and_alike_ones_are_not() -> None:
    assert v2_ragged.cut(RAGGED, {"rows": [[1, 2], [3]], "bias": [[5], [6]], "beside": 1}) == [
        {"rows": [1, 2], "bias": [5], "beside": 1},
        {"rows": [3], "bias": [6], "beside": 1},
    ]
    for alike in ([[1, 2], [3, 4]], [1, 2], [], [[1]]):
        assert v2_ragged.cut(RAGGED, {"rows": alike}) is None
    with pytest.raises(InvalidArgumentsError, match=r"\$\.bias: must be nested lists"):
        v2_ragged.cut(RAGGED, {"rows": [[1], [2, 3]], "bias": {"dtype": "FP32"}})


def test_the_rows_of_a_result_are_joined_where_they_are_alike() -> None:
    one, two = floats(1, 2, shape=(1, 2)), floats(3, 4, shape=(1, 2))
    joined = v2_ragged.join([{"y": one}, {"y": two}])
    assert codec.to_json(joined["y"]) == b"[[1.0,2.0],[3.0,4.0]]"
    for other in ({"y": floats(3, shape=(1, 1))}, {}, {"z": two}):
        with pytest.raises(BackendAnswerInvalidError, match="differ in length"):
            v2_ragged.join([{"y": one}, other])
