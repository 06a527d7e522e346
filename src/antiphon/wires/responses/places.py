"""Which item of the upstream is an event about?

By its index if that is a number, by its id otherwise, and without either it is the item that is
open. Servers leave both out (llama.cpp), change ids with every event (GitHub Copilot), between
the beginning and the end of an item (OpenRouter), or count wrongly (OGX), so an item counts only
if it is of a kind that such an event can be about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from antiphon.protocol.halves import GrowingText
from antiphon.protocol.items import Item, item_type

__all__ = ["Channel", "Place", "Places", "SeenPart"]

Channel = Literal["text", "refusal", "reasoning", "summary"]


class _Growing(GrowingText):
    """Something with a text, and what was reported of it."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []


class SeenPart(_Growing):
    """A part of an item, and what was reported of it."""

    def __init__(self, channel: Channel, index: int) -> None:
        super().__init__()
        self.channel = channel
        self.index = index
        self.annotations: list[dict[str, Any]] = []
        self.has_logprobs = False

    def text(self) -> str:
        """Return what was reported of its text."""
        text = "".join(self.pieces)
        self.pieces[:] = [text]
        return text


class Place(_Growing):
    """An item of the upstream. `number` counts the items in the order in which they came.

    Its own text are the arguments of a call, its input, or the code of a program.
    """

    def __init__(self, number: int, item: Item, index: int = -1, item_id: str = "") -> None:
        super().__init__()
        self.number = number
        self.kind = item_type(item) if item else ""
        self.index = index
        self.ids = {item_id} - {""}
        self.item = item
        self.parts: list[SeenPart] = []
        """Of a message or a reasoning item."""
        self.is_open = False
        """Whether its opening was reported: of a call, or of another item."""
        self.is_done = False

    @property
    def key(self) -> str:
        """The key of an item that is passed on."""
        return str(self.number)

    def part(self, channel: Channel, index: int) -> SeenPart:
        """Return the part with this index, a new one if there is none. No index is the last."""
        for part in reversed(self.parts):
            if part.channel == channel and index in (-1, part.index):
                return part
        self.parts.append(SeenPart(channel, index))
        return self.parts[-1]

    def ending_part(self, channel: Channel, index: int, whole: str) -> SeenPart:
        """Return the part that ends with this text: by its index, or by the text itself."""
        alike = [part for part in self.parts if part.channel == channel]
        if index == -1 or any(part.index == index for part in alike):
            return self.part(channel, index)
        same = (part for part in alike if part.text() == whole)
        return next(same, None) or self.part(channel, index)

    def rest_of(self, whole: object) -> str | None:
        """Return what `whole` adds to the text that was reported; None if it is another text."""
        told = "".join(self.pieces)
        if not isinstance(whole, str):
            return ""
        return whole[len(told) :] if whole.startswith(told) else None


class Places:
    """The items of one answer."""

    def __init__(self) -> None:
        self.all: list[Place] = []
        self._by_index: dict[int, Place] = {}
        self._by_id: dict[str, Place] = {}

    def add(self, item: Item, index: int, item_id: str) -> Place:
        """Return a new place for an item that begins."""
        place = Place(len(self.all), item, index, item_id)
        self.all.append(place)
        if index >= 0:
            self._by_index[index] = place
        if item_id:
            self._by_id[item_id] = place
        return place

    def find(self, index: int, item_id: str, kinds: Sequence[str]) -> Place | None:
        """Return the item that an event with this place is about, if it is of these kinds."""
        for place in (self._by_index.get(index), self._by_id.get(item_id)):
            if place is not None and not place.is_done and place.kind in kinds:
                return place
        if index >= 0 and index not in self._by_index and item_id not in self._by_id:
            return None  # an item whose beginning was left out
        open_ones = (one for one in reversed(self.all) if not one.is_done and one.kind in kinds)
        return next(open_ones, None)

    def learn(self, index: int, place: Place) -> None:
        """Take note that events with this index are about this item from now on."""
        if index >= 0:
            self._by_index[index] = place

    def find_any(self, index: int, item_id: str) -> Place | None:
        """Return the item that is not done at this place, of whatever kind."""
        for place in (self._by_index.get(index), self._by_id.get(item_id)):
            if place is not None and not place.is_done:
                return place
        return None

    def match(self, output: Sequence[Item]) -> list[tuple[Place | None, Item]]:
        """Return the items of a whole answer, each with its place if it was seen before.

        Those at the right index come first, then those with the right id, then those in order.
        """
        free, found = list(self.all), dict[int, Place]()
        for is_same in (_is_at, _has_id, _is_alike):
            for index, item in enumerate(output):
                place = next((one for one in free if is_same(one, item, index)), None)
                if index not in found and place is not None:
                    found[index] = place
                    free.remove(place)
        return [(found.get(index), item) for index, item in enumerate(output)]


def _is_alike(place: Place, item: Item, _: int) -> bool:
    return place.kind == item_type(item)


def _is_at(place: Place, item: Item, index: int) -> bool:
    return place.index == index and _is_alike(place, item, index)


def _has_id(place: Place, item: Item, index: int) -> bool:
    return item.get("id") in place.ids and _is_alike(place, item, index)
