"""Down and up again: any tools and any history come back as the caller knows them.

The count that is promised is 10,000. There are more, because some are drawn twice; they are
shared among tests that can run side by side. `python bench/families.py` prints what they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from antiphon.plans.plan import Plan
from antiphon.protocol.families import FAMILIES
from antiphon.protocol.items import Item
from antiphon.wires.lower import functions_of
from tests.tool_histories import (
    History,
    Known,
    cut,
    histories,
    messages_of,
    plan_of,
    quick_histories,
    read_back,
    wire,
)

EXAMPLES: Final = 11_000
SHARES: Final = 5
NAME: Final = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")

splits = st.builds(
    lambda sizes, are_mixed, places: (sizes, are_mixed, places),
    st.sampled_from([[1], [3], [1, 9], [2, 5, 40], [1000]]),
    st.booleans(),
    st.lists(st.integers(0, 2**12), max_size=3),
)
Split = tuple[list[int], bool, list[int]]


quick_splits = st.integers(0, 2**63).map(
    lambda number: (
        [number % 5 + 1, number % 97 + 1],
        number % 2 == 1,
        [number % 1009, number % 10007],
    )
)


@given(histories(), splits)
def test_a_history_survives_down_and_up(history: History, split: Split) -> None:
    check_survival(history, split)


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_thousands_of_histories_survive_down_and_up(share: int) -> None:
    @seed(share)
    @settings(max_examples=EXAMPLES // SHARES, database=None)
    @given(quick_histories(), quick_splits)
    def survives(history: History, split: Split) -> None:
        check_survival(history, split)

    survives()


def check_survival(history: History, split: Split) -> Plan:
    """Say with an AssertionError what of a history is not what it was. Return what was asked."""
    plan = plan_of(history.body)
    check_names(history, plan)
    offered = {known[:3] for known in history.tools if known.place != "gone"}
    waiting = list(history.calls)
    for message, results in turns_of(messages_of(plan)):
        written = message["tool_calls"]
        if written[0]["id"] == "searched":  # how the tools were found, before all else
            written, results = written[1:], results[1:]
        calls, waiting = waiting[: len(written)], waiting[len(written) :]
        assert [call["id"] for call in written] == [call["call_id"] for call in calls]
        check_pairing(history, calls, results)
        pairs = list(zip(written, calls, strict=True))
        here = [(told, call) for told, call in pairs if identity(call) in offered]
        sizes, are_mixed, places = split
        data = wire([told for told, _ in here], sizes, are_mixed=are_mixed)
        back = read_back(plan, cut(data, places))
        assert [bare(item) for item in back] == [bare(call) for _, call in here]
    assert not waiting
    return plan


def check_names(history: History, plan: Plan) -> None:
    """Make sure that every tool that is offered has a name of its own, and the others none."""
    aliases = [tool["name"] for tool in functions_of(plan)]
    assert len(aliases) == len(set(aliases))
    assert all(NAME.match(alias) for alias in aliases)
    for known in history.tools:
        offer = plan.toolbox.find(*known[:3])
        alias = plan.toolbox.alias_of(*known[:3])
        assert NAME.match(alias)
        if known.place == "gone":
            assert offer is None
            assert alias not in aliases
        else:
            assert offer is not None
            assert plan.toolbox.called(alias) is offer
            assert alias == known.name or must_change(known, history)


def must_change(known: Known, history: History) -> bool:
    """Say whether the model cannot know a tool by its own name, or not that one alone."""
    rivals = [other for other in history.tools if other.name == known.name]
    return known.namespace is not None or not NAME.match(known.name) or len(rivals) > 1


def check_pairing(
    history: History, calls: Sequence[Item], results: Sequence[dict[str, Any]]
) -> None:
    """Make sure that behind each call stands what came of that very call."""
    assert [result["tool_call_id"] for result in results] == [call["call_id"] for call in calls]
    for call, result in zip(calls, results, strict=True):
        if call["type"] == "computer_call":
            continue  # its result is an image, which follows in a message of its own
        assert history.answers[call["call_id"]] in result["content"]


def turns_of(
    messages: Sequence[dict[str, Any]],
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return the messages that call, each with the results behind it."""
    found: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for message in messages:
        if message.get("tool_calls"):
            found.append((message, []))
        elif message["role"] == "tool":
            found[-1][1].append(message)
    return found


def identity(call: Item) -> tuple[str, str | None, str]:
    """Return what the tool of a call is known as."""
    (family,) = (family for family in FAMILIES.values() if family.call == call["type"])
    return family.kind, call.get("namespace"), call.get("name", family.kind)


def bare(item: Item) -> Item:
    """Return an item without what a new answer has of its own."""
    return {field: value for field, value in item.items() if field not in ("id", "status")}
