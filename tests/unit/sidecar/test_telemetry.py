"""Metrics, redaction and faults, each by its own words."""

import logging
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from modelservice_sidecar import exposition, log
from modelservice_sidecar.core import errors, redaction
from modelservice_sidecar.core.redaction import HIDDEN, Redactor
from modelservice_sidecar.core.trace import Ids
from modelservice_sidecar.log import LineWriter
from modelservice_sidecar.metrics import Counter, Exemplar, Gauge, Histogram, Info, State
from modelservice_sidecar.steps import BACKEND, Step, Steps
from modelservice_sidecar.telemetry import CallRecord, LogBridge

IDS = Ids(request_id="r", trace_id="a" * 32, span_id="b" * 16)


# Metrics


@pytest.mark.promise("observed")
def test_each_shape_is_told_as_prometheus_reads_it() -> None:
    counter = Counter("things", "Things.", ("kind",))
    counter.add('a"b\\c\n')
    counter.add("x", count=2)
    histogram = Histogram("size", "Sizes.", (1, 5), ("kind",))
    for value in (0.5, 1, 3, 9):
        histogram.observe(value, "x")
    histogram.of("x").exemplify(Exemplar("c" * 32, 3, 12.5))
    families = [
        counter,
        histogram,
        Gauge("level", "Level.", lambda: 1.5),
        State("door", "Door.", ("open", "closed"), lambda: "closed"),
        Info("about", "About.", ("name",), lambda: ("fraud",)),
    ]
    body = exposition.render(families, open_metrics=True)
    parsed = {family.name: family for family in parse_openmetrics(body.decode())}
    assert {sample.labels["kind"]: sample.value for sample in parsed["things"].samples} == {'a"b\\c\n': 1, "x": 2}
    buckets = {sample.labels["le"]: sample for sample in parsed["size"].samples if sample.name == "size_bucket"}
    assert {le: sample.value for le, sample in buckets.items()} == {"1.0": 2, "5.0": 3, "+Inf": 4}
    assert [le for le, sample in buckets.items() if sample.exemplar] == ["5.0"]
    assert {sample.labels["state"]: sample.value for sample in parsed["door"].samples} == {"open": 0, "closed": 1}
    assert parsed["about"].samples[0].labels == {"name": "fraud"}
    assert parsed["level"].samples[0].value == 1.5
    plain = {family.name: family for family in parse_text(exposition.render(families, open_metrics=False).decode())}
    for name, family in parsed.items():
        assert (plain[name].type, plain[name].documentation) == (family.type, family.documentation)
        told = [(sample.name, sample.labels, sample.value) for sample in family.samples]
        assert [(sample.name, sample.labels, sample.value) for sample in plain[name].samples] == told


@given(st.text(), st.floats(allow_nan=False))
def test_whatever_a_label_holds_both_parsers_read_it_back(label: str, value: float) -> None:
    counter, gauge = Counter("things", 'Two\nlines, \\ and ".', ("b", "a")), Gauge("level", "Level.", lambda: value)
    counter.add(label, "x")
    for open_metrics, parse in ((True, parse_openmetrics), (False, parse_text)):
        body = exposition.render([counter, gauge], open_metrics=open_metrics).decode(errors="replace")
        things, level = parse(body)
        assert things.samples[0].labels == {"a": "x", "b": label}
        assert things.documentation == counter.description
        assert level.samples[0].value == value


@pytest.mark.parametrize("told", errors.TABLE.values(), ids=lambda told: told.outcome)
def test_what_went_wrong_is_named_by_opentelemetry_s_rules(told: errors.Telling) -> None:
    def failure(era: str) -> str:
        return CallRecord(ids=IDS, era=era, outcome=told.outcome, status=told.status).failure

    assert failure("modern") == failure("handshake") == ("tool_error" if told.tool_error else str(told.code))
    assert (failure("rpc"), failure("v2")) == (str(told.code), str(told.status))


def test_success_is_no_failure_and_a_caller_that_left_was_told_nothing() -> None:
    assert CallRecord(ids=IDS, era="modern").failure == ""
    assert CallRecord(ids=IDS, era="modern", outcome="cancelled").failure == "cancelled"


def test_waits_of_one_stage_are_one_time_and_the_model_server_s_is_told_elsewhere() -> None:
    steps = Steps()
    steps += [
        Step(name="retry", began=1.0, ended=1.5),
        Step(name=BACKEND, began=1.5, ended=9.0),
        Step(name="retry", began=9.0, ended=9.25),
        Step(name="concurrency", began=0.0, ended=0.001),
    ]
    assert steps.milliseconds() == {"retry": 750.0, "concurrency": 1.0}
    assert Steps().ask().span_id == ""
    assert len(Steps(recorded=True).ask().span_id) == 16


# Redaction


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": "x", "Pass-Word": "x", "api_key": 1, "X-Auth-Token": [1], "user": "a"}, {"user": "a"}),
        ({"a": {"clientSecret": {"deep": 1}}}, {"a": {"clientSecret": HIDDEN}}),
        ("Bearer abcdefgh12345678", HIDDEN),
        ("see https://me:pw@host/x", f"see https://{HIDDEN}@host/x"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", HIDDEN),
        ("AKIAABCDEFGHIJKLMNOP", HIDDEN),
        ("sk-abcdefghijklmnop1234", HIDDEN),
        (list(range(100)), [*range(16), "… (100 items)"]),
        (b"\x00" * 10, "(10 bytes)"),
        ("y" * 600, "y" * 512 + "… (600 characters)"),
        (2**70, str(2**70)),
        (True, True),
        (None, None),
        ("\ud800", "?"),
    ],
)
def test_what_may_be_seen_of_a_value(value: Any, shown: Any) -> None:
    found = Redactor(max_bytes=65536).show(value)
    if isinstance(value, dict) and "user" in value:
        assert {key for key, item in found.items() if item == HIDDEN} == value.keys() - {"user"}
    else:
        assert found == shown


def test_rules_of_the_configuration_come_on_top() -> None:
    rules = Redactor(("IBAN", "birth_day"), (r"\bDE\d{2}\b",))
    assert rules.show({"iban": "1", "birthDay": "2", "text": "is DE02"}) == {
        "iban": HIDDEN,
        "birthDay": HIDDEN,
        "text": f"is {HIDDEN}",
    }


def test_what_is_too_large_is_shown_as_the_beginning_of_its_text() -> None:
    shown = Redactor(max_bytes=100).show({"text": "ü" * 500})
    assert isinstance(shown, str)
    assert shown.startswith('{"text":"üü')
    assert shown.endswith("bytes)")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(), inner, max_size=80),
    max_leaves=400,
)


@given(_JSON)
def test_whatever_the_value_its_view_is_json_of_bounded_size(value: Any) -> None:
    assert len(orjson.dumps(Redactor(max_bytes=2048).show(value))) < 2048 * 6 + 64


@given(st.integers(1, 6), st.sampled_from(["password", "Authorization", "x-session-token"]))
def test_a_secret_is_hidden_at_every_depth(depth: int, key: str) -> None:
    value: Any = {key: "canary"}
    for _ in range(depth):
        value = {"a": [value]}
    assert b"canary" not in orjson.dumps(Redactor(max_bytes=65536).show(value))


def test_a_value_that_holds_itself_is_shown_to_the_bound() -> None:
    value: dict[str, Any] = {"a": 1}
    value["self"] = value
    assert redaction.MAX_DEPTH < 20
    assert "…" in str(Redactor().show(value))


# Words and faults


@pytest.mark.parametrize("kind", errors.TABLE)
def test_of_an_error_that_quotes_nothing_is_logged_but_our_own_words(kind: type[errors.CallError]) -> None:
    words = errors.own_words(kind("The model server refuses this (HTTP 400): canary"))
    assert "canary" not in words or kind in errors._OWN_WORDS
    assert words.startswith("The model server refuses this")


def test_a_fault_is_told_by_place_and_type_and_its_cause_too() -> None:
    def inner() -> None:
        raise KeyError("canary")

    def outer() -> None:
        try:
            inner()
        except KeyError as error:
            raise ValueError("canary") from error

    try:
        outer()
    except ValueError as error:
        told = log.fault(error)
    assert "canary" not in told.replace('raise KeyError("canary")', "").replace('raise ValueError("canary")', "")
    assert told.index("KeyError\nthe cause of") < told.rindex("in outer")
    assert told.endswith("ValueError")


def test_what_libraries_log_about_an_error_leaves_its_message_out() -> None:
    class Lines(LineWriter):
        def event(self, event: str, **fields: object) -> None:
            lines.append(fields)

    lines: list[dict[str, object]] = []
    bridge = LogBridge(Lines())
    try:
        raise ValueError("canary")
    except ValueError as error:
        record = logging.LogRecord(
            "asyncio",
            logging.ERROR,
            "f",
            1,
            "Task exception was never retrieved\nexception=ValueError('canary')",
            (),
            None,
        )
        record.exc_info = (ValueError, error, error.__traceback__)
    bridge.emit(record)
    [line] = lines
    assert line["message"] == "Task exception was never retrieved"
    assert "canary" not in str(line["error"]).replace('raise ValueError("canary")', "")
