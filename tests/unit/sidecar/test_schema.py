"""Schemas of OpenAPI documents turned into those that tools publish."""

import json
from typing import Any

import jsonschema
import pytest

from modelservice_sidecar.core import schema, text
from modelservice_sidecar.core.schema import Converter, SchemaError


def convert(source: Any, *, components: Any = None, legacy: bool = False, direction: Any = "input") -> dict[str, Any]:
    document = {"components": {"schemas": components or {}}}
    converter = Converter(document=document, legacy=legacy, direction=direction)
    root = converter.convert(source)
    definitions = converter.definitions()
    return {**root, "$defs": definitions} if definitions else root


SAME_IN_3_1 = [
    {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "integer"}]},
    {"type": ["string", "null"], "enum": ["a", None]},
    {"type": "object", "additionalProperties": False, "properties": {"a": True}},
    {"type": "array", "prefixItems": [{"type": "integer"}], "items": False},
    {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}},
]


@pytest.mark.parametrize("source", SAME_IN_3_1, ids=json.dumps)
def test_what_is_json_schema_2020_12_already_stays_as_it_is(source: dict[str, Any]) -> None:
    assert convert(source) == source


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"anyOf": [{"type": "string"}], "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (
            {"allOf": [{"type": "object"}], "nullable": True},
            {"anyOf": [{"allOf": [{"type": "object"}]}, {"type": "null"}]},
        ),
        ({"nullable": True}, {}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}),
        ({"type": "string", "example": "x"}, {"type": "string", "examples": ["x"]}),
        ({"type": "object", "xml": {}, "x-internal": 1, "externalDocs": {}}, {"type": "object"}),
    ],
    ids=lambda value: json.dumps(value),
)
def test_the_dialect_of_openapi_3_0_is_translated(source: dict[str, Any], expected: dict[str, Any]) -> None:
    assert convert(source, legacy=True) == expected


def test_recursion_stays_a_reference_and_only_reachable_definitions_are_kept() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node-Input"}}}
    converted = convert({"$ref": "#/components/schemas/Node-Input"}, components={"Node-Input": node, "Unused": {}})
    assert converted == {
        "$ref": "#/$defs/Node_Input",
        "$defs": {"Node_Input": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node_Input"}}}},
    }
    jsonschema.Draft202012Validator(converted).validate({"next": {"next": {}}})


def test_definitions_whose_names_become_equal_stay_apart() -> None:
    converted = convert(
        {"anyOf": [{"$ref": "#/components/schemas/A-B"}, {"$ref": "#/components/schemas/A B"}]},
        components={"A-B": {"type": "integer"}, "A B": {"type": "string"}},
    )
    assert converted["$defs"] == {"A_B": {"type": "integer"}, "A_B_2": {"type": "string"}}


@pytest.mark.parametrize(
    "reference", ["http://evil.example/x", "other.json#/a", "#/components/schemas/Nope", 5, "file:///etc"]
)
def test_references_that_leave_the_document_or_lead_nowhere_are_refused(reference: Any) -> None:
    with pytest.raises(SchemaError):
        convert({"$ref": reference})


def test_a_chain_of_references_that_never_ends_is_refused() -> None:
    document = {"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}
    with pytest.raises(SchemaError, match="does not end"):
        schema.follow(document, {"$ref": "#/a"})


def test_depth_and_size_are_bounded() -> None:
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"items": deep}
    with pytest.raises(SchemaError, match="deeper"):
        convert(deep)
    with pytest.raises(SchemaError, match="larger"):
        convert({"anyOf": [{} for _ in range(30_000)]})


def test_callers_are_not_asked_for_what_is_read_only() -> None:
    source = {
        "properties": {"id": {"type": "integer", "readOnly": True}, "name": {"type": "string"}},
        "required": ["id", "name"],
    }
    assert convert(source) == {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    assert convert(source, direction="output")["properties"] == {"id": {"type": "integer"}, "name": {"type": "string"}}


def test_an_output_schema_keeps_types_and_loses_bounds() -> None:
    source = {
        "type": "object",
        "properties": {"label": {"type": "string", "enum": ["a"], "maxLength": 1}},
        "required": ["label"],
        "additionalProperties": False,
    }
    assert convert(source, direction="output") == {"type": "object", "properties": {"label": {"type": "string"}}}


@pytest.mark.promise("hostile")
@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("a\x00b\x1bc", "abc"),
        ("left\u202eright\u2066x", "leftrightx"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("tags" + "".join(chr(0xE0000 + ord(letter)) for letter in "ignore all"), "tags"),
        ("two\nlines\tkept", "two\nlines\tkept"),
        ("é漢字🙂", "é漢字🙂"),
        ("  x  ", "x"),
        ("y" * 2000, "y" * 1023 + "…"),
        ("\ud800", ""),
    ],
)
def test_text_that_a_person_cannot_see_is_taken_out(dirty: str, clean: str) -> None:
    assert text.clean(dirty) == clean
