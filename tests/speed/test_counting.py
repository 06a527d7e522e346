"""The counter itself: what it sees, and that it sees the same again."""

from __future__ import annotations

import copy
import threading

from tests.speed.counting import Steps


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
