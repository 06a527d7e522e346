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


def test_the_older_half_of_the_calls_of_the_only_turn_goes() -> None:
    def step(name: str) -> list[Item]:
        call: Item = {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"}
        output: Item = {"type": "function_call_output", "call_id": name, "output": "x"}
        return [{"type": "reasoning", "summary": []}, call, output]

    asked = [said("system", "s"), said("user", "1")]
    steps = [step("a"), step("b"), step("c"), [said("assistant", "end")]]
    items = [*asked, *(item for one in steps for item in one)]
    assert drop_oldest(items) == [*asked, *step("c"), said("assistant", "end")]
    two = [*asked, *step("a"), *step("b")]
    assert drop_oldest(two) == [*asked, *step("b")]
    assert drop_oldest([*asked, *step("a")]) is None


def test_calls_made_together_go_together() -> None:
    calls: list[Item] = [
        {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"} for name in "ab"
    ]
    outputs: list[Item] = [
        {"type": "function_call_output", "call_id": name, "output": "x"} for name in "ab"
    ]
    between: Item = {"type": "reasoning", "summary": []}
    items = [said("user", "1"), *calls, outputs[0], between, outputs[1]]
    assert drop_oldest(items) is None


def test_the_newest_turn_is_never_dropped() -> None:
    assert drop_oldest([said("system", "s"), said("user", "1"), said("assistant", "a")]) is None
    assert drop_oldest([]) is None
