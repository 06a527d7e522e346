"""The search of the facet `vector_stores` in memory: filter, then rank, then join both rankings."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antiphon.store.base.filters import fulfils
from antiphon.store.base.vector_stores import FoundChunk, Search
from antiphon.store.memory.ranking import rank_by_vector, rank_by_words
from antiphon.store.memory.shelf import Kept, KeptFile

__all__ = ["search_stores"]

_replace = msgspec.structs.replace


def search_stores(stores: Sequence[Kept], search: Search) -> list[FoundChunk]:
    """Return the best chunks of both rankings."""
    files = [
        one
        for kept in stores
        for one in kept.files.values()
        if fulfils(one.file.attributes, search.filter)
    ]
    places = [(one, place) for one in files for place in range(len(one.texts))]
    indexed = [one.indexed[place] for one, place in places]
    found: dict[int, FoundChunk] = {}
    for rank, at in enumerate(rank_by_words(search.words, indexed, search.limit)):
        found[at] = _replace(_show(*places[at]), by_words=rank)
    if search.vector is not None:
        comparable = [
            chunk if one.embedding == search.embedding else chunk._replace(vector=None)
            for (one, _), chunk in zip(places, indexed, strict=True)
        ]
        near = rank_by_vector(search.vector, comparable, search.limit)
        for rank, (at, similarity) in enumerate(near):
            known = found.get(at) or _show(*places[at])
            found[at] = _replace(known, by_vector=rank, similarity=similarity)
    return list(found.values())


def _show(one: KeptFile, place: int) -> FoundChunk:
    return FoundChunk(
        store_id=one.store_id,
        file_id=one.file.file_id,
        filename=one.file.filename,
        attributes=dict(one.file.attributes),
        place=place,
        text=one.texts[place],
    )
