"""A filter as a condition in SQL, the same for every database.

It selects rows of `vector_files` by their `key`, and must select those that `fulfils` does. Each
comparison asks the table of attributes once, by its index, not once for each file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from antiphon.store.base.filters import Value, is_order, type_of
from antiphon.store.base.vector_stores import Filter
from antiphon.store.vector_rows import KINDS, comparable, short_name

__all__ = ["filter_sql"]

_ORDERS: Final = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_NEVER: Final = "1 = 0"
_ALWAYS: Final = "1 = 1"
_TEXT: Final = KINDS["text"]
_BOOL: Final = KINDS["bool"]

Mark = Callable[[object], str]
"""Takes a value and returns the placeholder for it."""


def filter_sql(condition: Filter, store: str, mark: Mark, form: str = "{}") -> str:
    """Return the condition. `store` is what the key of the vector store is called in SQL.

    Values are marked in the order in which they occur. `form` is how a database wants each
    comparison to be written.
    """
    if condition.filters:
        parts = [filter_sql(one, store, mark, form) for one in condition.filters]
        return "(" + f" {condition.op.upper()} ".join(parts) + ")"
    value = condition.value
    values = value if isinstance(value, list) else [value]
    is_wanted = condition.op not in ("ne", "nin")
    kinds = {KINDS[type_of(one)] for one in values}
    if is_order(condition.op) and (isinstance(value, list) or _BOOL in kinds):
        return _NEVER
    if not values:
        return _NEVER if is_wanted else _ALWAYS
    found = (
        "SELECT file FROM vector_attributes"  # noqa: S608 # constants and placeholders
        f" WHERE store = {store} AND name = {mark(short_name(condition.key))}"
    )
    compare = _ORDERS.get(condition.op)
    comparison = _equal(values, mark) if compare is None else _order(values[0], compare, mark)
    return form.format(f"key {'IN' if is_wanted else 'NOT IN'} ({found} AND {comparison})")


def _order(value: Value, compare: str, mark: Mark) -> str:
    kind, number, text = comparable(value)
    limit = mark(text if kind == _TEXT else number)
    return f"kind = {kind} AND {_column(kind)} {compare} {limit}"


def _equal(values: Sequence[Value], mark: Mark) -> str:
    """Return the condition that an attribute has one of these values."""
    by_kind: dict[int, set[float | bytes]] = {}
    for value in values:
        kind, number, text = comparable(value)
        by_kind.setdefault(kind, set()).add(text if kind == _TEXT else number)
    parts = (
        f"kind = {kind} AND {_column(kind)} IN ({', '.join(map(mark, some))})"
        for kind, some in by_kind.items()
    )
    return "(" + " OR ".join(parts) + ")"


def _column(kind: int) -> str:
    return "text" if kind == _TEXT else "number"
