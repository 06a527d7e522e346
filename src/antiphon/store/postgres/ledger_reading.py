"""What do the books in PostgreSQL hold: charges, sums by time, and contradictions?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

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
    BUDGET_COLUMNS,
    CHARGE_COLUMNS,
    HELD,
    KINDS,
    OUTCOMES,
    SETTLED,
    budget_row,
    charge_of,
    pack_id,
    to_millis,
    usage_rows,
)
from antiphon.store.ledger_sums import WIDTHS, UsageKey, UsageSum, spans_of
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.ledger_names import find_names, read_names
from antiphon.store.postgres.ledger_totals import totalled_before

__all__ = ["check_books", "find_charges", "find_requests", "find_usage", "open_charges"]

_COLUMNS: Final = ", ".join(CHARGE_COLUMNS)
_SELECT: Final = f"SELECT {_COLUMNS} FROM charges"  # noqa: S608 # constants
_NAMES: Final = slice(3, 8)
"""Where charges have numbers of payers; those of models and providers follow after `kind`."""
_MORE_NAMES: Final = slice(9, 12)
_OPEN: Final = f"""
    {_SELECT} WHERE response = $1 AND state = {HELD}
        AND writer = (SELECT key FROM names WHERE name = $2) ORDER BY number
"""  # noqa: S608 # constants
_EVERY: Final = f"""
    SELECT {_COLUMNS}, is_request, EXISTS (
        SELECT FROM names JOIN nodes ON nodes.name = names.name
        WHERE names.key = charges.writer AND nodes.lease_until > clock_timestamp()
    ) FROM charges
"""  # noqa: S608 # constants
_AT_ONCE: Final = 200
_PARTS: Final = ", ".join(f"sum({part})::bigint" for part in TokenCounts.__struct_fields__)
_FROM_SUMS: Final = (
    f"sum(charges)::bigint, sum(requests)::bigint, {_PARTS}, sum(cost)::bigint,"
    " sum(unpriced)::bigint, coalesce(sum(charges) FILTER (WHERE basis <> 0), 0)::bigint"
    " FROM usage_sums WHERE width = $1 AND start >= $2 AND start < $3"
)
_FROM_CHARGES: Final = (
    f"count(*), sum(is_request)::bigint, {_PARTS}, coalesce(sum(cost), 0)::bigint,"
    " count(*) FILTER (WHERE cost IS NULL), count(*) FILTER (WHERE basis <> 0)"
    f" FROM charges WHERE reserved_at >= $1 AND reserved_at < $2 AND state = {SETTLED}"
)
_NAMED: Final = frozenset({"project", "key", "user", "model", "provider", "conversation", "run"})
_COLUMN_OF: Final = {"key": "api_key", "user": "user_id"}


async def open_charges(connection: Connection, writer: str, response_id: str) -> list[Charge]:
    """Return the charges of a response that are held by this writer."""
    return await _charges(connection, await connection.fetch(_OPEN, pack_id(response_id), writer))


async def find_charges(
    connection: Connection,
    names: dict[str, str],
    response_id: str | None,
    before: tuple[float, str, int] | None,
    limit: int,
) -> list[Charge]:
    """Return charges, newest first. `names` are the columns that must have these names."""
    found = await find_names(connection, names.values())
    conditions = [f"{column} = {found.get(name, 0)}" for column, name in names.items()]
    values: list[int | bytes] = [limit]
    if response_id is not None:
        values.append(pack_id(response_id))
        conditions.append(f"response = ${len(values)}")
    if before is not None:
        at, last, number = before
        place = len(values)
        values += [to_millis(at), pack_id(last), number]
        conditions += [
            f"reserved_at <= ${place + 1}::bigint",
            f"(reserved_at, response, number)"
            f" < (${place + 1}::bigint, ${place + 2}::bytea, ${place + 3}::integer)",
        ]
    rows = await connection.fetch(
        f"{_SELECT} WHERE {' AND '.join(conditions or ['TRUE'])}"
        " ORDER BY reserved_at DESC, response DESC, number DESC LIMIT $1",
        *values,
    )
    return await _charges(connection, rows)


async def find_requests(connection: Connection, query: RequestQuery) -> list[list[Charge]]:
    """Return the charges of each request of a query, newest request first."""
    values: list[int | bytes] = []

    def put(value: int | bytes) -> str:
        values.append(value)
        return f"${len(values)}::{'bytea' if isinstance(value, bytes) else 'bigint'}"

    conditions = request_conditions(query, await find_names(connection, names_in(query)), put)
    firsts = await connection.fetch(
        f"{_SELECT} WHERE {' AND '.join(conditions)} ORDER BY {NEWEST_FIRST} LIMIT {query.limit}",
        *values,
    )
    others = await connection.fetch(
        f"{_SELECT} WHERE number > 0 AND response = ANY($1::bytea[])", [row[0] for row in firsts]
    )
    return in_requests(await _charges(connection, firsts), await _charges(connection, others))


async def _charges(connection: Connection, rows: Sequence[Any]) -> list[Charge]:
    values = [tuple(row) for row in rows]
    numbers = {one for row in values for one in (*row[_NAMES], *row[_MORE_NAMES]) if one}
    names = await read_names(connection, numbers)
    return [charge_of(row, names.__getitem__) for row in values]


async def find_usage(connection: Connection, query: UsageQuery) -> list[UsageRow]:
    """Return sums of settled charges, in a transaction that sees one state."""
    width, first = query.width, query.start // query.width * query.width
    groups = [_COLUMN_OF.get(name, name) for name in query.group_by]
    spans: Sequence[tuple[int, ...]]
    if not query.reads_charges:
        head, source = "start", _FROM_SUMS
        spans = spans_of(query, await totalled_before(connection))
    else:
        last = -(-query.end // width) * width
        head = f"reserved_at / {width * 1000} * {width}"
        groups = [f"coalesce({column}, 0)" for column in groups]
        source, spans = _FROM_CHARGES, [(first * 1000, last * 1000)]
    columns = ", ".join(str(place + 1) for place in range(len(groups) + 1))
    question = (
        f"SELECT {', '.join([head, *groups])}, {source}{await _filter(connection, query)}"
        f" GROUP BY {columns}{'' if query.most is None else f' LIMIT {query.most}'}"
    )
    values = [tuple(row) for span in spans for row in await connection.fetch(question, *span)]
    named = [place for place, field in enumerate(query.group_by, 1) if field in _NAMED]
    names = await read_names(connection, {row[place] for row in values for place in named})
    return usage_rows(values, query.group_by, names.get)


async def _filter(connection: Connection, query: UsageQuery) -> str:
    """Return the conditions of a query. An unknown name has the number -1."""
    conditions = []
    for column, names in (
        ("project", query.projects),
        ("api_key", query.keys),
        ("user_id", query.users),
        ("model", query.models),
        ("conversation", query.conversations),
        ("run", query.runs),
    ):
        if names:
            found = await find_names(connection, names)
            numbers = ", ".join(str(found.get(name, -1)) for name in names)
            conditions.append(f" AND {column} IN ({numbers})")
    if query.kinds:
        kinds = ", ".join(str(KINDS.index(kind)) for kind in query.kinds)
        conditions.append(f" AND kind IN ({kinds})")
    return "".join(conditions)


async def check_books(connection: Connection) -> list[LedgerProblem]:
    """Return what the books contradict, in a transaction that sees one state.

    Reads every charge, some at a time.
    """
    names = dict(await connection.fetch("SELECT key, name FROM names"))
    rows = await connection.fetch(f"SELECT {', '.join(BUDGET_COLUMNS)} FROM budgets")  # noqa: S608
    swept = await connection.fetchval("SELECT value FROM ledger_marks WHERE name = 'swept_before'")
    budgets = [budget_row(tuple(row)) for row in rows]
    sums, totalled = await _all_sums(connection, names), await totalled_before(connection)
    check = BookCheck(budgets, sums, swept or 0, totalled)
    cursor = await connection.cursor(_EVERY)
    while found := await cursor.fetch(_AT_ONCE):
        for row in found:
            *values, is_request, is_alive = row
            charge = charge_of(values, names.__getitem__)
            check.add(charge, is_request=bool(is_request), is_alive=is_alive)
    return check.problems()


async def _all_sums(
    connection: Connection, names: dict[int, str]
) -> dict[int, dict[UsageKey, UsageSum]]:
    sums: dict[int, dict[UsageKey, UsageSum]] = {width: {} for width in WIDTHS}
    for row in await connection.fetch("SELECT * FROM usage_sums"):
        width, start, project, key, user, model, provider, kind, basis, outcome = tuple(row)[:10]
        charges, requests, *parts, cost, unpriced = tuple(row)[10:]
        place = UsageKey(
            start,
            names.get(project, ""),
            names.get(key),
            names.get(user),
            names[model],
            names[provider],
            KINDS[kind],
            BASES[basis],
            OUTCOMES[outcome],
        )
        one = UsageSum(charges, requests, TokenCounts(*parts), cost, unpriced)
        sums.setdefault(width, {})[place] = one
    return sums
