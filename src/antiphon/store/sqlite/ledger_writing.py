"""How are charges reserved and settled in SQLite, many of them in one transaction?

A function gets a connection inside a transaction, which the caller begins and commits. Every
settlement has the same fence: the charge is held, and its writer is the store that asks.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import add, attrgetter, itemgetter
from typing import Any, ClassVar, Final

import msgspec

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base.ledger import Granted, Refused, Reservation, Settlement
from antiphon.store.ledger_rows import (
    BASES,
    HELD_COLUMNS,
    OUTCOMES,
    RELEASED,
    SETTLED,
    encode_items,
    held_row,
    names_of,
    pack_id,
    to_millis,
)
from antiphon.store.ledger_rules import (
    NO_LINKS,
    Books,
    Decision,
    Links,
    decode_links,
    encode_links,
    floor_time,
    normalize,
)
from antiphon.store.ledger_sums import WIDTHS
from antiphon.store.sqlite.connection import Connection
from antiphon.store.sqlite.ledger_books import load_books, load_linked, write_books
from antiphon.store.sqlite.ledger_names import find_names, intern_name, intern_rows
from antiphon.store.sqlite.ledger_totals import reopen

__all__ = ["Extend", "Reserve", "Settle", "settle_charges", "settle_entries"]

_INSERT: Final = (
    f"INSERT OR IGNORE INTO charges ({', '.join(HELD_COLUMNS)})"  # noqa: S608 # constants
    f" VALUES ({', '.join('?' * len(HELD_COLUMNS))})"
)
_UPDATE: Final = """
    UPDATE charges SET state = ?, writer = NULL, settled_at = ?, fresh = ?, cached = ?,
        cache_write = ?, output = ?, reasoning = ?, cost = ?, basis = ?, outcome = ?,
        first_ms = ?, total_ms = ?, items = ?
    WHERE response = ? AND number = ? AND state = 0 AND writer = ?
"""
_SETTLE: Final = f"""{_UPDATE}
    RETURNING reserved_at, is_request, project, api_key, user_id, model, provider, kind, key, links,
        held_fresh, held_cached, held_cache_write, held_output, held_reasoning, held_cost
"""
# Half the price. A budget that was set since has links in the row.
_SETTLE_KNOWN: Final = f"{_UPDATE} AND links IS NULL"
_MOST_KNOWN: Final = 10_000
# Time, whether it is a request, and six names: as `_SETTLE` returns them first.
_FACTS: Final = 8
_facts_of: Final = itemgetter(
    *map(
        HELD_COLUMNS.index,
        ("reserved_at", "is_request", "project", "api_key", "user_id", "model", "provider", "kind"),
    )
)
_wanted_of: Final = attrgetter("wanted")
_settled_of: Final = attrgetter("settled")
_ADD: Final = """
    INSERT INTO usage_sums VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET charges = charges + excluded.charges,
        requests = requests + excluded.requests, fresh = fresh + excluded.fresh,
        cached = cached + excluded.cached, cache_write = cache_write + excluded.cache_write,
        output = output + excluded.output, reasoning = reasoning + excluded.reasoning,
        cost = cost + excluded.cost, unpriced = unpriced + excluded.unpriced
"""
_HELD: Final = """
    SELECT key, links, held_fresh, held_cached, held_cache_write, held_output, held_reasoning,
        held_cost
    FROM charges WHERE response = ? AND number = ? AND state = 0 AND writer = ?
"""
_EXTEND: Final = """
    UPDATE charges SET held_fresh = ?, held_cached = ?, held_cache_write = ?, held_output = ?,
        held_reasoning = ?, held_cost = ? WHERE key = ?
"""
_GRANTED: Final = Granted()
_IS_THERE: Final = "SELECT 1 FROM charges WHERE response = ? AND number = ?"


class Reserve(msgspec.Struct, frozen=True):
    """A charge to hold, after earlier ones were settled. One that is forced is not refused.

    It runs before the other jobs of its transaction: the end of a turn settles its charge.
    """

    is_early: ClassVar = True
    writer: str
    clock: Callable[[], float]
    wanted: Reservation
    settled: Sequence[Settlement]
    is_forced: bool

    def __call__(self, connection: sqlite3.Connection) -> Granted | Refused:
        """Do it alone."""
        return self.together(connection, [self])[0]

    @staticmethod
    def together(
        connection: sqlite3.Connection, jobs: Sequence[Reserve]
    ) -> Sequence[Granted | Refused]:
        """Do all of these with few statements; answer each, in their order.

        They are of one store, so they have one writer.
        """
        writer, now = jobs[0].writer, jobs[0].clock()
        settled = list(chain.from_iterable(map(_settled_of, jobs)))
        if settled:
            settle_charges(connection, writer, settled, now)
        wanted = list(map(_wanted_of, jobs))
        books = load_books(connection, now, wanted)
        if books is None:
            _insert(connection, writer, floor_time(now), wanted, [None] * len(jobs))
            return [_GRANTED] * len(jobs)
        return _decide(connection, books, writer, jobs)


class Settle(msgspec.Struct, frozen=True):
    """Charges to settle that no end of a turn settles."""

    writer: str
    clock: Callable[[], float]
    settled: Sequence[Settlement]

    def __call__(self, connection: sqlite3.Connection) -> None:
        """Do it alone."""
        self.together(connection, [self])

    @staticmethod
    def together(connection: sqlite3.Connection, jobs: Sequence[Settle]) -> Sequence[None]:
        """Do all of these with few statements. They are of one store."""
        settled = chain.from_iterable(map(_settled_of, jobs))
        settle_charges(connection, jobs[0].writer, settled, jobs[0].clock())
        return [None] * len(jobs)


class Extend(msgspec.Struct, frozen=True):
    """An amount to hold for a charge from now on. Returns whether there is room."""

    writer: str
    clock: Callable[[], float]
    response_id: str
    number: int
    held: TokenCounts
    held_cost: int | None

    def __call__(self, connection: sqlite3.Connection) -> bool:
        """Do it."""
        writer = find_names(connection, [self.writer]).get(self.writer)
        place = (pack_id(self.response_id), self.number, writer)
        row = connection.execute(_HELD, place).fetchone()
        if row is None:
            return False
        key, packed, *parts, cost = row
        links = NO_LINKS if packed is None else decode_links(packed)
        books = load_linked(connection, self.clock(), [links])
        if not books.extend(links, TokenCounts(*parts), cost, self.held, self.held_cost):
            return False
        write_books(connection, books)
        connection.execute(_EXTEND, (*_parts(self.held), self.held_cost, key))
        return True


def settle_entries(
    connection: sqlite3.Connection, writer: str, settled: Sequence[Settlement]
) -> None:
    """Settle charges together with the end of their turn."""
    settle_charges(connection, writer, settled, time.time())


def settle_charges(
    connection: sqlite3.Connection, writer: str, settled: Iterable[Settlement], now: float
) -> int:
    """Settle charges that are held by this writer; return how many were."""
    mark = intern_name(connection, writer)
    at = to_millis(floor_time(now))
    sums: dict[tuple[int, ...], tuple[int, ...]] = {}
    times: list[int] = []
    linked: list[tuple[Links, Sequence[Any], Settlement]] = []
    count = 0
    for one in map(normalize, settled):
        values = _settle_values(one, at, mark)
        row = _settle_row(connection, values)
        if row is None:
            continue
        count += 1
        if len(row) > _FACTS and row[_FACTS + 1] is not None:
            linked.append((decode_links(row[_FACTS + 1]), row[_FACTS:], one))
        if one.outcome != "released":
            _sum_up(sums, row, values)
            times.append(row[0])
    if sums:
        reopen(connection, min(times) // 1000)
        connection.executemany(_ADD, map(add, sums.keys(), sums.values()))
    if linked:
        _settle_books(connection, now, linked)
    return count


def _settle_row(connection: sqlite3.Connection, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Settle a charge; return its facts, and more if they had to be read; None if it is not held.

    Facts never change, so they are remembered by the connection that has written them.
    """
    known = connection.charges if isinstance(connection, Connection) else {}
    facts = known.pop((values[-3], values[-2]), None)
    if facts is not None and connection.execute(_SETTLE_KNOWN, values).rowcount:
        return facts
    found: tuple[Any, ...] | None = connection.execute(_SETTLE, values).fetchone()
    return found


def _settle_values(one: Settlement, at: int, writer: int) -> tuple[Any, ...]:
    return (
        RELEASED if one.outcome == "released" else SETTLED,
        at,
        *_parts(one.used),
        one.cost,
        BASES.index(one.basis),
        OUTCOMES.index(one.outcome),
        one.first_ms,
        one.total_ms,
        encode_items(one),
        pack_id(one.response_id),
        one.number,
        writer,
    )


def _sum_up(
    sums: dict[tuple[int, ...], tuple[int, ...]], row: Sequence[Any], values: Sequence[Any]
) -> None:
    """Add a settled charge to its sums by hour and by day. `values` are those of `_UPDATE`."""
    reserved_at, is_request, project, key, user, model, provider, kind = row[:_FACTS]
    cost, basis, outcome = values[7:10]
    names = (project, key or 0, user or 0, model, provider, kind, basis, outcome)
    added = (1, is_request, *values[2:7], cost or 0, int(cost is None))
    seconds = reserved_at // 1000
    for width in WIDTHS:
        place = (width, seconds // width * width, *names)
        known = sums.get(place)
        sums[place] = added if known is None else tuple(map(add, known, added))


def _settle_books(
    connection: sqlite3.Connection,
    now: float,
    linked: Sequence[tuple[Links, Sequence[Any], Settlement]],
) -> None:
    books = load_linked(connection, now, [links for links, _, _ in linked])
    for links, row, one in linked:
        books.settle(links, TokenCounts(*row[2:7]), row[7], one)
    write_books(connection, books)
    connection.executemany(
        "UPDATE charges SET links = NULL WHERE key = ?", [(row[0],) for _, row, _ in linked]
    )


def _decide(
    connection: sqlite3.Connection, books: Books, writer: str, jobs: Sequence[Reserve]
) -> list[Granted | Refused]:
    answers: list[Granted | Refused] = []
    decisions: dict[tuple[str, int], Decision] = {}
    for job in jobs:
        wanted = job.wanted
        name = (wanted.response_id, wanted.number)
        place = (pack_id(wanted.response_id), wanted.number)
        if name in decisions or connection.execute(_IS_THERE, place).fetchone():
            answers.append(books.repeat(wanted))
            continue
        decision = books.reserve(wanted, is_forced=job.is_forced)
        if isinstance(decision.answer, Granted):
            decisions[name] = decision
        answers.append(decision.answer)
    write_books(connection, books)
    kept = list(decisions.values())
    packed = [None if one.links == NO_LINKS else encode_links(one.links) for one in kept]
    _insert(connection, writer, books.now, list(map(_wanted_of, kept)), packed)
    return answers


def _insert(
    connection: sqlite3.Connection,
    writer: str,
    now: float,
    wanted: Sequence[Reservation],
    links: Sequence[bytes | None],
) -> None:
    names = intern_rows(connection, list(map(names_of, wanted)))
    mark = intern_name(connection, writer)
    rows = [
        held_row(one, mark, numbers, now, packed)
        for one, numbers, packed in zip(wanted, names, links, strict=True)
    ]
    if connection.executemany(_INSERT, rows).rowcount == len(rows):
        _remember(connection, rows)


def _remember(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Keep the facts of new charges for their settlement."""
    if not isinstance(connection, Connection):
        return
    if len(connection.charges) > _MOST_KNOWN:
        connection.charges.clear()
    for row in rows:
        connection.charges[row[:2]] = _facts_of(row)


def _parts(tokens: TokenCounts) -> tuple[int, int, int, int, int]:
    return (tokens.fresh, tokens.cached, tokens.cache_write, tokens.output, tokens.reasoning)
