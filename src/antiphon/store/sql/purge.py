"""How is everything that belongs to one owner removed, in SQLite and PostgreSQL?

Every table that has an `owner` is emptied of the rows of that owner, in steps between which
others write. `copy_tables` lists the tables, so one that is new is purged as well. Turns and
vector stores are removed as their own facets remove them, because they know of more than rows.
The last step removes the keys and the project itself, and stores the audit record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base.audit import AuditRecord
from antiphon.store.base.projects import Purged
from antiphon.store.copy_tables import TABLES, Table
from antiphon.store.key_rules import with_counts
from antiphon.store.sql.audit import add_audit
from antiphon.store.sql.blobs import remove_blobs
from antiphon.store.sql.steps import Steps, Tables, ask
from antiphon.store.sql.vector_stores import SqlVectorStores

__all__ = ["Purge", "purged_tables"]

_ROWS_AT_ONCE: Final = 500
_STORES_AT_ONCE: Final = 20
# What is stored while we remove is removed in the next pass.
_MAX_PASSES: Final = 10
# What is removed last, or with other rows.
_LAST: Final = frozenset({"keys", "projects"})
_KEEP: Final[frozenset[str]] = frozenset()
"""Tables whose rows stay: they have an owner and no content."""
_BLOBS: Final = f"SELECT id FROM blobs WHERE owner = $1 LIMIT {_ROWS_AT_ONCE}"  # noqa: S608 # constants


def purged_tables() -> list[Table]:
    """Return the tables that a purge empties of the rows of an owner."""
    return [table for table in TABLES if "owner" in table.columns and table.name not in _KEEP]


class Purge:
    """Removes the rows of an owner. `files` are the tables that SQLite has in its second file.

    `remove_turns` removes some turns of an owner and returns how many.
    """

    def __init__(
        self,
        main: Tables,
        files: Tables,
        vector_stores: SqlVectorStores,
        remove_turns: Callable[[str, int], Awaitable[int]],
    ) -> None:
        self._main = main
        self._files = files
        self._vector_stores = vector_stores
        self._remove_turns = remove_turns

    async def count(self, owner: str) -> dict[str, int]:
        """Return how many rows there are, by table."""
        counts = {}
        has_files = not await self._files.is_unused()
        for table in purged_tables():
            if has_files or not table.is_of_files:
                counts[table.name] = await self._count(table.name, "owner", owner, table)
        counts["projects"] = await self._count("projects", "id", owner)
        return counts

    async def run(self, owner: str, progress: Purged, audit: AuditRecord | None) -> dict[str, int]:
        """Remove everything; return how many rows there were, by table."""
        removed: Counter[str] = Counter()

        def note(table: str, count: int) -> None:
            if count:
                removed[table] += count
                progress(table, count)

        for _ in range(_MAX_PASSES):
            for table, count in (await self.count(owner)).items():
                if table not in _LAST:
                    note(table, count)
            await self._remove_rows(owner)
            left = await self.count(owner)
            if not any(count for table, count in left.items() if table not in _LAST):
                return await self._remove_last(owner, note, removed, audit)
        raise StoreUnavailable(
            f"something is stored for {owner!r} as fast as it is removed: stop its turns first"
        )

    async def _remove_rows(self, owner: str) -> None:
        while await self._remove_turns(owner, _ROWS_AT_ONCE):
            pass
        for table in purged_tables():
            if not table.is_of_files and table.name not in _LAST:
                await self._empty(self._main, table, owner)
        if await self._files.is_unused():
            return
        while stores := await self._vector_stores.page(
            owner, limit=_STORES_AT_ONCE, is_descending=False
        ):
            for store in stores:
                await self._vector_stores.remove(owner, store.id)
        for table in purged_tables():
            if table.is_of_files and table.name != "blobs":
                await self._empty(self._files, table, owner)
        while await self._files.remove(lambda: _remove_blobs(owner)):
            pass
        await self._files.remove(_erase)
        await self._vector_stores.clean_up()

    async def _remove_last(
        self, owner: str, note: Purged, removed: Counter[str], audit: AuditRecord | None
    ) -> dict[str, int]:
        for table, count in (await self.count(owner)).items():
            note(table, count)
        counts = dict(removed)

        def run() -> Steps[bool]:
            yield from ask("DELETE FROM keys WHERE owner = $1", owner)
            yield from ask("DELETE FROM projects WHERE id = $1", owner)
            yield from add_audit(None if audit is None else with_counts(audit, counts))
            return True

        await self._main.remove(run)
        return counts

    async def _count(self, name: str, column: str, owner: str, table: Table | None = None) -> int:
        tables = self._files if table is not None and table.is_of_files else self._main
        statement = f"SELECT count(*) FROM {name} WHERE {column} = $1"  # noqa: S608 # constants
        ((count,),) = await tables.read(lambda: ask(statement, owner))
        return int(count)

    async def _empty(self, tables: Tables, table: Table, owner: str) -> None:
        key = ", ".join(table.key)
        statement = (
            f"DELETE FROM {table.name} WHERE ({key}) IN"  # noqa: S608 # constants
            f" (SELECT {key} FROM {table.name} WHERE owner = $1 LIMIT {_ROWS_AT_ONCE})"
            f" RETURNING 1"
        )
        while await tables.change(lambda: ask(statement, owner)):
            pass


def _remove_blobs(owner: str) -> Steps[bool]:
    rows = yield from ask(_BLOBS, owner)
    yield from remove_blobs(owner, [row[0] for row in rows])
    return bool(rows)


def _erase() -> Steps[bool]:
    """Remove nothing: what was removed before is erased with it."""
    yield from ask("SELECT 1")
    return True
