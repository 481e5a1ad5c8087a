"""Checks of arguments and answers against a tool's schemas, compiled once per tool and version.

Owns the choice of validator and the wording of what is wrong. `jsonschema_rs` is imported when the first tool is compiled:
it answers in under a microsecond for small arguments, where the pure Python validator takes a hundred.
"""

from itertools import islice
from typing import Any, Final, Protocol

from modelservice_sidecar.core.schema import Schema

MAX_PROBLEMS: Final = 5
_MAX_MESSAGE: Final = 200
_BACKTRACKS: Final = 50_000
"""A pattern from a model server's document may be one that backtracks for ever; beyond this it counts as no match."""


class SchemaNotCompilableError(Exception):
    """The schema is not valid JSON Schema 2020-12; the text says where."""


class Check(Protocol):
    """Says what is wrong with a value, or `None`."""

    def __call__(self, value: Any) -> str | None: ...


def compile_check(schema: Schema) -> Check:
    """A check for this schema. References outside the schema are never fetched.

    Raises:
        SchemaNotCompilableError: the schema is not usable.
    """
    import jsonschema_rs  # a few megabytes that an adapter without tools does not need

    try:
        validator = jsonschema_rs.Draft202012Validator(
            schema,
            offline=True,
            mask="the value",  # values can be large and are the caller's: they are not repeated
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
        )
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise SchemaNotCompilableError(str(error).splitlines()[0][:_MAX_MESSAGE] or "invalid schema") from error

    def check(value: Any) -> str | None:
        try:
            if validator.is_valid(value):
                return None
            return "; ".join(_words(error) for error in islice(validator.iter_errors(value), MAX_PROBLEMS))
        except ValueError:  # an integer beyond 64 bits, a lone surrogate, nesting beyond the validator's bound
            return "$: holds a value that is out of range"

    return check


def _words(error: Any) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in list(error.instance_path)[:32])
    return f"${path[:_MAX_MESSAGE]}: {error.message[:_MAX_MESSAGE]}"
