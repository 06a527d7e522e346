"""Items as the turns of a wire, of which only the new ones are written again.

A writer is given the turns of a conversation. For a long thread it goes on from where another was
in the request before: the thread keeps what that one had written of the part that can no longer
change, which are the finished turns up to the first call that still waits for its result. If a
result arrives for a call that was settled before, everything is written again, once. The tail of
a thread is never settled.

All wires of turns share this. What a writer writes after a pause is the same, byte for byte, as if
it had written everything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from antiphon.plans.plan import NO_TOOLS
from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.items import Item
from antiphon.protocol.thread import Thread
from antiphon.wires.lower import Lowering
from antiphon.wires.plain import PlainTexts, find_plain
from antiphon.wires.turns import Arranger, Said, Turn

__all__ = ["NO_OWN", "Own", "TurnWriter", "write_turns"]

# A call that was not answered for so many turns does not hold up those behind it any longer.
_PATIENCE: Final = 32


class TurnWriter(Protocol):
    """Writes turns in the words of one API."""

    def write(self, turns: Iterable[Said | Turn]) -> None:
        """Write turns after those before."""
        ...

    def pause(self) -> object:
        """Return what another writer needs to go on from here. It is never changed."""
        ...


_W = TypeVar("_W", bound=TurnWriter)


class Own(NamedTuple):
    """Which items a wire has words of its own for.

    `find` returns such an item as the wire takes it, else None; it is None if there are none.
    `is_kind` is about the type of such an item.
    """

    find: Callable[[Item], Item | None] | None
    is_kind: Callable[[str], bool]


NO_OWN: Final = Own(None, lambda kind: False)


class _Settled(NamedTuple):
    """The items before `place`, which a writer has written that paused with `written`.

    `terms` is everything else that they depend on. `notes` and `lonely` were reported, `waiting`
    holds the ids of calls without a result.
    """

    terms: Hashable
    lowering: Lowering
    place: int = 0
    written: Any = None  # each writer has its own
    notes: tuple[str, ...] = ()
    lonely: tuple[str, ...] = ()
    waiting: frozenset[str] = frozenset()


def write_turns(
    items: Sequence[Item],
    toolbox: Toolbox,
    make: Callable[[Any], _W],
    key: Hashable,
    terms: Hashable,
    own: Own = NO_OWN,
    write_plain: Callable[[_W, PlainTexts], None] | None = None,
) -> tuple[_W, list[str]]:
    """Return a writer that has written all items, and a report of what could not be kept.

    `make` returns a writer that goes on after a pause, or a new one for None. A long thread
    remembers what is settled of it under `key`, as long as `terms` and the names of the tools are
    the same. `write_plain` writes plain messages as `write` does, for less.
    """
    if isinstance(items, Thread) and items.is_long:
        begin = partial(_begin, items, (terms, toolbox.names), make, write_plain)
        settled, rest, count = _settle(items, toolbox, make, key, begin, own)
    else:
        count = 0
        settled = _Settled(terms, Lowering(NO_TOOLS))
        rest = _arrange(items, settled, toolbox, own)
    writer = make(settled.written)
    writer.write(rest.turns[count:])
    notes = [*settled.notes, *(text for index, text in rest.notes if index >= settled.place)]
    lonely = (call.note_lonely() for call in rest.lonely if call.index >= settled.place)
    return writer, [*notes, *settled.lonely, *lonely]


def _settle(
    thread: Thread,
    toolbox: Toolbox,
    make: Callable[[Any], _W],
    key: Hashable,
    begin: Callable[[_Settled | None], _Settled],
    own: Own,
) -> tuple[_Settled, Arranger, int]:
    """Return what is settled of a thread, which remembers it.

    Return also the turns after what was settled before, and how many of them are settled now.
    """
    settled = begin(thread.recall(key))
    rest = _arrange(thread, settled, toolbox, own)
    if settled.place and _upsets(rest, settled):
        settled = begin(None)
        rest = _arrange(thread, settled, toolbox, own)
    count = rest.settled(_PATIENCE, thread.lasting)
    if count:
        writer = make(settled.written)
        writer.write(rest.turns[:count])
        settled = _settle_more(thread, settled, rest, count, own)._replace(written=writer.pause())
        thread.learn(key, settled)
    return settled, rest, count


def _begin(
    thread: Thread,
    terms: Hashable,
    make: Callable[[Any], _W],
    write_plain: Callable[[_W, PlainTexts], None] | None,
    known: _Settled | None,
) -> _Settled:
    """Return what is known to be settled under these terms, with the plain messages after it."""
    settled = known
    if settled is None or settled.terms != terms:
        settled = _Settled(terms, Lowering(NO_TOOLS))
    if write_plain is None:
        return settled
    plain = find_plain(thread, settled.place, thread.lasting)
    if not plain.roles:
        return settled
    writer = make(settled.written)
    write_plain(writer, plain)
    return settled._replace(place=settled.place + len(plain.roles), written=writer.pause())


def _upsets(rest: Arranger, settled: _Settled) -> bool:
    """Return whether items behind have to do with a call that was settled."""
    return bool(rest.orphans) or not settled.waiting.isdisjoint(rest.call_ids)


def _arrange(items: Sequence[Item], settled: _Settled, toolbox: Toolbox, own: Own) -> Arranger:
    """Return the turns behind what is settled."""
    lowering = settled.lowering.fork(toolbox)
    lowered = _lower_some(items, settled.place, len(items), lowering, own)
    return Arranger(lowered, own.is_kind, settled.place)


def _lower_some(
    items: Sequence[Item], begin: int, end: int, lowering: Lowering, own: Own
) -> Sequence[Item]:
    """Return the items from `begin` to `end` as the wire takes them."""
    if own.find is None:
        return lowering.lower_some(items, begin, end)
    some = items[begin:end]
    return [
        lowering.lower(item) if found is None else found
        for item, found in zip(some, map(own.find, some), strict=True)
    ]


def _settle_more(
    thread: Thread, settled: _Settled, rest: Arranger, count: int, own: Own
) -> _Settled:
    """Return what is settled when these turns are, too; they are not written yet."""
    place = rest.turns[count].index if count < len(rest.turns) else thread.lasting
    lowering = settled.lowering.fork(NO_TOOLS)
    _lower_some(thread, settled.place, place, lowering, own)
    lonely = [call for call in rest.lonely if call.index < place]
    return _Settled(
        settled.terms,
        lowering,
        place,
        notes=(*settled.notes, *(text for index, text in rest.notes if index < place)),
        lonely=(*settled.lonely, *(call.note_lonely() for call in lonely)),
        waiting=settled.waiting.union(call.own_id for call in lonely),
    )
