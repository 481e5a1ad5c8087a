"""Swagger 2.0: the same tools and the same requests as if the document had been written as OpenAPI 3."""

from typing import Any

import pytest

from broken_documents import SWAGGER
from modelservice_api.adapter_config import OpenAPIConfig, ToolsConfig
from modelservice_sidecar import published, validation
from modelservice_sidecar.backends import openapi_request
from modelservice_sidecar.core import openapi
from modelservice_sidecar.core.catalogue import ToolSpec


def tools() -> dict[str, ToolSpec]:
    reading = openapi.read(SWAGGER, OpenAPIConfig(), is_pattern=validation.is_pattern)
    assert len(reading.notes) == 1
    assert reading.notes[0].startswith("POST /api/v1/bad is not published: ")
    return {tool.name: tool for tool in reading.tools}


def sent(name: str, arguments: dict[str, Any]) -> openapi_request.HttpRequest:
    return openapi_request.build(tools()[name].binding, arguments, "B")


@pytest.mark.promise("openapi-tools")
def test_every_operation_but_the_broken_one_is_a_tool_with_valid_schemas() -> None:
    assert set(tools()) == {"tree", "lists", "form", "upload", "picture", "xml"}
    shown = published.publish(tuple(tools().values()), ToolsConfig(), ())
    assert (set(shown.tools), shown.catalogue.notes) == (set(tools()), ())


def test_definitions_parameters_and_responses_are_followed_and_the_old_dialect_translated() -> None:
    tree = tools()["tree"]
    assert tree.input_schema["required"] == ["id", "value"]
    assert tree.input_schema["properties"]["limit"] == {"type": "integer", "exclusiveMinimum": 0}
    assert tree.input_schema["$defs"]["Node"]["properties"]["label"] == {"type": ["string", "null"]}
    assert tree.output_schema is not None
    assert set(tree.output_schema["properties"]) == {"value", "label", "children"}
    assert tools()["picture"].output_schema is None


def test_the_base_path_is_kept_and_the_host_is_not() -> None:
    request = sent("tree", {"id": "a b", "limit": 3, "value": 1, "children": []})
    assert (request.method, request.target) == ("POST", "/api/v1/tree/a%20b?limit=3")
    assert request.body == b'{"value":1,"children":[]}'


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("csv", "csv=a,b%2Cc"),
        ("plain", "plain=a,b%2Cc"),
        ("ssv", "ssv=a%20b%2Cc"),
        ("tsv", "tsv=a%09b%2Cc"),
        ("pipes", "pipes=a|b%2Cc"),
        ("multi", "multi=a&multi=b%2Cc"),
    ],
)
def test_lists_are_written_by_their_collection_format(name: str, query: str) -> None:
    assert sent("lists", {name: ["a", "b,c"]}).target == f"/api/v1/lists?{query}"


def test_a_list_in_a_header_is_separated_by_what_it_says() -> None:
    assert (b"x-h", b"a b") in sent("lists", {"X-H": ["a", "b"]}).headers


def test_form_fields_are_a_form_and_files_make_it_multipart() -> None:
    form = sent("form", {"text": "a&b", "tags": ["x", "y"], "more": ["u", "v"]})
    assert form.body == b"text=a%26b&tags=x%2Cy&more=u&more=v"
    assert (b"content-type", b"application/x-www-form-urlencoded") in form.headers
    assert tools()["form"].input_schema["properties"]["text"]["description"] == "What."
    upload = sent("upload", {"file": {"data": "aGk=", "filename": "a.txt"}, "note": "n"})
    assert b'name="file"; filename="a.txt"\r\ncontent-type: application/octet-stream\r\n\r\nhi\r\n' in upload.body
    assert b'name="note"\r\n\r\nn\r\n' in upload.body


def test_a_body_that_is_not_json_is_text() -> None:
    request = sent("xml", {"body": "<a/>"})
    assert request.body == b"<a/>"
    assert (b"content-type", b"application/xml; charset=utf-8") in request.headers
