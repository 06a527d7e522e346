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

from collections.abc import Sequence
from typing import Final

from antiphon.protocol.items import Item, item_type

__all__ = ["Call", "Entry", "Said", "Turn", "arrange"]

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

    def is_same(self, item: Item) -> bool:
        """Say whether an item is this very call again."""
        return all(self.item.get(field) == item.get(field) for field in ("name", "arguments"))


class Said:
    """A message of anyone but the assistant, or a result that belongs to no call."""

    def __init__(self, entry: Entry) -> None:
        self.index, self.item = entry


class Turn:
    """What the assistant did in one go: it thought, spoke and called."""

    def __init__(self) -> None:
        self.reasoning: list[Entry] = []
        self.messages: list[Entry] = []
        self.calls: list[Call] = []


def arrange(items: Sequence[Item]) -> tuple[list[Said | Turn], list[str]]:
    """Return the turns of a conversation, and a report of what could not be kept."""
    arranger = _Arranger()
    for entry in enumerate(items):
        arranger.take(entry)
    return arranger.turns, arranger.report()


class _Arranger:
    def __init__(self) -> None:
        self.turns: list[Said | Turn] = []
        self._open: Turn | None = None
        self._calls: dict[str, list[Call]] = {}
        self._report: list[str] = []

    def take(self, entry: Entry) -> None:
        index, item = entry
        kind = item_type(item)
        known = _FIELDS.get(kind)
        if known is not None and not known.issuperset(item):
            unknown = (name for name, value in item.items() if value and name not in known)
            self._report += [f"input[{index}].{name}" for name in unknown]
        if kind == "message" and item.get("role") == "assistant":
            self._turn().messages.append(entry)
        elif kind == "message":
            self._say(entry)
        elif kind == "reasoning":
            self._turn().reasoning.append(entry)
        elif kind == "function_call":
            self._call(entry)
        elif kind == "function_call_output":
            self._answer(entry)
        elif kind != "additional_tools":  # those are among the tools
            self._report.append(f"input[{index}] ({kind}): this backend cannot send it")

    def report(self) -> list[str]:
        """Return what was reported, with the calls that nobody answered."""
        lonely = [
            f"input[{call.index}] (function_call): no output was provided for {call.id}"
            for calls in self._calls.values()
            for call in calls
            if call.result is None
        ]
        return self._report + lonely

    def _turn(self) -> Turn:
        if self._open is None:
            self._open = Turn()
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
            self._report.append(f"input[{index}] (function_call): repeats {waiting.id}")
            return
        call = Call(entry)
        known.append(call)
        self._turn().calls.append(call)

    def _is_in_open_turn(self, call: Call) -> bool:
        return self._open is not None and call in self._open.calls

    def _answer(self, entry: Entry) -> None:
        index, item = entry
        call_id = str(item["call_id"])
        known = self._calls.get(call_id)
        if not known:
            self._report.append(
                f"input[{index}] (function_call_output): there is no call {call_id}"
            )
            self._say(entry)
            return
        call = next((c for c in reversed(known) if c.result is None), known[-1])
        if call.result is not None:
            self._report.append(
                f"input[{call.result[0]}] (function_call_output): replaced by input[{index}]"
            )
        call.result = entry
        self._open = None
