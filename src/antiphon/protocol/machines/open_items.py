"""Messages, reasoning and calls while they are open: what the builder knows of each.

They hold the text so far and turn it into JSON, a new object each time, so that no
event shares an item with a later one. When something opens, grows or closes is decided in the
builder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from antiphon.protocol.events import EVENT_CLASSES, Event
from antiphon.protocol.families import FAMILIES, WHOLE, Kind, call_item, opening_of, payload_of
from antiphon.protocol.items import Item, Part

__all__ = ["PART_FORMS", "OpenCall", "OpenPart", "OpenProse", "PartForm", "TextPieces", "copy_json"]

# Fresh lists and dicts all the way down, several times faster than deepcopy.
copy_json: Final[Callable[[Any], Any]] = msgspec.to_builtins

EventClass = Callable[..., Event]
_PIECES_TO_A_BLOCK: Final = 1024


class TextPieces:
    """A text that grows by many small pieces, which weigh ten times what their text does.

    Each block is longer than those after it together, so there are few, and a piece is copied
    seldom. Memory of long blocks goes back to the system when they are joined.
    """

    __slots__ = ("_blocks", "_pieces")

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        """Take one more piece."""
        self._pieces.append(piece)
        if len(self._pieces) >= _PIECES_TO_A_BLOCK:
            self._join_pieces()

    def __len__(self) -> int:
        return sum(map(len, self._blocks)) + sum(map(len, self._pieces))

    def text(self) -> str:
        """Return all of it, and keep it in one piece from here on."""
        if self._pieces:
            self._join_pieces()
        if len(self._blocks) > 1:
            self._blocks = ["".join(self._blocks)]
        return self._blocks[0] if self._blocks else ""

    def _join_pieces(self) -> None:
        blocks, block = self._blocks, "".join(self._pieces)
        self._pieces.clear()
        while blocks and len(blocks[-1]) <= len(block):
            block = blocks.pop() + block
        blocks.append(block)


class PartForm:
    """How parts of a kind are emitted: in which field of which item, and with which events.

    `text` is the field of a part's text. The names of its events begin with `part_events`, those
    of its text with `text_events`.
    """

    def __init__(
        self,
        item: Literal["message", "reasoning"],
        field: Literal["content", "summary"],
        text: str,
        part_events: str,
        text_events: str,
    ) -> None:
        self.item = item
        self.field = field
        self.text = text
        self.index_field = f"{field}_index"
        self.part_events = part_events
        self.text_events = text_events
        self.added: EventClass = EVENT_CLASSES[f"{part_events}.added"]
        self.done: EventClass = EVENT_CLASSES[f"{part_events}.done"]
        self.text_delta: EventClass = EVENT_CLASSES[f"{text_events}.delta"]
        self.text_done: EventClass = EVENT_CLASSES[f"{text_events}.done"]


_PART: Final = "response.content_part"
_SUMMARY: Final = "response.reasoning_summary"
PART_FORMS: Final = {
    "output_text": PartForm("message", "content", "text", _PART, "response.output_text"),
    "refusal": PartForm("message", "content", "refusal", _PART, "response.refusal"),
    "reasoning_text": PartForm("reasoning", "content", "text", _PART, "response.reasoning_text"),
    "summary_text": PartForm(
        "reasoning", "summary", "text", f"{_SUMMARY}_part", f"{_SUMMARY}_text"
    ),
}


class OpenPart:
    """A part that still grows: its kind, its index and its text so far.

    `place` are the fields of its events that show where it is.
    """

    def __init__(self, kind: str, index: int, item_id: str, output_index: int) -> None:
        self.kind = kind
        self.form = PART_FORMS[kind]
        self.index = index
        self.place = {
            "item_id": item_id,
            "output_index": output_index,
            self.form.index_field: index,
        }
        self.growing = TextPieces()
        self.annotations: list[dict[str, Any]] = []
        self.logprobs: list[dict[str, Any]] = []

    def part(self, text: str) -> Part:
        """Return the part as JSON, with the given text."""
        part: Part = {"type": self.kind, self.form.text: text}
        if self.kind == "output_text":
            part["annotations"] = copy_json(self.annotations) if self.annotations else []
            part["logprobs"] = copy_json(self.logprobs) if self.logprobs else []
        return part


class OpenProse:
    """The message or reasoning item that is open, and its open part."""

    def __init__(
        self,
        kind: Literal["message", "reasoning"],
        item_id: str,
        index: int,
        phase: str | None = None,
    ) -> None:
        self.kind = kind
        self.phase = phase
        self.id = item_id
        self.index = index
        self.parts: dict[str, list[Part]] = {"content": [], "summary": []}
        """The parts that are done, by their field."""
        self.part: OpenPart | None = None

    def begin_part(self, kind: str) -> OpenPart:
        """Open a part of this kind after those that are done."""
        siblings = self.parts[PART_FORMS[kind].field]
        self.part = OpenPart(kind, len(siblings), self.id, self.index)
        return self.part

    def end_part(self, part: OpenPart, text: str) -> Part:
        """Keep the open part, with its final text, and return it."""
        self.part = None
        whole = part.part(text)
        self.parts[part.form.field].append(whole)
        return whole

    def item(self, status: str) -> Item:
        """Return the item as JSON, a new object each time."""
        base: Item = {"id": self.id, "type": self.kind, "status": status}
        if self.kind == "message":
            base["role"] = "assistant"
            base["content"] = copy_json(self.parts["content"])
            return base | {"phase": self.phase} if self.phase is not None else base
        base["summary"] = copy_json(self.parts["summary"])
        if self.parts["content"]:
            base["content"] = copy_json(self.parts["content"])
        return base


class OpenCall:
    """A call whose arguments, or whose input, may still grow."""

    def __init__(
        self,
        item_id: str,
        index: int,
        call_id: str,
        name: str,
        kind: Kind = "function",
        namespace: str | None = None,
    ) -> None:
        self.id = item_id
        self.index = index
        self.call_id = call_id
        self.name = name
        self.kind = kind
        self.namespace = namespace
        self.growing = TextPieces()
        self.is_whole = False

    def item(self, status: str, said: str) -> Item:
        """Return the item as JSON, a new object each time.

        `said` is the text of its arguments or its input.
        """
        item = call_item(
            self.kind,
            id=self.id,
            call_id=self.call_id,
            name=self.name,
            namespace=self.namespace,
            status=status,
        )
        return item | {FAMILIES[self.kind].payload: self._payload(said)}

    def opening(self, said: str) -> Item:
        """Return the item as it opens, if this is its whole text."""
        payload = opening_of(self.kind, self._payload(said))
        return self.item("in_progress", said) | {FAMILIES[self.kind].payload: payload}

    def _payload(self, said: str) -> Any:  # Any: as its kind has it, text or an object
        if self.kind not in WHOLE:
            return said
        return payload_of(self.kind, said) or copy_json(FAMILIES[self.kind].empty)

    def check_whole(self) -> bool:
        """Return whether nothing more can come: the backend closed it, or the JSON is complete.

        A plain text may look like JSON and still go on.
        """
        if not self.is_whole and self.kind != "custom":
            try:
                msgspec.json.decode(self.growing.text())
            except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
                return False
            self.is_whole = True
        return self.is_whole
