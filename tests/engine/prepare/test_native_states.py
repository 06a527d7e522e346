"""What is kept of the native state of an answer, and where it is put back."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.engine.prepare.native_states import carried_by, keep_states, lonely_calls, put_back
from antiphon.protocol.items import Item
from antiphon.protocol.machines.builder import KeptState
from antiphon.protocol.native_state import NATIVE, seal_of


def thought(name: str, **more: Any) -> Item:
    return {"type": "reasoning", "id": name, "summary": [], **more}


def call(name: str) -> Item:
    return {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"}


def output(name: str) -> Item:
    return {"type": "function_call_output", "call_id": name, "output": "x"}


def message(role: str, text: str = "t") -> Item:
    return {"type": "message", "role": role, "content": text}


def state(name: str, attach: Any = None) -> dict[str, KeptState]:
    return {name: KeptState(f"seal of {name}", attach)}


def shown(items: list[Item]) -> list[str]:
    """Return the items in short: seals, texts and ids of calls."""
    return [
        str(seal_of(item) or item.get("call_id") or item.get("id") or item["content"])
        for item in items
    ]


def returned(said: list[Item], kept: dict[str, KeptState]) -> list[str]:
    """Return the history of a caller that sends back all but the reasoning."""
    found = carried_by(said, kept)
    return shown(put_back([item for item in said if item["type"] != "reasoning"], found))


def test_a_stored_item_has_the_seal_that_its_caller_is_not_given() -> None:
    given = thought("b", encrypted_content="seal of b")
    kept = keep_states([thought("a"), given, call("1")], state("a") | state("b"))
    assert kept == [thought("a", **{NATIVE: "seal of a"}), given, call("1")]


def test_state_comes_back_in_front_of_its_call() -> None:
    assert returned([thought("a"), call("1"), call("2")], state("a")) == ["seal of a", "1", "2"]


def test_a_thought_that_began_the_turn_comes_back_before_its_text() -> None:
    said = [thought("a"), message("assistant", "text"), call("1")]
    assert returned(said, state("a")) == ["seal of a", "text", "1"]


def test_a_thought_after_the_text_comes_back_after_it() -> None:
    said = [message("assistant", "text"), thought("a"), call("1")]
    assert returned(said, state("a")) == ["text", "seal of a", "1"]


def test_each_call_has_its_own_state() -> None:
    said = [thought("a"), call("1"), thought("b"), call("2")]
    kept = state("a", "next") | state("b", "next")
    assert returned(said, kept) == ["seal of a", "1", "seal of b", "2"]


def test_state_of_the_call_before_comes_back_after_it() -> None:
    said = [call("1"), thought("a"), call("2")]
    assert returned(said, state("a", "previous")) == ["1", "seal of a", "2"]


def test_state_of_a_text_without_a_call_is_not_kept() -> None:
    assert carried_by([thought("a"), message("assistant")], state("a")) == {}


def test_sealed_reasoning_without_native_state_is_not_kept() -> None:
    said = [thought("a", encrypted_content="s"), call("1")]
    assert carried_by(said, {}) == {}
    assert carried_by([*said, thought("b"), call("2")], state("b")).keys() == {"2"}


def test_thoughts_beside_native_state_come_back_with_it() -> None:
    said = [thought("a", encrypted_content="plain"), thought("b"), call("1")]
    assert returned(said, state("b")) == ["plain", "seal of b", "1"]


def test_plain_reasoning_gives_way_to_the_seal_that_holds_it() -> None:
    found = carried_by([thought("a"), call("1")], state("a"))
    history = [message("user"), thought("echoed"), call("1"), output("1"), thought("later")]
    assert shown(put_back(history, found)) == ["t", "seal of a", "1", "1", "later"]


def test_a_turn_with_sealed_reasoning_is_left_as_it_is() -> None:
    found = carried_by([thought("a"), call("1")], state("a"))
    history = [thought("x", encrypted_content="mine"), call("1"), output("1")]
    assert put_back(history, found) == history
    assert lonely_calls(history) == []


@pytest.mark.parametrize("between", [message("user"), output("0")])
def test_calls_of_turns_without_sealed_reasoning_are_looked_for(between: Item) -> None:
    history = [call("0"), call("1"), between, thought("x", encrypted_content="s"), call("2")]
    assert lonely_calls([*history, output("2"), call("3")]) == ["0", "1", "3"]
