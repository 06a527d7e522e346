"""What do the books in SQLite hold: charges, sums by time, and contradictions?

A function gets a connection inside a transaction, which the caller begins and commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base.ledger import Charge, LedgerProblem, UsageQuery, UsageRow
from antiphon.store.base.requests import RequestQuery
from antiphon.store.ledger_check import BookCheck
from antiphon.store.ledger_requests import (
    NEWEST_FIRST,
    in_requests,
    names_in,
    request_conditions,
)
from antiphon.store.ledger_rows import (
    BASES,
    CHARGE_COLUMNS,
    KINDS,
    OUTCOMES,
    budget_row,
    charge_of,
    pack_id,
    to_millis,
    usage_rows,
)
from antiphon.store.ledger_sums import WIDTHS, UsageKey, UsageSum, spans_of
from antiphon.store.sqlite.ledger_books import SELECT_BUDGETS
from antiphon.store.sqlite.ledger_names import Names, find_names
from antiphon.store.sqlite.ledger_totals import totalled_before

__all__ = ["check_books", "find_charges", "find_requests", "find_usage", "open_charges"]

_COLUMNS: Final = ", ".join(CHARGE_COLUMNS)
_SELECT: Final = f"SELECT {_COLUMNS} FROM charges"  # noqa: S608 # constants
_OPEN: Final = f"{_SELECT} WHERE response = ? AND state = 0 AND writer = ? ORDER BY number"
_EVERY: Final = f"""
    SELECT {_COLUMNS}, is_request, writer FROM charges
"""  # noqa: S608 # constants
_INDEXES: Final = {
    "conversation": " INDEXED BY charges_by_conversation",
    "run": " INDEXED BY charges_by_run",
}
_SUMS: Final = ("fresh", "cached", "cache_write", "output", "reasoning")
_FROM_SUMS: Final = (
    "sum(charges), sum(requests), "
    + ", ".join(f"sum({name})" for name in _SUMS)
    + ", sum(cost), sum(unpriced), ifnull(sum(charges) FILTER (WHERE basis <> 0), 0)"
    " FROM usage_sums WHERE width = ? AND start >= ? AND start < ?"
)
_FROM_CHARGES: Final = (
    "count(*), sum(is_request), "
    + ", ".join(f"sum({name})" for name in _SUMS)
    + ", sum(ifnull(cost, 0)), sum(cost IS NULL), count(*) FILTER (WHERE basis <> 0)"
    " FROM charges INDEXED BY {}"
    " WHERE state = 1 AND reserved_at >= ? AND reserved_at < ?"
)
_SUMS_OF_A_ROW: Final = 5 + len(_SUMS)
_decode_rows: Final = msgspec.json.Decoder(list[tuple[int, ...]]).decode
_COLUMN_OF: Final = {"key": "api_key", "user": "user_id"}


def open_charges(connection: sqlite3.Connection, writer: str, response_id: str) -> list[Charge]:
    """Return the charges of a response that are held by this writer."""
    key = find_names(connection, [writer]).get(writer)
    rows = connection.execute(_OPEN, (pack_id(response_id), key)).fetchall()
    name = Names(connection)
    return [charge_of(row, name) for row in rows]


def find_charges(
    connection: sqlite3.Connection,
    names: dict[str, str],
    response_id: str | None,
    before: tuple[float, str, int] | None,
    limit: int,
) -> list[Charge]:
    """Return charges, newest first. `names` are the columns that must have these names."""
    conditions, values = ["1"], []
    found = find_names(connection, list(names.values()))
    for column, name in names.items():
        conditions.append(f"{column} = ?")
        values.append(found.get(name, 0))
    place: list[int | bytes] = []
    if response_id is not None:
        conditions.append("response = ?")
        place.append(pack_id(response_id))
    if before is not None:
        at, last, number = before
        conditions.append("reserved_at <= ? AND (reserved_at, response, number) < (?, ?, ?)")
        place += [to_millis(at), to_millis(at), pack_id(last), number]
    # Without statistics SQLite prefers an index that has the order, and reads a whole project.
    index = next((_INDEXES[column] for column in names if column in _INDEXES), "")
    question = (
        f"{_SELECT}{index if response_id is None else ''}"
        f" WHERE {' AND '.join(conditions)}"
        " ORDER BY reserved_at DESC, response DESC, number DESC LIMIT ?"
    )
    rows = connection.execute(question, (*values, *place, limit)).fetchall()
    name_of = Names(connection)
    return [charge_of(row, name_of) for row in rows]


def find_requests(connection: sqlite3.Connection, query: RequestQuery) -> list[list[Charge]]:
    """Return the charges of each request of a query, newest request first."""
    values: list[int | bytes] = []

    def put(value: int | bytes) -> str:
        values.append(value)
        return "?"

    conditions = request_conditions(query, find_names(connection, names_in(query)), put)
    firsts = connection.execute(
        f"{_SELECT} WHERE {' AND '.join(conditions)} ORDER BY {NEWEST_FIRST} LIMIT ?",
        (*values, query.limit),
    ).fetchall()
    places = ", ".join("?" * len(firsts))
    others = connection.execute(
        f"{_SELECT} WHERE number > 0 AND response IN ({places})", [row[0] for row in firsts]
    ).fetchall()
    name = Names(connection)
    return in_requests(
        (charge_of(row, name) for row in firsts), (charge_of(row, name) for row in others)
    )


def find_usage(connection: sqlite3.Connection, query: UsageQuery) -> list[UsageRow]:
    """Return sums of settled charges."""
    width, first = query.width, query.start // query.width * query.width
    conditions, values = _filter(connection, query)
    # Sums have no NULLs, and are in the order of their plain columns.
    groups = [_COLUMN_OF.get(name, name) for name in query.group_by]
    spans: Sequence[tuple[int, ...]]
    if not query.reads_charges:
        spans = spans_of(query, totalled_before(connection))
        head, source = "start", _FROM_SUMS
    else:
        last = -(-query.end // width) * width
        head = f"reserved_at / {width * 1000} * {width}"
        groups = [f"ifnull({column}, 0)" for column in groups]
        source, spans = _FROM_CHARGES.format(_index_for(query)), [(first * 1000, last * 1000)]
    columns = ", ".join(str(place + 1) for place in range(len(groups) + 1))
    question = (
        f"SELECT {', '.join([head, *groups])}, {source}{''.join(conditions)} GROUP BY {columns}"
        f"{'' if query.most is None else f' LIMIT {query.most}'}"
    )
    names = ", ".join(f"c{place}" for place in range(1 + len(groups) + _SUMS_OF_A_ROW))
    # There may be thousands: in one row they take less time than one by one.
    packed = (
        f"WITH rows ({names}) AS ({question})"  # noqa: S608 # constants, and columns of `groups`
        f" SELECT json_group_array(json_array({names})) FROM rows"
    )
    rows: list[tuple[int, ...]] = []
    for span in spans:
        (found,) = connection.execute(packed, (*span, *values)).fetchone()
        rows += _decode_rows(found)
    return usage_rows(rows, query.group_by, Names(connection).optional)


def _index_for(query: UsageQuery) -> str:
    """Return the index that leads to the fewest charges. Statistics would be needed to find it."""
    if query.runs:
        return "charges_by_run"
    return "charges_by_conversation" if query.conversations else "charges_by_time"


def check_books(
    connection: sqlite3.Connection, is_alive: Callable[[str], bool]
) -> list[LedgerProblem]:
    """Return what the books contradict. Reads every charge."""
    name = Names(connection)
    budgets = [budget_row(row) for row in connection.execute(SELECT_BUDGETS + "budgets")]
    found = connection.execute("SELECT value FROM ledger_marks WHERE name = 'swept_before'")
    swept = found.fetchone()
    sums, totalled = _all_sums(connection, name), totalled_before(connection)
    check = BookCheck(budgets, sums, swept[0] if swept else 0, totalled)
    alive: dict[int, bool] = {}
    for row in connection.execute(_EVERY):
        writer = row[-1]
        if writer is not None and writer not in alive:
            alive[writer] = is_alive(name(writer))
        check.add(
            charge_of(row, name),
            is_request=bool(row[-2]),
            is_alive=writer is not None and alive[writer],
        )
    return check.problems()


def _all_sums(connection: sqlite3.Connection, name: Names) -> dict[int, dict[UsageKey, UsageSum]]:
    sums: dict[int, dict[UsageKey, UsageSum]] = {width: {} for width in WIDTHS}
    for row in connection.execute("SELECT * FROM usage_sums"):
        width, start, project, key, user, model, provider, kind, basis, outcome = row[:10]
        charges, requests, *parts, cost, unpriced = row[10:]
        place = UsageKey(
            start,
            name.optional(project) or "",
            name.optional(key),
            name.optional(user),
            name(model),
            name(provider),
            KINDS[kind],
            BASES[basis],
            OUTCOMES[outcome],
        )
        one = UsageSum(charges, requests, TokenCounts(*parts), cost, unpriced)
        sums.setdefault(width, {})[place] = one
    return sums


def _filter(connection: sqlite3.Connection, query: UsageQuery) -> tuple[list[str], list[int]]:
    """Return the conditions of a query, and their values. An unknown name has the number -1."""
    conditions: list[str] = []
    values: list[int] = []
    for column, names in (
        ("project", query.projects),
        ("api_key", query.keys),
        ("user_id", query.users),
        ("model", query.models),
        ("conversation", query.conversations),
        ("run", query.runs),
    ):
        if names:
            found = find_names(connection, names)
            conditions.append(f" AND {column} IN ({', '.join('?' * len(names))})")
            values += [found.get(name, -1) for name in names]
    if query.kinds:
        conditions.append(f" AND kind IN ({', '.join('?' * len(query.kinds))})")
        values += [KINDS.index(kind) for kind in query.kinds]
    return conditions, values
