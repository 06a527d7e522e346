"""How is the database file opened, and what do its errors mean?

Only our user may read the files and directories that we create. Every connection is in
autocommit mode (transactions are written out), in WAL mode, and durable at each commit.
Error texts go to callers over HTTP, so they name what to do and never a path.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.sqlite.migrations import STORE, Schema, is_newest, migrate
from antiphon.store.sqlite.open_turns import OpenTurns
from antiphon.store.sqlite.queue import queued

__all__ = [
    "LONG",
    "Connection",
    "Look",
    "SameFile",
    "connect",
    "create_file",
    "insert_row",
    "is_locked",
    "look",
    "refuse_read_only",
    "touch",
    "turns_of",
    "unavailable",
]

LONG: Final = 1024 * 1024
"""A body of this many bytes is copied as rarely as possible."""

_FULL: Final = "there is no room left on the disk of the database; nothing was stored: free some"
_READ_ONLY: Final = (
    "the database is read-only: its file, its directory or its disk cannot be written;"
    " nothing was stored"
)
_NO_PLACE: Final = "the database file cannot be opened: its directory is not there, or is a file"
_SENTENCES: Final = {
    sqlite3.SQLITE_BUSY: "the database is locked by another process; nothing was stored, try again",
    sqlite3.SQLITE_LOCKED: "the database is locked; nothing was stored, try again",
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_IOERR: "the disk of the database fails; nothing was stored",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged",
    sqlite3.SQLITE_NOTADB: "the database file is not a database",
}
_SYSTEM_SENTENCES: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _READ_ONLY),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EEXIST), _NO_PLACE),
}


class Connection(sqlite3.Connection):
    """A connection, and what is known about the file while it is open."""

    def __init__(self, *args: Any, **more: Any) -> None:  # Any: as `sqlite3.connect` has them
        super().__init__(*args, **more)
        self.turns = OpenTurns()
        self.looks: dict[int, Look] = {}
        self.names: dict[str, int] = {}
        self.charges: dict[tuple[bytes, int], tuple[int, ...]] = {}


class SameFile:
    """Checks that the file at a path is still the one that was opened there.

    SQLite continues with a file that was renamed, and a new connection would create an empty
    one in its place: stored data would seem lost, and new data would go to two files.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)  # asked at every commit, and a Path takes longer
        self._identity = self._look()

    def check(self) -> None:
        """Raise StoreUnavailable if another file is there, or no file."""
        if self._look() != self._identity:
            raise StoreUnavailable(
                "the database file was moved, replaced or deleted while it was in use; nothing was"
                " stored: put it back, or restart the gateway"
            )

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116 # see above
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


class Look(NamedTuple):
    """How far a log was read: no event behind `number` lies before or at the key `place`.

    `row` is the key of a row of the log, if there was one.
    """

    number: int = -1
    place: int = 0
    row: int = 0


def create_file(path: Path) -> None:
    """Create the file (0600) and its directory (0700) where they are absent.

    An existing database is never opened here. POSIX drops every lock that a process holds on
    a file when it closes any descriptor of it: another process would then believe to be the
    last one and delete the journal, and our later commits would be lost.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite gives its journal files the mode of the database.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def connect(
    path: Path, *, patience: float, max_bytes: int | None = None, schema: Schema = STORE
) -> sqlite3.Connection:
    """Open the database at its newest version; wait `patience` seconds for a lock.

    `max_bytes` caps what the file may grow to, rounded down to whole pages.
    """
    create_file(path)
    connection = sqlite3.connect(
        path,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        if not is_newest(connection, schema):
            with queued(path, patience):
                migrate(connection, schema)
        if max_bytes is not None:
            page_size = connection.execute("PRAGMA page_size").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {max_bytes // page_size}")
    except BaseException as error:
        connection.close()
        refuse_read_only(error, path)
        raise
    return connection


def refuse_read_only(error: BaseException, path: Path) -> None:
    """Raise OSError if SQLite failed because the directory cannot be written.

    Its own error is only that something cannot be opened: the journal, which is beside the file.
    """
    is_closed = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN
    if is_closed and not os.access(path.parent, os.W_OK):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS)) from error


def insert_row(connection: sqlite3.Connection, into: str, values: Sequence[object]) -> int | None:
    """Insert one row into a table with these columns, the last one bytes; return its key.

    A prepared statement keeps a copy of its last values, so after a long body it runs again
    with None and a false condition, which inserts nothing.
    """
    marks = ", ".join("?" * len(values))
    body = values[-1]
    if not isinstance(body, bytes) or len(body) < LONG:
        return connection.execute(
            f"INSERT INTO {into} VALUES ({marks})",  # noqa: S608 # constants
            values,
        ).lastrowid
    statement = f"INSERT INTO {into} SELECT {marks} WHERE ?"
    row = connection.execute(statement, (*values, True)).lastrowid
    connection.execute(statement, (*[None] * len(values), False))
    return row


def turns_of(connection: sqlite3.Connection) -> OpenTurns:
    """Return what this connection knows about its turns; nothing for a foreign connection."""
    return connection.turns if isinstance(connection, Connection) else OpenTurns()


def is_locked(error: Exception) -> bool:
    """Return whether another connection has locked the database."""
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def unavailable(error: Exception) -> StoreUnavailable:
    """Return the error that a caller gets, with this one as its cause."""
    if isinstance(error, StoreUnavailable):
        fault = StoreUnavailable(error.message)
    elif getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHMSIZE:
        fault = StoreUnavailable(_FULL)  # the index of the journal cannot grow
    elif (sentence := _SENTENCES.get(_code(error))) is not None:
        fault = StoreUnavailable(sentence)
    elif isinstance(error, OSError) and error.errno in _SYSTEM_SENTENCES:
        fault = StoreUnavailable(_SYSTEM_SENTENCES[error.errno])
    else:
        fault = StoreUnavailable(
            f"the store failed with {type(error).__name__}; nothing was stored"
        )
    fault.__cause__ = error
    return fault


def _code(error: Exception) -> int:
    """Return the primary code of an error of SQLite's, -1 for any other."""
    code = getattr(error, "sqlite_errorcode", None)
    return -1 if code is None else int(code) & 0xFF


def look(connection: sqlite3.Connection) -> None:
    """Read something, to check that reading works."""
    connection.execute("SELECT due FROM erasure").fetchone()


def touch(connection: sqlite3.Connection) -> None:
    """Write without a change, to check that writing works."""
    (number,) = connection.execute("PRAGMA application_id").fetchone()
    connection.execute(f"PRAGMA application_id = {number}")
