"""What wrk measured is read back, and a run in which anything answered wrongly is no measurement."""

import json

import pytest
from servicebench import wire
from servicebench.failure import BenchError
from servicebench.wrk import parse

OUTPUT = (
    "Running 2s test @ http://127.0.0.1:1/mcp\n  2 threads\nMEASURED 31284 2000000 1050 1811 {} {}\nTransfer/sec: 1MB\n"
)


def test_figures_are_read() -> None:
    load = parse(OUTPUT.format(0, 0), "adapter")
    assert (load.requests, load.seconds, load.p50, load.p99, load.per_second) == (31284, 2.0, 1050, 1811, 15642.0)


@pytest.mark.parametrize(("wrong", "broken"), [(1, 0), (0, 1)])
def test_a_single_wrong_answer_or_broken_connection_fails(wrong: int, broken: int) -> None:
    with pytest.raises(BenchError, match="adapter: of 31284 answers"):
        parse(OUTPUT.format(wrong, broken), "adapter")


@pytest.mark.parametrize("output", ["", "MEASURED 0 2000000 0 0 0 0\n"])
def test_no_figures_or_no_answers_fail(output: str) -> None:
    with pytest.raises(BenchError):
        parse(output, "adapter")


def result(**fields: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": fields}).encode()


def test_an_answer_is_right_only_if_it_is_the_model_s_and_no_error() -> None:
    right = wire.answer(wire.SCORE)
    assert wire.plain().is_right(json.dumps(right).encode())
    assert wire.modern().is_right(result(structuredContent=right, isError=False))
    wrong = [
        result(structuredContent=right, isError=True),
        result(structuredContent={**right, "score": 0.0}),
        result(content=[]),
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602}}',
        b"[]",
        b"not JSON",
    ]
    assert [content for content in wrong if wire.modern().is_right(content)] == []


def test_the_marker_stands_in_the_right_answer_alone() -> None:
    assert wire.plain().marker in json.dumps(wire.answer(wire.SCORE))
    assert wire.plain().marker not in json.dumps(wire.answer(0.0))


def test_both_protocol_eras_ask_for_the_same() -> None:
    modern, older = json.loads(wire.modern().body)["params"], json.loads(wire.older().body)["params"]
    assert modern["arguments"] == older["arguments"] == json.loads(wire.plain().body)
    assert "_meta" not in older
