"""What is left out of a context that is too long."""

from __future__ import annotations

from antiphon.engine.run.truncate import drop_oldest
from antiphon.protocol.items import Item


def said(role: str, text: str) -> Item:
    return {"type": "message", "role": role, "content": text}


def test_the_older_half_of_the_turns_goes_with_its_calls() -> None:
    call: Item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output: Item = {"type": "function_call_output", "call_id": "c", "output": "x"}
    first = [said("user", "1"), call, output, said("assistant", "a")]
    second = [said("user", "2"), said("assistant", "b")]
    assert drop_oldest([*first, *second]) == second


def test_a_call_goes_together_with_an_output_that_came_after_a_later_message() -> None:
    call: Item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output: Item = {"type": "function_call_output", "call_id": "c", "output": "x"}
    first = [said("user", "1"), said("assistant", "a")]
    second = [said("user", "2"), call, said("user", "3"), output]
    assert drop_oldest([*first, *second]) == second


def test_system_and_developer_messages_stay() -> None:
    head = [said("system", "s"), said("developer", "d")]
    items = [head[0], said("user", "1"), head[1], said("user", "2")]
    assert drop_oldest(items) == [*head, said("user", "2")]


def test_the_newest_turn_is_never_dropped() -> None:
    assert drop_oldest([said("system", "s"), said("user", "1"), said("assistant", "a")]) is None
    assert drop_oldest([]) is None
