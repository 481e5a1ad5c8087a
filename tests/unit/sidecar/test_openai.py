"""OpenAI-compatible servers' words without a server: model lists, tools, and streams cut at every byte."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelservice_api.adapter_config import OpenAIConfig
from modelservice_sidecar import validation
from modelservice_sidecar.backends.event_stream import PieceReader
from modelservice_sidecar.backends.openai_answer import Generated
from modelservice_sidecar.core import openai
from modelservice_sidecar.core.errors import CallError, DescribeError
from modelservice_sidecar.core.openai import Model, ModelList


def listed(*entries: Any, **more: Any) -> dict[str, Any]:
    return {"object": "list", "data": list(entries), **more}


@pytest.mark.parametrize(
    ("document", "ids"),
    [
        (listed({"id": "b", "object": "model", "created": 1}, {"id": "a"}), ["b", "a"]),
        ({"data": [{"id": "a", "object": "model"}]}, ["a"]),
        (listed({"id": "a"}, {"id": "a"}), ["a"]),
        ({"object": "list", "data": None}, []),
        (listed(models=[{"name": "llama.cpp lists them twice"}]), []),
    ],
)
def test_model_lists_are_read_as_servers_write_them(document: Any, ids: list[str]) -> None:
    assert [model.id for model in openai.read_models(document).models] == ids


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "x",
        {},
        {"data": {}},
        {"data": []},
        {"data": [{"id": "a"}]},
        listed("a"),
        listed({"id": 1}),
        {"data": None},
    ],
)
def test_what_is_no_model_list_is_not_recognised(document: Any) -> None:
    with pytest.raises(DescribeError) as caught:
        openai.read_models(document)
    assert caught.value.state == "NotRecognised"


def test_models_beyond_the_bound_and_ids_that_cannot_be_shown_are_left_out_with_a_note() -> None:
    many = openai.read_models(listed(*({"id": f"m{number}"} for number in range(300))))
    assert (len(many.models), many.listed) == (openai.MAX_MODELS, 300)
    assert "300 models" in many.notes[0]
    odd = openai.read_models(listed({"id": ""}, {"id": "x" * 300}, {"id": " a"}, {"id": "fine"}))
    assert ([model.id for model in odd.models], len(odd.notes)) == (["fine"], 3)


def test_a_context_bounds_what_may_be_asked_for_only_where_every_model_has_one() -> None:
    def most(*entries: dict[str, Any]) -> int:
        found = openai.read_models(listed(*entries))
        (tool,) = openai.tools(found.models, {"complete"})
        return int(tool.input_schema["properties"]["max_tokens"]["maximum"])

    assert most({"id": "a", "max_model_len": 100}, {"id": "b", "max_model_len": 200}) == 200
    assert most({"id": "a", "max_model_len": 100}, {"id": "b"}) == openai.MAX_OUTPUT_TOKENS
    assert most({"id": "a", "max_model_len": True}) == openai.MAX_OUTPUT_TOKENS
    assert most({"id": "a", "max_model_len": 10**30}) == openai.MAX_OUTPUT_TOKENS


def test_every_schema_compiles_and_no_model_means_no_tool() -> None:
    tools = openai.tools([Model(id="a"), Model(id="b")], openai.PATHS.keys())
    assert [tool.name for tool in tools] == ["chat", "complete", "embed"]
    for tool in tools:
        check = validation.compile_check(tool.input_schema)
        assert "required" in str(check({}))
        assert tool.output_schema is not None
        validation.compile_check(tool.output_schema)
    assert openai.tools([], openai.PATHS.keys()) == ()
    nothing = openai.choose(ModelList(models=(), listed=0), OpenAIConfig())
    assert nothing.notes == ("/v1/models lists no model.",)


@given(st.integers(1, 40), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_a_stream_reads_the_same_however_it_is_cut_and_its_lines_end(size: int, end: str, mark: bool) -> None:
    chunks = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in ("a", "é", "\u2028\n")]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    lines = [": comment", "retry: 1", ""]
    for chunk in chunks:
        lines += [
            "event: x",
            *(f"data: {line}" for line in json.dumps(chunk, indent=1, ensure_ascii=False).split("\n")),
            "",
        ]
    stream = ("\ufeff" if mark else "").encode() + end.join([*lines, "data: [DONE]", "", ""]).encode()
    reader, generated = PieceReader("events"), Generated()
    for start in range(0, len(stream), size):
        for data in reader.feed(stream[start : start + size]):
            generated.add(data)
    for data in reader.finish():
        generated.add(data)
    assert generated.told().answer.structured == {"text": "aé\u2028\n", "finish_reason": "stop"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["choices", "delta", "content", "index", "usage", "error", "code", "object", "message", "text"]
                ),
                inner,
            )
        ),
    )
)
def test_no_chunk_however_odd_is_anything_but_text_or_an_error_of_ours(value: Any) -> None:
    generated = Generated()
    try:
        generated.add(json.dumps(value))
        assert isinstance(generated.told().answer.structured["text"], str)
    except CallError as error:
        assert str(error)


def test_a_long_line_in_many_chunks_is_joined_once() -> None:
    reader = PieceReader("events")
    assert reader.feed(b"data: ") == []
    for _ in range(20_000):
        assert reader.feed(b"x" * 100) == []
    assert reader.feed(b"\n\n") == ["x" * 2_000_000]
