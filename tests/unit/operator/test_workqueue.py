"""One entry per name, one worker per name, delays that keep the earliest wish."""

import asyncio

import pytest

from modelservice_operator.workqueue import LONGEST_BACKOFF_SECONDS, WorkQueue


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def ready(queue: WorkQueue[str]) -> list[str]:
    """Everything the queue hands out now; each name is then active."""
    return list(iter(queue.take, None))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(clock)


def test_a_name_that_waits_is_one_entry(queue: WorkQueue[str]) -> None:
    for name in ("a", "b", "a"):
        queue.add(name)
    assert ready(queue) == ["a", "b"]


def test_a_name_added_while_it_is_worked_on_comes_back_afterwards_and_only_once(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert ready(queue) == ["a"]
    queue.add("a")
    queue.add("a")
    assert ready(queue) == []
    queue.done("a", look_again_after=None)
    assert ready(queue) == ["a"]
    queue.done("a", look_again_after=None)
    assert ready(queue) == []


def test_the_earliest_of_several_wishes_counts(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after("a", 60)
    queue.add_after("a", 5)
    queue.add_after("a", 30)
    clock.now += 4.9
    assert ready(queue) == []
    clock.now += 0.2
    assert ready(queue) == ["a"]
    queue.done("a", look_again_after=None)
    clock.now += 100
    assert ready(queue) == []


def test_a_look_now_replaces_the_one_planned_for_later(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after("a", 5)
    queue.add("a")
    assert ready(queue) == ["a"]
    queue.done("a", look_again_after=None)
    clock.now += 10
    assert ready(queue) == []


def test_a_failing_name_comes_back_later_each_time_and_a_success_forgives(queue: WorkQueue[str], clock: Clock) -> None:
    delays = []
    for _ in range(12):
        queue.add("a")
        assert ready(queue) == ["a"]
        delays.append(queue.failed("a"))
    assert delays == [0.5, 1, 2, 4, 8, 16, 32, *[LONGEST_BACKOFF_SECONDS] * 5]
    clock.now += LONGEST_BACKOFF_SECONDS
    assert ready(queue) == ["a"]
    queue.done("a", look_again_after=None)
    queue.add("a")
    assert ready(queue) == ["a"]
    assert queue.failed("a") == 0.5


def test_a_closed_queue_hands_out_nothing_and_lets_workers_go(queue: WorkQueue[str]) -> None:
    async def run() -> str | None:
        waiting = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        queue.close()
        first = await waiting
        assert first in (None, "a")
        return await queue.get()

    assert asyncio.run(run()) is None


def test_a_waiting_worker_wakes_when_a_delay_is_over() -> None:
    async def run() -> str | None:
        loop = asyncio.get_running_loop()
        queue: WorkQueue[str] = WorkQueue(loop.time)
        queue.add_after("a", 0.01)
        return await asyncio.wait_for(queue.get(), 5)

    assert asyncio.run(run()) == "a"
