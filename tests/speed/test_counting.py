"""The counter itself: what it sees, and that it sees the same again."""

from __future__ import annotations

import copy
import threading

from tests.speed.counting import Blocks, Calls, Steps


def work(times: int) -> int:
    return sum(number for number in range(times))


def steps_of(times: int) -> int:
    steps = Steps()
    with steps.counted():
        work(times)
    return steps.total


def test_the_same_work_is_the_same_number_of_steps() -> None:
    steps_of(1)  # what is only done once in a process
    assert steps_of(1000) == steps_of(1000) > steps_of(999) > 999


def test_what_a_library_does_for_us_is_counted() -> None:
    steps = Steps()
    with steps.counted():
        copy.deepcopy([[1], [2]])
    assert steps.by_file()[copy.__file__] > 100


def test_threads_that_are_started_meanwhile_are_counted() -> None:
    steps = Steps()
    with steps.counted():
        thread = threading.Thread(target=work, args=(1000,))
        thread.start()
        thread.join()
    assert steps.by_file()[__file__] > 1000


def test_nothing_is_counted_before_and_after() -> None:
    steps = Steps()
    with steps.counted():
        pass
    counted = steps.total
    work(1000)
    assert steps.total == counted < 100


def keep(times: int) -> list[object]:
    return [object() for _ in [None] * times]


def call(times: int) -> int:
    return sum(steps_of_nothing() for _ in range(times))


def steps_of_nothing() -> int:
    return 0


def blocks_of(times: int) -> int:
    blocks = Blocks()
    with blocks.counted():
        keep(times)
    return blocks.total


def test_each_object_is_a_block() -> None:
    blocks_of(1000)
    assert 1000 <= blocks_of(2000) - blocks_of(1000) <= 1010


def test_blocks_that_are_given_back_at_once_are_counted_too() -> None:
    blocks = Blocks()
    with blocks.counted():
        for _ in range(100):
            keep(1)
    assert blocks.by_file()[__file__] >= 100


def test_calls_are_counted_each() -> None:
    calls = Calls()
    with calls.counted():
        call(1000)
    # Each value of the generator is a call of its own.
    assert 2000 <= calls.by_file()[__file__] <= 2010
