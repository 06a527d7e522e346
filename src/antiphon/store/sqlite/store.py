"""A store in a SQLite file, which several processes may share.

One thread writes all waiting changes in one durable transaction; another reads and never waits
for it. A turn can be read as soon as `begin` has returned: a query that finds nothing while
writes are in progress is repeated after them. Appends of other processes are found by polling.
The files of callers are in a second database with threads of its own (see `files_database`).
This module joins the facets. Each has a module with its methods and their SQL; the threads are in
`worker`, the tables in `migrations`, and `presence` knows which stores are alive.
"""

from __future__ import annotations

import os
from typing import Final

from antiphon.store.base.store import sweep_in_steps
from antiphon.store.sql.audit import SqlAudit
from antiphon.store.sql.containers import SqlContainers
from antiphon.store.sql.keys import SqlKeys
from antiphon.store.sql.projects import SqlProjects
from antiphon.store.sql.purge import Purge
from antiphon.store.sql.rounds import SqlRounds
from antiphon.store.sql.skills import SqlSkills
from antiphon.store.sql.trees import SqlTrees
from antiphon.store.sql.vector_files import detach_from_all, empty_expired
from antiphon.store.sqlite.blobs import SqliteBlobs
from antiphon.store.sqlite.claims import SqliteClaims
from antiphon.store.sqlite.conversations import SqliteConversations
from antiphon.store.sqlite.facet import do_nothing
from antiphon.store.sqlite.files import SqliteFiles
from antiphon.store.sqlite.history import SqliteHistories
from antiphon.store.sqlite.native_states import SqliteNativeStates
from antiphon.store.sqlite.notices import SqliteNotices
from antiphon.store.sqlite.tables import MainTables, SqliteTables
from antiphon.store.sqlite.tool_calls import SqliteToolCalls
from antiphon.store.sqlite.turns import SqliteTurns
from antiphon.store.sqlite.vector_stores import SqliteVectorStores
from antiphon.store.sqlite.writers import SqliteWriters

__all__ = ["SqliteStore"]

# Removed in one transaction: other writes run in between.
_ROWS_AT_ONCE: Final = 500


class SqliteStore(SqliteTurns, SqliteHistories, SqliteWriters, SqlKeys):
    """A store in a file. See `Store` for what the methods do.

    `patience` is how long a caller waits for a database that another process has locked.
    `max_bytes` caps the size of the file; over it, writes fail as on a full disk.
    Raises StoreUnavailable if the file cannot be opened or belongs to a newer antiphon.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, patience: float = 5.0, max_bytes: int | None = None
    ) -> None:
        SqliteTurns.__init__(self, path, patience, max_bytes)
        main = MainTables(self._file, self._presence)
        SqlKeys.__init__(self, main, "rowid")
        self.conversations = SqliteConversations(self._writer, self._reader, self._presence)
        self.claims = SqliteClaims(self._writer, self._reader, self._presence)
        self.notices = SqliteNotices(self._writer)
        self.native_states = SqliteNativeStates(self._writer, self._reader)
        self.tool_calls = SqliteToolCalls(self._writer, self._reader)
        self._tables = SqliteTables(self._files)
        self.blobs = SqliteBlobs(self._files)
        self.vector_stores = SqliteVectorStores(self._tables, self._files, patience)
        self.files = SqliteFiles(self._tables, self.blobs)
        self.containers = SqlContainers(self._tables)
        self.skills = SqlSkills(self._tables)
        self.audit = SqlAudit(main)
        self.rounds = SqlRounds(main)
        self.trees = SqlTrees(main)
        purge = Purge(main, self._tables, self.vector_stores, self._remove_turns)
        self.projects = SqlProjects(main, purge)
        self.files.on_removal.append(detach_from_all)
        self.files.clean_ups.append(self.vector_stores.clean_up)
        self.files.sweeps += [self.containers.sweep_files, self.containers.sweep, empty_expired]

    async def sweep(self, before: int, claims_before: int) -> int:
        """Remove old responses, notices and claims, in steps between which others write."""
        await self._purge()
        removed = await sweep_in_steps(self._sweep_turns, before, _ROWS_AT_ONCE)
        await self.notices.sweep(before)
        await sweep_in_steps(self.claims.sweep, claims_before, _ROWS_AT_ONCE)
        await sweep_in_steps(self.tool_calls.sweep, before, _ROWS_AT_ONCE)
        await sweep_in_steps(self.files.sweep_claims, claims_before, _ROWS_AT_ONCE)
        if removed:
            await self._writer.remove(do_nothing)
        return removed

    async def ping(self) -> None:
        await self._file.ping()
        await self._files.ping()

    async def close(self) -> None:
        await self._purge_last()
        await self._files.close()
        await self._file.close()
        self._presence.close()
