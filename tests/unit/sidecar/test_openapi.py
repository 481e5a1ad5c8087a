"""Documents in, tools out: selection, names, arguments, output schemas."""

from typing import Any

import pytest

from modelservice_api.adapter_config import OpenAPIConfig
from modelservice_sidecar.backends import openapi_request
from modelservice_sidecar.core import openapi
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import InvalidArgumentsError

OK: dict[str, Any] = {"responses": {"200": {"description": "ok"}}}


def document(**operations: Any) -> dict[str, Any]:
    """A document with `METHOD_name=operation` at `/name`."""
    paths: dict[str, Any] = {}
    for key, operation in operations.items():
        method, _, name = key.partition("_")
        paths.setdefault(f"/{name}", {})[method] = {"operationId": name, **OK, **operation}
    return {"openapi": "3.1.0", "paths": paths}


def tools(source: dict[str, Any], **config: Any) -> dict[str, ToolSpec]:
    return {tool.name: tool for tool in openapi.read(source, OpenAPIConfig(**config)).tools}


def one(operation: dict[str, Any], **more: Any) -> ToolSpec:
    found = openapi.read({**document(post_x=operation), **more}, OpenAPIConfig())
    assert not found.notes, found.notes
    return found.tools[0]


def sent(spec: ToolSpec, arguments: dict[str, Any]) -> openapi_request.HttpRequest:
    return openapi_request.build(spec.binding, arguments, "B")


def test_every_operation_is_a_tool_but_those_for_machines() -> None:
    source = document(
        get_a={}, post_b={}, put_c={}, delete_d={}, patch_e={}, head_f={}, get_health={}, get_metrics={}, get_docs={}
    )
    assert set(tools(source)) == {"a", "b", "c", "d", "e"}
    assert set(tools(source, include=("health", "a"))) == {"health", "a"}


def test_include_exclude_and_tags_choose_by_pattern() -> None:
    source = document(get_pay={"tags": ["money"]}, get_paint={"tags": ["art"]}, get_other={})
    assert set(tools(source, include=("pa*",))) == {"pay", "paint"}
    assert set(tools(source, exclude=("pa*",))) == {"other"}
    assert set(tools(source, tags=("money", "none"))) == {"pay"}
    assert set(tools(source, include=("pa*",), exclude=("pay",))) == {"paint"}


def test_fastapi_s_long_names_are_shortened_where_that_stays_unique() -> None:
    paths = {
        "/predict": {"post": {"operationId": "predict_predict_post", **OK}},
        "/v1/items/{id}": {"get": {"operationId": "items_v1_items__id__get", **OK}},
        "/v2/items/{id}": {"get": {"operationId": "items_v2_items__id__get", **OK}},
    }
    assert set(tools({"openapi": "3.1.0", "paths": paths})) == {
        "predict",
        "items_v1_items__id__get",
        "items_v2_items__id__get",
    }


def test_names_are_safe_short_unique_and_the_same_every_time() -> None:
    paths = {
        "/a": {"get": {"operationId": "résumé 1!", **OK}},
        "/b": {"get": {"operationId": "résumé_1?", **OK}},
        "/c": {"get": {"operationId": "x" * 200, **OK}},
        "/d": {"get": {"operationId": "///", **OK}},
        "/e": {"get": dict(OK)},
    }
    names = list(tools({"openapi": "3.1.0", "paths": paths}))
    assert names == list(tools({"openapi": "3.1.0", "paths": paths}))
    assert len(names) == 5
    assert all(0 < len(name) <= 64 and name.replace("_", "").replace("-", "").isascii() for name in names)
    assert "get_e" in names


def test_a_path_item_behind_a_reference_is_followed_and_one_bad_operation_costs_only_itself() -> None:
    source = document(get_good={}, post_bad={"requestBody": {"$ref": "http://evil.example"}})
    source["paths"]["/linked"] = {"$ref": "#/components/pathItems/linked"}
    source["components"] = {"pathItems": {"linked": {"get": {"operationId": "linked", **OK}}}}
    reading = openapi.read(source, OpenAPIConfig())
    assert {tool.name for tool in reading.tools} == {"good", "linked"}
    assert "POST /bad is not published" in reading.notes[0]


@pytest.mark.parametrize(
    ("servers", "target"),
    [
        ([{"url": "https://elsewhere.example/api/v1/"}], "/api/v1/x"),
        ([{"url": "/base"}, {"url": "/other"}], "/base/x"),
        ([{"url": "beside"}], "/docs/beside/x"),
        ([{"url": "//elsewhere.example/a"}], "/a/x"),
        ([{"url": "https://{host}/{base}/v2", "variables": {"base": {"default": "api"}}}], "/api/v2/x"),
        ([{"url": "/{unknown}"}], "/x"),
        ([{"url": "http://[broken"}], "/x"),
        ([{"url": 5}], "/x"),
        ("none", "/x"),
    ],
)
def test_the_mount_path_of_the_first_server_is_kept_and_its_host_is_not(servers: Any, target: str) -> None:
    found = openapi.read({**document(post_x={}), "servers": servers}, OpenAPIConfig(path="/docs/openapi.json"))
    assert sent(found.tools[0], {}).target == target


def test_the_nearest_servers_count() -> None:
    source = document(get_a={}, get_b={"servers": [{"url": "/own"}]})
    source["servers"] = [{"url": "/all"}]
    source["paths"]["/a"]["servers"] = [{"url": "/item"}]
    found = tools(source)
    assert (sent(found["a"], {}).target, sent(found["b"], {}).target) == ("/item/a", "/own/b")


def test_health_and_documents_are_no_tools_below_a_mount_path_or_a_version_either() -> None:
    machines = ("/api/v1/healthz", "/v2/health/ready", "/actuator/env", "/v3/api-docs", "/Metrics", "/ping/")
    paths = {path: {"get": {"operationId": path.strip("/"), **OK}} for path in (*machines, "/health/score")}
    for servers in ([], [{"url": "/mounted"}]):
        assert set(tools({"openapi": "3.1.0", "paths": paths, "servers": servers})) == {"health_score"}
    assert set(tools({"openapi": "3.1.0", "paths": paths}, include=("actuator*",))) == {"actuator_env"}


def test_the_document_itself_can_choose_its_tools() -> None:
    source = document(get_a={"x-mcp": True}, get_b={}, get_c={"x-mcp": False}, get_health={"x-mcp": True})
    assert set(tools(source)) == {"a", "health"}
    assert set(tools(source, include=("*",))) == {"a", "b", "c", "health"}
    assert set(tools(document(get_a={}, get_b={"x-mcp": False}))) == {"a"}


def parameter(name: str, where: str, kind: Any = "string", **more: Any) -> dict[str, Any]:
    schema = kind if isinstance(kind, dict) else {"type": kind}
    return {"name": name, "in": where, "schema": schema, **more}


LIST, OBJECT = {"type": "array"}, {"type": "object"}

QUERIES: list[tuple[str, dict[str, Any], Any, str]] = [
    ("scalar", parameter("q", "query"), "a b&c", "?q=a%20b%26c"),
    ("boolean", parameter("q", "query"), True, "?q=true"),
    ("list, exploded by default", parameter("q", "query", LIST), [1, "b"], "?q=1&q=b"),
    ("list, not exploded", parameter("q", "query", LIST, explode=False), [1, "b,c"], "?q=1,b%2Cc"),
    ("list, spaces", parameter("q", "query", LIST, style="spaceDelimited", explode=False), [1, 2], "?q=1%202"),
    ("list, pipes", parameter("q", "query", LIST, style="pipeDelimited", explode=False), [1, 2], "?q=1|2"),
    ("empty list", parameter("q", "query", LIST), [], ""),
    ("object, exploded by default", parameter("q", "query", OBJECT), {"a": 1, "b": "x"}, "?a=1&b=x"),
    ("object, not exploded", parameter("q", "query", OBJECT, explode=False), {"a": 1}, "?q=a,1"),
    ("deep object", parameter("q", "query", OBJECT, style="deepObject"), {"a": {"b": 1}, "c": [1, 2]},
     "?q[a][b]=1&q[c]=1&q[c]=2"),
    ("null", parameter("q", "query"), None, ""),
    ("JSON content", {"name": "q", "in": "query", "content": {"application/json": {"schema": {}}}}, {"a": [1]},
     "?q=%7B%22a%22%3A%5B1%5D%7D"),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "value", "query"), [row[1:] for row in QUERIES], ids=[row[0] for row in QUERIES])
def test_query_parameters_are_written_by_their_style(declared: dict[str, Any], value: Any, query: str) -> None:
    assert sent(one({"parameters": [declared]}), {"q": value}).target == f"/x{query}"


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("a", "/files/a"),
        ("a b?#%", "/files/a%20b%3F%23%25"),
        ("é", "/files/%C3%A9"),
        (5, "/files/5"),
        ("..a", "/files/..a"),
    ],
)
def test_a_path_value_is_one_encoded_segment(value: Any, target: str) -> None:
    spec = openapi.read({"openapi": "3.1.0", "paths": {"/files/{name}": {"get": OK}}}, OpenAPIConfig()).tools[0]
    assert sent(spec, {"name": value}).target == target


SEVERAL = ["/files/{name:path}", "/files/{name*}", "/files/{+name}", "/files/{name:.*}", "/files/{name...}"]


@pytest.mark.parametrize("template", SEVERAL)
def test_a_path_value_may_have_slashes_where_the_document_says_so_and_never_lead_elsewhere(template: str) -> None:
    others = {"/files/{id}/admin": {"get": OK}, "/files/{id}/post": {"post": OK}, "/else": {"get": OK}}
    reading = openapi.read({"openapi": "3.1.0", "paths": {template: {"get": OK}, **others}}, OpenAPIConfig())
    spec = reading.tools[0]
    assert list(spec.input_schema["properties"]) == ["name"]
    assert sent(spec, {"name": "a/b c/d.txt"}).target == "/files/a/b%20c/d.txt"
    assert sent(spec, {"name": "x/post"}).target == "/files/x/post"  # a POST there is another operation, a GET is not
    for value in ("..", "a/../b", "/a", "a/", "a//b", "./a", "a\\b", "a/\x00", "", "x/admin"):
        with pytest.raises(InvalidArgumentsError):
            sent(spec, {"name": value})


def test_a_template_with_a_pattern_is_still_one_segment() -> None:
    spec = openapi.read({"openapi": "3.1.0", "paths": {"/files/{id:[0-9]+}": {"get": OK}}}, OpenAPIConfig()).tools[0]
    assert sent(spec, {"id": "7"}).target == "/files/7"
    with pytest.raises(InvalidArgumentsError):
        sent(spec, {"id": "7/8"})


@pytest.mark.promise("hostile")
@pytest.mark.parametrize("value", ["a/b", "..", ".", "", "a\\b", "../x", "a\x00", "/"])
def test_a_path_value_that_could_reach_another_path_is_refused(value: str) -> None:
    spec = openapi.read({"openapi": "3.1.0", "paths": {"/files/{name}": {"get": OK}}}, OpenAPIConfig()).tools[0]
    with pytest.raises(InvalidArgumentsError, match=r"^\$\.name"):
        sent(spec, {"name": value})


def test_headers_that_frame_the_request_or_carry_credentials_are_never_arguments() -> None:
    names = ("Authorization", "Content-Type", "Host", "Transfer-Encoding", "Mcp-Session-Id", "Cookie", "traceparent")
    spec = one({"parameters": [parameter(name, "header") for name in (*names, "X-Colour")]})
    assert set(spec.input_schema["properties"]) == {"X-Colour"}
    assert (b"x-colour", b"red") in sent(spec, {"X-Colour": "red"}).headers


def test_an_operation_s_parameter_replaces_the_path_s_of_the_same_name() -> None:
    source = document(get_x={"parameters": [parameter("q", "query", "integer")]})
    source["paths"]["/x"]["parameters"] = [parameter("q", "query", "string"), parameter("r", "query", "boolean")]
    properties = openapi.read(source, OpenAPIConfig()).tools[0].input_schema["properties"]
    assert properties == {"q": {"type": "integer"}, "r": {"type": "boolean"}}


def json_body(schema: Any, **more: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}, **more}}


PLAIN = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "arguments", "body"),
    [
        (PLAIN, {"a": 1}, b'{"a":1}'),
        ({**PLAIN, "additionalProperties": True}, {"a": 1, "extra": 2}, b'{"a":1,"extra":2}'),
        ({"allOf": [PLAIN]}, {"a": 1}, b'{"a":1}'),
        ({"type": "array"}, {"body": [1]}, b"[1]"),
        ({"type": "integer"}, {"body": 1}, b"1"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, {"body": {"x": 1}}, b'{"x":1}'),
        ({"anyOf": [PLAIN, {"type": "null"}]}, {"body": None}, b"null"),
        ({"oneOf": [PLAIN, PLAIN], "discriminator": {"propertyName": "a"}}, {"body": {"a": 1}}, b'{"a":1}'),
        ({"type": "object", "properties": {"odd name!": {}}}, {"body": {"odd name!": 1}}, b'{"odd name!":1}'),
        ({}, {"body": {"x": 1}}, b'{"x":1}'),
    ],
    ids=str,
)
def test_a_json_body_is_flat_where_it_is_a_plain_object_and_one_argument_elsewhere(
    schema: Any, arguments: dict[str, Any], body: bytes
) -> None:
    spec = one(json_body(schema))
    root = spec.input_schema
    assert root["type"] == "object"
    assert not root.keys() & {"anyOf", "oneOf", "allOf", "$ref"}
    assert set(arguments) - {"extra"} <= set(root["properties"])
    assert sent(spec, arguments).body == body


def test_an_optional_body_without_arguments_is_not_sent() -> None:
    optional = {"type": "object", "properties": {"a": {"type": "integer"}}}
    spec = one(json_body(optional, required=False))
    assert (sent(spec, {}).body, sent(spec, {"a": 1}).body) == (b"", b'{"a":1}')
    grouped = one(json_body(PLAIN, required=False))
    assert (sent(grouped, {}).body, sent(grouped, {"body": {"a": 1}}).body) == (b"", b'{"a":1}')


def test_equal_names_in_two_places_are_grouped_by_place() -> None:
    spec = one({**json_body(PLAIN), "parameters": [parameter("a", "query", required=True)]})
    assert spec.input_schema["required"] == ["query", "body"]
    request = sent(spec, {"query": {"a": "q"}, "body": {"a": 1}})
    assert (request.target, request.body) == ("/x?a=q", b'{"a":1}')


def test_unknown_arguments_are_refused_where_nothing_takes_them() -> None:
    assert one({}).input_schema["additionalProperties"] is False
    assert one(json_body({**PLAIN, "additionalProperties": False})).input_schema["additionalProperties"] is False
    assert one(json_body(PLAIN)).input_schema["additionalProperties"] is False
    assert "additionalProperties" not in one(json_body({**PLAIN, "additionalProperties": True})).input_schema


def test_json_is_preferred_and_files_become_objects_with_base64() -> None:
    upload = {"type": "object", "properties": {"f": {"type": "string", "format": "binary"}, "n": {"type": "integer"}}}
    spec = one({"requestBody": {"content": {"multipart/form-data": {"schema": upload}, "text/plain": {}}}})
    assert spec.input_schema["properties"]["f"]["required"] == ["data"]
    request = sent(spec, {"f": {"data": "aGk=", "filename": 'a"b\r\n.txt'}, "n": 3})
    assert request.body == (
        b'--B\r\ncontent-disposition: form-data; name="f"; filename="a%22b%0D%0A.txt"\r\n'
        b"content-type: application/octet-stream\r\n\r\nhi\r\n"
        b'--B\r\ncontent-disposition: form-data; name="n"\r\n\r\n3\r\n--B--\r\n'
    )
    both = {"content": {"multipart/form-data": {"schema": upload}, "application/json": {"schema": PLAIN}}}
    assert set(one({"requestBody": both}).input_schema["properties"]) == {"body"}


def test_form_fields_are_written_as_encoding_says() -> None:
    fields = {"type": "object", "properties": {name: {} for name in ("ids", "tags", "meta", "item")}}
    encoding = {
        "ids": {"style": "form", "explode": False},
        "tags": {"style": "pipeDelimited", "explode": False},
        "meta": {"contentType": "application/vnd.x+json"},
        "item": {"contentType": "image/png, image/*"},
    }
    arguments = {"ids": [1, 2], "tags": ["a", "b"], "meta": {"a": 1}, "item": {"b": 2}}
    media = {"schema": fields, "encoding": encoding}
    form = sent(one({"requestBody": {"content": {"application/x-www-form-urlencoded": media}}}), arguments)
    assert form.body == b"ids=1%2C2&tags=a%7Cb&meta=%7B%22a%22%3A1%7D&item=%7B%22b%22%3A2%7D"
    parts = sent(one({"requestBody": {"content": {"multipart/form-data": media}}}), arguments).body
    assert b'name="ids"\r\n\r\n1,2\r\n' in parts
    assert b'name="meta"\r\ncontent-type: application/vnd.x+json\r\n\r\n{"a":1}\r\n' in parts
    assert b'name="item"\r\ncontent-type: application/json\r\n\r\n{"b":2}\r\n' in parts


@pytest.mark.parametrize(
    "declared",
    [
        {"type": "string", "format": "binary"},
        {"type": "string", "contentMediaType": "application/octet-stream"},
        {"type": "string", "contentMediaType": "image/png"},
        {"anyOf": [{"type": "string", "format": "binary"}, {"type": "null"}]},
        {"type": "array", "items": {"type": "string", "format": "binary"}},
    ],
    ids=str,
)
def test_files_are_recognised_however_the_document_says_so(declared: Any) -> None:
    schema = {"type": "object", "properties": {"f": declared, "t": {"type": "string", "contentMediaType": "text/csv"}}}
    spec = one({"requestBody": {"content": {"multipart/form-data": {"schema": schema}}}})
    assert spec.binding.body.files == {"f"}


def output(schema: Any, media: str = "application/json", **more: Any) -> tuple[Any, bool]:
    responses = {"200": {"content": {media: {"schema": schema}}}, **more}
    spec = one({"responses": responses})
    return spec.output_schema, spec.binding.wrap


def test_an_output_schema_is_published_only_where_every_answer_can_meet_it() -> None:
    assert output(PLAIN) == ({"type": "object", "properties": {"a": {"type": "integer"}}}, False)
    assert output({"type": "array"}) == (
        {"type": "object", "properties": {"result": {"type": "array"}}, "required": ["result"]},
        True,
    )
    assert output({}) == (None, False)
    assert output(PLAIN, "image/png") == (None, False)
    assert output(PLAIN, **{"202": {"description": "later"}}) == (None, False)
    assert output({"$ref": "http://evil.example"}) == (None, False)


def test_what_http_promises_about_a_method_becomes_hints() -> None:
    found = tools(document(get_a={}, post_b={}, put_c={}, delete_d={}))
    assert {name: dict(tool.annotations) for name, tool in found.items()} == {
        "a": {"readOnlyHint": True, "idempotentHint": True},
        "b": {},
        "c": {"idempotentHint": True},
        "d": {"destructiveHint": True, "idempotentHint": True},
    }
