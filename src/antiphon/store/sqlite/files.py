"""Facet `files` in SQLite: that of `store.sql`, whose sweep also looks into the folder of blobs."""

from __future__ import annotations

from antiphon.store.sql.steps import Tables
from antiphon.store.sql.uploads import SqlUploads
from antiphon.store.sqlite.blobs import SqliteBlobs

__all__ = ["SqliteFiles"]


class SqliteFiles(SqlUploads):
    """See `Files` for what the methods do."""

    def __init__(self, tables: Tables, blobs: SqliteBlobs) -> None:
        super().__init__(tables)
        self._blobs = blobs

    async def sweep(self, now: int, limit: int) -> int:
        return max(await super().sweep(now, limit), await self._blobs.sweep(now, limit))
