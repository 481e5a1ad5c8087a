"""What is said about a model's tensors: names, shapes, schemas, and how a declaration differs."""

from dataclasses import replace
from typing import Any, get_args

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelservice_api.adapter_config import Datatype, ModelConfig, TensorConfig
from modelservice_sidecar.core import tensors
from modelservice_sidecar.core.model_spec import differences
from modelservice_sidecar.core.tensors import Signature, TensorSpec

ADD = Signature(
    inputs=(
        tensors.batch_axis(TensorSpec(name="a", datatype="FP32", shape=(2,)), 16),
        tensors.batch_axis(TensorSpec(name="b/x", datatype="INT64", shape=(-1,), argument="b_x", optional=True), 16),
    ),
    outputs=(tensors.batch_axis(TensorSpec(name="s", datatype="FP32", shape=(-1,)), 16),),
    max_batch=16,
)


@given(st.lists(st.text(max_size=80), max_size=8))
def test_arguments_have_names_that_providers_take_and_each_its_own(names: list[str]) -> None:
    found = tensors.argument_names(names)
    assert len(set(found)) == len(found) == len(names)
    for name in found:
        assert 0 < len(name) <= 64
        assert not set(name) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


def test_legal_names_stay_as_they_are_and_clashes_are_numbered() -> None:
    assert tensors.argument_names(["x.1", "in/put", "in:put", "", "in_put_2"]) == [
        "x.1", "in_put", "in_put_2", "tensor", "in_put_2_2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (TensorSpec(name="a", datatype="FP32", shape=()), "FP32[]"),
        (TensorSpec(name="a", datatype="FP32", shape=(-1, 4)), "FP32[?, 4]"),
        (TensorSpec(name="a", datatype="INT8", shape=(-1,), bounds={0: (2, None)}), "INT8[2..]"),
        (TensorSpec(name="a", datatype="INT8", shape=(-1,), bounds={0: (3, 3)}), "INT8[3]"),
        (ADD.inputs[0], "FP32[1..16, 2]"),
    ],
)
def test_a_tensor_says_what_it_is(spec: TensorSpec, told: str) -> None:
    assert str(spec) == told


def test_the_batch_axis_shifts_bounds_and_keeps_the_rest() -> None:
    spec = TensorSpec(
        name="a", datatype="FP32", shape=(3, -1), argument="b", optional=True, ragged=True, bounds={1: (1, 64)}
    )
    batched = tensors.batch_axis(spec, 8)
    assert batched == replace(spec, shape=(-1, 3, -1), bounds={0: (1, 8), 2: (1, 64)})


@pytest.mark.parametrize("datatype", get_args(Datatype))
@pytest.mark.parametrize("shape", [(), (1,), (-1, 2)])
@pytest.mark.parametrize("max_batch", [0, 4])
@pytest.mark.parametrize("nulls", [True, False])
def test_every_signature_has_schemas_that_compile(
    datatype: Datatype, shape: tuple[int, ...], max_batch: int, nulls: bool
) -> None:
    spec = TensorSpec(name="t", datatype=datatype, shape=shape)
    if max_batch:
        spec = tensors.batch_axis(spec, max_batch)
    signature = Signature(inputs=(spec,), outputs=(spec,), max_batch=max_batch, nulls=nulls)
    for schema in (tensors.input_schema(signature), tensors.output_schema(signature)):
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
        jsonschema_rs.Draft202012Validator(schema, offline=True)


@given(st.sampled_from(["INT64", "UINT64"]), st.integers() | st.text(max_size=22) | st.floats() | st.none())
def test_the_schema_without_alternatives_means_the_same(datatype: Datatype, value: Any) -> None:
    spec = TensorSpec(name="a", datatype=datatype, shape=())
    with_them = jsonschema_rs.Draft202012Validator(tensors.list_schema(spec))
    without = jsonschema_rs.Draft202012Validator(tensors.list_schema(spec, alternatives=False))
    try:
        expected = with_them.is_valid(value)
    except ValueError:
        return
    assert without.is_valid(value) is expected


def test_t1_the_schema_of_a_batched_model() -> None:
    schema = tensors.input_schema(ADD)
    whole, row, raw = schema["properties"]["a"]["anyOf"]
    assert (whole["maxItems"], whole["items"]["items"], row["maxItems"]) == (16, {"type": "number"}, 2)
    assert raw == {"$ref": "#/$defs/Tensor"}
    assert (schema["required"], schema["additionalProperties"]) == (["a"], False)


@pytest.mark.parametrize(
    ("shape", "skip", "told"),
    [
        ((1, 2), False, None),
        ((2,), True, None),
        ((17, 2), False, "has size 17 in dimension 0, FP32[1..16, 2] allows 1 to 16"),
        ((0, 2), False, "has size 0 in dimension 0, FP32[1..16, 2] allows 1 to 16"),
        ((1, 3), False, "has size 3 in dimension 1, FP32[1..16, 2] allows 2"),
        ((3,), True, "has size 3 in dimension 0, FP32[1..16, 2] allows 2"),
        ((1, 2, 1), False, "has 3 dimensions, FP32[1..16, 2] needs 2"),
        ((), False, "has 0 dimensions, FP32[1..16, 2] needs 2"),
    ],
)
def test_a_shape_that_does_not_fit_is_said_how(shape: tuple[int, ...], skip: bool, told: str | None) -> None:
    assert tensors.shape_problem(ADD.inputs[0], shape, skip_batch=skip) == told


BATCH = ", of which the first dimension is the batch."


def declared(name: str, datatype: Datatype, *shape: int) -> TensorConfig:
    return TensorConfig(name=name, datatype=datatype, shape=shape)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (ModelConfig(), ()),
        (ModelConfig(inputs=(declared("a", "FP32", -1, 2),), outputs=(declared("s", "FP32", -1, 8),)), ()),
        (ModelConfig(inputs=(declared("a", "FP32", 16, -1), declared("b/x", "INT64", -1, -1))), ()),
        (ModelConfig(inputs=(declared("a", "FP32", -1, 2), declared("b_x", "INT64", 1, 1))), ()),
        (
            ModelConfig(inputs=(declared("a", "FP64", -1, 2),)),
            ("The input a is declared as FP64[?, 2], but the model takes FP32[1..16, 2].",),
        ),
        (
            ModelConfig(inputs=(declared("a", "FP32", 2),)),
            (f"The input a is declared as FP32[2], but the model takes FP32[1..16, 2]{BATCH}",),
        ),
        (
            ModelConfig(inputs=(declared("a", "FP32", 17, 3),)),
            (f"The input a is declared as FP32[17, 3], but the model takes FP32[1..16, 2]{BATCH}",),
        ),
        (
            ModelConfig(inputs=(declared("z", "FP32", -1),), outputs=(declared("t", "FP32"),)),
            (
                "The input z is declared, but the model has no such input; it has a, b/x.",
                "The model needs the input a (FP32[1..16, 2]), which is not declared.",
                "The output t is declared, but the model has no such output; it has s.",
            ),
        ),
    ],
)
def test_a_declaration_that_is_not_the_model_is_told_tensor_by_tensor(
    config: ModelConfig, told: tuple[str, ...]
) -> None:
    assert differences(config, ADD) == told
