"""Facet `rounds` in memory. What is kept goes with its response, so it is bounded as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from antiphon.store.base.rounds import KeptRound

__all__ = ["MemoryRounds"]


class MemoryRounds:
    """See `Rounds` for what the methods do."""

    def __init__(self, check_open: Callable[[], None]) -> None:
        self._check_open = check_open
        self._rounds: dict[tuple[str, str], list[KeptRound]] = {}

    def add(self, rounds: Sequence[KeptRound]) -> None:
        """Store rounds of turns that end now."""
        for one in rounds:
            self._rounds.setdefault((one.owner, one.response_id), []).append(one)

    async def find(self, owner: str, response_id: str) -> list[KeptRound]:
        self._check_open()
        return sorted(self._rounds.get((owner, response_id), ()), key=lambda one: one.number)

    async def sweep(self, before: int, limit: int) -> int:
        self._check_open()
        old = [one for some in self._rounds.values() for one in some if one.created_at < before]
        for one in old[:limit]:
            rest = self._rounds[one.owner, one.response_id]
            rest.remove(one)
            if not rest:
                del self._rounds[one.owner, one.response_id]
        return len(old[:limit])

    def forget_response(self, owner: str, response_id: str) -> None:
        """Remove what belongs to a response that is removed."""
        self._rounds.pop((owner, response_id), None)

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many rows an owner has, by table."""
        mine = [len(some) for (name, _), some in self._rounds.items() if name == owner]
        return {"rounds": sum(mine)}

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        self._rounds = {key: some for key, some in self._rounds.items() if key[0] != owner}

    def clear(self) -> None:
        """Remove everything."""
        self._rounds.clear()
