"""Durations and reasons say one thing each."""

import pytest

from modelservice_api import v1alpha1
from modelservice_api.conditions import CONDITION_SENTENCES, ConditionType, Reasons


@pytest.mark.parametrize(("text", "seconds"), [("5ms", 0.005), ("30s", 30.0), ("5m", 300.0), ("1h", 3600.0)])
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert v1alpha1.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1", "1.5s", "-1s", "1d", "1 s"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="30s"):
        v1alpha1.seconds(text)


def test_every_reason_is_named_as_its_constant() -> None:
    for attribute, reason in vars(Reasons).items():
        if attribute.isupper():
            assert reason.name.lower() == attribute.replace("_", "").lower()  # but for acronyms: GPUSet
            assert reason.name[0].isupper()
            assert reason.sentence.endswith(".")


def test_every_condition_has_a_sentence() -> None:
    assert set(CONDITION_SENTENCES) == set(ConditionType)
