"""Documents that break their own rules: each fault costs a sentence, at most its own operation, and never the catalogue."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broken_documents import SWAGGER
from model_apps import torture_app
from modelservice_api.adapter_config import OpenAPIConfig, ToolsConfig
from modelservice_sidecar import published, validation
from modelservice_sidecar.core import catalogue, openapi, schema
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import DescribeError

OK: dict[str, Any] = {"responses": {"200": {"description": "ok"}}}


def read(document: Any, **config: Any) -> openapi.Reading:
    return openapi.read(document, OpenAPIConfig(**config), is_pattern=validation.is_pattern)


def with_body(argument: Any, version: str = "3.1.0", **components: Any) -> dict[str, Any]:
    """A document whose one operation takes the argument `a` of this schema."""
    body = {"type": "object", "properties": {"a": argument}}
    operation = {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}, **OK}
    paths = {"/x": {"post": {"operationId": "x", **operation}}}
    return {"openapi": version, "paths": paths, "components": {"schemas": components}}


COLOUR = {"type": "string", "enum": ["red", "blue"]}

REPAIRED: list[tuple[Any, Any, str]] = [
    # schema of the argument `a`, the schema it is published with, words of the note
    ({"type": "integer", "default": "five"}, {"type": "integer"}, "$.a has a default that its own schema refuses"),
    ({**COLOUR, "default": "green"}, COLOUR, "$.a has a default that its own schema refuses"),
    ({"type": "integer", "maximum": 3, "default": 4}, {"type": "integer", "maximum": 3}, "default"),
    ({"type": "string", "minLength": 1, "default": ""}, {"type": "string", "minLength": 1}, "default"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": "x"},
     {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "default"),
    ({"type": "string", "default": None}, {"type": "string"}, ""),
    ({"type": "string", "pattern": "("}, {"type": "string"}, "$.a has a pattern that is no valid regular expression"),
    ({"type": "string", "pattern": "\\p{L}+"}, {"type": "string", "pattern": "\\p{L}+"}, ""),
    ({"patternProperties": {"[": {}, "^a": {}}}, {"patternProperties": {"^a": {}}}, "pattern"),
    ({"type": "int"}, {"type": "integer"}, "$.a has the type 'int', which JSON Schema has not"),
    ({"type": ["str", "null"]}, {"type": ["string", "null"]}, "type"),
    ({"type": "thing"}, {}, "type"),
    ({"type": 5}, {}, "type"),
    ({"type": "string", "minLength": "5"}, {"type": "string"}, "$.a has a minLength that JSON Schema does not allow"),
    ({"minimum": True}, {}, "minimum"),
    ({"multipleOf": 0}, {}, "multipleOf"),
    ({"maxItems": -1}, {}, "maxItems"),
    ({"uniqueItems": "yes"}, {}, "uniqueItems"),
    ({"format": 5}, {}, "format"),
    ({"enum": {"a": 1}}, {}, "enum"),
    ({"enum": []}, {}, "enum"),
    ({"enum": [1, 1, True]}, {"enum": [1, True]}, ""),
    ({"type": "string", "enum": [True, "on"]}, {"type": "string", "enum": ["on"]}, "not of its type"),
    ({"type": "string", "enum": [1, 2]}, {"type": "string"}, "not of its type"),
    ({"type": "string", "const": 1}, {"type": "string"}, "not of its type"),
    ({"minimum": 5, "maximum": 1}, {}, "a minimum above its maximum"),
    ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}, ""),
    ({"exclusiveMinimum": True}, {}, ""),
    ({"items": [{"type": "integer"}, {}]}, {"prefixItems": [{"type": "integer"}, {}]}, ""),
    ({"items": "string"}, {}, "items"),
    ({"anyOf": []}, {}, "anyOf"),
    ({"anyOf": ["x", {"type": "null"}]}, {"anyOf": [{}, {"type": "null"}]}, "$.a.anyOf[0] is not a schema"),
    ({"properties": []}, {}, "properties"),
    ({"properties": {"b": 5}}, {"properties": {"b": {}}}, "$.a.b is not a schema"),
    ({"properties": {"b": {"type": "string", "required": True}}},
     {"properties": {"b": {"type": "string"}}, "required": ["b"]}, ""),
    ({"required": "b"}, {}, "required"),
    ({"properties": {"b": {}}, "required": ["ghost", "b", "b"], "additionalProperties": False},
     {"properties": {"b": {}}, "required": ["b"], "additionalProperties": False}, "requires 'ghost', which it has not"),
    ({"description": ["x"], "title": 5, "examples": {}, "deprecated": "no", "optional": True}, {}, "deprecated"),
    ({"example": "x" * 5000, "default": ["y" * 5000]}, {}, ""),
    ({"examples": ["zero\u200bwidth", "plain"]}, {"examples": ["plain"]}, ""),
    ("string", {}, "$.a is not a schema, so anything is accepted there"),
]  # fmt: skip


@pytest.mark.promise("document-repaired")
@pytest.mark.parametrize(("argument", "expected", "note"), REPAIRED, ids=[str(row[0])[:60] for row in REPAIRED])
@pytest.mark.parametrize("version", ["3.1.0", "3.0.3"])
def test_a_schema_that_breaks_json_schema_is_repaired_and_the_note_says_where(
    version: str, argument: Any, expected: Any, note: str
) -> None:
    reading = read(with_body(argument, version))
    [tool] = reading.tools
    assert tool.input_schema["properties"] == {"a": expected}
    assert bool(reading.notes) is bool(note), reading.notes
    assert note in "".join(reading.notes)
    assert all(said.startswith("POST /x: ") and said.endswith(".") for said in reading.notes)
    assert set(published.publish(reading.tools, ToolsConfig(), ()).tools) == {"x"}


def test_siblings_of_a_reference_count_as_the_version_says() -> None:
    argument = {"$ref": "#/components/schemas/C", "default": "green", "description": "Which.", "maxLength": 3}
    for version, kept in (("3.1.0", {"description": "Which.", "maxLength": 3}), ("3.0.3", {"description": "Which."})):
        reading = read(with_body(argument, version, C=COLOUR))
        assert reading.tools[0].input_schema["properties"] == {"a": {"$ref": "#/$defs/C", **kept}}
        assert "$.a has a default" in reading.notes[0]
    nullable = read(with_body({**argument, "nullable": True, "default": None}, "3.0.3", C=COLOUR)).tools[0]
    assert {"type": "null"} in nullable.input_schema["properties"]["a"]["anyOf"]


def test_a_schema_pasted_with_its_own_definitions_keeps_them() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    reading = read(with_body({"$ref": "#/$defs/Node", "$defs": {"Node": node}}))
    assert not reading.notes
    [tool] = reading.tools
    check = validation.compile_check(tool.input_schema)
    assert check({"a": {"next": {"next": {}}}}) is None
    assert "next.next" in str(check({"a": {"next": {"next": 5}}}))


BASE = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], "additionalProperties": False}
OWN = {"type": "object", "properties": {"name": {"type": "string"}}}


def test_inheritance_is_one_object_also_where_its_parts_forbid_each_other() -> None:
    derived = {"allOf": [{"$ref": "#/components/schemas/Base"}, OWN], "description": "A thing."}
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Derived"}}}}
    document = {
        "openapi": "3.0.0",
        "paths": {"/x": {"post": {"operationId": "x", "requestBody": body, **OK}}},
        "components": {"schemas": {"Base": BASE, "Derived": derived}},
    }
    reading = read(document)
    assert reading.notes == ()
    assert reading.tools[0].input_schema == {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
        "required": ["id"],
        "additionalProperties": False,
    }
    inside = read(with_body({"type": "array", "items": derived}, Base=BASE))
    check = validation.compile_check(inside.tools[0].input_schema)
    assert check({"a": [{"id": 1, "name": "x"}]}) is None
    assert check({"a": [{"id": 1, "other": "x"}]}) is not None
    assert "$.a[] has parts in its allOf that forbid each other's properties" in inside.notes[0]


def test_parts_that_say_more_than_properties_stay_a_composition() -> None:
    for part in ({"minProperties": 1}, {"anyOf": [OWN]}, {"type": "string"}, {"nullable": True}):
        argument = {"allOf": [OWN, {**part}]}
        [tool] = read(with_body(argument)).tools
        assert "allOf" in tool.input_schema["properties"]["a"]
    alone = {
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"allOf": [OWN, {"not": {}}]}}}}
    }
    [tool] = read({"openapi": "3.1.0", "paths": {"/x": {"post": {**OK, **alone}}}}).tools
    assert set(tool.input_schema["properties"]) == {"body"}


def test_parts_that_never_end_and_properties_in_two_parts_are_bounded() -> None:
    round_and_round = {"allOf": [{"$ref": "#/components/schemas/Round"}, OWN, BASE]}
    assert schema.merged({"components": {"schemas": {"Round": round_and_round}}}, round_and_round) is None
    both = {"allOf": [OWN, {"properties": {"name": {"maxLength": 3}}}]}
    merged = schema.merged({}, both)
    assert merged is not None
    assert merged["properties"] == {"name": {"allOf": [{"type": "string"}, {"maxLength": 3}]}}


LEFT_OUT: list[tuple[dict[str, Any], str]] = [
    ({"parameters": [{"in": "query"}]}, "a parameter has no name"),
    ({"parameters": [{"name": "q", "in": "body"}]}, "the parameter 'q' is in an unknown place"),
    ({"parameters": [{"name": "q", "in": ["query"]}]}, "the parameter 'q' is in an unknown place"),
    ({"parameters": [{"name": "x\r\ny: 1", "in": "header"}]}, "cannot be a header's name"),
    ({"parameters": [{"$ref": "#/components/parameters/none"}]}, "points nowhere"),
    ({"parameters": [{"name": "q", "in": "query", "schema": {"$ref": "other.yaml#/Q"}}]}, "leaves the document"),
    ({"parameters": [{"name": "q", "in": "query", "schema": {"$ref": 5}}]}, "leaves the document"),
    ({"parameters": [{"name": "q", "in": "query", "schema": {"$ref": "#Q"}}]}, "points nowhere"),
    ({"requestBody": {"$ref": "https://example.com/body.json"}}, "leaves the document"),
    ({"requestBody": {"content": {"multipart/form-data": {"schema": {"type": "array"}}}}}, "named fields"),
    ({"requestBody": {"content": {"text/plain\r\nx: y": {}}}}, "is no media type"),
    ({"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Round"}}}}}, "not end"),
]


@pytest.mark.promise("document-repaired")
@pytest.mark.parametrize(("fault", "reason"), LEFT_OUT, ids=[row[1] for row in LEFT_OUT])
def test_what_cannot_be_repaired_costs_its_own_operation_and_names_it(fault: dict[str, Any], reason: str) -> None:
    paths = {"/bad": {"post": {"operationId": "bad", **OK, **fault}}, "/good": {"get": {"operationId": "good", **OK}}}
    components = {"schemas": {"Round": {"$ref": "#/components/schemas/Round"}}}
    reading = read({"openapi": "3.1.0", "paths": paths, "components": components})
    assert [tool.name for tool in reading.tools] == ["good"]
    [note] = reading.notes
    assert note.startswith("POST /bad is not published: ")
    assert reason in note


def test_paths_that_are_none_are_left_out_with_their_reason() -> None:
    good = {"operationId": "good", **OK}
    paths: dict[str, Any] = {
        "/good": {"get": good, "post": 5, "parameters": "none"},
        "no-slash": {"get": OK},
        "/query?a=1": {"get": OK},
        "/list": [],
        "/nowhere": {"$ref": "#/paths/~1none"},
        "/elsewhere": {"$ref": "paths.yaml#/x"},
        "x-internal": {"get": OK},
    }
    reading = read({"openapi": "3.0.0", "paths": paths})
    assert [tool.name for tool in reading.tools] == ["good"]
    assert len(reading.notes) == 6
    for path in ("POST /good", "no-slash", "/query?a=1", "/list", "/nowhere", "/elsewhere"):
        assert any(note.startswith(f"{path} is not published: ") for note in reading.notes), path


def test_equal_operation_ids_are_told_apart_by_their_place_and_missing_ones_come_from_it() -> None:
    paths = {f"/{name}": {"get": {"operationId": "same", **OK}, "post": dict(OK)} for name in "ab"}
    reading = read({"openapi": "3.1.0", "paths": paths})
    names = {tool.binding.path + " " + tool.binding.method: tool.name for tool in reading.tools}
    assert names["/a GET"] == "same"
    assert names["/b GET"].startswith("same_")
    assert (names["/a POST"], names["/b POST"]) == ("post_a", "post_b")
    assert reading.notes == (f"GET /b shares its name with another operation, so its tool is {names['/b GET']!r}.",)


def test_a_path_item_s_reference_may_have_siblings() -> None:
    items = {"shared": {"get": {"operationId": "shared", **OK}}}
    paths = {"/x": {"$ref": "#/components/pathItems/shared", "post": {"operationId": "own", **OK}}}
    reading = read({"openapi": "3.1.0", "paths": paths, "components": {"pathItems": items}})
    assert {tool.name for tool in reading.tools} == {"shared", "own"}


def test_parameters_without_a_schema_or_with_one_of_swagger_are_understood() -> None:
    parameters = [{"name": "any", "in": "query"}, {"name": "n", "in": "query", "type": "integer", "required": True}]
    operation = {"operationId": "x", "parameters": parameters}
    [tool] = read({"openapi": "3.0.0", "paths": {"/x": {"get": operation}}}).tools
    assert tool.input_schema["properties"] == {"any": {}, "n": {"type": "integer"}}
    assert tool.input_schema["required"] == ["n"]


def test_a_required_argument_that_is_not_described_is_not_asked_for() -> None:
    body = {"type": "object", "properties": {"a": {}}, "required": ["a", "ghost"]}
    operation = {
        "operationId": "x",
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
    }
    reading = read({"openapi": "3.1.0", "paths": {"/x": {"post": operation}}})
    assert reading.tools[0].input_schema["required"] == ["a"]
    assert reading.notes == ("POST /x: it requires 'ghost', which it does not describe.",)


def test_an_operation_that_can_stream_promises_no_shape_of_its_answer() -> None:
    answer = {"200": {"content": {"application/json": {"schema": {"type": "object"}}}}}
    document = with_body({"type": "string"})
    operation = document["paths"]["/x"]["post"]
    operation["responses"] = answer
    assert read(document).tools[0].output_schema is not None
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    body["properties"]["stream"] = {"type": "boolean", "default": True}
    assert read(document).tools[0].output_schema is None


@pytest.mark.promise("hostile")
def test_documents_made_to_cost_time_are_bounded() -> None:
    wide = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(19_000)}}
    paths = {
        f"/{n}": {"post": with_body({"$ref": "#/components/schemas/W"})["paths"]["/x"]["post"]} for n in range(1_500)
    }
    reading = read({"openapi": "3.1.0", "paths": paths, "components": {"schemas": {"W": wide}}})
    assert len(reading.tools) == 1_500
    assert len({id(tool.input_schema["$defs"]["W"]) for tool in reading.tools}) == 1  # converted once, not 1,500 times
    many = {f"/{number}": {"get": {}} for number in range(openapi.MAX_OPERATIONS + 1)}
    with pytest.raises(DescribeError, match="2001 operations and at most 2000 are read") as caught:
        read({"openapi": "3.1.0", "paths": many})
    assert caught.value.state == "Invalid"
    assert len(read({"openapi": "3.1.0", "paths": many}, include=("get_1*",)).tools) == 1111
    more = {f"/{number}": {"get": {}} for number in range(openapi.MAX_DESCRIBED + 1)}
    with pytest.raises(DescribeError, match="more than 20000 operations"):
        read({"openapi": "3.1.0", "paths": more})


@pytest.mark.promise("hostile")
def test_a_value_nested_deeper_than_anybody_writes_is_left_out() -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    reading = read(with_body({"enum": [deep], "default": deep, "example": deep, "const": deep}))
    assert reading.tools[0].input_schema["properties"] == {"a": {}}
    assert published.publish(reading.tools, ToolsConfig(), ()).catalogue.hash


# What is mutated below: real documents of each dialect, with shared definitions, recursion, files, forms and unions.
GOOD: dict[str, Any] = orjson.loads(orjson.dumps(torture_app().openapi()))
DOCUMENTS: list[dict[str, Any]] = [GOOD, {**GOOD, "openapi": "3.0.3"}, SWAGGER]
Place = tuple[str | int, ...]


def places(node: Any, path: Place = ()) -> Iterator[Place]:
    if path:
        yield path
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in entries:
        yield from places(value, (*path, key))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=4)
    | st.sampled_from(["#/components/schemas/Node", "#", "http://x/y", "object", "array", "(", "{a}", "\x00", "3.0.0"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["$ref", "type", "properties", "items", "anyOf", "allOf", "required", "default", "enum", "schema",
                         "content", "name", "in", "get", "nullable", "a", "additionalProperties", "pattern"]),
        inner, max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip
DROP = object()


CHANGES = st.sampled_from(DOCUMENTS).flatmap(
    lambda document: st.tuples(
        st.just(document),
        st.lists(st.tuples(st.sampled_from(list(places(document))), st.just(DROP) | VALUES), min_size=1, max_size=3),
    )
)


def mutated(document: Any, changes: list[tuple[Place, Any]]) -> Any:
    changed = copy.deepcopy(document)
    for path, value in changes:
        node = changed
        try:
            for key in path[:-1]:
                node = node[key]
            if value is DROP:
                del node[path[-1]]
            else:
                node[path[-1]] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    return changed


def touched(document: dict[str, Any], changes: list[Place]) -> set[str]:
    """The paths of the document that a change at these places can reach, by the names of definitions in their text."""
    found: set[str] = set()
    names: set[str] = set()
    for place in changes:
        if place[0] == "paths" and len(place) > 1:
            found.add(str(place[1]))
        elif place[:2] == ("components", "schemas") and len(place) > 2:
            names.add(str(place[2]))
        elif place[0] in {"definitions", "parameters", "responses"} and len(place) > 1:
            names.add(str(place[1]))
        elif place[0] != "info":
            return set(document["paths"])
    shared = {**document.get("components", {}).get("schemas", {}), **document.get("definitions", {})}
    shared |= {**document.get("parameters", {}), **document.get("responses", {})}
    while more := {name for name, sub in shared.items() if name not in names and refers(sub, names)}:
        names |= more
    return found | {path for path, item in document["paths"].items() if refers(item, names)}


def refers(node: Any, names: set[str]) -> bool:
    return any(f'/{name}"' in text_of(node) for name in names)


def text_of(value: Any) -> str:
    return orjson.dumps(value).decode()


def by_place(specs: tuple[ToolSpec, ...]) -> dict[tuple[str, str], ToolSpec]:
    return {(spec.binding.method, spec.binding.path): spec for spec in specs}


@pytest.mark.promise("document-repaired")
@pytest.mark.promise("hostile")
@settings(max_examples=500, deadline=None)
@given(CHANGES)
def test_whatever_is_broken_in_a_document_the_operations_beside_it_stay_as_they_were(
    broken: tuple[dict[str, Any], list[tuple[Place, Any]]],
) -> None:
    document, changes = broken
    try:
        reading = read(mutated(document, changes))
    except DescribeError as error:
        assert any(len(path) == 1 for path, _ in changes), error
        return
    hit = touched(document, [path for path, _ in changes])
    before, after = by_place(read(document).tools), by_place(reading.tools)
    kept = {
        place: spec
        for place, spec in before.items()
        if place[1].removeprefix(document.get("basePath", "").rstrip("/")) not in hit
    }
    shown = published.publish(reading.tools, ToolsConfig(), reading.notes)
    for place, spec in kept.items():
        assert place in after, (place, reading.notes)
        assert after[place].input_schema == spec.input_schema
        names = {spec.name, catalogue.tool_name(spec.operation_id, "")}  # short where that is unique
        said = f"{place[0]} {place[1]} shares its name"
        assert after[place].name in names or any(note.startswith(said) for note in reading.notes)
        assert after[place].name in shown.tools
    orjson.dumps([tool.tool.definition for tool in shown.tools.values()])


@pytest.mark.promise("hostile")
@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_no_value_at_all_makes_the_reading_fail_otherwise_than_with_its_error(value: Any) -> None:
    for document in (value, {"openapi": "3.0.1", "paths": value}, {"swagger": "2.0", "paths": {"/a": {"get": value}}}):
        with contextlib.suppress(DescribeError):
            read(document)
    with contextlib.suppress(schema.SchemaError):
        converter = schema.Converter(document={}, legacy=True, direction="input", is_pattern=validation.is_pattern)
        converted = converter.convert(value)
        validation.compile_check({**converted, "$defs": converter.definitions()})
