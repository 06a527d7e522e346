"""Pages of rows by time of creation; rows with the same time in the order they were stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from antiphon.store.sql.steps import Row, Steps, Tables, ask

__all__ = ["Listing", "read_page"]

_START: Final = {False: (-(2**62), 0), True: (2**62, 0)}


class Listing(NamedTuple):
    """What is listed: the rows of `table`, shown as `columns` of `source`.

    `scope` is the condition, with the values `$1` to `$given`. A cursor must be in it. `filter`
    is a further condition on one more value.
    """

    table: str
    columns: str
    source: str
    scope: str
    given: int
    filter: str = ""

    def cursor(self) -> str:
        """Return the statement that finds the place of a row by its id."""
        return (
            f"SELECT {self.table}.created_at, {self.table}.key FROM {self.source}"  # noqa: S608 # constants
            f" WHERE {self.scope} AND {self.table}.id = ${self.given + 1}"
        )

    def page(self, *, is_descending: bool) -> str:
        """Return the statement that reads the rows from a place on."""
        first = self.given + (2 if self.filter else 1)
        order = "DESC" if is_descending else "ASC"
        more = f" AND {self.filter}" if self.filter else ""
        return (
            f"SELECT {self.columns} FROM {self.source} WHERE {self.scope}{more}"  # noqa: S608 # constants
            f" AND ({self.table}.created_at, {self.table}.key)"
            f" {'<' if is_descending else '>'} (${first}, ${first + 1})"
            f" ORDER BY {self.table}.created_at {order}, {self.table}.key {order}"
            f" LIMIT ${first + 2}"
        )


async def read_page(
    tables: Tables,
    listing: Listing,
    values: Sequence[str | int],
    after: str | None,
    limit: int,
    is_descending: bool,
) -> Sequence[Row]:
    """Return the rows of a page. Raise KeyError if there is no row `after`."""
    if after is not None and not tables.is_text(after):
        raise KeyError(after)
    if not all(tables.is_text(value) for value in values if isinstance(value, str)):
        return []
    return await tables.read(lambda: _read(listing, values, after, limit, is_descending))


def _read(
    listing: Listing,
    values: Sequence[str | int],
    after: str | None,
    limit: int,
    is_descending: bool,
) -> Steps[Sequence[Row]]:
    place: Row = _START[is_descending]
    if after is not None:
        found = yield from ask(listing.cursor(), *values[: listing.given], after)
        if not found:
            raise KeyError(after)
        place = found[0]
    statement = listing.page(is_descending=is_descending)
    return (yield from ask(statement, *values, place[0], place[1], limit))
