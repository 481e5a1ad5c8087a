"""Which failures are worth another attempt, how many there may be, and when."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelservice_sidecar.core import errors, retrypolicy
from modelservice_sidecar.core.errors import BackendError, BackendUnreachableError
from modelservice_sidecar.core.retrypolicy import LONGEST_BACKOFF, RESERVE, Budget

pytestmark = pytest.mark.promise("limits")

BACKEND_ERRORS = [kind for kind in errors.TABLE if issubclass(kind, BackendError)]
REPEATED = {
    "BackendUnreachableError",
    "BackendDisconnectedError",
    "BackendBusyError",
    "BackendFailureError",
}


@pytest.mark.parametrize(("kind", "idempotent"), list(product(BACKEND_ERRORS, (True, False))))
def test_only_what_was_not_sent_or_does_no_harm_is_sent_again(kind: type[BackendError], idempotent: bool) -> None:
    expected = kind is BackendUnreachableError or (idempotent and kind.__name__ in REPEATED)
    assert retrypolicy.may_repeat(kind("x"), idempotent=idempotent, status=500) is expected


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_busy_model_server_that_says_when_has_done_nothing(idempotent: bool) -> None:
    busy = errors.BackendBusyError("x", retry_after=0.0)
    assert retrypolicy.may_repeat(busy, idempotent=idempotent, status=503)


def test_a_redirect_would_be_the_same_the_next_time() -> None:
    assert not retrypolicy.may_repeat(errors.BackendFailureError("x"), idempotent=True, status=307)


@given(percent=st.integers(0, 100), failing=st.lists(st.booleans(), max_size=600))
def test_retries_are_a_share_of_calls_and_what_was_saved_up(percent: int, failing: list[bool]) -> None:
    budget, retries = Budget(percent), 0
    for calls, fails in enumerate(failing, start=1):
        budget.pay_in()
        retries += fails and budget.take()
        assert retries <= calls * percent / 100 + (RESERVE if percent else 0) + 1e-6
    assert percent or retries == 0


def test_a_quiet_service_has_retries_and_a_failing_one_runs_out_of_them() -> None:
    budget = Budget(10)
    spent = sum(budget.take() for _ in range(1000))
    assert spent == RESERVE
    for _ in range(10):
        assert not budget.take()
        budget.pay_in()
    assert budget.take()
    budget.configure(0)
    assert not budget.take()


@given(attempt=st.integers(1, 1000), chance=st.floats(0, 1), asked=st.none() | st.floats(0, 3600))
def test_the_wait_is_bounded_and_never_shorter_than_the_model_server_asked_for(
    attempt: int, chance: float, asked: float | None
) -> None:
    wait = retrypolicy.backoff(attempt, chance, asked)
    assert (asked or 0.0) <= wait <= max(LONGEST_BACKOFF, asked or 0.0)


def test_bounds_of_the_wait_double_and_its_length_is_left_to_chance() -> None:
    longest = [retrypolicy.backoff(attempt, 1.0, None) for attempt in range(1, 8)]
    assert longest == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert retrypolicy.backoff(5, 0.0, None) == 0.0
    assert retrypolicy.backoff(1, 0.5, None) == 0.025
