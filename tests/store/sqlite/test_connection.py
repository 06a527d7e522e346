"""Connections: durable at each commit, and errors in words."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.sqlite.connection import connect, is_locked, refuse_read_only, unavailable


@pytest.mark.parametrize(
    ("pragma", "value"),
    [("journal_mode", "wal"), ("synchronous", 2), ("secure_delete", 1), ("busy_timeout", 5000)],
)
def test_every_connection_is_durable_and_forgets_for_good(
    pragma: str, value: object, tmp_path: Path
) -> None:
    with closing(connect(tmp_path / "a.db", patience=5.0)) as connection:
        assert connection.execute(f"PRAGMA {pragma}").fetchone() == (value,)


def test_errors_are_reported_without_paths_or_values(tmp_path: Path) -> None:
    told = unavailable(OSError(errno.ELOOP, "Too many links", str(tmp_path)))
    assert isinstance(told, StoreUnavailable)
    assert told.message == "the store failed with OSError; nothing was stored"
    assert isinstance(told.__cause__, OSError)


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("in SQLite's words")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (sqlite_error(sqlite3.SQLITE_FULL), "no room left on the disk"),
        (sqlite_error(sqlite3.SQLITE_IOERR_SHMSIZE), "no room left on the disk"),
        (OSError(errno.ENOSPC, "x"), "no room left on the disk"),
        (OSError(errno.EDQUOT, "x"), "no room left on the disk"),
        (sqlite_error(sqlite3.SQLITE_READONLY_DBMOVED), "is read-only"),
        (OSError(errno.EROFS, "x"), "is read-only"),
        (OSError(errno.EACCES, "x"), "is read-only"),
        (OSError(errno.ENOTDIR, "x"), "its directory is not there, or is a file"),
        (sqlite_error(sqlite3.SQLITE_IOERR_FSYNC), "the disk of the database fails"),
    ],
)
def test_what_is_wrong_with_the_disk_is_named(error: Exception, sentence: str) -> None:
    assert sentence in unavailable(error).message


def test_a_directory_that_cannot_be_written_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = sqlite_error(sqlite3.SQLITE_CANTOPEN)
    refuse_read_only(error, tmp_path / "a.db")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OSError, match="Read-only") as caught:
        refuse_read_only(error, tmp_path / "a.db")
    assert "is read-only" in unavailable(caught.value).message
    refuse_read_only(sqlite_error(sqlite3.SQLITE_BUSY), tmp_path / "a.db")


def test_a_lock_is_told_from_other_errors(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(connect(path, patience=0)) as one, closing(connect(path, patience=0)) as other:
        one.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as locked:
            other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as wrong:
            other.execute("SELECT nonsense")
    assert is_locked(locked.value)
    assert not is_locked(wrong.value)
    assert not is_locked(OSError())
