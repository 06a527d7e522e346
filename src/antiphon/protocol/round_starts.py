"""How much of an answer was there when a round of its turn began?

In a round the model produces items; the gateway runs the calls among them, and their items follow.
Then the next round begins. What is stored does not say where that was, so it is found from the
number of rounds: all calls between two products of the model were made in one round, or each in a
round of its own. Where neither fits, it is not known. Tools that are listed, and calls that were
approved, come before the first round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.protocol.hosted import is_made_by_program
from antiphon.protocol.items import Item, item_type

__all__ = ["round_starts"]

_OF_MODEL: Final = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
_OUTPUT: Final = "_output"
_NOT_A_ROUND: Final = frozenset({"compaction"})


def round_starts(output: Sequence[Item], rounds: int) -> list[int] | None:
    """Return how many items there were when each round began; None if that is not known."""
    first = _first(output)
    if rounds <= 1:
        return [first]
    if any(item_type(item) in _NOT_A_ROUND for item in output):
        return None
    calls = _ends_of_calls(output, first)
    runs = [end for end in calls if end == len(output) or _is_of_model(output[end])]
    for ends in (runs, calls):
        # Nothing follows the last call if the turn ended there.
        for known in (ends, [end for end in ends if end < len(output)]):
            if len(known) == rounds - 1:
                return [first, *known]
    return None


def _first(output: Sequence[Item]) -> int:
    """Return how many items there were before the model was asked."""
    for place, item in enumerate(output):
        if item_type(item) != "mcp_list_tools" and not item.get("approval_request_id"):
            return place
    return len(output)


def _ends_of_calls(output: Sequence[Item], first: int) -> list[int]:
    """Return the places after each call that the gateway ran, with its output."""
    ends: list[int] = []
    for place in range(first, len(output)):
        item = output[place]
        if _is_of_model(item):
            continue
        is_part = item_type(item).endswith(_OUTPUT) or is_made_by_program(item)
        if is_part and ends and ends[-1] == place:
            ends[-1] = place + 1
        else:
            ends.append(place + 1)
    return ends


def _is_of_model(item: Item) -> bool:
    return item_type(item) in _OF_MODEL and not is_made_by_program(item)
