"""Where in an answer did its rounds begin?"""

from __future__ import annotations

import pytest

from antiphon.protocol.items import Item
from antiphon.protocol.round_starts import round_starts

SHORT: dict[str, Item] = {
    "m": {"type": "message", "role": "assistant", "content": []},
    "r": {"type": "reasoning", "summary": []},
    "c": {"type": "mcp_call", "approval_request_id": None},
    "a": {"type": "mcp_call", "approval_request_id": "mcpr_1"},
    "l": {"type": "mcp_list_tools"},
    "q": {"type": "mcp_approval_request"},
    "s": {"type": "shell_call"},
    "o": {"type": "shell_call_output"},
    "p": {"type": "function_call", "caller": {"type": "program", "caller_id": "c1"}},
    "f": {"type": "function_call"},
    "k": {"type": "compaction"},
}


def _items(letters: str) -> list[Item]:
    return [SHORT[letter] for letter in letters]


@pytest.mark.parametrize(
    ("letters", "rounds", "starts"),
    [
        ("", 1, [0]),
        ("m", 1, [0]),
        ("cm", 2, [0, 1]),
        ("mcm", 2, [0, 2]),
        ("ccm", 2, [0, 2]),
        ("ccm", 3, [0, 1, 2]),
        ("rcrcm", 3, [0, 2, 4]),
        ("rccrcm", 3, [0, 3, 5]),
        ("sosom", 3, [0, 2, 4]),
        ("ssoom", 2, [0, 4]),
        ("spom", 2, [0, 3]),
        ("cf", 2, [0, 1]),
    ],
)
def test_a_round_begins_where_the_calls_of_the_one_before_end(
    letters: str, rounds: int, starts: list[int]
) -> None:
    assert round_starts(_items(letters), rounds) == starts


@pytest.mark.parametrize(("letters", "starts"), [("lcm", [1, 2]), ("am", [1]), ("lam", [2])])
def test_listings_and_approved_calls_come_before_the_first_round(
    letters: str, starts: list[int]
) -> None:
    assert round_starts(_items(letters), len(starts)) == starts


@pytest.mark.parametrize(
    ("letters", "starts"), [("c", [0, 1]), ("mc", [0, 2]), ("cmq", [0, 1]), ("cmcq", [0, 1])]
)
def test_a_turn_may_end_with_a_call(letters: str, starts: list[int]) -> None:
    assert round_starts(_items(letters), 2) == starts


@pytest.mark.parametrize(
    ("letters", "rounds"), [("m", 2), ("cccm", 3), ("rccm", 5), ("kcm", 2), ("", 2)]
)
def test_what_is_not_known_is_not_guessed(letters: str, rounds: int) -> None:
    assert round_starts(_items(letters), rounds) is None
