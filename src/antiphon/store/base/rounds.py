"""Facet `rounds`: what the upstream was sent in each round of a turn.

A round is one call of a model. Its request is an entry of `Turns.finish`, so it is stored if and
only if the end of its turn is, and it is removed with the response, or earlier (`sweep`). Only
bodies are here: headers, which hold keys, are never stored.
"""

from __future__ import annotations

from typing import Literal, Protocol

from antiphon.store.base.entries import Entry

__all__ = ["KeptRound", "RoundKind", "Rounds"]

RoundKind = Literal["model", "attempt", "continuation", "repair", "truncation", "compaction"]
"""Why the model was asked: for the answer, again after a fault, to go on with an answer that broke
off, to repair one, with a shorter context, or for a summary."""


class KeptRound(Entry, frozen=True, kw_only=True):
    """The request of one round. `number` is that of its charge."""

    owner: str
    response_id: str
    number: int
    kind: RoundKind
    created_at: int
    size: int
    """The bytes that were sent."""
    body: bytes | None
    """What was sent, compressed (zlib); None if it was too long to be kept."""


class Rounds(Protocol):
    """Finds the rounds of a response."""

    async def find(self, owner: str, response_id: str) -> list[KeptRound]:
        """Return the rounds of a response that were kept, in their order."""
        ...

    async def sweep(self, before: int, limit: int) -> int:
        """Remove rounds made before this time, `limit` at most; return how many."""
        ...
