"""What the lint says about tools, rule by rule, and that it says nothing about good ones."""

from typing import Any

import pytest

from model_apps import torture_app
from modelservice_api.adapter_config import OpenAPIConfig
from modelservice_sidecar.core import openapi, tool_lint
from modelservice_sidecar.core.tool_lint import Finding

DESCRIPTION = "Scores one row of features and gives back the probability of fraud."
TEXT = {"type": "string", "maxLength": 10, "description": "A word."}


def tool(name: str = "score", arguments: Any = None, **more: Any) -> dict[str, Any]:
    """A tool that nothing is wrong with, but for what is given."""
    schema = {"type": "object", "properties": {"word": TEXT} if arguments is None else arguments}
    return {"name": name, "description": DESCRIPTION, "inputSchema": schema, "outputSchema": {"type": "object"}, **more}


def found(*tools: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.path) for finding in tool_lint.lint(tools).findings]


def test_nothing_is_said_about_good_tools() -> None:
    report = tool_lint.lint([tool("a"), tool("b")])
    assert report.findings == ()
    assert report.summary == f"2 tools, about {report.tokens} tokens: nothing to better."
    assert tool_lint.lint([]).summary == "0 tools, about 0 tokens: nothing to better."


LIST = {"type": "array", "description": "Rows.", "items": {"type": "number"}}
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "v": {"type": "number"}}}


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "number", "description": "x"}
    for _ in range(levels):
        inner = {"type": "object", "description": "x", "properties": {"in": inner}}
    return inner


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (tool(description=""), [("description-missing", "description")]),
        (tool(description=None), [("description-missing", "description")]),
        (tool(description="POST /score"), [("description-missing", "description")]),
        (tool(description="(Deprecated) GET /x"), [("description-missing", "description")]),
        (tool(description="Score."), [("description-short", "description")]),
        (tool(description="x" * 1001), [("description-long", "description")]),
        (tool("x" * 65), [("name-long", "name")]),
        (tool("a b"), [("name-characters", "name")]),
        (tool(inputSchema={"type": "object", "anyOf": [{}]}), [("root-composition", "$")]),
        (tool(inputSchema={"$ref": "#/$defs/X"}), [("root-composition", "$")]),
        (tool(inputSchema=None), [("root-composition", "$")]),
        (tool(outputSchema=None), [("answer-undescribed", "answer")]),
        (tool(arguments={"n": {"type": "number"}}), [("argument-undescribed", "$.n")]),
        (tool(arguments={"n": {"description": "N."}}), [("argument-untyped", "$.n")]),
        (tool(arguments={"t": {"type": "string", "description": "T."}}), [("string-unbounded", "$.t")]),
        (tool(arguments={"t": {"type": ["string", "null"], "description": "T."}}), [("string-unbounded", "$.t")]),
        (tool(arguments={"t": {"description": "T.", "anyOf": [{"type": "string"}, {"type": "null"}]}}),
         [("string-unbounded", "$.t")]),
        (tool(arguments={"t": {**TEXT, "maxLength": 5}, "u": {"type": "string", "enum": ["a"], "description": "U."}}), []),
        (tool(arguments={"l": LIST}), [("array-unbounded", "$.l")]),
        (tool(arguments={"l": {**LIST, "maxItems": 5}}), []),
        (tool(arguments={"l": {**LIST, "items": LIST}}), [("shape-unbounded", "$.l")]),
        (tool(arguments={"l": {**LIST, "maxItems": 5, "items": LIST}}), [("shape-unbounded", "$.l")]),
        (tool(arguments={"o": {"type": "object", "description": "O."}}), [("object-unbounded", "$.o")]),
        (tool(arguments={"o": {"type": "object", "description": "O.", "additionalProperties": {"type": "number"}}}), []),
        (tool(arguments=nested(6)["properties"]), [("nesting-deep", "$.in.in.in.in.in.in")]),
        (tool(arguments=nested(5)["properties"]), []),
        (tool(arguments={"o": {"type": "object", "description": "O.", "properties": {"a": {"type": "number"}}}}),
         [("property-undescribed", "$")]),
        (tool(inputSchema={"type": "object", "properties": {"w": TEXT}, "required": ["w", "ghost"]}),
         [("required-unknown", "$")]),
        (tool(inputSchema={"type": "object", "properties": {"n": {"$ref": "#/$defs/Node", "description": "N."}},
                           "$defs": {"Node": NODE}}), [("property-undescribed", "$")]),
        (tool(arguments={f"a{i}": {**TEXT, "description": "y" * 200} for i in range(50)}), [("schema-large", "$")]),
    ],
    ids=lambda value: str(value)[:70] if isinstance(value, list) else "",
)  # fmt: skip
def test_each_rule_names_the_place_and_nothing_else(
    definition: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert found(definition) == expected


def test_names_that_differ_only_in_case_or_punctuation_are_one_finding() -> None:
    report = tool_lint.lint([tool("get_row"), tool("getRow"), tool("get-row"), tool("other")])
    [finding] = report.findings
    assert (finding.tool, finding.rule) == ("get_row", "name-clash")
    assert finding.problem == "the names get_row, getRow, get-row differ only in case or punctuation"
    assert "are the same" in tool_lint.lint([tool("a"), tool("a")]).findings[0].problem


def test_too_many_tools_and_too_long_a_list_are_about_all_of_them() -> None:
    many = tool_lint.lint([tool(f"tool{number}") for number in range(21)])
    assert [(finding.tool, finding.rule) for finding in many.findings] == [("*", "too-many-tools")]
    long = tool_lint.lint([tool(f"tool{number}", description="x" * 900) for number in range(20)] * 3)
    assert "listing-large" in {finding.rule for finding in long.findings}


def test_what_discovery_said_is_told_with_the_rest() -> None:
    [finding] = tool_lint.lint([tool()], ["GET /bad is not published: a parameter has no name."]).findings
    assert str(finding) == (
        "*: document: GET /bad is not published: a parameter has no name; correct it at the model server"
    )


def test_a_finding_is_one_line_of_where_what_and_what_to_do() -> None:
    finding = Finding(tool="t", path="$.a", rule="r", problem="it is so", advice="do this")
    assert str(finding) == "t: $.a: it is so; do this"
    dirty = tool("na\x1bme\n", arguments={"a\nb\x07": {"type": "string"}})
    assert all(line.isprintable() for line in map(str, tool_lint.lint([dirty]).findings))


def test_recursion_and_hostile_definitions_end() -> None:
    recursive = {"type": "object", "properties": {"n": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": NODE}}
    assert tool_lint.lint([tool(inputSchema=recursive)]).tools == 1
    wide = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(100_000)}}
    assert len(tool_lint.lint([tool(inputSchema=wide)]).findings) < 50_000
    for broken in ({}, {"name": 5}, {"inputSchema": {"properties": [], "required": "x", "anyOf": 5, "$defs": 1}}):
        assert tool_lint.lint([broken]).findings


def test_the_torture_application_s_own_files_and_groups_are_described_by_the_adapter() -> None:
    tools = openapi.read(torture_app().openapi(), OpenAPIConfig()).tools
    definitions = [
        {"name": spec.name, "description": spec.description, "inputSchema": spec.input_schema} for spec in tools
    ]
    said = {str(finding) for finding in tool_lint.lint(definitions).findings}
    assert not [line for line in said if ".filename" in line or ".mimeType" in line or "$.path: the argument" in line]
    assert "plain: $.features: the list has no maxItems; say how many the model takes" in said
