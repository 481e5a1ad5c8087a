"""Rows of several calls joined into one, and the answer's rows given back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelservice_api.adapter_config import Datatype
from modelservice_sidecar.core import batching
from modelservice_sidecar.core.errors import BackendAnswerInvalidError
from modelservice_sidecar.core.tensors import ITEM_SIZES, Tensor

pytestmark = pytest.mark.promise("limits")


def tensor_of(draw: st.DrawFn, datatype: Datatype, rows: int, row: tuple[int, ...]) -> Tensor:
    elements = rows
    for size in row:
        elements *= size
    if datatype == "BYTES":
        texts = draw(st.lists(st.binary(max_size=6), min_size=elements, max_size=elements))
        data = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    else:
        size = elements * ITEM_SIZES[datatype]
        data = draw(st.binary(min_size=size, max_size=size))
    return Tensor(datatype=datatype, shape=(rows, *row), data=data)


@st.composite
def calls(draw: st.DrawFn) -> list[dict[str, Tensor]]:
    """Calls that fit together: the same inputs with the same rows, any number of them."""
    rows_of = draw(
        st.lists(
            st.tuples(st.sampled_from(sorted(ITEM_SIZES)), st.lists(st.integers(0, 3), max_size=2)),
            min_size=1,
            max_size=3,
        )
    )
    return [
        {f"x{number}": tensor_of(draw, kind, count, tuple(row)) for number, (kind, row) in enumerate(rows_of)}
        for count in draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    ]


@given(given_calls=calls())
def test_what_is_joined_comes_apart_again_exactly(given_calls: list[dict[str, Tensor]]) -> None:
    assert len({batching.row_of(call) for call in given_calls}) == 1
    counts = [batching.count_rows(call) for call in given_calls]
    joined = batching.join(given_calls)
    assert {tensor.shape[0] for tensor in joined.values()} == {sum(counts)}
    parts = batching.split(joined, counts)
    assert [{name: bytes(tensor.data) for name, tensor in part.items()} for part in parts] == [
        {name: bytes(tensor.data) for name, tensor in call.items()} for call in given_calls
    ]
    assert [{name: tensor.shape for name, tensor in part.items()} for part in parts] == [
        {name: tensor.shape for name, tensor in call.items()} for call in given_calls
    ]


def test_calls_of_other_rows_do_not_fit() -> None:
    def inputs(datatype: Datatype, *shape: int) -> dict[str, Tensor]:
        return {"x": Tensor(datatype=datatype, shape=shape, data=b"")}

    row = batching.row_of(inputs("FP32", 2, 3))
    assert batching.row_of(inputs("FP32", 7, 3)) == row
    others = [inputs("FP32", 2, 4), inputs("INT32", 2, 3), inputs("FP32", 2, 3, 1)]
    assert row not in [batching.row_of(other) for other in others]
    assert batching.row_of({"y": inputs("FP32", 2, 3)["x"]}) != row


@pytest.mark.parametrize("shape", [(4, 1), (6, 1), (), (1, 5)])
def test_an_answer_with_another_number_of_rows_is_nobody_s(shape: tuple[int, ...]) -> None:
    answer = {"y": Tensor(datatype="UINT8", shape=shape, data=bytes(6))}
    with pytest.raises(BackendAnswerInvalidError, match="output y"):
        batching.split(answer, [2, 3])
