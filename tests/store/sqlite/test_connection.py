"""Connections: durable at each commit, and errors in words."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.sqlite.connection import connect, is_locked, unavailable


@pytest.mark.parametrize(
    ("pragma", "value"),
    [("journal_mode", "wal"), ("synchronous", 2), ("secure_delete", 1), ("busy_timeout", 5000)],
)
def test_every_connection_is_durable_and_forgets_for_good(
    pragma: str, value: object, tmp_path: Path
) -> None:
    with closing(connect(tmp_path / "a.db", patience=5.0)) as connection:
        assert connection.execute(f"PRAGMA {pragma}").fetchone() == (value,)


def test_errors_are_told_without_paths_or_values(tmp_path: Path) -> None:
    told = unavailable(OSError(2, "No such file", str(tmp_path)))
    assert isinstance(told, StoreUnavailable)
    assert told.message == "the store failed with FileNotFoundError; nothing was stored"
    assert isinstance(told.__cause__, FileNotFoundError)


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
