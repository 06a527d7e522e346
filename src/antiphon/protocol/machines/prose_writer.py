"""Messages and reasoning items: one item at a time, one part at a time.

A text goes on in the part that is open if it is of the same kind. Otherwise that part closes, and
with it the item if the text belongs to another kind of item. A reasoning item has parts of one
kind: raw text and summaries are different fields, so one item could not tell which came first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from antiphon.protocol.deltas import Begins, NativeState
from antiphon.protocol.events import AnnotationEvent
from antiphon.protocol.items import Item, item_prefix
from antiphon.protocol.machines.event_writer import EventWriter, ItemStatus
from antiphon.protocol.machines.open_items import (
    PART_FORMS,
    OpenPart,
    OpenProse,
    copy_json,
)
from antiphon.protocol.native_state import ABANDONED

__all__ = ["KeptState", "Mint", "ProseWriter", "Seal"]

Mint = Callable[[str], str]
Seal = Callable[[Item, NativeState | None], str]


class KeptState(NamedTuple):
    """Native state of a reasoning item that is done: its seal, and what it belongs to."""

    seal: str
    attach: Literal["next", "previous"] | None


class ProseWriter:
    """Writes messages and reasoning items to `out`. `open` is the one that is not done.

    `states` has the native states of reasoning items that are done, by the id of the item.
    """

    def __init__(self, out: EventWriter, mint: Mint, seal: Seal | None, keep: Seal | None) -> None:
        self.open: OpenProse | None = None
        self.states: dict[str, KeptState] = {}
        self._out = out
        self._mint = mint
        self._seal = seal
        self._keep = keep

    def grow_part(self, kind: str, text: str) -> None:
        """Let the text of such a part grow, in a new part or item if need be."""
        part, out = self.ensure_part(kind), self._out
        part.growing.add(text)
        out.emit(part.form.text_delta(sequence_number=out.sequence, delta=text, **part.place))

    def annotate(self, annotation: dict[str, Any], covers: int | None = None) -> None:
        """Add a note to the text of a message; if it covers the end of it, with its place."""
        part = self.ensure_part("output_text")
        if covers is not None:
            annotation = _placed(annotation, len(part.growing), covers)
        index, note = len(part.annotations), copy_json(annotation)
        part.annotations.append(copy_json(annotation))
        fields = {"annotation_index": index, "annotation": note, **part.place}
        self._out.emit(AnnotationEvent(sequence_number=self._out.sequence, **fields))

    def begin(self, begins: Begins | None) -> None:
        """Close the item or the part that is open if a text begins one of its own."""
        if begins == "item":
            self.close()
        elif begins == "part" and self.open is not None:
            self._close_part(self.open)

    def ensure_part(self, kind: str, phase: str | None = None) -> OpenPart:
        """Return an open part of this kind, in the item that it belongs to."""
        prose, item = self.open, PART_FORMS[kind].item
        if prose is None or prose.kind != item or _is_mixed(prose, kind):
            self.close()
            prose = self._open_item(item, phase)
        part = prose.part
        if part is None or part.kind != kind:
            self._close_part(prose)
            part = prose.begin_part(kind)
            added, number = part.form.added, self._out.sequence
            self._out.emit(added(sequence_number=number, part=part.part(""), **part.place))
        return part

    def _open_item(self, kind: Literal["message", "reasoning"], phase: str | None) -> OpenProse:
        item_id, index = self._mint(item_prefix(kind)), self._out.next_index()
        self.open = prose = OpenProse(kind, item_id, index, phase)
        self._out.add_item(prose.index, prose.item("in_progress"))
        return prose

    def _close_part(self, prose: OpenProse) -> None:
        part = prose.part
        if part is None:
            return
        text = part.growing.text()
        fields: dict[str, Any] = {part.form.text: text, **part.place}
        if part.kind == "output_text":
            fields["logprobs"] = copy_json(part.logprobs) if part.logprobs else []
        self._out.emit(part.form.text_done(sequence_number=self._out.sequence, **fields))
        self.end_part(prose, part, text)

    def end_part(self, prose: OpenProse, part: OpenPart, text: str) -> None:
        """Emit the end of a part whose text is final."""
        whole = copy_json(prose.end_part(part, text))
        done, number = part.form.done, self._out.sequence
        self._out.emit(done(sequence_number=number, part=whole, **part.place))

    def close(
        self,
        status: ItemStatus = "completed",
        state: NativeState | None = None,
        *,
        seals: bool = True,
    ) -> None:
        """Close the item that is open, if there is one. `state` is sealed with it.

        Reasoning that is not sealed is abandoned.
        """
        prose = self.open
        if prose is None:
            return
        self._close_part(prose)
        self.open = None
        item = prose.item(self._out.after_cut(status))
        if prose.kind == "reasoning":
            item |= self._seal_item(item, state) if seals else self._abandon(item)
        self._out.end_item(prose.index, item)

    def keep_state(self, state: NativeState) -> None:
        """Seal the state with the reasoning item that it ends, or with one of its own.

        Without a seal it cannot travel; the reasoning item ends there all the same.
        """
        if self.open is not None and self.open.kind == "reasoning" and state.attach is None:
            self.close(state=state)
            return
        item = OpenProse("reasoning", self._mint(item_prefix("reasoning")), -1)
        sealed = self._seal_item(item.item("completed"), state)
        if item.id in self.states:
            self.close()
            index = self._out.next_index()
            self._out.add_item(index, item.item("in_progress"))
            self._out.end_item(index, item.item(self._out.after_cut("completed")) | sealed)

    def _abandon(self, item: Item) -> Item:
        """Return what the item has for a seal: nothing. It is kept that it came to nothing."""
        self.states[item["id"]] = KeptState(ABANDONED, None)
        return {}

    def _seal_item(self, item: Item, state: NativeState | None) -> Item:
        """Return what the item has for its seal; keep the seal of native state."""
        seal = self._seal or (None if state is None else self._keep)
        sealed = seal(copy_json(item), state) if seal is not None else ""
        if sealed and state is not None:
            self.states[item["id"]] = KeptState(sealed, state.attach)
        return {"encrypted_content": sealed} if sealed and self._seal is not None else {}


def _placed(annotation: dict[str, Any], end: int, covers: int) -> dict[str, Any]:
    """Return a note with its place in a text of this length; files are cited at a point."""
    if annotation.get("type") == "file_citation":
        return {**annotation, "index": end}
    return {**annotation, "start_index": max(end - covers, 0), "end_index": end}


def _is_mixed(prose: OpenProse, kind: str) -> bool:
    """Return whether a part of this kind would make a reasoning item hold two kinds."""
    part = prose.part
    return prose.kind == "reasoning" and part is not None and part.kind != kind
