"""The circuit breaker's states: what leads from one to the next, and what does not."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from modelservice_sidecar.core.breaker import NEXT, STATES, Breaker, Refused, Verdict

pytestmark = pytest.mark.promise("limits")

FAILURES, OPEN = 3, 10.0


def breaker() -> Breaker:
    return Breaker(failures=FAILURES, open_seconds=OPEN)


def admitted(one: Breaker, now: float) -> int:
    permit = one.admit(now)
    assert isinstance(permit, int)
    return permit


def tripped(now: float = 0.0) -> Breaker:
    one = breaker()
    for _ in range(FAILURES):
        one.record(admitted(one, now), "failed", now)
    assert one.state == "open"
    return one


def test_the_table_leads_from_every_state_out_again() -> None:
    assert {state for state, _ in NEXT} == set(STATES)
    assert set(NEXT.values()) == set(STATES)


def test_it_opens_at_so_many_failures_in_a_row_and_not_before() -> None:
    one = breaker()
    for verdict in ("failed", "failed", "answered", "failed", "unknown", "failed"):
        one.record(admitted(one, 0.0), verdict, 0.0)  # type: ignore[arg-type]
    assert one.state == "closed"
    one.record(admitted(one, 0.0), "failed", 0.0)
    assert (one.state, one.opened) == ("open", 1)
    assert one.admit(4.0) == Refused(6.0)


def test_one_probe_decides() -> None:
    one = tripped()
    probe = admitted(one, OPEN)
    assert one.state == "half_open"
    assert one.admit(OPEN + 1) == Refused(OPEN - 1)
    one.record(probe, "failed", OPEN + 2)
    assert (one.state, one.admit(OPEN + 2)) == ("open", Refused(OPEN))
    again = admitted(one, 2 * OPEN + 2)
    one.record(again, "answered", 2 * OPEN + 3)
    assert one.state == "closed"
    assert isinstance(one.admit(2 * OPEN + 3), int)


@pytest.mark.parametrize("verdict", ["unknown", None])
def test_a_probe_that_tells_nothing_makes_room_for_the_next(verdict: Verdict | None) -> None:
    one = tripped()
    probe = admitted(one, OPEN)
    if verdict is not None:
        one.record(probe, verdict, OPEN + 1)
    else:  # it hangs: after a while it must not keep all others out
        assert isinstance(one.admit(2 * OPEN - 0.1), Refused)
    later = 2 * OPEN if verdict is None else OPEN + 1
    second = admitted(one, later)
    one.record(probe, "failed", later)  # the lost one's outcome counts no more
    assert one.state == "half_open"
    one.record(second, "answered", later)
    assert one.state == "closed"


def test_outcomes_of_calls_from_before_count_neither_for_nor_against() -> None:
    one = breaker()
    old = [admitted(one, 0.0) for _ in range(10)]
    for permit in old[:FAILURES]:
        one.record(permit, "failed", 0.0)
    one.record(old[4], "answered", 1.0)
    assert one.state == "open"
    probe = admitted(one, OPEN)
    for permit in old[5:]:
        one.record(permit, "failed", OPEN)
    one.record(probe, "answered", OPEN)
    assert one.state == "closed"


def test_a_model_server_that_was_found_anew_is_asked_at_once_and_other_bounds_change_no_state() -> None:
    one = tripped()
    one.configure(failures=1, open_seconds=1.0)
    assert (one.state, one.admit(0.5)) == ("open", Refused(0.5))
    one.reset()
    one.record(admitted(one, 0.5), "failed", 0.5)
    assert one.state == "open"


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.one = breaker()
        self.now = 0.0
        self.running: list[int] = []
        self.admitted_since_open: list[float] = []
        self.opened_at = 0.0

    @rule(quarters=st.integers(0, 60))
    def time_passes(self, quarters: int) -> None:
        self.now += quarters / 4

    @rule()
    def a_call_comes(self) -> None:
        before = self.one.state
        permit = self.one.admit(self.now)
        if isinstance(permit, Refused):
            assert before != "closed"
            assert 0 < permit.retry_after <= OPEN
            return
        self.running.append(permit)
        if before == "open":
            assert self.now - self.opened_at >= OPEN
            assert self.one.state == "half_open"
        if self.one.state == "half_open":
            # One probe at a time; a second one only when the first was given up or told nothing.
            self.admitted_since_open.append(self.now)

    @rule(which=st.integers(0, 30), verdict=st.sampled_from(["failed", "answered", "unknown"]))
    def a_call_ends(self, which: int, verdict: Verdict) -> None:
        if not self.running:
            return
        permit = self.running.pop(which % len(self.running))
        before, opened = self.one.state, self.one.opened
        self.one.record(permit, verdict, self.now)
        if self.one.opened > opened:
            self.opened_at = self.now
            assert verdict == "failed"
        if before != "closed" and self.one.state == "closed":
            assert (before, verdict) == ("half_open", "answered")
        if before == "open":
            assert self.one.state == "open"

    @invariant()
    def it_is_never_stuck(self) -> None:
        waiting = self.one.admit(self.now)
        if isinstance(waiting, int):
            self.running.append(waiting)
            return
        permit = self.one.admit(self.now + waiting.retry_after)
        assert isinstance(permit, int)
        self.now += waiting.retry_after
        self.running.append(permit)


TestAnyHistory = AnyHistory.TestCase
