"""Messages and reasoning items: one item at a time, one part at a time.

A text goes on in the part that is open if it is of the same kind. Otherwise that part closes, and
with it the item if the text belongs to another kind of item.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from antiphon.protocol.deltas import NativeState
from antiphon.protocol.events import (
    AnnotationEvent,
    ContentPartAdded,
    ContentPartDone,
    OutputTextDone,
    ReasoningTextDelta,
    ReasoningTextDone,
    RefusalDelta,
    RefusalDone,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
)
from antiphon.protocol.items import Item, item_prefix
from antiphon.protocol.machines.event_writer import EventWriter, ItemStatus
from antiphon.protocol.machines.open_items import OpenPart, OpenProse, copy_json

__all__ = ["Mint", "ProseWriter", "Seal"]

Mint = Callable[[str], str]
Seal = Callable[[Item, NativeState | None], str]


class ProseWriter:
    """Writes messages and reasoning items to `out`. `open` is the one that is not done."""

    def __init__(self, out: EventWriter, mint: Mint, seal: Seal | None) -> None:
        self.open: OpenProse | None = None
        self._out = out
        self._mint = mint
        self._seal = seal

    def grow_part(self, item: Literal["message", "reasoning"], kind: str, text: str) -> None:
        """Let the text of such a part grow, in a new part or item if need be."""
        prose, part = self.ensure_part(item, kind)
        part.growing.add(text)
        place = self._out.place(prose)
        if kind == "summary_text":
            self._out.emit(SummaryTextDelta(summary_index=part.index, delta=text, **place))
        elif kind == "refusal":
            self._out.emit(RefusalDelta(content_index=part.index, delta=text, **place))
        else:
            self._out.emit(ReasoningTextDelta(content_index=part.index, delta=text, **place))

    def annotate(self, annotation: dict[str, Any]) -> None:
        """Add a note to the text of a message."""
        prose, part = self.ensure_part("message", "output_text")
        part.annotations.append(copy_json(annotation))
        self._out.emit(
            AnnotationEvent(
                content_index=part.index,
                annotation_index=len(part.annotations) - 1,
                annotation=copy_json(annotation),
                **self._out.place(prose),
            )
        )

    def ensure_part(
        self, item: Literal["message", "reasoning"], kind: str
    ) -> tuple[OpenProse, OpenPart]:
        """Return an open part of this kind in an item of this type."""
        prose = self.open
        if prose is None or prose.kind != item:
            self.close()
            prose = self._open_item(item)
        part = prose.part
        if part is None or part.kind != kind:
            self._close_part(prose)
            part = self._open_part(prose, kind)
        return prose, part

    def _open_item(self, kind: Literal["message", "reasoning"]) -> OpenProse:
        self.open = prose = OpenProse(kind, self._mint(item_prefix(kind)), self._out.next_index())
        self._out.add_item(prose.index, prose.item("in_progress"))
        return prose

    def _open_part(self, prose: OpenProse, kind: str) -> OpenPart:
        siblings = prose.summary if kind == "summary_text" else prose.content
        prose.part = part = OpenPart(kind, len(siblings))
        blank = part.part("")
        if kind == "summary_text":
            place = self._out.place(prose)
            self._out.emit(SummaryPartAdded(summary_index=part.index, part=blank, **place))
        else:
            self._out.emit(
                ContentPartAdded(
                    sequence_number=self._out.sequence,
                    item_id=prose.id,
                    output_index=prose.index,
                    content_index=part.index,
                    part=blank,
                )
            )
        return part

    def _close_part(self, prose: OpenProse) -> None:
        part = prose.part
        if part is None:
            return
        text = part.growing.text()
        if part.kind == "output_text":
            self._out.emit(
                OutputTextDone(
                    sequence_number=self._out.sequence,
                    item_id=prose.id,
                    output_index=prose.index,
                    content_index=part.index,
                    text=text,
                    logprobs=copy_json(part.logprobs) if part.logprobs else [],
                )
            )
        elif part.kind == "refusal":
            place = self._out.place(prose)
            self._out.emit(RefusalDone(content_index=part.index, refusal=text, **place))
        elif part.kind == "summary_text":
            place = self._out.place(prose)
            self._out.emit(SummaryTextDone(summary_index=part.index, text=text, **place))
        else:
            place = self._out.place(prose)
            self._out.emit(ReasoningTextDone(content_index=part.index, text=text, **place))
        self.end_part(prose, part, text)

    def end_part(self, prose: OpenProse, part: OpenPart, text: str) -> None:
        """Emit the end of a part whose text is final."""
        prose.part = None
        whole = part.part(text)
        told = copy_json(whole)
        if part.kind == "summary_text":
            prose.summary.append(whole)
            place = self._out.place(prose)
            self._out.emit(SummaryPartDone(summary_index=part.index, part=told, **place))
        else:
            prose.content.append(whole)
            self._out.emit(
                ContentPartDone(
                    sequence_number=self._out.sequence,
                    item_id=prose.id,
                    output_index=prose.index,
                    content_index=part.index,
                    part=told,
                )
            )

    def close(self, status: ItemStatus = "completed", state: NativeState | None = None) -> None:
        """Close the item that is open, if there is one. `state` is sealed with it."""
        prose = self.open
        if prose is None:
            return
        self._close_part(prose)
        self.open = None
        item = prose.item(self._out.after_cut(status))
        if self._seal is not None and prose.kind == "reasoning":
            sealed = self._seal(copy_json(item), state)
            item |= {"encrypted_content": sealed} if sealed else {}
        self._out.end_item(prose.index, item)

    def keep_state(self, state: NativeState) -> None:
        """Seal the state with the reasoning item that it ends, or with one of its own.

        Without a seal it cannot travel; the reasoning item ends there all the same.
        """
        if self.open is not None and self.open.kind == "reasoning" and state.attach is None:
            self.close(state=state)
            return
        item = OpenProse("reasoning", self._mint(item_prefix("reasoning")), -1)
        sealed = self._seal(item.item("completed"), state) if self._seal is not None else ""
        if sealed:
            self.close()
            index = self._out.next_index()
            self._out.add_item(index, item.item("in_progress"))
            done = item.item(self._out.after_cut("completed"))
            self._out.end_item(index, done | {"encrypted_content": sealed})
