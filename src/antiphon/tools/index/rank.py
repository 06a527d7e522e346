"""In which order are found chunks shown, and with which score?

The store returns two rankings of chunks, by words and by vectors. Their places are added up
(reciprocal rank fusion): a place `p`, from 0, is worth `K / (K + p)`, and a ranking counts by its
weight. The score is the sum divided by what a chunk at the top of every ranking in use would have:

    score = sum(weight * K / (K + place)) / sum(weight)

So the score is between 0 and 1, and chunks are in the order of their scores. It depends on places
alone: 1 is the best of what was found, not a perfect match. A `score_threshold` of 0.5 drops what
only one of two equal rankings found (unless it is its first), and what is below place `K` in the
only ranking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.errors import InvalidRequest
from antiphon.store.base.vector_stores import Attributes, FoundChunk

__all__ = ["FoundFile", "Ranked", "Ranking", "group_files", "rank", "read_ranking"]

K: Final = 20
"""How slowly the worth of a place falls. Smaller than the usual 60: it finds more on Cranfield."""
# All of them are the ranking that is described above.
_RANKERS: Final = ("auto", "default-2024-11-15", "none")
_FIELDS: Final = frozenset({"ranker", "score_threshold", "hybrid_search"})
_WEIGHTS: Final = ("embedding_weight", "text_weight")
_MAX_CHUNKS: Final = 4
_DIGITS: Final = 6

_Key = tuple[str, str, int]


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """How results are ranked. Weights count relative to each other."""

    score_threshold: float = 0.0
    words_weight: float = 1.0
    vector_weight: float = 1.0
    is_weighted: bool = False
    """Whether the caller has chosen the weights."""


class Ranked(msgspec.Struct, frozen=True):
    """A chunk with its score."""

    score: float
    chunk: FoundChunk


class FoundFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with its best chunks, the best one first. Its score is that of the best."""

    file_id: str
    filename: str
    attributes: Attributes
    score: float
    texts: Sequence[str]


def read_ranking(value: Any, where: str) -> Ranking:
    """Return what `ranking_options` ask for. Raise InvalidRequest for what cannot be used."""
    if value is None:
        return Ranking()
    if not isinstance(value, dict):
        raise _wrong(where, "must be an object")
    for name in value:
        if name not in _FIELDS:
            raise _wrong(f"{where}.{name}", "is not known")
    if value.get("ranker") not in (None, *_RANKERS):
        raise _wrong(f"{where}.ranker", f"must be one of {', '.join(_RANKERS)}")
    threshold = _number(value.get("score_threshold"), f"{where}.score_threshold", most=1.0)
    ranking = Ranking(score_threshold=threshold or 0.0)
    return _weighted(ranking, value.get("hybrid_search"), f"{where}.hybrid_search")


def _weighted(ranking: Ranking, value: Any, where: str) -> Ranking:
    if value is None:
        return ranking
    if not isinstance(value, dict):
        raise _wrong(where, "must be an object")
    found = {name: _number(value.get(name), f"{where}.{name}") for name in _WEIGHTS}
    for name, weight in found.items():
        if weight is None:
            raise _wrong(f"{where}.{name}", "is missing")
    vector, words = (found[name] or 0.0 for name in _WEIGHTS)
    if vector + words <= 0:
        raise _wrong(where, "needs one weight above 0")
    return msgspec.structs.replace(
        ranking, vector_weight=vector, words_weight=words, is_weighted=True
    )


def _number(value: Any, where: str, most: float = 1e6) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise _wrong(where, f"must be a number from 0 to {most:g}")
    return float(value)


def _wrong(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {why}", code="invalid_value", param=param)


def rank(
    searches: Iterable[Sequence[FoundChunk]], ranking: Ranking, *, has_vectors: bool
) -> list[Ranked]:
    """Return the chunks of one or more searches, best first, those below the threshold left out.

    Each search answers one query; a chunk keeps its best score. Without vectors the words alone
    are ranked, whatever their weight.
    """
    best: dict[_Key, Ranked] = {}
    for found in searches:
        for chunk in found:
            # Rounded: a score that a caller has seen is a threshold that keeps it.
            score = round(_score(chunk, ranking, has_vectors=has_vectors), _DIGITS)
            ranked = Ranked(score, chunk)
            key = (chunk.store_id, chunk.file_id, chunk.place)
            if key not in best or best[key].score < ranked.score:
                best[key] = ranked
    kept = [one for one in best.values() if one.score > 0 and one.score >= ranking.score_threshold]
    return sorted(kept, key=_order)


def group_files(ranked: Iterable[Ranked], limit: int) -> list[FoundFile]:
    """Return the best files with their best chunks; a file in two vector stores is one file."""
    files: dict[str, list[Ranked]] = {}
    for one in ranked:
        if one.chunk.file_id in files or len(files) < limit:
            files.setdefault(one.chunk.file_id, []).append(one)
    return [_file(chunks) for chunks in files.values()]


def _file(ranked: Sequence[Ranked]) -> FoundFile:
    first = ranked[0].chunk
    return FoundFile(
        file_id=first.file_id,
        filename=first.filename,
        attributes=first.attributes,
        score=ranked[0].score,
        texts=list(dict.fromkeys(one.chunk.text for one in ranked))[:_MAX_CHUNKS],
    )


def _score(chunk: FoundChunk, ranking: Ranking, *, has_vectors: bool) -> float:
    if not has_vectors:
        return _worth(chunk.by_words)
    words = ranking.words_weight * _worth(chunk.by_words)
    vector = ranking.vector_weight * _worth(chunk.by_vector)
    return (words + vector) / (ranking.words_weight + ranking.vector_weight)


def _worth(place: int | None) -> float:
    return 0.0 if place is None else K / (K + place)


def _order(one: Ranked) -> tuple[float, float, str, int, str]:
    """Sort by score; what is equal, by similarity, and then always in the same order."""
    chunk = one.chunk
    return (-one.score, -(chunk.similarity or 0.0), chunk.file_id, chunk.place, chunk.store_id)
