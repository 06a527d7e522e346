"""Which number does a name have in the tables of the ledger?

Names are never removed or changed, so a connection may remember them. What a transaction has
added is forgotten with its connection if the transaction fails (see `worker`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from antiphon.store.sqlite.connection import Connection

__all__ = [
    "Names",
    "find_names",
    "intern_name",
    "intern_names",
    "intern_rows",
    "scope_condition",
]

# Beyond this, what was remembered is forgotten: names of runs and conversations are many.
_MOST: Final = 50_000
_SELECT: Final = "SELECT name, key FROM names WHERE name IN (SELECT value FROM json_each(?))"
# With an index by name, SQLite refuses a condition that is plainly false.
_NOWHERE: Final = ("project = ?", (-1,))


class Names:
    """The names of numbers, read when they are needed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._names: dict[int, str] = {}

    def __call__(self, key: int) -> str:
        """Return the name of a number."""
        if key not in self._names:
            found = self._connection.execute("SELECT name FROM names WHERE key = ?", (key,))
            self._names[key] = str(found.fetchone()[0])
        return self._names[key]

    def optional(self, key: int) -> str | None:
        """Return the name of a number; None for 0."""
        return self(key) if key else None


def intern_names(connection: sqlite3.Connection, names: Iterable[str | None]) -> dict[str, int]:
    """Return the numbers of these names; new names get one."""
    known = connection.names if isinstance(connection, Connection) else {}
    wanted = {name for name in names if name is not None}
    missing = [name for name in wanted if name not in known]
    if missing:
        if len(known) > _MOST:
            known.clear()
            missing = list(wanted)
        connection.executemany(
            "INSERT OR IGNORE INTO names (name) VALUES (?)", [(name,) for name in missing]
        )
        known.update(find_names(connection, missing))
    return known


def intern_name(connection: sqlite3.Connection, name: str) -> int:
    """Return the number of this name; a new one gets one."""
    known = connection.names.get(name) if isinstance(connection, Connection) else None
    return intern_names(connection, [name])[name] if known is None else known


def intern_rows(
    connection: sqlite3.Connection, rows: Sequence[Sequence[str | None]]
) -> list[list[int | None]]:
    """Return the numbers of the names of each row; no name has no number."""
    known = connection.names if isinstance(connection, Connection) else {}
    numbers: list[list[int | None]] = []
    for row in rows:
        found = list(map(known.get, row))  # type: ignore[arg-type] # None has no number
        if found.count(None) != row.count(None):
            break
        numbers.append(found)
    if len(numbers) < len(rows):
        known = intern_names(connection, [name for row in rows for name in row])
        return [[None if name is None else known[name] for name in row] for row in rows]
    return numbers


def find_names(connection: sqlite3.Connection, names: Sequence[str]) -> dict[str, int]:
    """Return the numbers of those of these names that have one."""
    return dict(connection.execute(_SELECT, (json.dumps(names),)).fetchall())


def scope_condition(
    connection: sqlite3.Connection, scope: str, scope_id: str
) -> tuple[str, tuple[int, ...]]:
    """Return the condition that a charge is in a scope, and its values."""
    if scope == "organization":
        return "1", ()
    if scope in {"project", "key"}:
        found = find_names(connection, [scope_id])
        column = "project" if scope == "project" else "api_key"
        return (f"{column} = ?", (found[scope_id],)) if found else _NOWHERE
    # Names that callers choose are in their project, and both may have slashes.
    parts = scope_id.split("/")
    pairs = [("/".join(parts[:place]), "/".join(parts[place:])) for place in range(1, len(parts))]
    found = find_names(connection, [name for pair in pairs for name in pair])
    values = [(found[one], found[two]) for one, two in pairs if one in found and two in found]
    column = "user_id" if scope == "user" else scope
    if not values:
        return _NOWHERE
    condition = " OR ".join([f"(project = ? AND {column} = ?)"] * len(values))
    return f"({condition})", tuple(key for pair in values for key in pair)
