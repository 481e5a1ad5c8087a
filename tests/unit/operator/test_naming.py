"""Names are legal, stable and stay apart."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelservice_operator.core import naming

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?", fullmatch=True)
DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@given(NAMES)
def test_every_child_name_is_a_dns_label(name: str) -> None:
    for child in (naming.service(name), naming.config_map(name), naming.label_value(name)):
        assert DNS_LABEL.fullmatch(child), child


@given(NAMES, NAMES)
def test_two_names_never_share_a_child(first: str, second: str) -> None:
    if first != second:
        assert naming.service(first) != naming.service(second)
        assert naming.label_value(first) != naming.label_value(second)


def test_a_name_that_fits_stays_as_it_is() -> None:
    assert naming.service("fraud") == "fraud-mcp"
    assert naming.service("a" * 59) == "a" * 59 + "-mcp"


@pytest.mark.parametrize("name", ["a" * 60, "fraud.v2", "x" * 253])
def test_a_name_that_does_not_fit_gains_a_hash_of_the_whole(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9-]+-[0-9a-f]{8}-mcp", naming.service(name))


def test_a_field_manager_is_one_per_model_service_and_never_looks_like_kubectl() -> None:
    assert naming.field_manager("6217c01a-db50-4d8f") == "modelservice-operator.6217c01a"
    assert naming.field_manager("4940fc06-fc4f-4c23") != naming.field_manager("6217c01a-db50-4d8f")


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("ml/fraud/6217c01a", ("ml", "fraud", "6217c01a")),
        ("ml/fraud", None),
        ("ml//6217c01a", None),
        ("", None),
        ("a/b/c/d", None),
    ],
)
def test_an_owner_annotation_is_read_or_refused(value: str, parts: tuple[str, str, str] | None) -> None:
    assert naming.parse_owner(value) == parts


def test_a_port_name_that_is_taken_gains_a_short_hash() -> None:
    assert naming.port_name("mcp", frozenset({"http"})) == "mcp"
    renamed = naming.port_name("mcp-admin", frozenset({"mcp-admin"}))
    assert renamed != "mcp-admin"
    assert len(renamed) <= 15
