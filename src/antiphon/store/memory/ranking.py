"""Which chunks in memory are nearest to a question: by words (BM25) and by vector (cosine)."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from antiphon.store.memory.stemming import stem
from antiphon.store.vector_rows import split_words
from antiphon.store.vectors import cosine, to_numbers

__all__ = ["Indexed", "count_terms", "rank_by_vector", "rank_by_words", "terms_of"]

# The values that FTS5 uses.
_SATURATION: Final = 1.2
_LENGTH: Final = 0.75
_LEAST: Final = 1e-6
_TERM: Final = re.compile(r"[^\W_]+")


class Indexed(NamedTuple):
    """What is known of a chunk: how often each term occurs, how many there are, its vector."""

    terms: Counter[str]
    length: int
    vector: bytes | None


def terms_of(text: str) -> list[str]:
    """Return the stems of the words of a text, without accents, in lower case."""
    if not text.isascii():
        parts = unicodedata.normalize("NFKD", text)
        text = "".join(part for part in parts if not unicodedata.combining(part))
    return [stem(word) for word in _TERM.findall(text.lower())]


def count_terms(text: str, vector: bytes | None) -> Indexed:
    """Return what the search needs of a chunk."""
    terms = terms_of(text)
    return Indexed(Counter(terms), len(terms), vector)


def rank_by_words(words: Iterable[str], chunks: Sequence[Indexed], limit: int) -> list[int]:
    """Return the places of the best chunks that have any of the words, the best first."""
    terms = {term for word in split_words(words) for term in terms_of(word)}
    found = {term: sum(term in chunk.terms for chunk in chunks) for term in terms}
    weights = {term: _rarity(n, len(chunks)) for term, n in found.items() if n}
    if not weights:
        return []
    mean = sum(chunk.length for chunk in chunks) / len(chunks)
    scores = {
        place: score
        for place, chunk in enumerate(chunks)
        if (score := _score(weights, chunk, mean))
    }
    return sorted(scores, key=lambda place: -scores[place])[:limit]


def _rarity(found: int, total: int) -> float:
    return max(math.log((total - found + 0.5) / (found + 0.5)), _LEAST)


def _score(weights: dict[str, float], chunk: Indexed, mean: float) -> float:
    slowness = _SATURATION * (1 - _LENGTH + _LENGTH * chunk.length / mean)
    return sum(
        weight * count * (_SATURATION + 1) / (count + slowness)
        for term, weight in weights.items()
        if (count := chunk.terms[term])
    )


def rank_by_vector(vector: bytes, chunks: Sequence[Indexed], limit: int) -> list[tuple[int, float]]:
    """Return the places of the nearest chunks, each with its cosine, the nearest first."""
    wanted = to_numbers(vector)
    scores = [
        (place, cosine(wanted, to_numbers(chunk.vector)))
        for place, chunk in enumerate(chunks)
        if chunk.vector is not None and len(chunk.vector) == len(vector)
    ]
    return sorted(scores, key=lambda found: -found[1])[:limit]
