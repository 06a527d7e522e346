"""Facet `turns` in memory: all turns, and which of them hold an item.

Bounded: beyond `room` turns, the oldest is removed, finished or not, and a chain that needed it
reports it as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from antiphon.protocol.errors import TurnLost
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import MAX_DEPTH, Batch
from antiphon.store.encoding import StoredItem, decode_item, decode_turn
from antiphon.store.turns import lost_turn

__all__ = ["MemoryTurns", "StoredTurn"]

_Key = tuple[str, str]


@dataclass(slots=True)
class StoredTurn:
    """One turn, as bytes: no caller shares an object with the store."""

    parent: str | None
    status: str
    created_at: float
    body: bytes
    inputs: list[StoredItem]
    log: list[Batch]
    outputs: Sequence[StoredItem] = ()
    finished_log: bytes | None = None
    is_open: bool = True
    is_cancelled: bool = False
    number: int = 0

    @property
    def items(self) -> list[StoredItem]:
        """Input and output."""
        return [*self.inputs, *self.outputs]

    def response(self) -> Response:
        """Return the response with its output."""
        output = [decode_item(item.body) for item in self.outputs]
        return decode_turn(self.body, output, self.status)


class MemoryTurns:
    """The turns by owner and id. `on_removal` is called with both for each that is removed."""

    def __init__(self, room: int, on_removal: Callable[[str, str], None]) -> None:
        self._room = room
        self._on_removal = on_removal
        self._numbers = count()
        self._turns: dict[_Key, StoredTurn] = {}
        self._places: dict[_Key, list[StoredTurn]] = {}
        self._children: dict[_Key, list[str]] = {}
        self.removals = 0

    def __iter__(self) -> Iterator[_Key]:
        """Iterate over owner and id of all turns, oldest first."""
        return iter(self._turns)

    def get(self, owner: str, response_id: str) -> StoredTurn | None:
        """Return the turn."""
        return self._turns.get((owner, response_id))

    def has(self, owner: str, response_id: str) -> bool:
        """Return whether there is a turn."""
        return (owner, response_id) in self._turns

    def open(self, owner: str, response_id: str) -> StoredTurn:
        """Return an unfinished turn. Raise TurnLost if it does not exist."""
        turn = self.get(owner, response_id)
        if turn is None:
            raise TurnLost(f"response {response_id!r} is not in the store; nothing was stored")
        if not turn.is_open:
            raise lost_turn(response_id, (turn.status, None))
        return turn

    def cancelled(self) -> list[_Key]:
        """Return owner and id of the unfinished turns whose cancellation was requested."""
        return [key for key, turn in self._turns.items() if turn.is_open and turn.is_cancelled]

    def add(self, owner: str, response_id: str, turn: StoredTurn) -> None:
        """Store a new turn; remove the oldest to make room."""
        turn.number = next(self._numbers)
        while len(self._turns) >= self._room:
            self.remove(*next(iter(self)))
        self._turns[owner, response_id] = turn
        if turn.parent is not None:
            self._children.setdefault((owner, turn.parent), []).append(response_id)
        self.index(owner, turn, turn.inputs)

    def children(self, owner: str, response_id: str) -> Sequence[str]:
        """Return the ids of the turns that continue this one, oldest first."""
        return self._children.get((owner, response_id), ())

    def index(self, owner: str, turn: StoredTurn, items: Sequence[StoredItem]) -> None:
        """Make these items of a turn findable by their ids."""
        for item in items:
            if item.id is not None:
                self._places.setdefault((owner, item.id), []).append(turn)

    def find_item(self, owner: str, item_id: str) -> Item | None:
        """Return the last item with this id of the turn that began last."""
        turns = self._places.get((owner, item_id))
        if not turns:
            return None
        newest = max(turns, key=lambda turn: turn.number)
        return next(decode_item(i.body) for i in reversed(newest.items) if i.id == item_id)

    def response_of(self, owner: str, item_id: str) -> str | None:
        """Return the id of the response that has put out this item, if it is stored."""
        turns = self._places.get((owner, item_id), ())
        for (_, response_id), turn in self._turns.items():
            is_there = any(turn is one for one in turns)
            if is_there and any(item.id == item_id for item in turn.outputs):
                return response_id
        return None

    def chain(self, owner: str, head: StoredTurn) -> tuple[list[StoredTurn], str | None]:
        """Return the chain from its head to its root, and the id of the first missing turn."""
        chain = [head]
        while (parent := chain[-1].parent) is not None:
            turn = self._turns.get((owner, parent))
            if turn is None or len(chain) == MAX_DEPTH:
                return chain, parent
            chain.append(turn)
        return chain, None

    def sweep(self, before: int) -> int:
        """Remove turns created before this time; return how many."""
        old = [key for key, turn in self._turns.items() if turn.created_at < before]
        for key in old:
            self.remove(*key)
        return len(old)

    def sweep_logs(self, before: int, limit: int) -> int:
        """Remove the logs of turns that have ended, created before this time; return how many."""
        old = [
            turn
            for turn in self._turns.values()
            if turn.finished_log is not None and turn.created_at < before
        ][:limit]
        for turn in old:
            turn.finished_log = None
        return len(old)

    def remove(self, owner: str, response_id: str) -> None:
        """Remove a turn that is there."""
        turn = self._turns.pop((owner, response_id))
        self.removals += 1
        self._on_removal(owner, response_id)
        if turn.parent is not None:
            siblings = self._children[owner, turn.parent]
            siblings.remove(response_id)
            if not siblings:
                del self._children[owner, turn.parent]
        for item_id in {item.id for item in turn.items if item.id is not None}:
            rest = [other for other in self._places[owner, item_id] if other is not turn]
            if rest:
                self._places[owner, item_id] = rest
            else:
                del self._places[owner, item_id]

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many rows an owner has, by table."""
        mine = [turn for (name, _), turn in self._turns.items() if name == owner]
        items = sum(len(turn.items) for turn in mine)
        return {"responses": len(mine), "items": items}

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        for key in [key for key in self._turns if key[0] == owner]:
            self.remove(*key)

    def clear(self) -> None:
        """Remove everything."""
        self._turns.clear()
        self._places.clear()
        self._children.clear()
