"""A list of items as the chat wire wants it: turns, each call with its result.

Chat models know messages, and an assistant message whose calls are answered right behind it.
Items come in any order that clients produce. The rules:

- assistant text, reasoning and calls in a row are one turn; anything else ends it;
- a result is put behind its calls, however late it came;
- a call without a result gets one that says so; a second result replaces the first;
- a call that is repeated, same id and same content or in the same turn, is one call; an id
  used again in a later turn (some models count from 0 in each) is another call;
- a result without a call becomes a user message.

Nothing is lost in silence: what could not be kept, or was made up, is named in the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from antiphon.protocol.items import Item, item_type

__all__ = ["Arranger", "Call", "Entry", "Said", "Turn", "arrange"]

# What we read of an item, and the labels (`id`, `status`, `phase`) that say nothing to a model.
_LABELS: Final = frozenset({"type", "id", "status"})
_FIELDS: Final = {
    "message": _LABELS | {"role", "content", "phase"},
    "function_call": _LABELS | {"call_id", "name", "arguments"},
    "function_call_output": _LABELS | {"call_id", "output"},
    "reasoning": _LABELS | {"summary", "content", "encrypted_content"},
}

Entry = tuple[int, Item]
"""An item and its place in the input, which reports name it by."""


class Call:
    """A call and its result, if there is one."""

    def __init__(self, entry: Entry) -> None:
        self.index, self.item = entry
        self.result: Entry | None = None

    @property
    def id(self) -> str:
        """The id that ties call and result together."""
        return str(self.item["call_id"])

    def note_lonely(self) -> str:
        """Return how a report says that nobody answered."""
        return f"input[{self.index}] (function_call): no output was provided for {self.id}"

    def is_same(self, item: Item) -> bool:
        """Say whether an item is this very call again."""
        return all(self.item.get(field) == item.get(field) for field in ("name", "arguments"))


class Said:
    """A message of anyone but the assistant, or a result that belongs to no call."""

    calls: Sequence[Call] = ()

    def __init__(self, entry: Entry) -> None:
        self.index, self.item = entry


class Turn:
    """What the assistant did in one go: it thought, spoke and called. It begins at `index`."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.reasoning: list[Entry] = []
        self.messages: list[Entry] = []
        self.calls: list[Call] = []


def arrange(items: Sequence[Item]) -> tuple[list[Said | Turn], list[str]]:
    """Return the turns of a conversation, and a report of what could not be kept."""
    arranger = Arranger(enumerate(items))
    return arranger.turns, arranger.report()


class Arranger:
    """Puts entries into turns, from the beginning or from a place where a turn begins."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.turns: list[Said | Turn] = []
        self.orphans: list[int] = []
        """Results of which no call is among the entries."""
        self._open: Turn | None = None
        self._calls: dict[str, list[Call]] = {}
        self.notes: list[tuple[int, str]] = []
        """What could not be kept, each with the place of the item that told it."""
        for entry in entries:
            self._take(entry)

    @property
    def call_ids(self) -> Iterable[str]:
        """The ids of all calls."""
        return self._calls.keys()

    @property
    def lonely(self) -> list[Call]:
        """The calls that nobody answered, in order."""
        found = [c for calls in self._calls.values() for c in calls if c.result is None]
        return sorted(found, key=lambda call: call.index)

    def report(self) -> list[str]:
        """Return what was noted, then the calls that nobody answered."""
        if not self.notes and not self._calls:
            return []
        return [text for _, text in self.notes] + [call.note_lonely() for call in self.lonely]

    def settled(self, patience: int) -> int:
        """Return how many of the turns later items cannot change, as long as nothing odd comes.

        Neither the one that is open, nor any from a call on that waits for its result; if so
        many turns have come since, it waits no more. What settles are all items up to a place.
        """
        count, latest = 0, -1
        last = len(self.turns) - (self._open is not None)
        for place, turn in enumerate(self.turns[: last + 1]):
            if turn.index > latest:
                count = place
            waits = any(call.result is None for call in turn.calls)
            if waits and len(self.turns) - place <= patience:
                return count
            latest = max([latest, *(c.result[0] for c in turn.calls if c.result is not None)])
        return count if last < len(self.turns) else last

    def _take(self, entry: Entry) -> None:
        index, item = entry
        kind = item_type(item)
        known = _FIELDS.get(kind)
        if known is not None and not known.issuperset(item):
            unknown = (name for name, value in item.items() if value and name not in known)
            self.notes += [(index, f"input[{index}].{name}") for name in unknown]
        if kind == "message" and item.get("role") == "assistant":
            self._turn(index).messages.append(entry)
        elif kind == "message":
            self._say(entry)
        elif kind == "reasoning":
            self._turn(index).reasoning.append(entry)
        elif kind == "function_call":
            self._call(entry)
        elif kind == "function_call_output":
            self._answer(entry)
        elif kind != "additional_tools":  # those are among the tools
            self._note(index, f"input[{index}] ({kind}): this backend cannot send it")

    def _note(self, index: int, text: str) -> None:
        self.notes.append((index, text))

    def _turn(self, index: int) -> Turn:
        if self._open is None:
            self._open = Turn(index)
            self.turns.append(self._open)
        return self._open

    def _say(self, entry: Entry) -> None:
        self._open = None
        self.turns.append(Said(entry))

    def _call(self, entry: Entry) -> None:
        index, item = entry
        known = self._calls.setdefault(str(item["call_id"]), [])
        waiting = known[-1] if known and known[-1].result is None else None
        if waiting and (waiting.is_same(item) or self._is_in_open_turn(waiting)):
            self._note(index, f"input[{index}] (function_call): repeats {waiting.id}")
            return
        call = Call(entry)
        known.append(call)
        self._turn(index).calls.append(call)

    def _is_in_open_turn(self, call: Call) -> bool:
        return self._open is not None and call in self._open.calls

    def _answer(self, entry: Entry) -> None:
        index, item = entry
        call_id = str(item["call_id"])
        known = self._calls.get(call_id)
        if not known:
            self._note(index, f"input[{index}] (function_call_output): there is no call {call_id}")
            self.orphans.append(index)
            self._say(entry)
            return
        call = next((c for c in reversed(known) if c.result is None), known[-1])
        if call.result is not None:
            old = call.result[0]
            self._note(index, f"input[{old}] (function_call_output): replaced by input[{index}]")
        call.result = entry
        self._open = None
