"""Operations of Swagger 2.0 written as OpenAPI 3.0 writes them, one at a time, so that one bad one costs only itself.

Owns what differs: types beside the parameter instead of in a schema, bodies and form fields as parameters, `consumes`,
`produces`, `collectionFormat`. Pure. References stay as they are, since the document stays as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from modelservice_sidecar.core.schema import Schema, SchemaError, follow

_NO_SCHEMA: Final = frozenset(
    {"name", "in", "required", "description", "collectionFormat", "allowEmptyValue", "schema"}
)
_LISTS: Final[dict[str, tuple[str, bool]]] = {
    "csv": ("", False),
    "ssv": ("spaceDelimited", False),
    "tsv": ("tabDelimited", False),
    "pipes": ("pipeDelimited", False),
    "multi": ("form", True),
}
_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"


def rewritten(document: Mapping[str, Any], operation: Mapping[str, Any], shared: Sequence[Any]) -> dict[str, Any]:
    """The operation with 3.0's `parameters`, `requestBody` and `responses`; `shared` are its path's parameters.

    Raises:
        SchemaError: a parameter leads nowhere or says no name.
    """
    chosen: dict[tuple[str, str], dict[str, Any]] = {}
    own = operation.get("parameters")
    for raw in (*shared, *(own if isinstance(own, list) else ())):
        parameter = follow(document, raw)
        if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
            raise SchemaError("a parameter has no name")
        place = str(parameter.get("in"))
        chosen[place, "" if place == "body" else parameter["name"]] = parameter
    plain = [with_schema(found) for (place, _), found in chosen.items() if place not in {"body", "formData"}]
    fields = [found for (place, _), found in chosen.items() if place == "formData"]
    consumes = _media_types(document, operation, "consumes")
    result: dict[str, Any] = {**operation, "parameters": plain, "responses": _responses(document, operation)}
    if fields:
        result["requestBody"] = _form(fields, consumes)
    elif (body := chosen.get(("body", ""))) is not None:
        media = [name for name in consumes if name not in {_FORM, _MULTIPART}] or ["application/json"]
        result["requestBody"] = {
            "required": body.get("required") is True,
            "content": {name: {"schema": body.get("schema", {})} for name in media},
        }
    return result


def with_schema(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter whose type stands beside its name, with that type as its schema."""
    result = {key: parameter[key] for key in ("name", "in", "required", "description") if key in parameter}
    result["schema"] = _schema(parameter)
    if result["schema"].get("type") == "array":
        style, result["explode"] = _LISTS.get(str(parameter.get("collectionFormat")), _LISTS["csv"])
        if style:
            result["style"] = style
    return result


def _schema(parameter: Mapping[str, Any]) -> Schema:
    return {key: value for key, value in parameter.items() if key not in _NO_SCHEMA}


def _form(fields: Sequence[Mapping[str, Any]], consumes: Sequence[str]) -> dict[str, Any]:
    files = any(one.get("type") == "file" for one in fields)
    media = _MULTIPART if files or (_MULTIPART in consumes and _FORM not in consumes) else _FORM
    encoding: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for one in fields:
        properties[one["name"]] = _schema(one)
        if isinstance(one.get("description"), str):
            properties[one["name"]]["description"] = one["description"]
        if one.get("type") == "array":
            style, explode = _LISTS.get(str(one.get("collectionFormat")), _LISTS["csv"])
            encoding[one["name"]] = {"style": style or "form", "explode": explode}
    required = [one["name"] for one in fields if one.get("required") is True]
    schema: Schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"required": True, "content": {media: {"schema": schema, "encoding": encoding}}}


def _responses(document: Mapping[str, Any], operation: Mapping[str, Any]) -> dict[str, Any]:
    raw = operation.get("responses")
    produces = _media_types(document, operation, "produces") or ["application/json"]
    found: dict[str, Any] = {}
    for code, response in raw.items() if isinstance(raw, dict) else ():
        try:
            answer = follow(document, response)
        except SchemaError:
            answer = None
        schema = answer.get("schema") if isinstance(answer, dict) else None
        found[code] = {} if schema is None else {"content": {name: {"schema": schema} for name in produces}}
    return found


def _media_types(document: Mapping[str, Any], operation: Mapping[str, Any], key: str) -> list[str]:
    given = operation.get(key, document.get(key))
    return [name for name in given if isinstance(name, str)] if isinstance(given, list) else []
