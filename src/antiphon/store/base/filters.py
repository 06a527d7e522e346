"""Conditions on the attributes of files: how they are read, and what they mean.

A filter comes from a caller or from a tool, as JSON; `read_filter` checks its form and its size,
so every store may translate it without further checks. `fulfils` is the meaning, in Python. Each
database has a translation to SQL, which must select the same files.

- A file without the attribute fulfils only `ne` and `nin`.
- Values of different types are never equal and have no order: a number is not a text, and true
  is not 1. Truth values have no order among themselves either.
- Numbers are compared as 64-bit floats, texts by code point.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from antiphon.store.base.vector_stores import Attributes, Filter

__all__ = [
    "MAX_FILTER_DEPTH",
    "MAX_FILTER_LIST",
    "MAX_FILTER_NODES",
    "MAX_FILTER_TEXT",
    "FilterError",
    "Value",
    "fulfils",
    "is_order",
    "read_filter",
    "type_of",
]

MAX_FILTER_DEPTH: Final = 8
MAX_FILTER_NODES: Final = 64
MAX_FILTER_LIST: Final = 256
MAX_FILTER_TEXT: Final = 4096
"""The characters of a key or a text."""

Value = str | float | bool

_JOINS: Final = frozenset({"and", "or"})
_LISTS: Final = frozenset({"in", "nin"})
_EQUALS: Final = frozenset({"eq", "ne"})
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


class FilterError(ValueError):
    """The filter is malformed or too large. `where` is the path to the fault inside of it."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.where = where
        self.reason = reason


def read_filter(raw: object) -> Filter:
    """Return the filter of this JSON value; raise FilterError if it is malformed or too large."""
    return _Reader().read(raw, "", 1)


def fulfils(attributes: Attributes, condition: Filter | None) -> bool:
    """Return whether a file with these attributes fulfils the condition."""
    if condition is None:
        return True
    if condition.op in _JOINS:
        decide = all if condition.op == "and" else any
        return decide(fulfils(attributes, one) for one in condition.filters)
    return _compare(attributes.get(condition.key), condition.op, condition.value)


def is_order(op: str) -> bool:
    """Return whether this operator needs values that have an order."""
    return op in _ORDERS


def type_of(value: Value) -> str:
    """Return bool, number or text: only values of the same type can be equal."""
    if isinstance(value, bool):
        return "bool"
    return "text" if isinstance(value, str) else "number"


def _compare(found: Value | None, op: str, value: Value | list[Value]) -> bool:
    if isinstance(value, list):
        return any(_is_equal(found, one) for one in value) == (op == "in")
    if op in _EQUALS:
        return _is_equal(found, value) == (op == "eq")
    if found is None or type_of(found) != type_of(value) or isinstance(value, bool):
        return False
    return _ORDERS[op](_plain(found), _plain(value))


def _is_equal(found: Value | None, value: Value) -> bool:
    return found is not None and type_of(found) == type_of(value) and _plain(found) == _plain(value)


def _plain(value: Value) -> Value:
    return value if isinstance(value, str | bool) else float(value)


class _Reader:
    """Reads one filter and counts its conditions."""

    def __init__(self) -> None:
        self._nodes = 0

    def read(self, raw: object, where: str, depth: int) -> Filter:
        self._nodes += 1
        if self._nodes > MAX_FILTER_NODES:
            raise FilterError(where, f"at most {MAX_FILTER_NODES} conditions are possible")
        if depth > MAX_FILTER_DEPTH:
            raise FilterError(where, f"at most {MAX_FILTER_DEPTH} levels are possible")
        if not isinstance(raw, dict):
            raise FilterError(where, "must be an object")
        op = raw.get("type")
        if not isinstance(op, str):
            raise FilterError(_at(where, "type"), "must be a text")
        if op in _JOINS:
            return self._read_join(raw, op, where, depth)
        if op not in _LISTS | _EQUALS | _ORDERS.keys():
            raise FilterError(
                _at(where, "type"), "must be eq, ne, gt, gte, lt, lte, in, nin, and, or"
            )
        return Filter(op, _read_key(raw, where), _read_operand(raw, op, _at(where, "value")))

    def _read_join(self, raw: dict[str, Any], op: str, where: str, depth: int) -> Filter:
        place = _at(where, "filters")
        found = raw.get("filters")
        if not isinstance(found, list) or not found:
            raise FilterError(place, "must be a list with at least one filter")
        if len(found) > MAX_FILTER_NODES:
            raise FilterError(place, f"at most {MAX_FILTER_NODES} conditions are possible")
        filters = (self.read(one, f"{place}[{n}]", depth + 1) for n, one in enumerate(found))
        return Filter(op, filters=tuple(filters))


def _read_key(raw: dict[str, Any], where: str) -> str:
    key = raw.get("key")
    if not isinstance(key, str) or not key or len(key) > MAX_FILTER_TEXT:
        raise FilterError(_at(where, "key"), f"must be a text of 1 to {MAX_FILTER_TEXT} characters")
    return key


def _read_operand(raw: dict[str, Any], op: str, where: str) -> Value | list[Value]:
    found = raw.get("value")
    if op not in _LISTS:
        return _read_value(found, where)
    if not isinstance(found, list):
        raise FilterError(where, f"must be a list for {op!r}")
    if len(found) > MAX_FILTER_LIST:
        raise FilterError(where, f"at most {MAX_FILTER_LIST} values are possible")
    return [_read_value(one, f"{where}[{n}]") for n, one in enumerate(found)]


def _read_value(found: object, where: str) -> Value:
    if isinstance(found, str):
        if len(found) > MAX_FILTER_TEXT:
            raise FilterError(where, f"at most {MAX_FILTER_TEXT} characters are possible")
        return found
    if isinstance(found, bool):
        return found
    if isinstance(found, int | float) and _is_finite(found):
        return found
    raise FilterError(where, "must be a text, a finite number, true or false")


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer that no float can hold
        return False


def _at(where: str, field: str) -> str:
    return f"{where}.{field}" if where else field
