"""The pace of commits: few jobs hardly wait, many wait longer while the event loop is late."""

from __future__ import annotations

import pytest

from antiphon.store.sqlite.pace import Pace


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> Pace:
    return Pace(clock)


def commit(pace: Pace, clock: Clock, lateness: float) -> None:
    """Make a commit whose callers are answered so late."""
    pace.begin(1000)
    pace.end()
    clock.now += lateness
    pace.note_answered()


def wait_after(pace: Pace, jobs: int) -> float:
    """Begin a commit; return how long the next one waits."""
    pace.begin(jobs)
    return pace.wait()


def test_the_first_commit_does_not_wait(pace: Pace) -> None:
    assert pace.wait() == 0.0
    assert not pace.is_shared


def test_a_job_alone_waits_less_than_many(pace: Pace) -> None:
    alone, many = wait_after(pace, 1), wait_after(pace, 50)
    assert 0.0 < alone <= 0.002 + 1e-9 < many


@pytest.mark.parametrize(("jobs", "is_shared"), [(1, False), (6, False), (7, True), (900, True)])
def test_commits_are_shared_when_many_jobs_are_in_one(
    pace: Pace, jobs: int, is_shared: bool
) -> None:
    pace.begin(jobs)
    assert pace.is_shared == is_shared


def test_many_wait_no_longer_than_six_milliseconds_if_the_loop_has_time(
    pace: Pace, clock: Clock
) -> None:
    commit(pace, clock, lateness=0.0)
    assert wait_after(pace, 1000) == pytest.approx(0.006)


def test_commits_are_rarer_the_later_the_loop_answers(pace: Pace, clock: Clock) -> None:
    waits = []
    for lateness in (0.0, 0.001, 0.005, 0.01):
        commit(pace, clock, lateness)
        waits.append(wait_after(pace, 1000))
    assert waits == pytest.approx([0.006, 0.007, 0.011, 0.016])


def test_there_is_a_longest_wait(pace: Pace, clock: Clock) -> None:
    commit(pace, clock, lateness=3.0)
    assert wait_after(pace, 1000) == pytest.approx(0.016)


def test_callers_that_are_not_answered_yet_count_as_late(pace: Pace, clock: Clock) -> None:
    commit(pace, clock, lateness=0.0)
    pace.begin(1000)
    pace.end()
    clock.now += 0.004
    assert wait_after(pace, 1000) == pytest.approx(0.010)


def test_a_few_jobs_wait_as_briefly_when_the_loop_is_late(pace: Pace, clock: Clock) -> None:
    commit(pace, clock, lateness=1.0)
    assert wait_after(pace, 1) == pytest.approx(0.002)


def test_what_a_commit_takes_is_part_of_the_wait(pace: Pace, clock: Clock) -> None:
    pace.begin(1000)
    clock.now += 0.002
    assert pace.wait() == pytest.approx(0.004)
    clock.now += 0.5
    assert pace.wait() == 0.0


def test_an_answer_without_a_commit_is_no_fault(pace: Pace) -> None:
    pace.note_answered()
    assert wait_after(pace, 1000) == pytest.approx(0.006)
