"""The output of an answer, as items to show to the model when it is asked again.

The text, the thoughts, and the calls with a word on each: those that were handed on are not to
be made again, those that were not are to be made right. All calls come before all words on
them, as in any turn, and what a server could not read as arguments is quoted in words instead.
Native state ends its thought, or stands between the text and the calls if it is of one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from antiphon.engine.run.call_checker import Rejected
from antiphon.protocol.call_ids import CallIds
from antiphon.protocol.deltas import (
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    NativeState,
    ReasoningGrew,
    TextGrew,
)
from antiphon.protocol.families import FAMILIES, WHOLE, Kind, call_item, payload_of
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import NATIVE
from antiphon.protocol.unwrap import is_object

__all__ = ["MAX_PROBLEM", "Mark", "Transcript", "mark_of"]

MAX_PROBLEM: Final = 2000
_NO_ID: Final = "call"
_TAKEN: Final = "This call is taken care of. Do not make it again."

Mark = tuple[str | None, bytes]
"""What two equal calls have in common: the alias of the tool, and the arguments."""

_Call = tuple[CallMade | CallOpened, list[str]]
_Thought = tuple[list[str], NativeState | None]


def mark_of(alias: str | None, said: str) -> Mark:
    """Return what identifies a call, however its JSON is written."""
    try:
        return alias, msgspec.json.encode(msgspec.json.decode(said), order="sorted")
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return alias, said.encode(errors="replace")


class Transcript:
    """Notes what is forwarded of one answer."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.note_text: Callable[[str], object] = self._texts.append
        """Notes a piece of the text, without a delta."""
        self._thoughts: list[_Thought] = []
        self._states: list[NativeState] = []
        self._calls: list[_Call] = []
        self._open: dict[int, list[str]] = {}

    @property
    def text(self) -> str:
        """The whole text so far."""
        return "".join(self._texts)

    def note(self, delta: Delta) -> None:
        """Note a delta that was forwarded."""
        match delta:
            case TextGrew():
                self._texts.append(delta.text)
            case ReasoningGrew():
                self._thought().append(delta.text)
            case NativeState(attach=None):
                self._thought()
                self._thoughts[-1] = (self._thoughts[-1][0], delta)
            case NativeState():
                self._states.append(delta)
            case CallOpened():
                pieces = self._open[delta.key] = []
                self._calls.append((delta, pieces))
            case CallGrew() if delta.key in self._open:
                self._open[delta.key].append(delta.arguments)
            case CallMade():
                self._calls.append((delta, [delta.said]))
            case _:
                pass

    def calls_made(self) -> frozenset[Mark]:
        """Return the calls that were forwarded."""
        return frozenset(mark_of(call.alias, "".join(pieces)) for call, pieces in self._calls)

    def items(self, rejected: Sequence[Rejected] = ()) -> list[Item]:
        """Return the output as items, with a result for each call."""
        ids = CallIds()
        calls: list[Item] = []
        words: list[Item] = []
        for call, pieces in self._calls:
            call_id = ids.claim(call.call_id or _NO_ID)
            item, _ = _call(call.kind, call.name, call.namespace, call_id, "".join(pieces))
            calls.append(item)
            words.append(_word(call_id, _TAKEN))
        for wrong in rejected:
            offer, call_id = wrong.offer, ids.claim(wrong.call_id or _NO_ID)
            item, is_whole = _call(offer.kind, offer.name, offer.namespace, call_id, wrong.said)
            calls.append(item)
            words.append(_word(call_id, _complaint(wrong, is_quoted=not is_whole)))
        return [*self.prose(), *calls, *words]

    def _thought(self) -> list[str]:
        """Return the texts of the thought that goes on: native state has ended the one before."""
        if not self._thoughts or self._thoughts[-1][1] is not None:
            self._thoughts.append(([], None))
        return self._thoughts[-1][0]

    def prose(self) -> list[Item]:
        """Return the thoughts, the text and the native states, without the calls."""
        found = [_reasoning("".join(texts), state) for texts, state in self._thoughts]
        if self._texts:
            found.append({"type": "message", "role": "assistant", "content": self.text})
        return found + [_reasoning("", state) for state in self._states]


def _reasoning(text: str, state: NativeState | None) -> Item:
    item: Item = {"type": "reasoning", "summary": []}
    if text:
        item["content"] = [{"type": "reasoning_text", "text": text}]
    return item if state is None else item | {NATIVE: state}


def _call(
    kind: Kind, name: str, namespace: str | None, call_id: str, said: str
) -> tuple[Item, bool]:
    """Return a call as an item, and whether its arguments could be put there."""
    call = call_item(
        kind,
        id=f"again_{call_id}",
        call_id=call_id,
        name=name,
        namespace=namespace,
        status="completed",
    )
    payload: Any = said  # a text, or the object that such a call holds
    if kind in WHOLE:
        payload = payload_of(kind, said)
    elif kind == "function" and said and not is_object(said):
        payload = None
    if payload is None:
        return call, False
    return call | {FAMILIES[kind].payload: payload}, True


def _complaint(wrong: Rejected, *, is_quoted: bool) -> str:
    problem = wrong.problem[:MAX_PROBLEM].rstrip(".")
    quote = f"The arguments were: {wrong.said[:MAX_PROBLEM]}\n" if is_quoted else ""
    return f"{quote}This call was not run. It is wrong: {problem}. Call again."


def _word(call_id: str, text: str) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}
