"""How are the ranking by words and the one by vectors joined, each chunk once?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from antiphon.store.vectors import Near

__all__ = ["Places", "Ranked", "join_rankings"]

Ranked = tuple[int, float]
"""The key of a chunk, and a score that is smaller for a better one."""


class Places(NamedTuple):
    """The places of a chunk in both rankings, from 0, and its cosine."""

    by_words: int | None = None
    by_vector: int | None = None
    similarity: float | None = None


def join_rankings(
    by_words: Sequence[Ranked], by_vector: Sequence[Near], limit: int
) -> dict[int, Places]:
    """Return the best of both rankings, by key. They may come from several vector stores."""
    best = sorted(by_words, key=lambda one: (one[1], one[0]))[:limit]
    found = {key: Places(by_words=place) for place, (key, _) in enumerate(best)}
    nearest = sorted(by_vector, key=lambda one: (-one[1], one[0]))[:limit]
    for place, (key, similarity) in enumerate(nearest):
        known = found.get(key, Places())
        found[key] = known._replace(by_vector=place, similarity=similarity)
    return found
