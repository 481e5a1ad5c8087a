"""The ids of a call: every spelling is read, the right one wins, what is malformed is replaced."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelservice_sidecar.core import trace
from modelservice_sidecar.core.trace import Parent, Wanted

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
OTHER = TRACE[::-1]

pytestmark = pytest.mark.promise("traced")


def new_hex(size: int) -> str:
    return "ab" * size


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"00-{TRACE}-{SPAN}-01", Parent(TRACE, SPAN, "01")),
        (f" 00-{TRACE.upper()}-{SPAN}-00 ", Parent(TRACE, SPAN, "00")),
        (f"cc-{TRACE}-{SPAN}-01-future", Parent(TRACE, SPAN, "01")),
        (f"00-{TRACE}-{SPAN}-01-future", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE}-{SPAN}", None),
        ("", None),
        (None, None),
        (7, None),
        ("0" * 10_000, None),
    ],
)
def test_a_traceparent_is_read_by_the_rules_of_w3c(value: object, expected: Parent | None) -> None:
    assert trace.parse_traceparent(value) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"b3": f"{TRACE}-{SPAN}-1"}, Parent(TRACE, SPAN, "01")),
        ({"b3": f"{TRACE}-{SPAN}-d-{SPAN}"}, Parent(TRACE, SPAN, "01")),
        ({"b3": f"{TRACE[:16]}-{SPAN}-0"}, Parent("0" * 16 + TRACE[:16], SPAN, "00")),
        ({"b3": f"{TRACE}-{SPAN}"}, Parent(TRACE, SPAN)),
        ({"b3": "0"}, None),
        ({"b3": f"{'0' * 32}-{SPAN}-1"}, None),
        ({"x-b3-traceid": TRACE.upper(), "x-b3-spanid": SPAN, "x-b3-sampled": "1"}, Parent(TRACE, SPAN, "01")),
        ({"x-b3-traceid": TRACE, "x-b3-spanid": "?", "x-b3-flags": "1"}, Parent(TRACE, "", "01")),
        ({"x-b3-traceid": TRACE, "x-b3-spanid": SPAN, "x-b3-sampled": "?"}, Parent(TRACE, SPAN)),
        ({"trace-id": TRACE}, Parent(TRACE)),
        ({"trace_id": TRACE.upper()}, Parent(TRACE)),
        ({"x-trace-id": f"{TRACE[:8]}-{TRACE[8:12]}-{TRACE[12:16]}-{TRACE[16:20]}-{TRACE[20:]}"}, Parent(TRACE)),
        ({"trace-id": "order-17", "x-trace-id": TRACE}, Parent(TRACE)),
        ({"trace-id": "0" * 32}, None),
        ({"trace-id": "order-17"}, None),
    ],
)
def test_other_conventions_name_a_trace_too(headers: dict[str, str], expected: Parent | None) -> None:
    wanted = trace.wanted_in_headers(headers)
    assert wanted.others is not None
    assert trace.parse_others(wanted.others) == expected
    ids = trace.choose(wanted, Wanted(), new_hex)
    assert ids.trace_id == (expected.trace_id if expected else "ab" * 16)
    assert (ids.parent_id, ids.decided) == (expected.span_id if expected else "", bool(expected and expected.flags))


@pytest.mark.parametrize("name", ["traceparent", "TraceParent", "TRACEPARENT", "trace_parent"])
def test_keys_of_meta_are_read_in_any_letter_case(name: str) -> None:
    meta = {name: f"00-{TRACE}-{SPAN}-01", "progressToken": 1, "x" * 99: 2}
    assert trace.choose(Wanted(), trace.wanted_in_meta(meta), new_hex).trace_id == TRACE


@pytest.mark.parametrize(
    "name", ["request_id", "requestId", "Request-ID", "X-Request-Id", "x_correlation_id", "modelservice.dev/requestId"]
)
def test_a_request_id_of_meta_counts_where_no_header_has_one(name: str) -> None:
    meta = trace.wanted_in_meta({name: "m"})
    assert trace.choose(Wanted(), meta, new_hex).request_id == "m"
    assert trace.choose(trace.wanted_in_headers({"x-request-id": "h"}), meta, new_hex).request_id == "h"
    assert trace.choose(trace.wanted_in_headers({"correlation-id": "c"}), meta, new_hex).request_id == "c"


def test_meta_wins_for_the_trace_the_header_for_the_request_and_malformed_ids_are_replaced() -> None:
    headers = Wanted(request_id="h", traceparent=f"00-{OTHER}-{SPAN}-00", tracestate="x=1")
    meta = trace.wanted_in_meta({"TraceParent": f"00-{TRACE}-{SPAN}-01", "request_id": "m", "tracestate": "a\nb"})
    both = trace.choose(headers, meta, new_hex)
    assert (both.request_id, both.trace_id, both.parent_id) == ("h", TRACE, SPAN)
    assert (both.flags, both.state) == ("01", "")
    assert trace.choose(headers, Wanted(), new_hex).state == "x=1"
    bad = trace.choose(Wanted(request_id="no spaces", traceparent="?"), Wanted(request_id=5), new_hex)
    assert (bad.request_id, bad.trace_id, bad.parent_id) == ("ab" * 16, "ab" * 16, "")
    assert both.traceparent == f"00-{TRACE}-{'ab' * 8}-01"
    # A malformed request id gives way to the next name that has a good one.
    second = trace.wanted_in_headers({"x-request-id": "no spaces", "x-correlation-id": "c-1"})
    assert trace.choose(second, Wanted(), new_hex).request_id == "c-1"


def test_w3c_wins_over_b3_and_b3_over_a_bare_id_within_one_source() -> None:
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01", "b3": f"{OTHER}-{SPAN}-0", "trace-id": "f" * 32}
    assert trace.choose(trace.wanted_in_headers(headers), Wanted(), new_hex).trace_id == TRACE
    del headers["traceparent"]
    assert trace.choose(trace.wanted_in_headers(headers), Wanted(), new_hex).trace_id == OTHER
    headers["b3"] = "malformed"
    assert trace.choose(trace.wanted_in_headers(headers), Wanted(), new_hex).trace_id == "f" * 32
    in_meta = trace.wanted_in_meta({"traceId": "e" * 32})
    assert (
        trace.choose(trace.wanted_in_headers({"traceparent": f"00-{TRACE}-{SPAN}-01"}), in_meta, new_hex).trace_id
        == "e" * 32
    )


def test_the_caller_s_decision_stands_and_else_the_trace_id_decides() -> None:
    kept = trace.choose(Wanted(traceparent=f"00-{TRACE}-{SPAN}-01"), Wanted(), new_hex)
    left = trace.choose(Wanted(traceparent=f"00-{TRACE}-{SPAN}-00"), Wanted(), new_hex)
    assert trace.decide(kept, trace.bound_of(0.0)).recorded is True
    assert trace.decide(left, trace.bound_of(1.0)).recorded is False
    for low, share, recorded in (("7f", 0.5, True), ("80", 0.5, False), ("ff", 1.0, True), ("00", 0.0, False)):
        bare = trace.choose(trace.wanted_in_headers({"trace-id": "a" * 16 + low * 8}), Wanted(), new_hex)
        decided = trace.decide(bare, trace.bound_of(share))
        assert (decided.recorded, decided.traceparent[-2:]) == (recorded, "01" if recorded else "00")


_TEXTS = st.text(max_size=60) | st.from_regex(r"[0-9a-f-]{0,60}", fullmatch=True)


@given(
    st.dictionaries(
        st.sampled_from([*trace.REQUEST_ID_HEADERS, *trace.TRACE_HEADERS, "tracestate", "x-b3-spanid"]), _TEXTS
    ),
    st.dictionaries(
        st.sampled_from(["traceparent", "B3", "trace_id", "request_id", "x-b3-traceid"]) | st.text(),
        _TEXTS | st.none() | st.lists(st.integers()),
    ),
)
def test_whatever_is_sent_the_ids_are_well_formed(headers: dict[str, str], meta: dict[str, Any]) -> None:
    ids = trace.choose(trace.wanted_in_headers(headers), trace.wanted_in_meta(meta), new_hex)
    assert trace.parse_traceparent(ids.traceparent) is not None
    assert ids.request_id.isascii()
    assert 0 < len(ids.request_id) <= 128
    assert len(ids.parent_id) in {0, 16}
    assert "\n" not in ids.state
