"""Native state on the items of a plan: who gets it, and what is reported without it."""

from __future__ import annotations

from typing import Final

import pytest

from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import (
    NATIVE,
    native_of,
    note_dropped,
    note_foreign,
    state_of,
    without_state,
)

STATE: Final = NativeState("messages", b"signed", None, "team")
THOUGHT: Final[Item] = {"type": "reasoning", "summary": [], NATIVE: STATE}


def test_a_wire_gets_its_own_state() -> None:
    assert native_of(THOUGHT, "messages", "team") == STATE


@pytest.mark.parametrize(("wire", "account"), [("gemini", "team"), ("messages", "other")])
def test_state_of_another_wire_or_account_is_not_given(wire: str, account: str) -> None:
    assert native_of(THOUGHT, wire, account) is None


def test_an_item_without_state_has_none() -> None:
    assert native_of({"type": "reasoning", "summary": []}, "messages", "team") is None


@pytest.mark.parametrize("sent", ["text", {"wire": "messages", "data": "", "account": "team"}, 1])
def test_what_a_caller_writes_under_the_private_key_is_no_state(sent: object) -> None:
    item: Item = {"type": "reasoning", NATIVE: sent}
    assert state_of(item) is None
    assert native_of(item, "messages", "team") is None


def test_an_item_is_copied_without_its_state() -> None:
    assert without_state(THOUGHT) == {"type": "reasoning", "summary": []}
    assert NATIVE in THOUGHT


def test_what_cannot_be_used_is_reported_once() -> None:
    items = [{"type": "message", "role": "user", "content": "hi"}, THOUGHT, THOUGHT]
    assert note_foreign(items, "messages", "team") == []
    assert note_foreign(items, "gemini", "team") == [
        "input[1] (reasoning): the state of another provider or account is not sent (and 1 more)"
    ]


def test_nothing_dropped_is_nothing_to_report() -> None:
    assert note_dropped([]) == []
