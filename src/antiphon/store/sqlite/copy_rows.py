"""How are the rows of one SQLite file read and written for a copy?"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from antiphon.store.copy_tables import Row, Table
from antiphon.store.sqlite.connection import refuse_read_only
from antiphon.store.sqlite.migrations import STORE, Schema, check_version

__all__ = ["DatabaseRows", "connect_reader", "size_of"]

_PATIENCE: Final = 5.0


class DatabaseRows:
    """The rows that a connection sees."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def count(self, table: Table) -> int:
        """Return how many rows there are."""
        question = f"SELECT count(*) FROM {table.source}"  # noqa: S608 # constants
        return int(self._connection.execute(question).fetchone()[0])

    def rows(self, table: Table) -> Iterator[list[Row]]:
        """Yield all rows in the order of their key, some at a time."""
        key = ", ".join(table.key).replace("number", "rowid")
        columns = ", ".join(table.columns)
        cursor = self._connection.execute(
            f"SELECT {columns} FROM {table.source} ORDER BY {key}"  # noqa: S608 # constants
        )
        while rows := cursor.fetchmany(table.at_once):
            yield rows

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows."""
        marks = ", ".join("?" for _ in table.columns)
        columns = ", ".join(table.columns)
        self._connection.executemany(
            f"INSERT INTO {table.name} ({columns}) VALUES ({marks})",  # noqa: S608 # constants
            rows,
        )


def connect_reader(path: Path, schema: Schema = STORE) -> sqlite3.Connection:
    """Open a file that is there, for reading. What is in its journal is read too."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=_PATIENCE, isolation_level=None
    )
    try:
        connection.execute("PRAGMA query_only = ON")
        check_version(connection, schema)
    except BaseException as error:
        connection.close()
        refuse_read_only(error, path)
        raise
    return connection


def size_of(path: Path) -> int:
    """Return how many bytes a database file and its journal take."""
    files = (one for one in (path, path.with_name(f"{path.name}-wal")) if one.is_file())
    return sum(one.stat().st_size for one in files)
