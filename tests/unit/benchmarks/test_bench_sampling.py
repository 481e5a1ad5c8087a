"""Rounds go over all subjects in turn, and samples that others disturbed are taken again, but not for ever."""

from collections.abc import Callable, Iterator

from servicebench.sampling import collect


def taking(*foreign: float) -> tuple[list[str], Callable[[str], tuple[int, float]]]:
    """Samples numbered from 0 that saw so much foreign CPU, and none after those; and the order in which they were asked."""
    order: list[str] = []
    seen: Iterator[float] = iter(foreign)

    def take(key: str) -> tuple[int, float]:
        order.append(key)
        return len(order) - 1, next(seen, 0.0)

    return order, take


def test_subjects_take_turns() -> None:
    order, take = taking()
    samples = collect(["a", "b"], take, rounds=3)
    assert order == ["a", "b"] * 3
    assert samples.by_key == {"a": [0, 2, 4], "b": [1, 3, 5]}
    assert (samples.discarded, samples.quiet) == (0, True)


def test_a_disturbed_sample_is_dropped_and_taken_again() -> None:
    order, take = taking(0.0, 50.0)
    samples = collect(["a", "b"], take, rounds=2)
    assert order == ["a", "b", "b", "a", "b"]
    assert samples.by_key == {"a": [0, 3], "b": [2, 4]}
    assert (samples.discarded, samples.quiet) == (1, True)


def test_the_limit_itself_is_allowed() -> None:
    _, take = taking(4.0)
    assert collect(["a"], take, rounds=1, limit=4.0).discarded == 0


def test_on_a_machine_that_is_never_quiet_it_ends_and_says_so() -> None:
    order, take = taking(*[50.0] * 1000)
    samples = collect(["a", "b", "c"], take, rounds=3)
    assert len(order) == 9 + 3
    assert samples.discarded == 12
    assert not samples.quiet
    assert [len(values) for values in samples.by_key.values()] == [6, 3, 3]


def test_one_quiet_sample_is_enough_and_disturbed_ones_do_not_join_it() -> None:
    _, take = taking(50.0, 50.0, 0.0)
    samples = collect(["a"], take, rounds=3)
    assert samples.by_key == {"a": [2, 3]}
    assert samples.quiet
