"""What the model is shown of a context with sealed items in it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from antiphon.engine.prepare.seal import Sealer
from antiphon.engine.prepare.window import (
    Memory,
    digest_of,
    is_user_message,
    open_context,
    reasoning_seal,
    remember,
    seal_memory,
)
from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item, text_of
from antiphon.protocol.native_state import NATIVE, state_of

SEALER: Final = Sealer([bytes(32)])
FOREIGN: Final = Sealer([bytes([1] * 32)])
STATE: Final = NativeState("messages", b"\x00\xffsigned", None, "team")


def said(role: str, text: str) -> Item:
    return {"type": "message", "role": role, "content": text, "id": f"msg_{text}"}


def compaction(sealer: Sealer = SEALER, owner: str = "alice", **fields: Any) -> Item:
    return seal_memory(Memory(**fields), owner, sealer)


def thought(
    text: str, *, sealer: Sealer = SEALER, state: NativeState | None = None, **more: Any
) -> Item:
    parts = [{"type": "reasoning_text", "text": text}] if text else []
    sealed = reasoning_seal(sealer, "alice")({"content": parts, "summary": []}, state)
    return {"type": "reasoning", "summary": [], "encrypted_content": sealed, **more}


def shown(items: list[Item], sealer: Sealer | None = SEALER) -> list[str]:
    opened, notes = open_context(items, "alice", sealer)
    assert notes == []
    return [text_of(item.get("content")).split("\n")[-1] for item in opened]


def test_a_context_without_sealed_items_stays_as_it_is() -> None:
    items = [said("user", "hi"), {"type": "reasoning", "summary": []}, {"role": "user"}]
    assert open_context(items, "alice", SEALER) == (items, [])
    assert open_context(items, "alice", None) == (items, [])


def test_what_a_compaction_item_stands_for_is_left_out() -> None:
    items = [
        said("user", "one"),
        said("assistant", "two"),
        compaction(summary="sum", covered=[digest_of(said("user", "one"))]),
        said("user", "three"),
    ]
    assert shown(items) == ["sum", "three"]


def test_what_it_kept_stands_around_the_summary() -> None:
    memory: dict[str, Any] = {"before": [said("user", "a")], "behind": [said("user", "b")]}
    assert shown([compaction(summary="sum", **memory), said("user", "c")]) == ["a", "sum", "b", "c"]


def test_system_and_developer_messages_outlive_it() -> None:
    items = [said("system", "sys"), said("user", "x"), said("developer", "dev")]
    covered = [digest_of(said("user", "x"))]
    assert shown([*items, compaction(summary="sum", covered=covered)]) == ["sys", "dev", "sum"]


def test_a_user_message_that_it_does_not_know_stays() -> None:
    items = [said("user", "old"), said("user", "new"), said("assistant", "gone")]
    covered = [digest_of(said("user", "old"))]
    assert shown([*items, compaction(summary="sum", covered=covered)]) == ["new", "sum"]


def test_tools_that_came_as_an_item_outlive_it() -> None:
    tools: Item = {"type": "additional_tools", "tools": []}
    opened, _ = open_context([tools, compaction(summary="sum")], "alice", SEALER)
    assert opened[0] == tools


def test_only_the_last_compaction_item_counts() -> None:
    items = [
        said("user", "one"),
        compaction(summary="first", covered=[digest_of(said("user", "one"))]),
        said("user", "two"),
        compaction(summary="second", covered=[digest_of(said("user", "two"))]),
    ]
    assert shown(items) == ["second"]


def test_one_that_cannot_be_opened_is_named_and_nothing_else_is_lost() -> None:
    items = [said("user", "one"), compaction(FOREIGN, summary="x"), said("user", "two")]
    opened, notes = open_context(items, "alice", SEALER)
    assert opened == [items[0], items[2]]
    (note,) = notes
    assert note.startswith("input[1] (compaction): ")


def test_behind_one_that_cannot_be_opened_the_one_before_counts() -> None:
    items = [said("assistant", "x"), compaction(summary="ours"), compaction(FOREIGN, summary="x")]
    opened, notes = open_context(items, "alice", SEALER)
    assert [text_of(item["content"]).split("\n")[-1] for item in opened] == ["ours"]
    assert notes[0].startswith("input[2] (compaction)")


def test_another_owners_compaction_does_not_open() -> None:
    opened, notes = open_context([compaction(owner="bob", summary="x")], "alice", SEALER)
    assert opened == []
    assert len(notes) == 1


def test_without_a_sealer_the_note_says_what_to_install() -> None:
    _, (note,) = open_context([compaction(summary="x")], "alice", None)
    assert "pip install '.[seal]'" in note


def test_a_sealed_form_that_is_not_known_counts_as_foreign() -> None:
    sealed = SEALER.seal("alice", "compaction", b'{"other":1}')
    item: Item = {"type": "compaction", "encrypted_content": sealed}
    assert len(open_context([item], "alice", SEALER)[1]) == 1


def test_a_trigger_is_never_shown() -> None:
    assert shown([said("user", "x"), {"type": "compaction_trigger"}]) == ["x"]


def test_sealed_reasoning_gets_its_content_back() -> None:
    (item,), notes = open_context([thought("deep", id="rs_1", content=None)], "alice", SEALER)
    assert notes == []
    assert text_of(item["content"]) == "deep"
    assert "encrypted_content" not in item
    assert item["id"] == "rs_1"


def test_a_sealed_summary_comes_back_too() -> None:
    parts = [{"type": "summary_text", "text": "short"}]
    sealed = reasoning_seal(SEALER, "alice")({"summary": parts}, None)
    item: Item = {"type": "reasoning", "summary": [], "encrypted_content": sealed}
    (opened,), _ = open_context([item], "alice", SEALER)
    assert text_of(opened["summary"]) == "short"
    assert opened["content"] is None


def test_reasoning_that_can_be_read_is_not_opened() -> None:
    item = thought("sealed", content=[{"type": "reasoning_text", "text": "open"}])
    (opened,), _ = open_context([item], "alice", SEALER)
    assert text_of(opened["content"]) == "open"


def test_foreign_reasoning_is_dropped_and_reported_once() -> None:
    items = [thought("x", sealer=FOREIGN), said("user", "hi"), thought("y", sealer=FOREIGN)]
    opened, notes = open_context(items, "alice", SEALER)
    assert opened == [items[1]]
    assert notes == [
        "input[0] (reasoning): encrypted_content of another server or owner (and 1 more)"
    ]


def test_the_summary_of_foreign_reasoning_is_kept() -> None:
    parts = [{"type": "summary_text", "text": "gist"}]
    opened, notes = open_context([thought("x", sealer=FOREIGN, summary=parts)], "alice", SEALER)
    assert text_of(opened[0]["summary"]) == "gist"
    assert "encrypted_content" not in opened[0]
    assert len(notes) == 1


def test_a_message_is_known_however_its_text_is_written() -> None:
    parts = [{"type": "input_text", "text": "hi"}]
    assert digest_of({"role": "user", "content": "hi"}) == digest_of({"content": parts})
    picture = {"type": "input_image", "image_url": "data:x"}
    assert digest_of({"content": [*parts, picture]}) != digest_of({"content": parts})


def test_our_own_notes_are_no_user_message() -> None:
    (notes,) = remember(Memory(summary="sum"), [])
    assert notes["role"] == "user"
    assert not is_user_message(notes)
    assert is_user_message({"role": "user", "content": "sum"})


@pytest.mark.parametrize("content", [None, 7, {"type": "x"}])
def test_odd_content_is_no_reason_to_fail(content: object) -> None:
    items: list[Item] = [{"type": "message", "role": "user", "content": content}]
    opened, _ = open_context([*items, compaction(summary="s")], "alice", SEALER)
    assert opened[0] == items[0]


# Native state.


@pytest.mark.parametrize("text", ["deep", ""])
def test_opened_reasoning_has_its_native_state(text: str) -> None:
    (item,), notes = open_context([thought(text, state=STATE)], "alice", SEALER)
    assert notes == []
    assert state_of(item) == STATE
    assert "encrypted_content" not in item


def test_reasoning_with_its_text_in_sight_is_opened_for_its_native_state() -> None:
    parts = [{"type": "reasoning_text", "text": "in sight"}]
    (item,), _ = open_context([thought("sealed", state=STATE, content=parts)], "alice", SEALER)
    assert text_of(item["content"]) == "in sight"
    assert state_of(item) == STATE


def test_readable_reasoning_of_another_server_stays_without_a_note() -> None:
    parts = [{"type": "reasoning_text", "text": "in sight"}]
    item = thought("x", state=STATE, content=parts, sealer=FOREIGN)
    (opened,), notes = open_context([item], "alice", SEALER)
    assert (state_of(opened), notes) == (None, [])


def test_a_seal_without_native_state_opens_without_one() -> None:
    old = SEALER.seal("alice", "reasoning", b'{"content":[{"type":"reasoning_text","text":"a"}]}')
    item: Item = {"type": "reasoning", "summary": [], "encrypted_content": old}
    (opened,), _ = open_context([item], "alice", SEALER)
    assert text_of(opened["content"]) == "a"
    assert NATIVE not in opened


def test_a_seal_of_native_state_without_an_account_opens() -> None:
    old = SEALER.seal("alice", "reasoning", b'{"native":{"wire":"messages","data":"AP8="}}')
    item: Item = {"type": "reasoning", "summary": [], "encrypted_content": old}
    (opened,), _ = open_context([item], "alice", SEALER)
    assert state_of(opened) == NativeState("messages", b"\x00\xff")


def test_native_state_is_not_put_on_the_item_that_is_remembered() -> None:
    item = thought("deep", state=STATE)
    before = dict(item)
    open_context([item], "alice", SEALER)
    assert item == before


def test_native_state_outlives_a_compaction_beside_its_call() -> None:
    kept = {"type": "reasoning", "id": "rs_1", "summary": [], NATIVE: STATE}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    sealed = compaction(summary="sum", behind=[kept, call])
    opened, _ = open_context([sealed], "alice", SEALER)
    assert list(opened[-2:]) == [kept, call]


def test_an_old_compaction_opens_as_before() -> None:
    body = b'{"summary":"sum","before":[],"behind":[{"role":"user","content":"b"}],"covered":[]}'
    sealed = SEALER.seal("alice", "compaction", body)
    item: Item = {"type": "compaction", "encrypted_content": sealed}
    assert shown([item]) == ["sum", "b"]
