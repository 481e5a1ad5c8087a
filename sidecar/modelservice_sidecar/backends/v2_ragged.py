"""Rows of different lengths in one call: each is a request of its own, which the server's batcher joins with the others.

Owns the cutting of arguments into rows and the joining of what came back. Pure. Only nested lists can be so: bytes are not.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from modelservice_sidecar.core import text
from modelservice_sidecar.core.errors import BackendAnswerInvalidError, InvalidArgumentsError
from modelservice_sidecar.core.tensors import Signature, Tensor, TensorSpec


def cut(signature: Signature, arguments: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The arguments of each row, without the batch axis, or `None` where one request can hold all rows.

    Raises:
        InvalidArgumentsError: the rows of one argument differ, and another one is bytes.
    """
    if signature.controls:
        return None  # rows of one sequence must not overtake each other
    if not any(_differs(spec, arguments.get(spec.key)) for spec in signature.inputs if spec.ragged):
        return None
    given = [spec.key for spec in signature.inputs if spec.key in arguments]
    for key in given:
        if not isinstance(arguments[key], list):
            raise InvalidArgumentsError(
                f"Invalid arguments: $.{key}: must be nested lists where rows of another argument differ in length"
            )
    beside = {key: value for key, value in arguments.items() if key not in given}
    return [{**beside, **{key: arguments[key][row] for key in given}} for row in range(len(arguments[given[0]]))]


def join(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The outputs of all rows as one tensor each.

    Raises:
        BackendAnswerInvalidError: the rows of one output differ.
    """
    joined: dict[str, Tensor] = {}
    for name, first in rows[0].items():
        parts = [row.get(name) for row in rows]
        same = [
            part for part in parts if part is not None and (part.datatype, part.shape) == (first.datatype, first.shape)
        ]
        if len(same) < len(parts) or first.shape[:1] != (1,):
            raise BackendAnswerInvalidError(
                f"The rows of the output {text.clean(name, 64)} differ in length; call with one row at a time."
            )
        shape = (len(parts), *first.shape[1:])
        joined[name] = Tensor(datatype=first.datatype, shape=shape, data=b"".join(part.data for part in same))
    return joined


def _differs(spec: TensorSpec, value: object) -> bool:
    """Whether this is a batch whose rows have different lengths, at any depth."""
    if not isinstance(value, list) or not value or len(_shape(value)) != len(spec.shape):
        return False
    first = _shape(value[0])
    return any(_shape(row) != first for row in value)


def _shape(value: object) -> tuple[int, ...]:
    """The lengths along the first elements; that all others have the same is checked where they are converted."""
    found: list[int] = []
    while isinstance(value, list):
        found.append(len(value))
        value = value[0] if value else None
    return tuple(found)
