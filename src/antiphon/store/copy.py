"""How is a whole store copied to another place, with nothing lost?

Everything is copied row by row, with the keys by which rows refer to each other. The source is
read in one state and the target is written in one transaction, which is committed only if every
table has the same content when it is read back: a copy is complete or it does not exist. The
target must be empty. Unfinished turns are copied too; the gateway that uses the copy claims them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from antiphon.protocol.errors import CallerError, OurFault, StoreUnavailable
from antiphon.store.copy_tables import TABLES, Digest, Place, Table
from antiphon.store.open import NEEDS_DRIVER, is_postgres, servers_of
from antiphon.store.sqlite import connection as sqlite_errors
from antiphon.store.sqlite.copy import SqlitePlace

__all__ = ["BadCopy", "CopyRefused", "Info", "Progress", "copy_store", "open_place", "read_info"]

Progress = Callable[[str, int, int], None]
"""Receives the table, the number of its rows that were copied, and their total."""


class CopyRefused(CallerError):
    """The copy was not started: it would lose or mix something."""


class BadCopy(OurFault):
    """The copy differs from its source. It was discarded."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"the copy of the table {table} differs from its source; the copy was discarded"
        )
        self.table = table


class Info(NamedTuple):
    """What is in a store."""

    counts: dict[str, int]
    """Rows by table."""
    unfinished: int
    busy: int
    """Turns that have not ended, and those of them that a running gateway works on."""
    alive: int
    """Stores of running gateways. Each worker has one."""
    size: int
    """In bytes."""
    connections: dict[str, int]
    """What running gateways may open, and what the server allows; empty without a server."""


async def copy_store(
    source: str, target: str, progress: Progress, *, while_running: bool = False
) -> dict[str, int]:
    """Copy the store of one URL to another; return how many rows there are, by table.

    Raise CopyRefused if the target holds anything, or if a gateway runs on the source, unless
    `while_running`: then the copy holds the state of now, without later changes.
    The source is only read: raise OlderDatabase if it is not up to date. Raise ValueError for a
    URL that cannot be used.
    """
    async with open_place(source, is_target=False) as giver:
        if not while_running and (alive := await giver.count_alive()):
            raise CopyRefused(
                f"a gateway runs on the source (its workers: {alive}): stop it first, or pass"
                " --while-running to copy what there is now"
            )
        async with open_place(target, is_target=True) as taker:
            return await _copy_all(giver, taker, progress)


async def read_info(url: str) -> Info:
    """Return what is in the store of a URL, which is only read.

    Raise OlderDatabase if it is not up to date, and ValueError if the URL cannot be used.
    """
    async with open_place(url, is_target=False) as place:
        await place.begin()
        return Info(
            {table.name: await place.count(table) for table in TABLES},
            await place.number("SELECT count(*) FROM responses WHERE writer IS NOT NULL"),
            await place.count_busy(),
            await place.count_alive(),
            await place.size(),
            await place.connections(),
        )


async def _copy_all(giver: Place, taker: Place, progress: Progress) -> dict[str, int]:
    """Copy every table and compare; return how many rows each has."""
    await giver.begin()
    await taker.begin()
    for table in TABLES:
        if count := await taker.count(table):
            raise CopyRefused(
                f"the target is not empty: it has {count} rows in {table.name}; choose an empty one"
            )
    digests = {table: await _copy(giver, taker, table, progress) for table in TABLES}
    for table, digest in digests.items():
        found = Digest()
        async for rows in taker.rows(table):
            found.add(rows)
        if found.value() != digest.value():
            raise BadCopy(table.name)
    await taker.commit()
    return {table.name: digest.count for table, digest in digests.items()}


async def _copy(giver: Place, taker: Place, table: Table, progress: Progress) -> Digest:
    total = await giver.count(table)
    digest = Digest()
    progress(table.name, 0, total)
    async for rows in giver.rows(table):
        await taker.write(table, rows)
        digest.add(rows)
        progress(table.name, digest.count, total)
    return digest


def open_place(url: str, *, is_target: bool) -> AbstractAsyncContextManager[Place]:
    """Return a context that opens the place of a URL and closes it.

    Faults are raised as StoreUnavailable.
    """
    scheme, _, path = url.partition(":")
    if is_postgres(url):
        return _postgres(url, is_target=is_target)
    if scheme == "memory":
        raise ValueError("a memory: store exists only inside its own gateway; name another store")
    if scheme != "sqlite" or not path.strip("/"):
        raise ValueError("name a store as sqlite:PATH or postgresql://USER@HOST/DATABASE")
    place = Path(path).expanduser()
    if not is_target and not place.is_file():
        raise ValueError(f"there is no file {path}")
    return _sqlite(place, is_target=is_target)


@asynccontextmanager
async def _sqlite(path: Path, *, is_target: bool) -> AsyncIterator[Place]:
    try:
        place = SqlitePlace(path, is_target=is_target)
        try:
            yield place
        finally:
            await place.close()
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(f"{path}: {sqlite_errors.unavailable(error).message}") from error


@asynccontextmanager
async def _postgres(url: str, *, is_target: bool) -> AsyncIterator[Place]:
    try:
        from antiphon.store.postgres.copy import PostgresPlace
        from antiphon.store.postgres.errors import FAULTS, unavailable
    except ModuleNotFoundError as error:
        raise ValueError(NEEDS_DRIVER) from error
    servers = servers_of(url)
    try:
        place = await PostgresPlace.open(url, is_target=is_target)
        try:
            yield place
        finally:
            await place.close()
    except FAULTS as error:
        raise StoreUnavailable(f"{servers}: {unavailable(error).message}") from error
