"""Several calls of one tensor model as one: their rows put together, and the answer's rows given back.

Owns which calls fit together and the cutting of tensors along the batch axis. Pure, and without numpy: rows of C-ordered
elements follow one another, so joining them is joining bytes.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from modelservice_api.adapter_config import Datatype
from modelservice_sidecar.core.errors import BackendAnswerInvalidError
from modelservice_sidecar.core.tensors import ITEM_SIZES, Tensor

Tensors = Mapping[str, Tensor]


class Row(NamedTuple):
    """What one row of an input is."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]


def row_of(inputs: Tensors) -> tuple[Row, ...]:
    """Calls whose rows are equal can be one call. Axis 0 of every input is the batch axis."""
    return tuple(Row(name, tensor.datatype, tensor.shape[1:]) for name, tensor in inputs.items())


def count_rows(inputs: Tensors) -> int:
    """The size of the batch axis, which all inputs share."""
    return next(iter(inputs.values())).shape[0]


def join(calls: Sequence[Tensors]) -> dict[str, Tensor]:
    """The inputs of all calls, one after another. There is at least one call, and their rows are equal."""
    first = calls[0]
    if len(calls) == 1:
        return dict(first)
    joined: dict[str, Tensor] = {}
    for name, tensor in first.items():
        parts = [inputs[name] for inputs in calls]
        joined[name] = Tensor(
            datatype=tensor.datatype,
            shape=(sum(part.shape[0] for part in parts), *tensor.shape[1:]),
            data=b"".join(part.data for part in parts),
        )
    return joined


def split(outputs: Tensors, rows: Sequence[int]) -> list[dict[str, Tensor]]:
    """The outputs of each call again, which gave so many rows each.

    Raises:
        BackendAnswerInvalidError: an output has another number of rows than went in.
    """
    parts: list[dict[str, Tensor]] = [{} for _ in rows]
    whole = sum(rows)
    for name, tensor in outputs.items():
        if tensor.shape[:1] != (whole,):
            raise BackendAnswerInvalidError(
                f"The model answered {whole} rows with an output {name} of shape {list(tensor.shape)}; "
                "a model whose outputs do not follow the rows of its inputs cannot be batched."
            )
        if len(rows) == 1:
            parts[0][name] = tensor
            continue
        data = memoryview(tensor.data)
        begin = 0
        for part, count, end in zip(parts, rows, _ends(tensor, rows), strict=True):
            # A copy: a slice would keep the whole batch's answer in memory for as long as one call's.
            piece = bytes(data[begin:end])
            part[name] = Tensor(datatype=tensor.datatype, shape=(count, *tensor.shape[1:]), data=piece)
            begin = end
    return parts


def _ends(tensor: Tensor, rows: Sequence[int]) -> list[int]:
    """Where each call's rows end in the data."""
    per_row = prod(tensor.shape[1:])
    size = ITEM_SIZES[tensor.datatype]
    ends: list[int] = []
    end = 0
    for count in rows:
        end = _skip(tensor.data, end, count * per_row) if tensor.datatype == "BYTES" else end + count * per_row * size
        ends.append(end)
    return ends


def _skip(data: bytes | bytearray | memoryview, begin: int, elements: int) -> int:
    """Behind so many elements of BYTES, each of which follows its length."""
    for _ in range(elements):
        begin += 4 + int.from_bytes(data[begin : begin + 4], "little")
    return begin
