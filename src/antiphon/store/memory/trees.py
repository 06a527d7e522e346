"""Facet `trees` in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from antiphon.store.base.trees import TreeNode
from antiphon.store.encoding import decode_item, decode_turn
from antiphon.store.memory.turns import MemoryTurns, StoredTurn

__all__ = ["MemoryTrees"]

# A longer item is not read for a list.
_LONGEST: Final = 65_536


class MemoryTrees:
    """See `Trees` for what the methods do."""

    def __init__(self, check_open: Callable[[], None], turns: MemoryTurns) -> None:
        self._check_open = check_open
        self._turns = turns

    async def root(self, owner: str, response_id: str) -> str | None:
        self._check_open()
        name, turn = response_id, self._turns.get(owner, response_id)
        if turn is None:
            return None
        while (parent := turn.parent) is not None:
            older = self._turns.get(owner, parent)
            if older is None:
                break
            name, turn = parent, older
        return name

    async def page(
        self, owner: str, roots: Sequence[str], *, after: str | None = None, limit: int
    ) -> list[TreeNode]:
        self._check_open()
        place = -1
        if after is not None:
            last = self._turns.get(owner, after)
            if last is None:
                raise KeyError(after)
            place = last.number
        found = self._walk(owner, roots)
        names = sorted((name for name in found if found[name].number > place), key=_by(found))
        return [self._node(owner, name, found[name]) for name in names[:limit]]

    def _walk(self, owner: str, roots: Sequence[str]) -> dict[str, StoredTurn]:
        """Return these turns and all that continue them, by their ids."""
        found: dict[str, StoredTurn] = {}
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            turn = self._turns.get(owner, name)
            if turn is not None and name not in found:
                found[name] = turn
                waiting += self._turns.children(owner, name)
        return found

    def _node(self, owner: str, name: str, turn: StoredTurn) -> TreeNode:
        last = [item.body for item in turn.inputs[-1:] if len(item.body) < _LONGEST]
        return TreeNode(
            response=decode_turn(turn.body, [], turn.status),
            children=len(self._turns.children(owner, name)),
            last_input=decode_item(last[0]) if last else None,
        )


def _by(found: dict[str, StoredTurn]) -> Callable[[str], int]:
    return lambda name: found[name].number
