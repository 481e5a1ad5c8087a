"""How many tools, and how large a list, are published: all that were chosen or none, and a sentence."""

from typing import Any

import pytest

from modelservice_api.adapter_config import ToolsConfig
from modelservice_sidecar import published
from modelservice_sidecar.core import catalogue
from modelservice_sidecar.core.catalogue import MAX_LISTING, MAX_TOOLS, ToolSpec


def spec(name: str, size: int = 0, **more: Any) -> ToolSpec:
    """A tool whose definition has about so many bytes."""
    schema = {"type": "object", "properties": {}, "examples": ["x" * size]}
    return ToolSpec(name=name, operation_id=name, description=name, input_schema={**schema, **more}, binding=None)


NAMES = [f"tool{number:02}" for number in range(MAX_TOOLS + 1)]


@pytest.mark.promise("tools-curated")
def test_up_to_the_bound_all_are_published_and_beyond_it_none_until_somebody_chose() -> None:
    specs = [spec(name) for name in NAMES]
    assert len(catalogue.build(specs[1:], ToolsConfig()).tools) == MAX_TOOLS
    none = catalogue.build(specs, ToolsConfig(), ["earlier"])
    assert none.tools == ()
    assert none.notes[0].startswith("65 tools were found and none is published: more than 64 must be chosen by name")
    assert "tools.filter" in none.notes[0]
    assert none.notes[1] == "earlier"
    assert len(catalogue.build(specs, ToolsConfig(filter=tuple(NAMES))).tools) == MAX_TOOLS + 1
    assert catalogue.build(specs, ToolsConfig(filter=("tool07",))).names == ("tool07",)


@pytest.mark.promise("tools-curated")
def test_a_list_that_is_too_long_is_not_published_and_the_largest_are_named() -> None:
    specs = [spec(name, MAX_LISTING // 4) for name in ("a", "b", "c")] + [spec("d", MAX_LISTING // 2)]
    assert len(catalogue.build(specs[:3], ToolsConfig()).tools) == 3
    for config in (ToolsConfig(), ToolsConfig(filter=("a", "b", "c", "d"))):
        built = catalogue.build(specs, config)
        assert built.tools == ()
        assert "their descriptions have 320 KB and at most 256 KB are listed" in built.notes[0]
        assert "The largest are d (128 KB), a (64 KB), b (64 KB)." in built.notes[0]
    assert catalogue.build(specs, ToolsConfig(filter=("a", "d"))).names == ("a", "d")


@pytest.mark.promise("tools-curated")
def test_one_tool_that_is_too_long_costs_only_itself() -> None:
    built = catalogue.build([spec("a"), spec("huge", MAX_LISTING)], ToolsConfig())
    assert (built.names, built.notes) == (("a",), ("'huge' is not published: its description alone has 256 KB.",))


def test_only_what_was_chosen_is_compiled_and_what_cannot_be_is_named_once() -> None:
    specs = [spec("good"), spec("bad", type=5), spec("also_bad", type=5)]
    shown = published.publish(specs, ToolsConfig(filter=("good", "bad")), ())
    assert set(shown.tools) == {"good"}
    assert [note for note in shown.catalogue.notes if "also_bad" in note] == []
    assert shown.catalogue.notes[0].startswith("'bad' is not published: its schema is invalid")
    everything = published.publish([spec(name, type=5) for name in NAMES], ToolsConfig(), ())
    assert len(everything.catalogue.notes) == 1
