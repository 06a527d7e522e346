"""How does native state get from one turn to the next, if its caller does not carry it?

With the stored item: an output item whose caller is not given the seal has it under the private
key `NATIVE` when it is stored, and the history of the next turn has it there.

With the call: callers of some doors send back calls and texts, but no reasoning. What came before
a call is then kept by its id, and put back when a history has the call:

    | in the output                               | in the history of a later request         |
    |---------------------------------------------|-------------------------------------------|
    | thoughts before all texts and calls         | first in the turn, instead of plain ones  |
    | thoughts and state before the call          | before the call                           |
    | state that belongs to the call before it    | after the call                            |
    | what hosted tools did                       | before the first call of the caller's     |

Only turns with native state or hosted items are kept, and the state of a turn that has sealed
reasoning is left as it is: then the caller carries it. All of it is sealed, and `window` opens the
reasoning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from antiphon.protocol.families import is_call
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.machines.builder import KeptState
from antiphon.protocol.native_state import ABANDONED, NATIVE, seal_of

__all__ = ["OpenItems", "calls_in", "carried_by", "keep_states", "lonely_calls", "put_back"]


class _Carried(msgspec.Struct, omit_defaults=True):
    """The seals that belong to one call."""

    first: list[str] = []
    before: list[str] = []
    after: list[str] = []
    hosted: str = ""
    """What hosted tools did before it, sealed: see `carried_items`."""


OpenItems = Callable[[str], list[Item]]
NOTHING: Final[Mapping[str, str]] = {}
_decode = msgspec.json.Decoder(_Carried).decode


def _keep_closed(sealed: str) -> list[Item]:
    return []


def keep_states(output: Iterable[Item], states: Mapping[str, KeptState]) -> list[Item]:
    """Return the output as it is stored: with the seals that its caller is not given."""
    return [_with_state(item, states) for item in output]


def _with_state(item: Item, states: Mapping[str, KeptState]) -> Item:
    state = states.get(item.get("id", ""))
    if state is None or item.get("encrypted_content"):
        return item
    return {**item, NATIVE: state.seal}


def carried_by(
    output: Iterable[Item], states: Mapping[str, KeptState], hosted: Mapping[str, str] = NOTHING
) -> dict[str, bytes]:
    """Return what is kept with the calls of an answer, by call id.

    `hosted` are the seals of what hosted tools did before them.
    """
    reader = _OutputReader(states)
    for item in output if states else ():
        reader.take(item)
    for name, sealed in hosted.items():
        reader.found.setdefault(name, _Carried()).hosted = sealed
    return {name: msgspec.json.encode(carried) for name, carried in reader.found.items()}


class _OutputReader:
    """Finds what belongs to the calls of one answer."""

    def __init__(self, states: Mapping[str, KeptState]) -> None:
        self.found: dict[str, _Carried] = {}
        self._states = states
        self._waiting = _Carried()
        self._has_state = False
        self._has_begun = False
        self._last_call: str | None = None

    def take(self, item: Item) -> None:
        """Take the next item of the output."""
        if item_type(item) == "reasoning":
            self._think(item)
            return
        call_id = item.get("call_id") if is_call(item) else None
        self._last_call = call_id if isinstance(call_id, str) else None
        self._has_begun = True
        if self._last_call is not None:
            if self._has_state:
                self.found[self._last_call] = self._waiting
            self._waiting, self._has_state = _Carried(), False

    def _think(self, item: Item) -> None:
        state = self._states.get(item.get("id", ""))
        seal = state.seal if state is not None else seal_of(item)
        if seal is None or seal == ABANDONED:
            return
        if state is not None and state.attach == "previous" and self._last_call is not None:
            self.found.setdefault(self._last_call, _Carried()).after.append(seal)
            return
        self._has_state = self._has_state or state is not None
        (self._waiting.before if self._has_begun else self._waiting.first).append(seal)


def lonely_calls(items: Sequence[Item]) -> list[str]:
    """Return the ids of the calls whose turns have no sealed reasoning, in order."""
    return [
        item["call_id"]
        for turn in _turns(items)
        if not _is_sealed(turn)
        for item in turn
        if is_call(item) and isinstance(item.get("call_id"), str)
    ]


def calls_in(items: Sequence[Item]) -> list[str]:
    """Return the ids of all calls, in order."""
    return [
        item["call_id"] for item in items if is_call(item) and isinstance(item.get("call_id"), str)
    ]


def put_back(
    items: Sequence[Item], found: Mapping[str, bytes], open_items: OpenItems = _keep_closed
) -> list[Item]:
    """Return the items with what was kept for their calls in its place."""
    carried = {name: _decode(body) for name, body in found.items()}
    return [item for turn in _turns(items) for item in _complete(turn, carried, open_items)]


def _complete(
    turn: list[Item], carried: Mapping[str, _Carried], open_items: OpenItems
) -> Iterator[Item]:
    parts = [carried.get(item.get("call_id", "")) if is_call(item) else None for item in turn]
    if _is_sealed(turn):  # then the caller carries the states itself
        parts = [part and _Carried(hosted=part.hosted) for part in parts]
    first = [seal for part in parts if part is not None for seal in part.first]
    yield from map(_reasoning, first)
    for item, part in zip(turn, parts, strict=True):
        if first and item_type(item) == "reasoning":
            continue  # its text is in the seals
        if part is not None and part.hosted:
            yield from open_items(part.hosted)
        yield from map(_reasoning, part.before if part else ())
        yield item
        yield from map(_reasoning, part.after if part else ())


def _turns(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield what the model wrote in a row; all other items alone."""
    turn: list[Item] = []
    for item in items:
        if _is_written(item):
            turn.append(item)
            continue
        if turn:
            yield turn
            turn = []
        yield [item]
    if turn:
        yield turn


def _is_written(item: Item) -> bool:
    kind = item_type(item)
    is_answer = kind == "message" and item.get("role") == "assistant"
    return is_answer or kind == "reasoning" or is_call(item)


def _is_sealed(turn: list[Item]) -> bool:
    return any(item_type(item) == "reasoning" and seal_of(item) for item in turn)


def _reasoning(seal: str) -> Item:
    return {"type": "reasoning", "summary": [], "encrypted_content": seal}
