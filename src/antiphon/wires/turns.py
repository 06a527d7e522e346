"""A list of items as wires of messages want it: turns, each call with its result.

Chat models know messages, and an assistant message whose calls are answered right after it.
Items come in any order that clients produce. The rules:

- assistant text, reasoning and calls in a row are one turn; anything else ends it;
- messages and results stay in the caller's order. When a message stands between a call and
  its result, the call moves to the result, with the reasoning and the text of its turn;
- of parallel calls whose results stand apart, each moves to its own result; the reasoning and
  the text stay with the first that has one;
- without a message between them, a result is written right after its call, as calls and
  results of other turns may be mixed in any order;
- a call without a result stays where it is and gets a result that states this;
- a second result replaces the first; after a later message it becomes a user message there;
- a call that is repeated is one call. Another call under the same id is another call: in the
  same turn its id is derived, in a later turn (some models count from 0 in each) it is kept;
- a result without a call becomes a user message;
- a call that a server ran (`hosted_call`) has its result with it, so it ends its turn.

Nothing is lost in silence: what could not be kept, or was made up, is named in the report.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from operator import attrgetter
from typing import Final

import msgspec

from antiphon.protocol.call_ids import CallIds
from antiphon.protocol.hosted import HOSTED_CALL
from antiphon.protocol.items import ORIGINAL, Item, item_types
from antiphon.protocol.native_state import NATIVE

__all__ = ["MESSAGE_FIELDS", "Arranger", "Call", "Entry", "Said", "Turn", "arrange"]

# What we read of an item, and the labels (`id`, `status`, `phase`) that mean nothing to a model.
# Servers cache prompts without a `cache_control`.
_LABELS: Final = frozenset({"type", "id", "status", "cache_control"})
MESSAGE_FIELDS: Final = _LABELS | {"role", "content", "phase", ORIGINAL}
_FIELDS: Final = {
    "message": MESSAGE_FIELDS,
    "function_call": _LABELS | {"call_id", "name", "arguments"},
    "function_call_output": _LABELS | {"call_id", "output"},
    "reasoning": _LABELS | {"summary", "content", "encrypted_content", NATIVE},
    HOSTED_CALL: _LABELS | {"call_id", "name", "arguments", "output"},
}

_index_of = attrgetter("index")

Entry = tuple[int, Item]
"""An item and its place in the input, which reports name it by."""


class Call:
    """A call and its result, if there is one. `id` is what ties them together."""

    def __init__(self, entry: Entry, turn: Turn, call_id: str) -> None:
        self.index, self.item = entry
        self.id = call_id
        self.request = _request(self.item)
        """Its id and what it asks for."""
        self.result: Entry | None = None
        self.turn = turn
        """The turn in which it is written."""
        self.origin = turn
        """The turn in which it was made."""

    @property
    def own_id(self) -> str:
        """The id that the caller gave it: `id` is another one if two calls of a turn share it."""
        return str(self.item["call_id"])

    def note_lonely(self) -> str:
        """Return the report of a call without a result."""
        return f"input[{self.index}] (function_call): no output was provided for {self.id}"


class Said(msgspec.Struct, eq=False):
    """A message of anyone but the assistant, or a result that belongs to no call."""

    index: int
    item: Item


class Turn(msgspec.Struct, eq=False):
    """One assistant message: reasoning, text and calls. It begins at `index`.

    `place` is its position among the turns. A turn whose calls have all moved away stays behind,
    empty.
    """

    index: int
    place: int
    reasoning: list[Entry] = []
    messages: list[Entry] = []
    has_result: bool = False
    """Whether a call that is written here has its result."""
    ids: CallIds | None = None
    """The ids of its calls, once two of them had the same."""
    _calls: dict[Call, None] = {}

    @property
    def calls(self) -> list[Call]:
        """The calls, in the order in which they were made."""
        return sorted(self._calls, key=_index_of) if self._calls else []

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to write."""
        return not (self.reasoning or self.messages or self._calls)

    @property
    def first_call(self) -> Call | None:
        """The call that came here first, if there is any."""
        return next(iter(self._calls), None)

    def has_id(self, call_id: str) -> bool:
        """Return whether a call here has this id."""
        return any(call.id == call_id for call in self._calls)

    def claim_id(self, wished: str, *, is_used: bool) -> str:
        """Return the id of the next call; another one if the turn has used it."""
        if self.ids is None:
            if not is_used:
                return wished
            self.ids = CallIds(call.id for call in self._calls)
        return self.ids.claim(wished)

    def add(self, call: Call) -> None:
        """Write the call here, and not where it was written so far."""
        call.turn._calls.pop(call, None)
        call.turn = self
        self._calls[call] = None

    def take_all(self, turn: Turn) -> None:
        """Take over everything from another turn."""
        self.reasoning += turn.reasoning
        self.messages += turn.messages
        turn.reasoning, turn.messages = [], []
        for call in [*turn._calls]:
            self.add(call)


def arrange(items: Sequence[Item]) -> tuple[list[Said | Turn], list[str]]:
    """Return the turns of a conversation, and a report of what could not be kept."""
    arranger = Arranger(items)
    turns = [turn for turn in arranger.turns if isinstance(turn, Said) or not turn.is_empty]
    return turns, arranger.report()


class Arranger:
    """Puts items into turns, from the beginning or from a place where a turn begins."""

    def __init__(
        self,
        items: Sequence[Item],
        is_own: Callable[[str], bool] = lambda kind: False,
        begin: int = 0,
    ) -> None:
        self._is_own = is_own
        """Whether items of a type are a wire's own: they are among the messages of a turn."""
        self.turns: list[Said | Turn] = []
        self.orphans: list[int] = []
        """Results whose call is not among the items."""
        self._open: Turn | None = None
        self._last_message = -1
        """Where the last turn with text begins, or where the last message of the caller is."""
        self._newest: dict[str, Call] = {}
        self._waiting: dict[str, list[Call]] = {}
        self._requests: set[_Request] = set()
        """What the waiting calls ask for: what asks for the same is a repetition."""
        self.notes: list[tuple[int, str]] = []
        """What could not be kept, each with the place of the item that caused it."""
        self._joined: list[tuple[int, int]] = []
        """Which turns an item ties together: the places of the first of them and of the last."""
        self._latest = begin + len(items) - 1
        """The place of the last item."""
        self._take(items, begin)

    @property
    def call_ids(self) -> Iterable[str]:
        """The ids of all calls."""
        return self._newest.keys()

    @property
    def lonely(self) -> list[Call]:
        """The calls without a result, in order."""
        found = (call for waiting in self._waiting.values() for call in waiting)
        return sorted(found, key=_index_of)

    def report(self) -> list[str]:
        """Return what was noted, then the calls without a result."""
        if not self.notes and not self._waiting:
            return []
        return [text for _, text in self.notes] + [call.note_lonely() for call in self.lonely]

    def settled(self, patience: int, end: int) -> int:
        """Return how many of the first turns later items cannot change, in a regular conversation.

        Not settled are the open turn and all turns from the first call on that waits for its
        result. After `patience` further turns a call no longer counts as waiting. Nor is a turn
        settled that is not over before the item at `end`: another item may stand there the next
        time, and continue it.
        """
        last = len(self.turns) - (self._open is not None)
        if self._latest >= end:
            last = min(last, bisect_left(self.turns, end, key=_index_of) - 1)
        oldest = len(self.turns) - patience
        waiting = [call.turn.place for call in self.lonely if call.turn.place >= oldest]
        return self._parted(max(min([last, *waiting]), 0))

    def _parted(self, place: int) -> int:
        """Return the last place up to this one where no item ties a turn to one before."""
        for first, last in reversed(self._joined):
            if first < place <= last:
                place = first
        return place

    def _take(self, items: Sequence[Item], begin: int) -> None:
        for index, item, kind in zip(count(begin), items, item_types(items), strict=False):
            known = _FIELDS.get(kind)
            if known is not None and not known.issuperset(item):
                self._note_fields(index, item, known)
            if kind != "message":
                self._take_other(kind, (index, item))
            elif item.get("role") != "assistant":
                self._open = None
                self._last_message = index
                self.turns.append(Said(index, item))
            else:
                turn = self._open or self._turn(index)
                turn.messages.append((index, item))
                self._last_message = turn.index

    def _note_fields(self, index: int, item: Item, known: frozenset[str]) -> None:
        unknown = (name for name, value in item.items() if value and name not in known)
        self.notes += [(index, f"input[{index}].{name}") for name in unknown]

    def _take_other(self, kind: str, entry: Entry) -> None:
        """Take an item that is no message."""
        index, item = entry
        if self._is_own(kind):
            self._speak(index, item)
        elif kind == "reasoning":
            self._turn(index).reasoning.append(entry)
        elif kind == "function_call":
            self._call(entry)
        elif kind == "function_call_output":
            self._answer(entry)
        elif kind == HOSTED_CALL:
            self._show_hosted(entry)
        elif kind != "additional_tools":  # those are among the tools
            self._note(index, f"input[{index}] ({kind}): this backend cannot send it")

    def _note(self, index: int, text: str) -> None:
        self.notes.append((index, text))

    def _turn(self, index: int) -> Turn:
        """Return the turn that is open, a new one if none is."""
        if self._open is None:
            self._open = Turn(index, len(self.turns))
            self.turns.append(self._open)
        return self._open

    def _speak(self, index: int, item: Item) -> None:
        turn = self._turn(index)
        turn.messages.append((index, item))
        self._last_message = turn.index

    def _say(self, index: int, item: Item) -> None:
        self._open = None
        self._last_message = index
        self.turns.append(Said(index, item))

    def _call(self, entry: Entry) -> None:
        index, item = entry
        wished = str(item["call_id"])
        if _request(item) in self._requests:
            self._note(index, f"input[{index}] (function_call): repeats {wished}")
            return
        turn, newest = self._turn(index), self._newest.get(wished)
        is_used = newest is not None and newest.origin is turn
        call = Call(entry, turn, turn.claim_id(wished, is_used=is_used))
        if call.id != wished:
            why = f"another call has the id {wished}; sent as {call.id}"
            self._note(index, f"input[{index}] (function_call): {why}")
        turn.add(call)
        self._newest[wished] = call
        self._waiting.setdefault(wished, []).append(call)
        self._requests.add(call.request)

    def _show_hosted(self, entry: Entry) -> None:
        index, item = entry
        turn = self._turn(index)
        wished = str(item["call_id"])
        call = Call(entry, turn, turn.claim_id(wished, is_used=turn.has_id(wished)))
        turn.add(call)
        self._settle(call, entry)

    # A result, and where its call goes.

    def _answer(self, entry: Entry) -> None:
        index, item = entry
        call_id = str(item["call_id"])
        newest = self._newest.get(call_id)
        if newest is None:
            self._note(index, f"input[{index}] (function_call_output): there is no call {call_id}")
            self.orphans.append(index)
            self._say(index, item)
            return
        waiting = self._waiting.get(call_id)
        if not waiting:
            self._answer_again(entry, newest)
            return
        call = waiting.pop(_awaited(waiting))
        self._requests.discard(call.request)
        self._bring(call, index)
        self._settle(call, entry)

    def _settle(self, call: Call, entry: Entry) -> None:
        call.result = entry
        call.turn.has_result = True
        self._join(call)
        self._open = None

    def _join(self, call: Call) -> None:
        """Note that the last item has to do with a call, and so with all turns since then."""
        first, last = min(call.origin.place, call.turn.place), len(self.turns) - 1
        if first < last:
            self._joined.append((first, last))

    def _answer_again(self, entry: Entry, call: Call) -> None:
        """Take a second result. After a later message, it is a message itself."""
        index, item = entry
        old = call.result[0] if call.result is not None else index
        if self._is_apart(call.turn):
            why = f"{call.id} has its result in input[{old}]; sent as a user message"
            self._note(index, f"input[{index}] (function_call_output): {why}")
            self._say(index, item)
            self._join(call)
            return
        self._note(index, f"input[{old}] (function_call_output): replaced by input[{index}]")
        self._settle(call, entry)

    def _is_apart(self, turn: Turn) -> bool:
        """Return whether a message has come since this turn."""
        return self._last_message > turn.index

    def _bring(self, call: Call, index: int) -> None:
        """Move a call to its result at `index`, if a message stands between them.

        The first call of a turn that moves takes all of the turn with it. Others follow alone;
        those that have their results together stay together.
        """
        turn = call.turn
        if not self._is_apart(turn):
            return
        if turn.has_result:
            self._goal(call, index).add(call)
            return
        goal = self._goal(None, index)
        if turn.messages:
            self._last_message = goal.index
        goal.take_all(turn)

    def _goal(self, call: Call | None, index: int) -> Turn:
        """Return the turn to move to: one that is open without calls, or a new one.

        A call follows those of its origin that moved just before.
        """
        last = self.turns[-1]
        if isinstance(last, Turn) and (first := last.first_call) is not None:
            if call is not None and self._open is None and first.origin is call.origin:
                return last
            self._open = None
        return self._turn(index)


_Request = tuple[str, str, str]


def _request(item: Item) -> _Request:
    """Return the id of a call and what it asks for."""
    return str(item["call_id"]), str(item.get("name")), str(item.get("arguments"))


def _awaited(calls: Sequence[Call]) -> int:
    """Return which of the calls under one id a result is of: the first of the newest turn."""
    if len(calls) == 1:
        return 0
    return bisect_left(calls, calls[-1].origin.index, key=lambda call: call.origin.index)
