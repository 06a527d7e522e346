"""The memory that requests may take together: bounded, fair, and given back."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.budget import Budget
from antiphon.protocol.errors import BodyTooLarge, Overloaded


def test_one_owner_alone_can_hold_four_fifths_and_no_more() -> None:
    budget = Budget(1000)
    hold = budget.hold("anna", 800)
    with pytest.raises(Overloaded):
        budget.hold("anna", 1)
    hold.release()
    assert budget.used == 0


def test_an_owner_who_holds_all_that_one_may_leaves_room_for_the_next() -> None:
    budget = Budget(1000)
    budget.hold("anna", 800)
    budget.hold("bert", 160)
    with pytest.raises(Overloaded):
        budget.hold("bert", 40)
    budget.hold("carl", 30)


def test_an_owner_with_little_gets_memory_where_one_with_much_is_refused() -> None:
    budget = Budget(1000)
    budget.hold("anna", 600)
    budget.hold("bert", 200)
    with pytest.raises(Overloaded):
        budget.hold("anna", 100)
    budget.hold("bert", 100)


def test_what_never_fits_is_not_answered_with_try_again() -> None:
    with pytest.raises(BodyTooLarge):
        Budget(1000).hold("anna", 801)


def test_a_hold_that_cannot_grow_keeps_what_it_has() -> None:
    budget = Budget(1000)
    hold = budget.hold("anna", 100)
    budget.hold("anna", 600)
    with pytest.raises(Overloaded):
        hold.resize(300)
    assert (hold.size, budget.used) == (100, 700)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 500), st.booleans())))
def test_no_more_is_held_than_there_is_and_all_of_it_comes_back(
    steps: Iterable[tuple[str, int, bool]],
) -> None:
    budget = Budget(1000)
    holds = []
    for owner, size, is_end in steps:
        with suppress(Overloaded):
            holds.append(budget.hold(owner, size))
        assert sum(hold.size for hold in holds) == budget.used <= budget.total
        if is_end and holds:
            holds.pop().release()
    for hold in holds:
        hold.release()
        hold.release()
    assert budget.used == 0


def test_what_has_been_released_reserves_nothing_again() -> None:
    budget = Budget(1000)
    hold = budget.hold("anna", 100)
    hold.release()
    with pytest.raises(Overloaded):
        hold.resize(200)  # a thread that still works for a client that has left
    hold.release()
    assert budget.used == 0
