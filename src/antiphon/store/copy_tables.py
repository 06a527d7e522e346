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

from antiphon.store.ledger_rows import BUDGET_COLUMNS, HELD_COLUMNS, LIMIT_COLUMNS

__all__ = ["LEDGER_TABLES", "TABLES", "Digest", "Place", "Row", "Table"]

Row = tuple[Any, ...]  # Any: text, numbers, bytes and None


class Table(NamedTuple):
    """A table by its columns. Rows are read in the order of `key`, which is unique.

    `where` leaves out what is about to be removed. `is_of_files` are those that SQLite has in its
    second database. `at_once` is how many rows are read together. With `is_whole`, what SQLite
    stores once for several rows is read as a part of each.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    where: str = ""
    is_of_files: bool = False
    at_once: int = 200
    is_whole: bool = False

    @property
    def source(self) -> str:
        """What its rows are selected from."""
        return f"{self.name} WHERE {self.where}" if self.where else self.name


_NAMED: Final = "state = 1"


# The words of chunks are not copied: a place makes them from the texts.
_HAS_FILE: Final = "key >> 17 IN (SELECT part FROM vector_files WHERE part IS NOT NULL)"
VECTOR_TABLES: Final = (
    Table(
        "vector_stores",
        (
            "key",
            "owner",
            "id",
            "created_at",
            "last_active_at",
            "expires_after_days",
            "expires_at",
            "is_emptied",
            "next_part",
            "body",
        ),
        ("key",),
        is_of_files=True,
    ),
    Table(
        "vector_files",
        (
            "key",
            "store",
            "owner",
            "file",
            "created_at",
            "batch",
            "status",
            "error_code",
            "error_message",
            "usage",
            "part",
            "chunks",
            "lease",
            "version",
            "embedding",
            "last_call",
            "body",
        ),
        ("key",),
        is_of_files=True,
    ),
    Table(
        "vector_attributes",
        ("store", "name", "kind", "number", "text", "file"),
        ("file", "name"),
        is_of_files=True,
    ),
    Table(
        "vector_batches",
        ("store", "id", "created_at", "is_cancelled"),
        ("store", "id"),
        is_of_files=True,
    ),
    Table(
        "vector_jobs",
        ("key", "file", "owner", "lease", "until", "tries"),
        ("key",),
        is_of_files=True,
    ),
    Table("vector_chunks", ("key", "text"), ("key",), _HAS_FILE, is_of_files=True),
    Table("vector_vectors", ("key", "vector"), ("key",), _HAS_FILE, is_of_files=True),
)


LEDGER_TABLES: Final = (
    Table("names", ("key", "name"), ("key",)),
    Table(
        "charges",
        (
            "key",
            *HELD_COLUMNS,
            *("settled_at", "fresh", "cached", "cache_write", "output", "reasoning", "cost"),
            *("basis", "outcome", "first_ms", "total_ms", "items"),
        ),
        ("reserved_at", "key"),
    ),
    Table("budgets", BUDGET_COLUMNS, ("key",)),
    Table("rate_limits", LIMIT_COLUMNS, ("key",)),
    Table(
        "usage_sums",
        (
            *("width", "start", "project", "api_key", "user_id", "model", "provider", "kind"),
            *("basis", "outcome", "charges", "requests", "fresh", "cached", "cache_write"),
            *("output", "reasoning", "cost", "unpriced"),
        ),
        (
            *("width", "start", "project", "api_key", "user_id", "model", "provider", "kind"),
            *("basis", "outcome"),
        ),
    ),
    Table("ledger_marks", ("name", "value"), ("name",)),
)


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
        is_whole=True,
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
    Table(
        "rounds",
        ("owner", "response", "number", "kind", "created_at", "size", "body"),
        ("owner", "response", "number"),
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
        (
            "id",
            "owner",
            "digest",
            "created_at",
            "expires_at",
            "revoked_at",
            "name",
            "role",
            "user_name",
            "models",
            "never_store",
            "hint",
            "previous_digest",
            "previous_until",
            "last_used_at",
            "run_budget",
            "max_run_budget",
        ),
        ("number",),
    ),
    Table(
        "projects",
        ("id", "name", "created_at", "archived_at", "never_store", "settings"),
        ("id",),
    ),
    Table(
        "audit",
        (
            "number",
            "at",
            "actor",
            "action",
            "subject",
            "project",
            "body",
            "id",
            "previous",
            "digest",
        ),
        ("number",),
    ),
    Table(
        "blobs",
        ("key", "owner", "id", "size", "sha256", "created_at", "state"),
        ("key",),
        _NAMED,
        is_of_files=True,
    ),
    # In SQLite these are files in a folder.
    Table(
        "blob_pieces",
        ("blob", "position", "body"),
        ("blob", "position"),
        f"blob IN (SELECT key FROM blobs WHERE {_NAMED})",  # noqa: S608 # constants
        is_of_files=True,
        at_once=4,
    ),
    Table(
        "files",
        ("key", "owner", "id", "purpose", "created_at", "expires_at", "blob", "body"),
        ("key",),
        is_of_files=True,
    ),
    Table(
        "uploads",
        ("key", "owner", "id", "expires_at", "status", "file", "body"),
        ("key",),
        is_of_files=True,
    ),
    Table(
        "upload_parts",
        ("key", "upload", "owner", "id", "created_at", "blob"),
        ("key",),
        is_of_files=True,
    ),
    Table(
        "containers",
        (
            "key",
            "owner",
            "id",
            "created_at",
            "last_active_at",
            "idle_seconds",
            "generation",
            "holder",
            "body",
        ),
        ("key",),
        is_of_files=True,
    ),
    Table(
        "container_files",
        ("key", "container", "owner", "id", "path", "source", "created_at", "blob"),
        ("key",),
        is_of_files=True,
    ),
    Table(
        "skills",
        ("key", "owner", "id", "created_at", "default_version", "last_version"),
        ("key",),
        is_of_files=True,
    ),
    Table(
        "skill_versions",
        ("key", "skill", "version", "owner", "id", "created_at", "blob", "body"),
        ("key",),
        is_of_files=True,
    ),
    Table(
        "file_claims",
        ("owner", "token", "digest", "response", "created_at", "writer"),
        ("owner", "token"),
        is_of_files=True,
    ),
    *VECTOR_TABLES,
    *LEDGER_TABLES,
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

    async def files_number(self, question: str) -> int:
        """Return the same for the tables of files. It is 0 where there are none yet."""
        ...

    @property
    def oldest_level(self) -> int:
        """The oldest version of gateways that can work on these tables."""
        ...

    async def level(self) -> int:
        """Return the version that a gateway must know to start on this database."""
        ...

    async def lower_level(self, level: int) -> None:
        """Let gateways that know this version start. Only on a target that has not begun."""
        ...

    async def size(self) -> int:
        """Return how many bytes the database takes."""
        ...

    async def connections(self) -> dict[str, int]:
        """Return how many connections running gateways may open, and how many there can be.

        Empty for a store without connections.
        """
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
