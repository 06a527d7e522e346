"""Which tables are copied, and what must a place be able to do?

A row is a tuple in the order of the table's columns, with the values that SQLite stores: text,
integers, bytes. A place that stores them otherwise converts them on the way in and out, so that
the digest of a table is the same in every place.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

__all__ = ["TABLES", "Digest", "Place", "Row", "Table"]

Row = tuple[Any, ...]  # Any: text, numbers, bytes and None


class Table(NamedTuple):
    """A table by its columns. Rows are read in the order of `key`, which is unique."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


TABLES: Final = (
    Table(
        "responses",
        ("key", "owner", "id", "parent", "status", "writer", "created_at", "body"),
        ("key",),
    ),
    Table(
        "items",
        ("response", "kind", "position", "owner", "id", "body"),
        ("response", "kind", "position"),
    ),
    Table("log", ("key", "response", "first", "last", "owner", "body"), ("key",)),
    Table("logs", ("response", "owner", "body"), ("response",)),
    Table("jobs", ("response", "owner", "is_cancelled", "request"), ("response",)),
    Table("conversations", ("key", "owner", "id", "locked_by", "writer", "body"), ("key",)),
    Table(
        "conversation_items",
        ("conversation", "position", "owner", "id", "body"),
        ("conversation", "position"),
    ),
    Table(
        "claims",
        ("owner", "token", "digest", "response", "created_at", "writer"),
        ("owner", "token"),
    ),
    Table(
        "notices",
        (
            "key",
            "id",
            "owner",
            "response",
            "type",
            "created_at",
            "endpoint",
            "attempts",
            "due_at",
        ),
        ("key",),
    ),
    Table("native_states", ("key", "owner", "call", "response", "created_at", "body"), ("key",)),
    Table(
        "tool_calls",
        ("key", "owner", "response", "call", "kind", "digest", "created_at"),
        ("key",),
    ),
    Table(
        "approvals",
        ("owner", "request", "response", "asked_by", "created_at"),
        ("owner", "request"),
    ),
    # `number` is the order in which they were made, which SQLite keeps by itself.
    Table("secrets", ("name", "value"), ("number",)),
    Table(
        "keys",
        ("id", "owner", "digest", "created_at", "expires_at", "revoked_at", "name"),
        ("number",),
    ),
)


class Digest:
    """The number of rows, and a hash of their content in order."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.sha256()
        self._encode = msgspec.msgpack.Encoder().encode

    def add(self, rows: Sequence[Row]) -> None:
        """Add these rows."""
        self.count += len(rows)
        for row in rows:
            self._hash.update(self._encode(row))

    def value(self) -> bytes:
        """Return the hash of all rows so far."""
        return self._hash.digest()


class Place(Protocol):
    """A database that rows are read from or written to, in one transaction.

    A target is created if it is not there, and brought up to date. A source is only read, and
    raises OlderDatabase if it is not up to date.
    """

    async def begin(self) -> None:
        """Begin to read one state, or to write to a target with all other writers locked out."""
        ...

    async def count(self, table: Table) -> int:
        """Return how many rows there are."""
        ...

    async def count_busy(self) -> int:
        """Return how many unfinished turns a gateway works on."""
        ...

    async def count_alive(self) -> int:
        """Return how many stores of running gateways use this database."""
        ...

    async def number(self, question: str) -> int:
        """Return the one number that answers a query."""
        ...

    async def size(self) -> int:
        """Return how many bytes the database takes."""
        ...

    def rows(self, table: Table) -> AsyncIterator[list[Row]]:
        """Yield all rows in the order of their key, some at a time."""
        ...

    async def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows."""
        ...

    async def commit(self) -> None:
        """Make durable what was written."""
        ...

    async def close(self) -> None:
        """Close; what was not committed is discarded."""
        ...
