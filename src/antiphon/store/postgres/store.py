"""A store in a PostgreSQL database, which many gateways share.

Each store is a node: its turns carry its name, and its lease shows the others that it is alive.
All writes of turns go through a flusher, many in one commit; the rest are short transactions of
their own. A caller that waits for a response is woken by NOTIFY, which is a hint: it checks
again when its time is over, and often while the node has lost its connection.

This module joins the facets. Each has a module with its methods and their SQL; `migrations` holds
the tables, `node` the lease, `flusher` the commits and `database` the connections.
"""

from __future__ import annotations

from typing import Final

from antiphon.store.base.store import sweep_in_steps
from antiphon.store.postgres.blobs import PostgresBlobs
from antiphon.store.postgres.claims import PostgresClaims
from antiphon.store.postgres.conversations import PostgresConversations
from antiphon.store.postgres.history import PostgresHistories
from antiphon.store.postgres.ledger import PostgresLedger
from antiphon.store.postgres.log import PostgresLogs
from antiphon.store.postgres.log_partitions import close_hour, drop_closed
from antiphon.store.postgres.native_states import PostgresNativeStates
from antiphon.store.postgres.node import sweep_nodes
from antiphon.store.postgres.notices import PostgresNotices
from antiphon.store.postgres.tables import PostgresTables
from antiphon.store.postgres.tool_calls import PostgresToolCalls
from antiphon.store.postgres.turns import PostgresTurns
from antiphon.store.postgres.vector_stores import PostgresVectorStores
from antiphon.store.postgres.writers import PostgresWriters
from antiphon.store.sql.audit import SqlAudit
from antiphon.store.sql.containers import SqlContainers
from antiphon.store.sql.keys import SqlKeys
from antiphon.store.sql.projects import SqlProjects
from antiphon.store.sql.purge import Purge
from antiphon.store.sql.rounds import SqlRounds
from antiphon.store.sql.skills import SqlSkills
from antiphon.store.sql.trees import SqlTrees
from antiphon.store.sql.uploads import SqlUploads
from antiphon.store.sql.vector_files import detach_from_all, empty_expired

__all__ = ["PostgresStore"]

# Removed in one transaction: it ends before any other has waited for long.
_TURNS_AT_ONCE: Final = 500
_ROWS_AT_ONCE: Final = 5_000


class PostgresStore(PostgresTurns, PostgresLogs, PostgresHistories, PostgresWriters, SqlKeys):
    """A store in a PostgreSQL database. See `Store` for what the methods do.

    Nothing is opened before the first use, which must be in the event loop of all others.
    `patience` bounds how long a caller waits for a database that is away or slow.
    """

    def __init__(self, url: str, *, patience: float = 5.0) -> None:
        PostgresTurns.__init__(self, url, patience)
        self._tables = PostgresTables(self._database, self._node.ensure)
        SqlKeys.__init__(self, self._tables, "number")
        self.conversations = PostgresConversations(self._database, self._node.ensure)
        self.claims = PostgresClaims(self._database, self._node.ensure)
        self.notices = PostgresNotices(self._database)
        self.native_states = PostgresNativeStates(self._database)
        self.tool_calls = PostgresToolCalls(self._database)
        self.ledger = PostgresLedger(self._database, self._node, self._flusher)
        self.blobs = PostgresBlobs(self._database)
        self.vector_stores = PostgresVectorStores(self._tables, self._database, patience)
        self.files = SqlUploads(self._tables)
        self.containers = SqlContainers(self._tables)
        self.skills = SqlSkills(self._tables)
        self.audit = SqlAudit(self._tables)
        self.rounds = SqlRounds(self._tables)
        self.trees = SqlTrees(self._tables)
        purge = Purge(self._tables, self._tables, self.vector_stores, self._remove_turns)
        self.projects = SqlProjects(self._tables, purge)
        self.files.on_removal.append(detach_from_all)
        self.files.clean_ups.append(self.vector_stores.clean_up)
        self.files.sweeps += [self.containers.sweep_files, self.containers.sweep, empty_expired]

    async def sweep(self, before: int, claims_before: int) -> int:
        removed = await sweep_in_steps(self._sweep_turns, before, _TURNS_AT_ONCE)
        await sweep_in_steps(self.notices.sweep, before, _ROWS_AT_ONCE)
        await sweep_in_steps(self.claims.sweep, claims_before, _ROWS_AT_ONCE)
        await sweep_in_steps(self.tool_calls.sweep, before, _ROWS_AT_ONCE)
        await sweep_in_steps(self.files.sweep_claims, claims_before, _ROWS_AT_ONCE)
        await self._database.change(sweep_nodes)
        await self._database.change(drop_closed)
        await self._database.change(close_hour)
        await self.vector_stores.load_vectors()
        return removed

    async def ping(self) -> None:
        """Return if the database can be read and written now: the lease is renewed."""
        await self._node.renew()

    async def close(self) -> None:
        """Write what is queued, give up the lease, and close all connections."""
        self._is_closed = True
        await self._flusher.close()
        await self._bell.close()
        await self._node.close()
        await self._database.close()
        self._waiters.wake_all()
