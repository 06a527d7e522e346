"""Rows of one kind in memory, by owner and id, and pages of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

__all__ = ["Rows", "page_of"]


class _Row(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> int: ...


_T = TypeVar("_T", bound=_Row)


class Rows(Generic[_T]):
    """Rows in the order in which they were added."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], _T] = {}

    def put(self, owner: str, row: _T) -> None:
        """Add a row, in the place of one with its id."""
        self._rows[owner, row.id] = row

    def get(self, owner: str, row_id: str) -> _T | None:
        """Return the row."""
        return self._rows.get((owner, row_id))

    def pop(self, owner: str, row_id: str) -> _T | None:
        """Remove the row and return it."""
        return self._rows.pop((owner, row_id), None)

    def of(self, owner: str) -> list[_T]:
        """Return all rows of an owner."""
        return [row for (name, _), row in self._rows.items() if name == owner]

    def find(self, fits: Callable[[_T], bool], limit: int) -> list[tuple[str, _T]]:
        """Return the owners and rows for which this is true, so many at most."""
        found = ((owner, row) for (owner, _), row in self._rows.items() if fits(row))
        return [one for one, _ in zip(found, range(limit), strict=False)]

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        self._rows = {key: row for key, row in self._rows.items() if key[0] != owner}

    def clear(self) -> None:
        """Remove everything."""
        self._rows.clear()


def page_of(
    rows: Iterable[_T],
    after: str | None,
    limit: int,
    is_descending: bool,
    fits: Callable[[_T], bool] = lambda _: True,
) -> list[_T]:
    """Return rows that fit by time of creation. Raise KeyError if there is none `after`."""
    ordered = sorted(rows, key=lambda row: row.created_at)
    if is_descending:
        ordered.reverse()
    start = 0
    if after is not None:
        places = [place for place, row in enumerate(ordered) if row.id == after]
        if not places:
            raise KeyError(after)
        start = places[0] + 1
    return [row for row in ordered[start:] if fits(row)][:limit]
