"""Which item of a stream does an event mean?

An event names its item by id and output_index, and servers get both wrong: ids change, are left
out or stand for several items, and indexes are taken twice. The rules by which the accumulator
finds an item all the same are in its docstring; they are applied here. What is odd is reported to
`deviate`.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.protocol.events import (
    AnnotationEvent,
    CallDelta,
    CallDone,
    PartAdded,
    PartDone,
    TextDelta,
    TextDone,
    event_type,
)
from antiphon.protocol.items import Item
from antiphon.protocol.machines.partial_items import (
    STREAMING,
    Draft,
    TextChannel,
    call_key,
    fold_calls,
    string_of,
)

__all__ = ["ItemIndex"]

_InItem = TextDelta | TextDone | CallDelta | CallDone | PartAdded | PartDone | AnnotationEvent


class ItemIndex:
    """The items of a stream so far. `has_begun` is whether a response was announced."""

    def __init__(self, deviate: Callable[[str], None]) -> None:
        self.has_begun = False
        self._deviate = deviate
        self._drafts: list[Draft] = []
        self._by_id: dict[str, Draft] = {}
        self._by_call: dict[tuple[str, str], Draft] = {}
        self._by_index: dict[int, Draft] = {}
        self._by_place: dict[tuple[int, str], Draft | None] = {}
        """The only item of a kind at an index; None if there are several."""
        self._crowded: set[int] = set()
        self._shared: set[str] = set()
        """The ids that stand for several items."""
        self._undone: dict[str, dict[Draft, None]] = {}
        """By kind, the items that are not done, in the order in which they were opened."""

    def find(self, index: int, item: Item, *, is_final: bool) -> Draft | None:
        """Return the draft of an item that is added, or done if `is_final`; None for a new one."""
        named = self._by_id.get(string_of(item, "id") or string_of(item, "call_id"))
        if named is not None and named.fits(item):
            return named
        call = call_key(item)
        draft = self._by_call.get(call) if call else None
        if draft is not None:
            is_same = draft.is_told_again(index, item, is_final=is_final)
            return draft if is_same else None
        if named is not None and is_final and named.is_renamed(index, item):
            return named
        return self._find_in_place(index, item, is_final=is_final)

    def _find_in_place(self, index: int, item: Item, *, is_final: bool) -> Draft | None:
        item_id, kind = string_of(item, "id"), string_of(item, "type")
        draft = self._by_place.get((index, kind)) or self._by_index.get(index)
        if index < 0:
            draft = self._nameless(kind)
        if draft is None or draft.done:
            return None
        is_vacant = index >= 0 and draft.fits(item) and not (draft.added and item_id)
        if not is_vacant and not (is_final and draft.is_told_in(index, item)):
            return None
        if item_id != draft.id:
            self._deviate(f"item {draft.id} goes on as {item_id}")
        return draft

    def _nameless(self, kind: str) -> Draft | None:
        """Return the only item of a kind that is not done, if it has no id yet."""
        undone = self._undone.get(kind, {})
        draft = next(iter(undone)) if len(undone) == 1 else None
        return None if draft is None or draft.id else draft

    def open(self, index: int, kind: str) -> Draft:
        """Return the draft of a new item."""
        if not self.has_begun:
            self._deviate("no response.created")
        if index < 0 or index in self._by_index:
            self._deviate(f"{kind} item opened at output_index {index}")
            self._crowded.add(index)
        draft = Draft(kind, index if index >= 0 else len(self._drafts))
        self._drafts.append(draft)
        self._by_index[draft.index] = draft
        place = (draft.index, kind)
        self._by_place[place] = None if place in self._by_place else draft
        self._undone.setdefault(kind, {})[draft] = None
        return draft

    def register(self, draft: Draft, item: Item) -> None:
        """Let a draft be found by the ids and the type of its item."""
        draft.kind = string_of(item, "type") or draft.kind
        item_id = string_of(item, "id")
        if item_id:
            draft.id = draft.id or item_id
            if self._by_id.setdefault(item_id, draft) is not draft:
                self._by_id[item_id] = draft
                self._shared.add(item_id)
        call = call_key(item)
        if call:
            if draft.call_id not in ("", call[1]):
                self._deviate(f"call {draft.call_id} goes on as {call[1]}")
            draft.call_id = call[1]
            first = self._by_call.setdefault(call, draft)
            if item_id != first.id:
                self._deviate(f"call {draft.call_id} came again as item {item_id}")

    def close(self, draft: Draft) -> None:
        """Note that an item is done."""
        self._undone[draft.kind].pop(draft, None)

    def at(self, item_id: str, index: int) -> Draft | None:
        """Return the draft with this id, or the last one that was opened at this index."""
        return self._by_id.get(item_id) or self._by_index.get(index)

    def ordered(self) -> list[Draft]:
        """Return the drafts by their index, each call once."""
        return fold_calls(sorted(self._drafts, key=lambda draft: draft.index))

    def find_owner(self, event: _InItem, channel: TextChannel) -> Draft:
        """Return the draft that an event inside an item is about, a new one if need be."""
        draft = self._by_id.get(event.item_id)
        if draft is not None and draft.can_stream(channel.field):
            if draft.index != event.output_index or self._shared:
                draft = self._choose(draft, event)
            return draft
        self._deviate(f"{event_type(event)} for unknown item {event.item_id!r}")
        draft = self._guess(event, channel)
        if draft is None:
            draft = self.open(event.output_index, channel.item)
        if event.item_id and self._by_id.setdefault(event.item_id, draft) is draft:
            draft.id = draft.id or event.item_id
        return draft

    def _choose(self, draft: Draft, event: _InItem) -> Draft:
        """Return the item that is meant: the draft, unless its id stands for several."""
        if event.item_id not in self._shared:
            if draft.index != event.output_index:
                self._deviate(f"item {draft.id} is at {draft.index}, not {event.output_index}")
            return draft
        there = self._by_place.get((event.output_index, draft.kind))
        if there is not None and there.id == event.item_id:
            return there
        draft.is_guessed |= len(self._undone[draft.kind]) > 1
        return draft

    def _guess(self, event: _InItem, channel: TextChannel) -> Draft | None:
        item_id, index, kind = event.item_id, event.output_index, channel.item
        # llama.cpp gave calls no id, and called them by their call_id in the events.
        called = self._by_call.get((kind, item_id)) if item_id else None
        if called is not None:
            return called
        there = self._by_place.get((index, kind)) or self._stranger(index)
        if there is not None and not there.done:
            return there
        # LiteLLM puts reasoning at the index of the message, each delta under a new id.
        is_beside = index in self._by_index and (index, kind) not in self._by_place
        undone = self._undone.get(kind)
        if undone and (is_beside or not item_id):
            latest = next(reversed(undone))
            latest.is_guessed |= bool(item_id) or len(undone) > 1
            return latest
        return self._nameless(kind) if index < 0 else None

    def _stranger(self, index: int) -> Draft | None:
        """Return the only item at an index if it is of a kind that we do not know."""
        draft = None if index in self._crowded else self._by_index.get(index)
        return None if draft is None or draft.kind in STREAMING else draft
