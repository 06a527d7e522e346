"""Messages and reasoning items of a Responses answer, as deltas.

A text may come in its `done` event alone, in the finished item, or with a tail that no delta had.
What a text began with is kept, even if it ends as another one; that is reported. Parts whose
events have no index are told apart by their kind and order.

`encrypted_content` of reasoning is native state: the one of the finished item, because the terminal
response encrypts it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from antiphon.protocol.deltas import (
    AnnotationAdded,
    Begins,
    Delta,
    NativeState,
    ReasoningGrew,
    RefusalGrew,
    Reported,
    SummaryGrew,
    TextGrew,
)
from antiphon.protocol.items import Item, Part
from antiphon.wires.responses.places import Channel, Place, Places, SeenPart
from antiphon.wires.responses.profiles import Profile

__all__ = ["PROSE", "WIRE", "ProseReader"]

WIRE: Final = "responses"
PROSE: Final[dict[str, tuple[str, ...]]] = {
    "message": ("content",),
    "reasoning": ("summary", "content"),
}
"""Where the parts of such an item are."""

_CHANNELS: Final[dict[str, Channel]] = {
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "summary_text": "summary",
    "reasoning_text": "reasoning",
}
_GREW: Final[dict[Channel, Callable[[str, Begins | None], Delta]]] = {
    "refusal": RefusalGrew,
    "reasoning": ReasoningGrew,
    "summary": SummaryGrew,
}
_HOLDS: Final[dict[Channel, str]] = {
    "text": "message",
    "refusal": "message",
    "reasoning": "reasoning",
    "summary": "reasoning",
}
_Logprobs = tuple[dict[str, Any], ...]


class _InItem(Protocol):
    """An event about an item; -1 and "" stand for a place that it does not name."""

    @property
    def output_index(self) -> int: ...
    @property
    def item_id(self) -> str: ...


class ProseReader:
    """Reports the texts of one answer to `out`."""

    def __init__(self, places: Places, profile: Profile, account: str, out: list[Delta]) -> None:
        self._places = places
        self._profile = profile
        self._account = account
        self._out = out
        self._speaking: tuple[Place, SeenPart] | None = None
        """The part that the last text went to, while it can go on."""
        self.at: tuple[int, int] | None = None
        """The indexes that events of that part have, if it is a text."""
        self.pieces: list[str] = []
        """What was reported of that part."""

    def stop(self) -> None:
        """Take note that something else was reported: a text after it begins an item."""
        self._speaking, self.at = None, None

    def grow(
        self, event: _InItem, channel: Channel, index: int, text: str, logprobs: _Logprobs = ()
    ) -> None:
        """Report a piece of text. `index` is that of its part."""
        kind = _HOLDS[channel]
        place = self._places.find(event.output_index, event.item_id, (kind,))
        if place is None:
            place = self._places.add({"type": kind}, event.output_index, event.item_id)
        self._places.learn(event.output_index, place)
        part = place.part(channel, index)
        self._say(place, part, text, logprobs)
        is_going_on = self._speaking is not None and self._speaking[1] is part and not part.half
        if channel == "text" and is_going_on:
            self.at, self.pieces = (event.output_index, index), part.pieces

    def finish_part(
        self, event: _InItem, channel: Channel, index: int, whole: str, logprobs: _Logprobs = ()
    ) -> None:
        """Report the tail of a text that no delta had."""
        place = self._places.find(event.output_index, event.item_id, (_HOLDS[channel],))
        if place is None:
            self.grow(event, channel, index, whole, logprobs)
        else:
            part = place.ending_part(channel, index, whole)
            self._say_rest(place, part, whole, logprobs)

    def take_part(self, event: _InItem, part: Part, index: int) -> None:
        """Report what a finished part has beyond what was reported of it."""
        channel = _CHANNELS.get(str(part.get("type")), "text")
        place = self._places.find(event.output_index, event.item_id, (_HOLDS[channel],))
        if place is not None:
            self._take_part(place, part, index)

    def annotate(self, event: _InItem, index: int, annotation: dict[str, Any]) -> None:
        """Report a note on a text."""
        place = self._places.find(event.output_index, event.item_id, ("message",))
        if place is not None:
            self._note(place, place.part("text", index), annotation)

    def finish(self, place: Place, item: Item) -> None:
        """Report what a finished item has beyond what was reported of it."""
        place.item = {**place.item, **item}
        self.at = None
        for field in PROSE[place.kind]:
            self._take_parts(place, item.get(field), field)
        if place.kind == "reasoning":
            self._keep_state(place, item.get("encrypted_content"))

    def _say(self, place: Place, part: SeenPart, text: str, logprobs: _Logprobs = ()) -> None:
        text = part.take(text)
        if not text:
            return
        begins = self._begin(place, part)
        part.pieces.append(text)
        part.has_logprobs = part.has_logprobs or bool(logprobs)
        if part.channel == "text":
            phase = place.item.get("phase") if begins == "item" else None
            phase = phase if isinstance(phase, str) else None
            self._out.append(TextGrew(text, logprobs, begins, phase))
        else:
            self._out.append(_GREW[part.channel](text, begins))

    def _begin(self, place: Place, part: SeenPart) -> Begins | None:
        """Make this the part that goes on; return what the text begins, if it begins something."""
        before = self._speaking
        self._speaking, self.at = (place, part), None
        if before is None or before[0] is not place:
            return "item"
        return None if before[1] is part else "part"

    def _say_rest(
        self,
        place: Place,
        part: SeenPart,
        whole: str,
        logprobs: _Logprobs = (),
    ) -> None:
        told, part.half = part.text(), ""
        if not whole.startswith(told):
            self._report(f"{place.kind}: its text ended as another one than it was streamed")
        elif len(whole) > len(told):
            self._say(place, part, whole[len(told) :], () if told else logprobs)
        elif logprobs and told and not part.has_logprobs:
            part.has_logprobs = True
            self._report("logprobs: they came after the text that they belong to")

    def _note(self, place: Place, part: SeenPart, annotation: dict[str, Any]) -> None:
        if annotation in part.annotations:
            return
        part.annotations.append(annotation)
        if self._speaking is not None and self._speaking[0] is place:
            self._out.append(AnnotationAdded(annotation))
        else:
            self._report("annotations: one came after the text that it belongs to")

    def _take_part(self, place: Place, given: Part, index: int) -> None:
        """Report what a finished part has beyond what was reported of it."""
        kind = given.get("type")
        channel = _CHANNELS.get(str(kind))
        if channel is None:
            self._report(f"{place.kind} part ({kind}): it cannot be passed on")
            return
        whole = given.get("refusal" if channel == "refusal" else "text")
        whole = whole if isinstance(whole, str) else ""
        part = place.ending_part(channel, index, whole)
        if whole:
            self._say_rest(place, part, whole, _logprobs_in(given))
        annotations = given.get("annotations")
        for annotation in annotations if isinstance(annotations, list) else ():
            if isinstance(annotation, dict):
                self._note(place, part, annotation)

    def _take_parts(self, place: Place, given: object, field: str) -> None:
        if isinstance(given, str):  # some put the text there alone
            given = [{"type": "output_text" if place.kind == "message" else field, "text": given}]
        if not isinstance(given, list):
            return
        seen = [
            part.index
            for part in place.parts
            if (part.channel == "summary") == (field == "summary")
        ]
        for number, part in enumerate(given):
            if isinstance(part, dict):
                # Parts whose events had no index, or a wrong one, are found by their order.
                self._take_part(place, part, seen[number] if number < len(seen) else number)

    def _keep_state(self, place: Place, cipher: object) -> None:
        if not isinstance(cipher, str) or not cipher:
            return
        if self._profile.seals_text:
            if not place.parts:
                self._say(place, place.part("reasoning", 0), cipher)
            return
        if self._speaking is not None and self._speaking[0].number > place.number:
            # A later item has begun: this one can no longer be in front of it.
            self._out.append(NativeState(WIRE, cipher.encode(), "previous", self._account))
            return
        self._out.append(NativeState(WIRE, cipher.encode(), account=self._account))
        self.stop()

    def _report(self, what: str) -> None:
        self._out.append(Reported(what))


def _logprobs_in(part: Part) -> _Logprobs:
    given = part.get("logprobs")
    return tuple(given) if isinstance(given, list) else ()
