"""Checks of arguments and answers against a tool's schemas, compiled once per tool and version.

Owns the choice of validator and the wording of what is wrong. `jsonschema_rs` is imported when the first tool is compiled:
it answers in under a microsecond for small arguments, where the pure Python validator takes a hundred.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from modelservice_sidecar.core.schema import Schema

MAX_PROBLEMS: Final = 5
_MAX_MESSAGE: Final = 200
_BACKTRACKS: Final = 50_000
"""A pattern from a model server's document may be one that backtracks for ever; beyond this it counts as no match."""


class SchemaNotCompilableError(Exception):
    """The schema is not valid JSON Schema 2020-12; the text says where."""


class Problem(NamedTuple):
    """One thing that is wrong: where (`[0].name`, empty for the value itself), with which keyword of the schema, and how."""

    path: str
    keyword: str
    message: str


class Check(Protocol):
    """Says what is wrong with a value, or `None`."""

    def __call__(self, value: Any) -> str | None: ...


def compile_check(schema: Schema) -> Check:
    """A check for this schema. References outside the schema are never fetched.

    Raises:
        SchemaNotCompilableError: the schema is not usable.
    """
    validator = _compiled(schema)

    def check(value: Any) -> str | None:
        try:
            if validator.is_valid(value):
                return None
            return "; ".join(_words(error) for error in islice(validator.iter_errors(value), MAX_PROBLEMS))
        except ValueError:  # an integer beyond 64 bits, a lone surrogate, nesting beyond the validator's bound
            return "$: holds a value that is out of range"

    return check


def is_pattern(pattern: str) -> bool:
    """Whether the validator can use this regular expression."""
    import jsonschema_rs

    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, offline=True)
    except (ValueError, jsonschema_rs.ValidationError):
        return False
    return True


def compile_first(schema: Schema) -> Callable[[Any], Problem | None]:
    """Like `compile_check`, for callers that word one problem themselves: it tells the first.

    Raises:
        SchemaNotCompilableError: the schema is not usable.
    """
    validator = _compiled(schema)

    def check(value: Any) -> Problem | None:
        try:
            if validator.is_valid(value):
                return None
            error = next(validator.iter_errors(value))
        except ValueError:
            return Problem("", "", "holds a value that is out of range")
        return Problem(_path(error), str(error.kind.name), error.message[:_MAX_MESSAGE])

    return check


def _compiled(schema: Schema) -> Any:
    import jsonschema_rs  # a few megabytes that an adapter without tools does not need

    try:
        return jsonschema_rs.Draft202012Validator(
            schema,
            offline=True,
            mask="the value",  # values can be large and are the caller's: they are not repeated
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
        )
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise SchemaNotCompilableError(str(error).splitlines()[0][:_MAX_MESSAGE] or "invalid schema") from error


def _words(error: Any) -> str:
    return f"${_path(error)}: {error.message[:_MAX_MESSAGE]}"


def _path(error: Any) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in list(error.instance_path)[:32])
    return path[:_MAX_MESSAGE]
