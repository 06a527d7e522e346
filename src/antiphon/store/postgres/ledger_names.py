"""Which number stands for a name in the charges?

Projects, keys, models, nodes and other names are stored once. A name never changes its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from antiphon.store.base.ledger import Reservation, Scope
from antiphon.store.ledger_rows import names_of
from antiphon.store.postgres.database import Connection

__all__ = [
    "NOW",
    "InGate",
    "Numbers",
    "condition_of",
    "find_names",
    "number_in_gate",
    "number_names",
    "numbers_of",
    "read_names",
]

NOW: Final = "extract(epoch FROM clock_timestamp())::float8"
_FIND: Final = "SELECT name, key FROM names WHERE name = ANY($1::text[])"
# The row without a name says which tables have rows at all, and the time. A statement after the
# gate sees every budget that was made before.
_FIND_IN_GATE: Final = f"""
    SELECT name, key, NULL FROM names WHERE name = ANY($1::text[])
    UNION ALL SELECT NULL, EXISTS (SELECT FROM budgets)::int
        + 2 * EXISTS (SELECT FROM rate_limits)::int, {NOW}
"""  # noqa: S608 # constants
_READ: Final = "SELECT key, name FROM names WHERE key = ANY($1::bigint[])"
_INSERT: Final = """
    INSERT INTO names (name) SELECT name
    FROM unnest($1::text[]) WITH ORDINALITY AS wanted (name, place)
    ORDER BY place ON CONFLICT (name) DO NOTHING
"""


class Numbers(NamedTuple):
    """The numbers of a reservation: who pays, and what is called."""

    project: int
    key: int | None
    user: int | None
    conversation: int | None
    run: int | None
    model: int
    served: int
    provider: int
    price: int | None


def numbers_of(wanted: Reservation, known: Mapping[str, int]) -> Numbers:
    """Return the numbers of a reservation whose names are known."""
    return Numbers(*(None if name is None else known[name] for name in names_of(wanted)))  # type: ignore[arg-type] # names that must be there are


async def find_names(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """Return the numbers of those names that have one."""
    return dict(await connection.fetch(_FIND, sorted(set(names))))


class InGate(NamedTuple):
    """What a transaction knows when it has passed the gate."""

    numbers: dict[str, int]
    has_budgets: bool
    has_limits: bool
    now: float


async def number_in_gate(connection: Connection, names: Iterable[str]) -> InGate:
    """Return the numbers of these names, whether there are limits at all, and the time."""
    wanted = set(names)
    rows = await connection.fetch(_FIND_IN_GATE, sorted(wanted))
    numbers = {name: key for name, key, _ in rows if name is not None}
    ((state, now),) = ((state, now) for name, state, now in rows if name is None)
    if new := wanted - numbers.keys():
        numbers |= await _insert_names(connection, new)
    return InGate(numbers, bool(state & 1), bool(state & 2), now)


async def number_names(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """Return the numbers of these names. New ones are inserted in their order."""
    wanted = set(names)
    found = await find_names(connection, wanted)
    if new := wanted - found.keys():
        found |= await _insert_names(connection, new)
    return found


async def _insert_names(connection: Connection, new: set[str]) -> dict[str, int]:
    await connection.execute(_INSERT, sorted(new))
    # Another transaction may have inserted some of them first: read what there is now.
    return await find_names(connection, new)


async def read_names(connection: Connection, numbers: Iterable[int]) -> dict[int, str]:
    """Return the names of these numbers."""
    return dict(await connection.fetch(_READ, sorted(set(numbers))))


async def condition_of(connection: Connection, scope: Scope, scope_id: str) -> str:
    """Return the condition that a charge, or a sum, is in a scope."""
    if scope == "organization":
        return "TRUE"
    if scope in {"project", "key"}:
        found = await find_names(connection, [scope_id])
        column = "project" if scope == "project" else "api_key"
        return f"{column} = {found.get(scope_id, -1)}"
    # Names that callers choose are in their project, and both may have slashes.
    parts = scope_id.split("/")
    pairs = [("/".join(parts[:place]), "/".join(parts[place:])) for place in range(1, len(parts))]
    found = await find_names(connection, [name for pair in pairs for name in pair])
    column = "user_id" if scope == "user" else scope
    places = [
        f"(project = {found[one]} AND {column} = {found[two]})"
        for one, two in pairs
        if one in found and two in found
    ]
    return f"({' OR '.join(places)})" if places else "FALSE"
