"""The adapter's small parts, each by its own words: catalogue, ids, errors, JSON-RPC, streams, checks, slots, log."""

import asyncio
import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelservice_api.adapter_config import BackendState, ToolAnnotationsConfig, ToolOverride, ToolsConfig
from modelservice_sidecar import validation
from modelservice_sidecar.backends import http_failure, openapi_answer
from modelservice_sidecar.backends.event_stream import PieceReader, stream_kind
from modelservice_sidecar.config_file import BadDocumentError, ConfigFile
from modelservice_sidecar.core import catalogue, errors, rpc
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import CallError, OverloadedError
from modelservice_sidecar.discovery import Pace
from modelservice_sidecar.log import LineWriter
from modelservice_sidecar.mcp_http import Accepts, is_json, read_accept
from modelservice_sidecar.pipeline.concurrency import Limiter


def spec(name: str, **more: Any) -> ToolSpec:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    return ToolSpec(name=name, operation_id=name, description="d", input_schema=schema, binding=None, **more)


# The catalogue


def test_tools_are_sorted_filtered_and_overridden_and_what_is_named_in_vain_is_said() -> None:
    annotations = ToolAnnotationsConfig(read_only_hint=True)
    config = ToolsConfig(
        filter=("b", "a", "ghost"),
        overrides={
            "a": ToolOverride(name="z-score", description="new\u202e", annotations=annotations),
            "spook": ToolOverride(),
        },
    )
    built = catalogue.build([spec("c"), spec("b"), spec("a", annotations={"idempotentHint": True})], config)
    assert built.names == ("b", "z-score")
    changed = built.by_name["z-score"].definition
    assert (changed["description"], changed["annotations"]) == ("new", {"idempotentHint": True, "readOnlyHint": True})
    assert ["ghost" in built.notes[0], "spook" in built.notes[1]] == [True, True]


def test_two_tools_that_are_given_one_name_cost_one_of_them_and_a_note() -> None:
    built = catalogue.build([spec("a"), spec("b")], ToolsConfig(overrides={"b": ToolOverride(name="a")}))
    assert built.names == ("a",)
    assert "Two tools are named 'a'" in built.notes[0]


def test_the_hash_follows_what_clients_see_and_nothing_else() -> None:
    first = catalogue.build([spec("a"), spec("b")], ToolsConfig())
    assert first.hash == catalogue.build([spec("b"), spec("a")], ToolsConfig(), ["a note"]).hash
    assert first.hash != catalogue.build([spec("a")], ToolsConfig()).hash


def test_a_cursor_stays_right_when_the_tool_it_names_is_gone() -> None:
    before = catalogue.build([spec(name) for name in "abcd"], ToolsConfig()).page(None, size=2)
    after = catalogue.build([spec(name) for name in "acd"], ToolsConfig()).page(before.next_cursor, size=2)
    assert [tool.name for tool in after.tools] == ["c", "d"]
    assert after.next_cursor is None


@given(st.text(max_size=200), st.text(max_size=20))
def test_every_text_becomes_a_name_that_clients_accept(wanted: str, identity: str) -> None:
    name = catalogue.tool_name(wanted, identity)
    assert 0 < len(name) <= 64
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


# Errors


def leaves(kind: type[CallError]) -> set[type[CallError]]:
    below = kind.__subclasses__()
    return {leaf for sub in below for leaf in leaves(sub)} if below else {kind}


def test_every_error_has_its_row_and_every_row_its_own_word() -> None:
    assert set(errors.TABLE) == leaves(CallError)
    outcomes = [row.outcome for row in errors.TABLE.values()]
    assert len(outcomes) == len(set(outcomes))
    for row in errors.TABLE.values():
        reserved_by_json_rpc = -32768 <= row.code <= -32000
        assert not reserved_by_json_rpc or row.code in {-32602, -32603}


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            422,
            {"detail": [{"loc": ["body", "a"], "msg": "too small", "input": "secret"}]},
            "(HTTP 422): body.a: too small",
        ),
        (422, {"detail": [{"msg": "m"}, {"loc": [], "msg": 5}, "x"]}, "(HTTP 422): m"),
        (400, {"error": {"message": "bad \u202eformat"}}, "(HTTP 400): bad format"),
        (409, {"message": "x" * 999}, "x…"),
        (404, {"other": "secret"}, "(HTTP 404)."),
        (500, {"detail": "secret"}, "The model server failed (HTTP 500)."),
    ],
)
def test_of_a_model_server_s_error_places_and_messages_are_shown_and_nothing_else(
    status: int, body: Any, said: str
) -> None:
    shown = str(http_failure.failure(status, {"content-type": "application/json"}, orjson.dumps(body)))
    assert said in shown
    assert "secret" not in shown
    assert len(shown) < 1200


def test_json_answers_keep_their_bytes_unless_a_line_break_would_end_an_event() -> None:
    kept = openapi_answer.json_answer(b'{"a": 1}', wrap=False)
    assert (kept.raw, kept.structured) == (b'{"a": 1}', {"a": 1})
    assert openapi_answer.json_answer(b'{"a":\n1}', wrap=False).raw is None
    assert openapi_answer.json_answer(b"[1]", wrap=False).structured == {"result": [1]}
    assert openapi_answer.json_answer(b'{"a":1}', wrap=True).raw == b'{"result":{"a":1}}'
    for not_json in (b"NaN", b'{"a": Infinity}', b"\xff", b"{"):
        with pytest.raises(errors.BackendAnswerInvalidError):
            openapi_answer.json_answer(not_json, wrap=False)


# JSON-RPC


@pytest.mark.promise("json-rpc")
@pytest.mark.parametrize(
    ("message", "code"),
    [
        ([], -32600),
        ({}, -32600),
        ({"jsonrpc": "2.0", "method": "list_tools", "id": {}}, -32600),
        ({"jsonrpc": "2.0", "method": "list_tools", "id": True}, -32600),
        ({"jsonrpc": "2.0", "method": "nope", "id": 1}, -32601),
        ({"jsonrpc": "2.0", "method": "call_tool", "id": 1}, -32602),
        ({"jsonrpc": "2.0", "method": "call_tool", "id": 1, "params": ["a", {}, 3]}, -32602),
        ({"jsonrpc": "2.0", "method": "call_tool", "id": 1, "params": {"name": "a", "arguments": []}}, -32602),
        ({"jsonrpc": "2.0", "method": "get_tool_info", "id": 1, "params": {"name": "a", "extra": 1}}, -32602),
        ({"jsonrpc": "2.0", "method": "list_tools", "id": 1, "params": "x"}, -32602),
    ],
)
def test_what_is_no_request_is_rejected_with_its_code(message: Any, code: int) -> None:
    rejection = rpc.read(message)
    assert isinstance(rejection, rpc.Rejection)
    assert rejection.code == code


def test_parameters_by_position_are_the_same_as_by_name() -> None:
    by_name = {"jsonrpc": "2.0", "id": None, "method": "call_tool", "params": {"name": "a", "arguments": {}}}
    assert rpc.read(by_name) == rpc.read({**by_name, "params": ["a", {}]})
    quiet = rpc.read({"jsonrpc": "2.0", "method": "list_tools"})
    assert isinstance(quiet, rpc.Request)
    assert quiet.wants_answer is False


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_no_message_makes_the_reader_raise(message: Any) -> None:
    assert isinstance(rpc.read(message), rpc.Request | rpc.Rejection)


# Streams


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_events_are_cut_out_of_chunks_of_any_size(size: int) -> None:
    stream = b": hello\ndata: one\n\ndata: two\r\ndata: lines\r\n\r\nevent: x\nid: 1\n\ndata:three"
    reader = PieceReader("events")
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [piece for chunk in chunks for piece in reader.feed(chunk)] + reader.finish() == [
        "one",
        "two\nlines",
        "three",
    ]


def test_lines_are_pieces_and_only_streams_are_streams() -> None:
    reader = PieceReader("lines")
    assert reader.feed(b'{"a":1}\n\n{"b"') + reader.feed(b":2}") + reader.finish() == ['{"a":1}', '{"b":2}']
    assert stream_kind("Text/Event-Stream; charset=utf-8") == "events"
    assert (stream_kind("application/x-ndjson"), stream_kind("application/json"), stream_kind("")) == (
        "lines",
        None,
        None,
    )


# Checks


@pytest.mark.promise("input-checked")
def test_what_is_wrong_is_named_by_its_path_and_never_shown() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"rows": {"type": "array", "items": {"maximum": 5}}}}
    check = validation.compile_check(schema)
    assert check({"rows": [1, 2]}) is None
    assert check({"rows": [1, 9, 8]}) == (
        "$.rows[1]: the value is greater than the maximum of 5; $.rows[2]: the value is greater than the maximum of 5"
    )
    many = check({"rows": [9] * 100})
    assert many is not None
    assert many.count("$.rows") == validation.MAX_PROBLEMS
    assert "secret" not in (validation.compile_check({"type": "integer"})("secret") or "")


@pytest.mark.promise("hostile")
def test_a_pattern_that_backtracks_for_ever_and_values_out_of_range_end_in_a_sentence() -> None:
    check = validation.compile_check({"type": "string", "pattern": "^(a|a)*(?=b)c$"})
    assert check("a" * 40 + "!") is not None
    numbers = validation.compile_check({"type": "integer"})
    assert numbers(2**100) is None or "$" in str(numbers(2**100))


def test_a_schema_that_is_none_or_points_elsewhere_is_not_compiled() -> None:
    for bad in ({"type": "nope"}, {"$ref": "http://127.0.0.1:1/x"}, {"pattern": "("}):
        with pytest.raises(validation.SchemaNotCompilableError):
            validation.compile_check(bad)


# Slots


def test_slots_are_given_in_order_and_come_back_from_who_stops_waiting() -> None:
    async def test() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        order: list[int] = []

        async def use(number: int) -> None:
            await limiter.acquire()
            order.append(number)
            limiter.release()

        tasks = [asyncio.create_task(use(number)) for number in range(4)]
        await asyncio.sleep(0)
        assert limiter.waiting == 4
        with pytest.raises(OverloadedError):
            await limiter.acquire()
        tasks[1].cancel()
        await asyncio.sleep(0)
        limiter.release()
        tasks[2].cancel()  # admitted or about to be: the slot must not be lost either way
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order[0] == 0
        assert order[-1] == 3
        assert (limiter.running, limiter.waiting) == (0, 0)

    asyncio.run(test())


def test_more_slots_let_more_in_at_once() -> None:
    async def test() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        waiting = asyncio.create_task(limiter.acquire())
        await asyncio.sleep(0)
        limiter.resize(2)
        await waiting
        assert limiter.running == 2

    asyncio.run(test())


# Media types


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, (False, False)),
        ("*/*", (True, True)),
        ("application/json", (True, False)),
        ("Application/JSON;q=0.5 , text/event-stream;q=1", (True, True)),
        ("text/*", (False, True)),
        ("text/html", (False, False)),
    ],
)
def test_accept_is_read_with_wildcards_and_parameters(value: str | None, expected: tuple[bool, bool]) -> None:
    assert read_accept(value) == Accepts(json=expected[0], stream=expected[1])
    assert read_accept(value, http_1_0=True).stream is False


def test_only_json_in_utf_8_is_json() -> None:
    good = ["application/json", "Application/JSON; charset=UTF-8", 'application/json; charset="utf-8"']
    bad = [None, "", "text/json", "application/json; charset=utf-16", "application/jsonx"]
    assert [is_json(value) for value in good + bad] == [True] * 3 + [False] * 5


# The config file and the log


def test_a_document_that_is_too_large_or_unreadable_is_bad_and_a_missing_one_is_none(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "config.json")
    assert file.read() is None
    assert file.changed() is False
    file.path.write_bytes(b" " * (1024 * 1024 + 1))
    assert file.changed() is True
    with pytest.raises(BadDocumentError, match="larger"):
        file.read()
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(BadDocumentError, match="cannot be read"):
        file.read()


@pytest.mark.promise("observed")
def test_a_reader_that_reads_nothing_costs_bounded_memory_and_is_told_what_it_missed() -> None:
    reading, writing = os.pipe()
    try:
        writer = LineWriter(writing, now=lambda: 0.0)
        for number in range(3000):
            writer.line({"event": "x", "number": number, "pad": "p" * 1000})
        assert writer._size <= 2 * 1024 * 1024 + 2000
        os.set_blocking(reading, False)
        seen = b""
        while writer._waiting or writer._begun:
            seen += os.read(reading, 1 << 20)
            writer.flush()
        seen += os.read(reading, 1 << 20)
        lines = [orjson.loads(line) for line in seen.splitlines()]
        dropped = sum(line["count"] for line in lines if line["event"] == "log_lines_dropped")
        assert dropped > 0
        assert len([line for line in lines if line["event"] == "x"]) + dropped == 3000
    finally:
        os.close(reading)
        os.close(writing)


# Discovery


def test_what_is_there_and_wrong_is_looked_at_less_and_less_often() -> None:
    pace = Pace(first=1, slowest=4, steady=10)

    def waits(state: BackendState) -> list[float]:
        found = [pace.first]
        for _ in range(7):
            found.append(pace.after(found[-1], state))
        return found

    assert waits("Unreachable") == [1, 2, 4, 4, 4, 4, 4, 4]
    assert waits("Invalid") == [1, 2, 4, 8, 16, 32, 48, 48]
