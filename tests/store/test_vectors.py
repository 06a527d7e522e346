"""The cache of vectors: exact, bounded, and never ahead of what its caller says."""

from __future__ import annotations

import random

from antiphon.store.vectors import Kind, Near, VectorCache, nearest_plain
from tests.store.vector_samples import vector

KIND = Kind(1, "e", 12)
ROW = KIND.size + 8 + 4


def test_it_finds_what_a_search_through_all_finds() -> None:
    rng = random.Random(1)
    cache, rows = VectorCache(), []
    for part in range(20):
        some = [(part, part * 100 + at, _vector(rng)) for at in range(30)]
        cache.put(KIND, {part: 1}, some)
        rows += some
    for parts in ({3}, set(range(12)), set(range(20))):
        wanted = _vector(rng)
        expected = nearest_plain(wanted, [(k, v) for p, k, v in rows if p in parts], 7)
        _assert_alike(cache.nearest(KIND, parts, wanted, 7), expected)


def test_a_part_that_is_loaded_again_or_dropped_leaves_nothing_behind() -> None:
    rng = random.Random(2)
    cache = VectorCache()
    current: dict[int, list[tuple[int, int, bytes]]] = {}
    for version in range(1, 60):
        part = rng.randrange(6)
        current[part] = [(part, part * 100 + at, _vector(rng)) for at in range(rng.randrange(9))]
        cache.put(KIND, {part: version}, current[part])
        if rng.random() < 0.3:
            current.pop(rng.choice(list(current)))
            cache.retain(KIND, current.keys())
        wanted = _vector(rng)
        rows = [(key, one) for some in current.values() for _, key, one in some]
        found = cache.nearest(KIND, current.keys(), wanted, 5)
        _assert_alike(found, nearest_plain(wanted, rows, 5))


def test_what_is_missing_or_stale_must_be_loaded() -> None:
    cache = VectorCache()
    assert cache.missing(KIND, {1: 1}) == [1]
    cache.put(KIND, {1: 1, 2: 1}, [(1, 10, vector(1, 0, 0))])
    assert cache.missing(KIND, {1: 1, 2: 1}) == []
    assert cache.missing(KIND, {1: 2, 2: 1, 3: 1}) == [1, 3]


def test_the_matrix_that_was_used_longest_ago_is_dropped() -> None:
    cache = VectorCache(max_bytes=2 * ROW)
    kinds = [KIND._replace(store=number) for number in range(3)]
    for kind in kinds[:2]:
        cache.put(kind, {1: 1}, [(1, 10, vector(1, 0, 0))])
    assert len(cache.nearest(kinds[0], [1], vector(1, 0, 0), 5)) == 1
    cache.put(kinds[2], {1: 1}, [(1, 10, vector(1, 0, 0))])
    assert [cache.missing(kind, {1: 1}) for kind in kinds] == [[], [1], []]
    assert cache.used_bytes <= 2 * ROW
    assert cache.has_room(KIND, 4) and not cache.has_room(KIND, 5)


def test_vectors_of_another_length_and_without_one() -> None:
    cache = VectorCache()
    rows = [(1, 10, vector(0, 0, 0)), (1, 11, vector(1, 2)), (1, 12, vector(0, 3, 0))]
    cache.put(KIND, {1: 1}, rows)
    assert cache.nearest(KIND, [1], vector(0, 1, 0), 5) == [(12, 1.0), (10, 0.0)]
    assert cache.nearest(KIND, [1], vector(0, 0, 0), 1) == [(10, 0.0)]


def _vector(rng: random.Random) -> bytes:
    return vector(*(rng.uniform(-1, 1) for _ in range(3)))


def _assert_alike(found: list[Near], expected: list[Near]) -> None:
    assert [key for key, _ in found] == [key for key, _ in expected]
    assert all(abs(a - b) < 1e-5 for (_, a), (_, b) in zip(found, expected, strict=True))
