"""Runs the operations of `store.sql` in SQLite, each inside a transaction of many."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeVar

from antiphon.store.base.blobs import BlobGone
from antiphon.store.encoding import is_storable
from antiphon.store.sql.steps import Alive, Each, Operation, Row, Sql, Step, Steps
from antiphon.store.sql.steps import Gone as GoneBlobs
from antiphon.store.sqlite.database import DatabaseFile
from antiphon.store.sqlite.erasure import mark
from antiphon.store.sqlite.files_database import FilesDatabase
from antiphon.store.sqlite.presence import Presence

__all__ = ["MainTables", "SqliteTables", "drive"]

_T = TypeVar("_T")
# What an operation raises for its caller: that is no fault of the database.
_REFUSALS: Final = (KeyError, ValueError, BlobGone)
_VALUE: Final = re.compile(r"\$(\d+)")


class SqliteTables:
    """See `Tables` for what the methods do."""

    def __init__(self, database: FilesDatabase) -> None:
        self._database = database

    async def read(self, operation: Operation[_T]) -> _T:
        def run(connection: sqlite3.Connection) -> _T | Exception:
            try:
                return drive(operation(), connection, self._database.presence, [])
            except _REFUSALS as refusal:
                return refusal

        return await self._database.read(run)

    async def change(self, operation: Operation[_T]) -> _T:
        def run(connection: sqlite3.Connection, gone: list[str]) -> _T | Exception:
            return _change(operation, connection, self._database.presence, gone)

        return await self._database.change(run)

    async def remove(self, operation: Operation[bool]) -> bool:
        def run(connection: sqlite3.Connection, gone: list[str]) -> bool | Exception:
            return _change(operation, connection, self._database.presence, gone)

        return await self._database.remove(run)

    async def sign(self) -> str:
        return self._database.presence.name

    async def is_unused(self) -> bool:
        return not await self._database.exists()

    def is_text(self, name: str) -> bool:
        return is_storable(name)


class MainTables:
    """The tables of the main file, in which nothing has blobs. See `Tables` for the methods."""

    def __init__(self, file: DatabaseFile, presence: Presence) -> None:
        self._file = file
        self._presence = presence

    async def read(self, operation: Operation[_T]) -> _T:
        def run(connection: sqlite3.Connection) -> _T | Exception:
            try:
                return drive(operation(), connection, self._presence, [])
            except _REFUSALS as refusal:
                return refusal

        return await self._file.reader.call(run)

    async def change(self, operation: Operation[_T]) -> _T:
        def run(connection: sqlite3.Connection) -> _T | Exception:
            return _change(operation, connection, self._presence, [])

        return await self._file.writer.call(run)

    async def remove(self, operation: Operation[bool]) -> bool:
        def run(connection: sqlite3.Connection) -> bool | Exception:
            is_removed = _change(operation, connection, self._presence, [])
            if is_removed is True:
                mark(connection)
            return is_removed

        return await self._file.writer.remove(run)

    async def sign(self) -> str:
        return self._presence.name

    async def is_unused(self) -> bool:
        return False

    def is_text(self, name: str) -> bool:
        return is_storable(name)


def _change(
    operation: Operation[_T], connection: sqlite3.Connection, presence: Presence, gone: list[str]
) -> _T | Exception:
    """Run an operation; undo it, and nothing else of the transaction, if it is refused."""
    connection.execute("SAVEPOINT operation")
    try:
        result = drive(operation(), connection, presence, gone)
    except _REFUSALS as refusal:
        connection.execute("ROLLBACK TO operation")
        connection.execute("RELEASE operation")
        gone.clear()
        return refusal
    connection.execute("RELEASE operation")
    if gone:
        mark(connection)
    return result


def drive(
    steps: Steps[_T], connection: sqlite3.Connection, presence: Presence, gone: list[str]
) -> _T:
    """Do the steps on a connection and return their result; add the removed blobs to `gone`."""
    try:
        step = next(steps)
        while True:
            step = steps.send(_do(step, connection, presence, gone))
    except StopIteration as end:
        result: _T = end.value
        return result


def _do(
    step: Step, connection: sqlite3.Connection, presence: Presence, gone: list[str]
) -> Sequence[Row]:
    if isinstance(step, Sql):
        return connection.execute(_translate(step.statement), _named(step.values)).fetchall()
    if isinstance(step, Each):
        connection.executemany(_translate(step.statement), map(_named, step.values))
    if isinstance(step, Alive):
        return [(presence.is_alive(step.writer),)]
    if isinstance(step, GoneBlobs):
        gone += step.blobs
    return ()  # a lock: there is one writer


def _named(values: Sequence[object]) -> dict[str, object]:
    return {f"v{place}": value for place, value in enumerate(values, 1)}


@lru_cache(maxsize=256)
def _translate(statement: str) -> str:
    return _VALUE.sub(r":v\1", statement)
