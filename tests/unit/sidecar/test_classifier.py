"""The MCP classifier as a table: what comes in, what it is. And that nothing makes it raise."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelservice_sidecar.core import mcp, revisions
from modelservice_sidecar.core.mcp import Notification, Rejection, Route

MODERN = "2026-07-28"
META = {mcp.PROTOCOL_VERSION_KEY: MODERN, mcp.CAPABILITIES_KEY: {}}


def body(method: str = "tools/list", **changes: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META}}
    message.update(changes)
    return {key: value for key, value in message.items() if value is not ...}


def headers(method: str = "tools/list", **more: str) -> mcp.Headers:
    given = {"mcp-protocol-version": MODERN, "mcp-method": method}
    given.update({name.replace("_", "-"): value for name, value in more.items()})
    return mcp.read_headers([(name.encode(), value.encode()) for name, value in given.items()])


def old(*lines: str) -> mcp.Headers:
    """Headers of the handshake era, as they come."""
    return mcp.read_headers([(name.encode(), value.encode()) for name, value in (line.split(": ") for line in lines)])


def plain(method: str, **params: Any) -> dict[str, Any]:
    """A request of the handshake era."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def test_a_well_formed_request_of_each_era_is_a_route() -> None:
    assert mcp.classify(headers(), body()) == Route(
        id=1, era="modern", revision=MODERN, method="tools/list", params={"_meta": META}
    )
    plain = {"jsonrpc": "2.0", "id": "a", "method": "ping"}
    assert mcp.classify(mcp.Headers(values={}), plain) == Route(
        id="a", era="handshake", revision=revisions.ASSUMED, method="ping", params={}
    )


@pytest.mark.parametrize(
    ("asked", "offered"),
    [("2024-11-05", "2024-11-05"), ("2025-11-25", "2025-11-25"), (MODERN, "2025-11-25"), ("x", "2025-11-25")],
)
def test_initialize_is_offered_its_revision_or_the_newest_of_its_era(asked: str, offered: str) -> None:
    params = {"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    route = mcp.classify(mcp.Headers(values={}), body("initialize", params=params))
    assert isinstance(route, Route)
    assert route.revision == offered


REJECTED: list[tuple[str, mcp.Headers, object, int, int]] = [
    ("not an object", headers(), [], -32600, 400),
    ("jsonrpc 1.0", headers(), body(jsonrpc="1.0"), -32600, 400),
    ("id of a wrong type", headers(), body(id=1.5), -32600, 400),
    ("id that is a boolean", headers(), body(id=True), -32600, 400),
    ("id that is long", headers(), body(id="x" * 513), -32600, 400),
    ("method of a wrong type", headers(), body(method=1), -32600, 400),
    ("params of a wrong type", headers(), body(params=[]), -32600, 400),
    ("a response", headers(), body(method=..., result={}), -32600, 400),
    ("no _meta", headers(), body(params={}), -32602, 400),
    ("no capabilities", headers(), body(params={"_meta": {mcp.PROTOCOL_VERSION_KEY: MODERN}}), -32602, 400),
    ("version header differs", headers(mcp_protocol_version="2027-01-01"), body(), -32020, 400),
    ("method header differs", headers(mcp_method="tools/call"), body(), -32020, 400),
    ("a name without a tool", headers("tools/call", mcp_name="add"), body("tools/call"), -32020, 400),
    ("a name for a method without one", headers(mcp_name="add"), body(), -32020, 400),
    ("a name that differs", headers("tools/call", mcp_name="sub"),
     body("tools/call", params={"_meta": META, "name": "add"}), -32020, 400),
    ("a name that is missing", headers("tools/call"),
     body("tools/call", params={"_meta": META, "name": "add"}), -32020, 400),
    ("a progress token of a wrong type", headers(), body(params={"_meta": {**META, "progressToken": {}}}), -32602, 400),
    ("a future version", headers(mcp_protocol_version="2027-01-01"),
     body(params={"_meta": {**META, mcp.PROTOCOL_VERSION_KEY: "2027-01-01"}}), -32022, 400),
    ("a method of the other era", headers("ping"), body("ping"), -32601, 404),
    ("an unknown method", headers("x"), body("x"), -32601, 404),
    ("a cursor of a wrong type", headers(), body(params={"_meta": META, "cursor": 1}), -32602, 400),
    ("a modern message without its version header", mcp.read_headers([]), body(), -32020, 400),
    ("a modern message under an older version header", headers(mcp_protocol_version="2025-11-25"), body(), -32020, 400),
    ("the handshake era: _meta of a wrong type", old(), plain("ping", _meta=[]), -32602, 200),
    ("the handshake era: no progress token", old(), plain("ping", _meta={"progressToken": None}), -32602, 200),
    ("the handshake era: another method in the header", old("mcp-method: tools/list"), plain("ping"), -32020, 400),
    ("the handshake era: another name in the header", old("mcp-name: sub"), plain("tools/call", name="add"), -32020, 400),
    ("the handshake era: a name in the header alone", old("mcp-name: sub"), plain("tools/call"), -32020, 400),
    ("the handshake era: a name for a method without one", old("mcp-name: sub"), plain("tools/list"), -32020, 400),
    ("the handshake era: a name twice", old("mcp-name: add", "mcp-name: add"), plain("tools/call", name="add"),
     -32020, 400),
    ("the handshake era: a version twice", old("mcp-protocol-version: 2025-11-25", "mcp-protocol-version: 2025-11-25"),
     plain("ping"), -32020, 400),
    ("an unknown method of the handshake era", mcp.Headers(values={}), plain("server/discover"), -32601, 200),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given_headers", "message", "code", "status"), [row[1:] for row in REJECTED], ids=[r[0] for r in REJECTED]
)
def test_what_is_wrong_is_told_by_code_and_status(
    given_headers: mcp.Headers, message: object, code: int, status: int
) -> None:
    verdict = mcp.classify(given_headers, message)
    assert isinstance(verdict, Rejection)
    assert (verdict.code, verdict.status) == (code, status)


def test_routing_headers_that_a_client_of_the_handshake_era_sends_truly_change_nothing() -> None:
    route = mcp.classify(old("mcp-method: tools/call", "mcp-name: =?base64?YWRk?="), plain("tools/call", name="add"))
    assert isinstance(route, Route)
    assert (route.era, route.params["name"]) == ("handshake", "add")


def test_a_message_without_an_id_is_a_notification() -> None:
    assert mcp.classify(headers(), body(id=..., method="notifications/x")) == Notification(method="notifications/x")


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        ("plain", "plain"),
        ("=?base64?YWRk?=", "add"),
        ("=?base64?w6k=?=", "é"),
        ("=?base64?YWR!?=", None),
        ("=?base64?YWRl?=x", "=?base64?YWRl?=x"),
        ("=?base64?/w==?=", None),
        ("=?base64?YR==?=", None),
        (None, None),
    ],
)
def test_header_values_are_decoded_only_where_they_say_so_and_only_in_canonical_form(
    value: str | None, decoded: str | None
) -> None:
    assert mcp.decode_header_value(value) == decoded


def test_header_names_are_folded_values_trimmed_and_a_second_routing_header_noticed() -> None:
    read = mcp.read_headers([(b"mcp-name", b" \tx "), (b"accept", b"a"), (b"accept", b"b"), (b"mcp-name", b"y")])
    assert (read.get("mcp-name"), read.get("accept"), read.repeated_routing) == ("x", "a", "mcp-name")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
methods = st.sampled_from(sorted(revisions.MODERN_METHODS | revisions.HANDSHAKE_METHODS)) | st.text(max_size=8)
metas = st.fixed_dictionaries(
    {},
    optional={
        mcp.PROTOCOL_VERSION_KEY: st.sampled_from(revisions.ALL) | json_values,
        mcp.CAPABILITIES_KEY: json_values,
        mcp.CLIENT_INFO_KEY: json_values,
        "progressToken": json_values,
    },
)
params = json_values | st.fixed_dictionaries(
    {"_meta": metas | json_values}, optional={"name": json_values, "arguments": json_values, "cursor": json_values}
)
messages = json_values | st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | json_values,
        "id": json_values,
        "method": methods | json_values,
        "params": params,
    },
)
raw_headers = st.lists(
    st.tuples(
        st.sampled_from([b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"accept", b"x"]),
        st.sampled_from([version.encode() for version in revisions.ALL]) | st.binary(max_size=12),
    ),
    max_size=5,
)


@pytest.mark.promise("hostile")
@settings(max_examples=400, deadline=None)
@given(raw=raw_headers, message=messages)
def test_no_headers_and_no_body_make_the_classifier_raise(raw: list[tuple[bytes, bytes]], message: Any) -> None:
    verdict = mcp.classify(mcp.read_headers(raw), message)
    assert isinstance(verdict, Route | Notification | Rejection)
    if isinstance(verdict, Route):
        mcp.progress_token(verdict.params)
        assert verdict.revision in revisions.ALL
