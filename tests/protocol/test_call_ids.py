"""Ids of calls: each its own, and the same on every replay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.call_ids import MAX_CALL_ID, CallIds, taken_in

_WISHES = st.lists(st.sampled_from(["a", "a_2", "a_3", "x" * 64, "x" * 62 + "_2"]), max_size=12)


@given(_WISHES, _WISHES)
def test_every_call_gets_an_id_of_its_own_and_the_same_one_again(
    wishes: list[str], taken: list[str]
) -> None:
    given_once, given_again = (
        [ids.claim(wish) for wish in wishes] for ids in (CallIds(taken), CallIds(taken))
    )
    assert given_once == given_again
    assert len({*given_once, *taken}) == len(given_once) + len({*taken})
    assert all(len(call_id) <= MAX_CALL_ID for call_id in given_once)


def test_an_id_that_is_free_is_kept() -> None:
    assert CallIds(["b"]).claim("a") == "a"


def test_ids_of_calls_and_outputs_in_a_history_are_taken() -> None:
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "b", "output": ""}
    is_taken = taken_in([{"type": "message", "role": "user", "content": "a"}, call, output])
    assert [is_taken(call_id) for call_id in "abc"] == [True, True, False]
    assert CallIds(is_taken=is_taken).claim("a") == "a_2"
