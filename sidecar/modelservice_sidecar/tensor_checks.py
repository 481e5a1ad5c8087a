"""The check of a tensor tool's arguments: against its signature, before a byte is converted or sent.

Owns which of the accepted forms an argument has and what is wrong with it, with the path of the place. A schema with
alternatives would say only that none of them fits.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from modelservice_sidecar.core import tensors
from modelservice_sidecar.core.tensors import Signature, Tensor, TensorSpec
from modelservice_sidecar.validation import Check, Problem, compile_first

_MAX_NAMED: Final = 5


def compile_tensor_check(signature: Signature) -> Check:
    """A check of the whole argument object for this signature."""
    specs = {spec.key: spec for spec in signature.inputs}
    checks = {key: _compile(spec, signature) for key, spec in specs.items()}
    required = [spec.key for spec in signature.inputs if not spec.optional]
    required += [control.name for control in signature.controls if control.required]
    controls = {control.name: compile_first(control.schema) for control in signature.controls}

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "$: is not an object"
        arguments: dict[str, Any] = value
        unknown = [key for key in arguments if key not in specs and key not in controls]
        if unknown:
            known = ", ".join([*specs, *controls]) or "none"
            return f"$.{str(unknown[0])[:64]}: is no argument of this tool; its arguments are {known}"
        missing = [key for key in required if key not in arguments]
        if missing:
            return f"$: lacks {', '.join(missing[:_MAX_NAMED])}"
        tensors_given = {key: given for key, given in arguments.items() if key in specs} if controls else arguments
        for key, given in tensors_given.items():
            problem = checks[key](given)
            if problem is not None:
                return f"$.{key}{problem}"
        for key, check_control in controls.items():
            wrong = check_control(arguments[key]) if key in arguments else None
            if wrong is not None:
                return f"$.{key}{wrong.path}: {wrong.message}"
        return _mixed(specs, tensors_given) if signature.batched else None

    return check


def is_unbatched(spec: TensorSpec, value: object) -> bool:
    """Whether this argument of a batched tool comes without its batch axis. An empty list is no rows, not an empty row."""
    return value != [] and tensors.is_unbatched(spec, _rank(value))


def _compile(spec: TensorSpec, signature: Signature) -> Callable[[Any], str | None]:
    """A check of one argument; what it says begins with the rest of the path."""
    whole = compile_first(tensors.list_schema(spec, alternatives=False))
    one_row = whole
    if signature.batched:
        one_row = compile_first(tensors.list_schema(spec, skip_batch=True, alternatives=False))

    def check(value: Any) -> str | None:
        if isinstance(value, Tensor):
            return _tensor_problem(spec, signature, value.datatype, value.shape)
        if isinstance(value, dict):
            return _object_problem(spec, signature, value)
        lists = one_row if signature.batched and is_unbatched(spec, value) else whole
        problem = lists(value)
        return None if problem is None else f"{problem.path}: {_worded(spec, problem)} ({spec})"

    return check


def _worded(spec: TensorSpec, problem: Problem) -> str:
    wide = tensors.is_wide(spec.datatype)
    if wide and problem.keyword in {"minimum", "maximum"}:
        least, _ = tensors.integer_range(spec.datatype)
        if problem.keyword == "maximum" or least < 0:
            return "the integer is beyond 2^53, where JSON readers lose digits; write it as a string of its digits"
    if wide and problem.keyword == "pattern":
        return "the string is no integer in decimal digits"
    return problem.message


_check_object: Callable[[Any], Problem | None] | None = None


def _object_problem(spec: TensorSpec, signature: Signature, value: Mapping[str, Any]) -> str | None:
    global _check_object
    if _check_object is None:
        _check_object = compile_first(tensors.TENSOR_OBJECT)
    problem = _check_object(value)
    if problem is not None:
        return f"{problem.path}: {problem.message}"
    return _tensor_problem(spec, signature, value["dtype"], tuple(value["shape"]))


def _tensor_problem(spec: TensorSpec, signature: Signature, datatype: str, shape: tuple[int, ...]) -> str | None:
    if datatype != spec.datatype:
        return f": is {datatype[:32]}, {spec} is needed"
    skip_batch = signature.batched and tensors.is_unbatched(spec, len(shape))
    problem = tensors.shape_problem(spec, shape, skip_batch=skip_batch)
    return None if problem is None else f": {problem}"


def _mixed(specs: Mapping[str, TensorSpec], arguments: Mapping[str, Any]) -> str | None:
    """The batch axis is there for all inputs or for none, and then of one size."""
    without = [key for key, value in arguments.items() if is_unbatched(specs[key], value)]
    if without and len(without) < len(arguments):
        other = next(key for key in arguments if key not in without)
        return f"$.{without[0]}: has no batch axis, but {other} has one; give it to all arguments or to none"
    if without or len(arguments) < 2:
        return None
    rows = {key: _rows(value) for key, value in arguments.items()}
    first, size = next(iter(rows.items()))
    for key, found in rows.items():
        if found != size:
            return f"$.{key}: has {found} rows, {first} has {size}"
    return None


def _rank(value: object) -> int:
    if isinstance(value, Tensor):
        return len(value.shape)
    if isinstance(value, dict):
        shape = value.get("shape")
        return len(shape) if isinstance(shape, list) else -1
    rank = 0
    while isinstance(value, list) and rank <= tensors.MAX_RANK:
        rank += 1
        if not value:
            break
        value = value[0]
    return rank


def _rows(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.shape[0]
    return int(value["shape"][0]) if isinstance(value, dict) else len(value)
