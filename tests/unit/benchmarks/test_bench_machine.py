"""Foreign CPU is what the machine did and we did not."""

import os

import pytest
from servicebench import machine
from servicebench.failure import BenchError
from servicebench.machine import Usage, parse_stat

STAT = "cpu  577354 50012 143900 78262 10361 5 5858 17977 0 0\ncpu0 288641 24136 70854 43704 3312 0 2156 9054 0 0\n"


def test_interrupts_and_waiting_are_not_busy_but_stolen_time_is() -> None:
    busy, whole = parse_stat(STAT, 100)
    assert busy == pytest.approx(5773.54 + 500.12 + 1439.00 + 179.77)
    assert whole == pytest.approx(busy + 782.62 + 103.61 + 0.05 + 58.58)


def test_foreign_is_a_share_of_the_whole_machine() -> None:
    before = Usage(busy=100.0, whole=200.0, own=10.0)
    assert Usage(busy=103.0, whole=204.0, own=12.8).foreign_percent(before) == pytest.approx(5.0)


def test_more_of_our_own_than_the_machine_s_is_rounding_and_no_time_at_all_is_nothing() -> None:
    before = Usage(busy=100.0, whole=200.0, own=10.0)
    assert Usage(busy=103.0, whole=204.0, own=13.1).foreign_percent(before) == 0.0
    assert before.foreign_percent(before) == 0.0


def test_one_core_is_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    with pytest.raises(BenchError, match="two CPU cores"):
        machine.claim()


def test_the_measured_and_the_measuring_never_share_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 2, 7})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: set_to.append(cores))
    cores = machine.claim()
    assert (cores.subject, cores.others, set_to) == (5, 2, [{2}])
