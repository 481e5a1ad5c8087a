"""Every route of the torture application, called through the adapter with the arguments its own tool asks for."""

import base64
from typing import Any

import jsonschema
import pytest
from mcp.client import Client

from adapter_harness import adapter, run
from model_apps import PNG

FEATURES = {"features": [1.0, 2.0]}
FILE = {"filename": "a.txt", "mimeType": "text/plain", "data": base64.b64encode(b"hello").decode()}
LONG = "a_very_long_operation_identifier_xxxxxxxxxxxxxxxxxxxxxx"

CALLS: list[tuple[str, dict[str, Any], Any]] = [
    ("plain", FEATURES, {"score": 3.0, "label": "ok"}),
    ("tree", {"value": 1, "children": [{"value": 2}]}, {"value": 1, "children": [{"value": 2, "children": []}]}),
    ("pet", {"body": {"kind": "dog", "tricks": ["sit"]}}, {"kind": "dog"}),
    ("total", {"body": [1, 2.5]}, {"result": 3.5}),
    ("double", {"body": 21}, {"result": 42}),
    (
        "everywhere",
        {"item_id": "a b%?é", "limit": 2, "tags": ["x", "y&z"], "x-flavour": "mint", "session": "s1", **FEATURES},
        {
            "item_id": "a b%?é",
            "limit": 2,
            "tags": ["x", "y&z"],
            "flavour": "mint",
            "session": "s1",
            "features": [1, 2],
        },
    ),
    (
        "same_name",
        {"path": {"item_id": "outer"}, "body": {"item_id": "inner", "weight": 1}},
        {"path": "outer", "body": "inner"},
    ),
    (
        "upload",
        {"file": FILE, "note": "hi", "extra": [FILE, FILE]},
        {"name": "a.txt", "type": "text/plain", "size": 5, "note": "hi", "extra": [5, 5]},
    ),
    ("form", {"text": "a&b=ü ", "times": 2}, {"said": "a&b=ü a&b=ü "}),
    ("strict", {"text": "four"}, {"length": 4}),
    ("raw", {"body": base64.b64encode(b"\x00\xff\x00").decode()}, {"size": 3}),
]

OTHER_CONTENT: list[tuple[str, list[dict[str, Any]]]] = [
    ("picture", [{"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}]),
    ("tokens", [{"type": "text", "text": "token 0\ntoken 1\ntoken 2"}]),
    ("words", [{"type": "text", "text": "plain words"}]),
    ("nothing", [{"type": "text", "text": ""}]),
]


@pytest.mark.promise("openapi-tools")
def test_every_operation_of_the_application_becomes_one_typed_tool_and_health_does_not(torture: int) -> None:
    async def test() -> None:
        async with adapter(torture) as running, Client(running.url) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        expected = {name for name, _, _ in CALLS} | {name for name, _ in OTHER_CONTENT}
        expected |= {"busy", "blob", "secret", "admin", "echo_headers"}
        long = next(name for name in tools if name.startswith("a_very_long"))
        assert set(tools) == expected | {long}
        assert len(long) <= 64
        for tool in tools.values():
            root = tool.input_schema
            jsonschema.Draft202012Validator.check_schema(root)
            assert root["type"] == "object"
            assert isinstance(root["properties"], dict)
            assert not root.keys() & {"$ref", "oneOf", "anyOf", "allOf"}
            if tool.output_schema is not None:
                assert tool.output_schema["type"] == "object"

    run(test)


@pytest.mark.promise("openapi-tools")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_calls_reach_the_model_server_as_its_document_wants_them(torture: int, mode: Any) -> None:
    async def test() -> None:
        async with adapter(torture) as running, Client(running.url, mode=mode) as client:
            for name, arguments, expected in CALLS:
                result = await client.call_tool(name, arguments)
                assert (name, result.is_error, result.structured_content) == (name, False, expected), result
            for name, content in OTHER_CONTENT:
                result = await client.call_tool(name, {})
                shown = [block.model_dump(by_alias=True, exclude_none=True) for block in result.content]
                assert (name, result.is_error, shown) == (name, False, content)
            blob = (await client.call_tool("blob", {})).content[0].model_dump(by_alias=True, exclude_none=True)
            assert blob["resource"]["blob"] == base64.b64encode(b"\x00\x01\x02").decode()
            assert blob["resource"]["mimeType"] == "application/x-weights"

    run(test)


@pytest.mark.promise("input-checked")
@pytest.mark.parametrize(
    ("name", "arguments", "path"),
    [
        ("plain", {"features": [1, "x"]}, "$.features[1]"),
        ("plain", {"features": []}, "$.features"),
        ("plain", {"features": [1], "top_k": 11}, "$.top_k"),
        ("plain", {}, '"features" is a required property'),
        (
            "tree",
            {"value": 1, "children": [{"value": 1, "children": [{"value": "x"}]}]},
            "children[0].children[0].value",
        ),
        ("pet", {"body": {"kind": "cow"}}, "$.body"),
        ("total", {"body": [True]}, "$.body[0]"),
        ("double", {"body": "1"}, "$.body"),
        ("same_name", {"path": {}, "body": {"item_id": "x", "weight": 1}}, "$.path"),
        ("strict", {"text": "x", "txet": "y"}, "txet"),
        ("words", {"surprise": 1}, "surprise"),
        ("raw", {"body": "not base64!"}, "$.body"),
        ("upload", {"file": {"data": "%%%"}}, "$.file.data"),
        ("secret", {"name": "a/admin"}, "$.name"),
        ("secret", {"name": ".."}, "$.name"),
        ("secret", {"name": ""}, "$.name"),
        ("everywhere", {"item_id": "x", "features": [1], "x-flavour": "a\r\nx-evil: 1"}, "$.x-flavour"),
    ],
)
def test_a_wrong_argument_never_reaches_the_model_and_the_error_names_its_path(
    torture: int, name: str, arguments: dict[str, Any], path: str
) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            result = await running.call(name, arguments)
            assert result["isError"] is True
            assert path in result["content"][0]["text"]
            line = await running.lines.wait_for("call", tool=name)
            assert line["outcome"] == "invalid_arguments"
            assert "backend_status" not in line

    run(test)


@pytest.mark.promise("hostile")
@pytest.mark.parametrize(
    ("arguments", "outcome", "said"),
    [
        ({"name": "gone"}, "backend_refused", "no such secret"),
        ({"name": "forbidden"}, "backend_denied", "refuses the adapter"),
        ({"name": "crash"}, "backend_failed", "HTTP 500"),
    ],
)
def test_a_model_server_s_errors_are_told_without_its_secrets(
    torture: int, arguments: dict[str, Any], outcome: str, said: str
) -> None:
    async def test() -> None:
        async with adapter(torture) as running:
            result = await running.call("secret", arguments)
            assert result["isError"] is True
            assert said in result["content"][0]["text"]
            assert "hunter2" not in str(result)
            assert (await running.lines.wait_for("call"))["outcome"] == outcome
            busy = await running.call("busy")
            assert busy["content"][0]["text"] == "The model server is busy (HTTP 503); try again in 70 s."

    run(test)


@pytest.mark.promise("hostile")
def test_credentials_and_mcp_headers_of_the_caller_are_not_passed_on_and_its_trace_is(torture: int) -> None:
    async def test() -> None:
        trace = "0af7651916cd43dd8448eb211c80319c"
        async with adapter(torture) as running:
            reply = await running.modern(
                "tools/call",
                {"name": "echo_headers"},
                **{
                    "Authorization": "Bearer secret",
                    "Cookie": "a=b",
                    "TraceParent": f"00-{trace}-b7ad6b7169203331-01",
                    "X-REQUEST-ID": "req-1",
                },
            )
            seen = reply.json["result"]["structuredContent"]["headers"]
            assert seen["x-request-id"] == "req-1"
            assert seen["traceparent"].startswith(f"00-{trace}-")
            assert not [name for name in seen if name.startswith("mcp-") or name in {"authorization", "cookie"}]
            assert reply.headers["x-request-id"] == "req-1"
            assert reply.json["result"]["_meta"]["modelservice.dev/traceId"] == trace

    run(test)
