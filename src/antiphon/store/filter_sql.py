"""A filter as a condition in SQL, the same for every database.

It selects rows of `vector_files` by their `key`, and must select those that `fulfils` does. Each
comparison asks the table of attributes once, by its index, not once for each file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from antiphon.store.base.filters import Value, is_order
from antiphon.store.base.vector_stores import Filter
from antiphon.store.vector_rows import KINDS, comparable

__all__ = ["filter_sql"]

_ORDERS: Final = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_NEVER: Final = "1 = 0"
_TEXT: Final = KINDS["text"]
_BOOL: Final = KINDS["bool"]

Mark = Callable[[object], str]
"""Takes a value and returns the placeholder for it."""


def filter_sql(condition: Filter, store: str, mark: Mark) -> str:
    """Return the condition. `store` is what the key of the vector store is called in SQL."""
    if condition.filters:
        parts = [filter_sql(one, store, mark) for one in condition.filters]
        return "(" + f" {condition.op.upper()} ".join(parts) + ")"
    if is_order(condition.op):
        return _order_sql(condition, store, mark)
    value = condition.value
    values = value if isinstance(value, list) else [value]
    is_wanted = condition.op in ("eq", "in")
    if not values:
        return _NEVER if is_wanted else "1 = 1"
    found = _keys_with(condition.key, store, _equal_sql(values, mark), mark)
    return f"key {'IN' if is_wanted else 'NOT IN'} ({found})"


def _order_sql(condition: Filter, store: str, mark: Mark) -> str:
    value = condition.value
    if isinstance(value, list):
        return _NEVER
    kind, number, text = comparable(value)
    if kind == _BOOL:
        return _NEVER
    column, limit = ("text", mark(text)) if kind == _TEXT else ("number", mark(number))
    order = f"kind = {kind} AND {column} {_ORDERS[condition.op]} {limit}"
    return f"key IN ({_keys_with(condition.key, store, order, mark)})"


def _equal_sql(values: Sequence[Value], mark: Mark) -> str:
    """Return the condition that an attribute has one of these values."""
    by_kind: dict[int, set[float | bytes]] = {}
    for value in values:
        kind, number, text = comparable(value)
        by_kind.setdefault(kind, set()).add(text if kind == _TEXT else number)
    parts = []
    for kind, some in by_kind.items():
        column = "text" if kind == _TEXT else "number"
        marks = ", ".join(mark(one) for one in some)
        parts.append(f"kind = {kind} AND {column} IN ({marks})")
    return "(" + " OR ".join(parts) + ")"


def _keys_with(key: str, store: str, condition: str, mark: Mark) -> str:
    name = mark(key.encode(errors="surrogatepass"))
    return (
        "SELECT file FROM vector_attributes"  # noqa: S608 # constants and placeholders
        f" WHERE store = {store} AND {condition} AND name = {name}"
    )
