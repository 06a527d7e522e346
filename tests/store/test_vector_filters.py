"""Filters: SQL selects the files that a function in Python selects, in every store."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.store.base import Store
from antiphon.store.base.filters import (
    MAX_FILTER_DEPTH,
    MAX_FILTER_LIST,
    MAX_FILTER_NODES,
    FilterError,
    read_filter,
)
from antiphon.store.base.vector_stores import Attributes, Chunk, Filter, Search
from tests.store.vector_samples import OWNER, add_store, file, take, vector

KEYS: Final = ("a", "b", "ключ\0", "k" * 400)
VALUES: Final[tuple[str | float | bool, ...]] = (
    "", "1", "true", "a", "B", "ä", "\uffff", "\U0001f600", "x\0y", "z" * 3000, "\ud800",
    0, 1, -1, 0.0, -0.0, 1.0, 2.5, 1e300, 2**53, 2**53 + 1, 10**20, True, False,
)  # fmt: skip
FILES: Final = 12

values = st.sampled_from(VALUES)
attributes = st.dictionaries(st.sampled_from(KEYS), values, max_size=len(KEYS))
comparisons = st.builds(
    lambda op, key, value: {"type": op, "key": key, "value": value},
    st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte"]),
    st.sampled_from(KEYS),
    values,
)
lists = st.builds(
    lambda op, key, value: {"type": op, "key": key, "value": value},
    st.sampled_from(["in", "nin"]),
    st.sampled_from(KEYS),
    st.lists(values, max_size=4),
)
filters = st.recursive(
    comparisons | lists,
    lambda inner: st.builds(
        lambda op, some: {"type": op, "filters": some},
        st.sampled_from(["and", "or"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)


def expected(found: Attributes, raw: dict[str, Any]) -> bool:
    """The meaning of a filter, written without the code under test."""
    op = raw["type"]
    if op == "and":
        return all(expected(found, one) for one in raw["filters"])
    if op == "or":
        return any(expected(found, one) for one in raw["filters"])
    if op in ("ne", "nin"):
        positive = {"ne": "eq", "nin": "in"}[op]
        return not expected(found, raw | {"type": positive})
    if raw["key"] not in found:
        return False
    value = found[raw["key"]]
    if op == "in":
        return any(_same(value, one) for one in raw["value"])
    if op == "eq":
        return _same(value, raw["value"])
    return _ordered(value, op, raw["value"])


def _ordered(value: Any, op: str, limit: Any) -> bool:
    if isinstance(value, bool) or isinstance(limit, bool):
        return False
    if isinstance(value, str) != isinstance(limit, str):
        return False
    if not isinstance(value, str):
        value, limit = float(value), float(limit)
    return bool(
        {"gt": value > limit, "gte": value >= limit, "lt": value < limit, "lte": value <= limit}[op]
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and one == other
    return float(one) == float(other)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    every=st.lists(attributes, min_size=FILES, max_size=FILES),
    asked=st.lists(filters, min_size=5, max_size=5),
)
async def test_sql_selects_what_python_selects(
    store: Store, every: list[Attributes], asked: list[dict[str, Any]]
) -> None:
    await _fill(store, every)
    for raw in asked:
        wanted = {f"f{number}" for number, one in enumerate(every) if expected(one, raw)}
        by_words, by_vector = await _find(store, read_filter(raw))
        assert by_words == by_vector == wanted, raw


async def _fill(store: Store, every: list[Attributes]) -> None:
    stores = store.vector_stores
    if not await stores.find(OWNER, ["vs_1"]):
        await add_store(store, *(file(f"f{number}") for number in range(FILES)))
        for number in range(FILES):
            job = await take(store)
            await stores.add_chunks(job, [Chunk("word", vector(1, number))], embedding="e")
            await stores.end_job(job)
    for number, one in enumerate(every):
        assert await stores.set_attributes(OWNER, "vs_1", f"f{number}", one) is not None


async def _find(store: Store, where: Filter) -> tuple[set[str], set[str]]:
    search = Search(
        store_ids=["vs_1"],
        words=["word"],
        vector=vector(1, 1),
        embedding="e",
        filter=where,
        limit=FILES,
    )
    found = await store.vector_stores.search(OWNER, search)
    by_words = {one.file_id for one in found if one.by_words is not None}
    return by_words, {one.file_id for one in found if one.by_vector is not None}


def test_the_largest_filter_can_be_read() -> None:
    leaf = {"type": "in", "key": "a", "value": ["x"] * MAX_FILTER_LIST}
    wide = {"type": "or", "filters": [leaf] * (MAX_FILTER_NODES - MAX_FILTER_DEPTH + 1)}
    for _ in range(MAX_FILTER_DEPTH - 2):
        wide = {"type": "and", "filters": [wide]}
    assert read_filter(wide).op == "and"


async def test_the_largest_filter_can_be_searched_with(store: Store) -> None:
    names = [f"v{number}" for number in range(MAX_FILTER_LIST - 1)]
    leaf = {"type": "in", "key": "a", "value": [*names, "x"]}
    wide = {"type": "and", "filters": [leaf] * (MAX_FILTER_NODES - 1)}
    await _fill(store, [{"a": "x"}, *({} for _ in range(FILES - 1))])
    assert await _find(store, read_filter(wide)) == ({"f0"}, {"f0"})


def _nested(depth: int) -> dict[str, Any]:
    leaf: dict[str, Any] = {"type": "eq", "key": "a", "value": 1}
    for _ in range(depth - 1):
        leaf = {"type": "and", "filters": [leaf]}
    return leaf


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        (None, ""),
        ([], ""),
        ({}, "type"),
        ({"type": "like", "key": "a", "value": 1}, "type"),
        ({"type": "eq", "value": 1}, "key"),
        ({"type": "eq", "key": "", "value": 1}, "key"),
        ({"type": "eq", "key": 1, "value": 1}, "key"),
        ({"type": "eq", "key": "a"}, "value"),
        ({"type": "eq", "key": "a", "value": None}, "value"),
        ({"type": "eq", "key": "a", "value": [1]}, "value"),
        ({"type": "eq", "key": "a", "value": float("nan")}, "value"),
        ({"type": "eq", "key": "a", "value": 10**400}, "value"),
        ({"type": "eq", "key": "a", "value": "x" * 5000}, "value"),
        ({"type": "in", "key": "a", "value": 1}, "value"),
        ({"type": "in", "key": "a", "value": [1, {}]}, "value[1]"),
        ({"type": "in", "key": "a", "value": [1] * (MAX_FILTER_LIST + 1)}, "value"),
        ({"type": "and", "filters": []}, "filters"),
        ({"type": "and", "filters": [1]}, "filters[0]"),
        ({"type": "or", "filters": [{"type": "eq", "key": "a"}]}, "filters[0].value"),
        ({"type": "and", "filters": [_nested(1)] * (MAX_FILTER_NODES + 1)}, "filters"),
        ({"type": "and", "filters": [_nested(1)] * MAX_FILTER_NODES}, "filters[63]"),
        (_nested(MAX_FILTER_DEPTH + 1), ".".join(["filters[0]"] * MAX_FILTER_DEPTH)),
    ],
)
def test_a_malformed_filter_is_refused_with_its_place(raw: object, where: str) -> None:
    with pytest.raises(FilterError) as refused:
        read_filter(raw)
    assert refused.value.where == where
