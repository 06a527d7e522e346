"""Facet `rounds` in SQLite and PostgreSQL: what is read and removed. Each store inserts itself."""

from __future__ import annotations

from typing import Final

from antiphon.store.base.rounds import KeptRound
from antiphon.store.sql.steps import Steps, Tables, ask

__all__ = ["SqlRounds"]

_FIND: Final = """
    SELECT number, kind, created_at, size, body FROM rounds
    WHERE owner = $1 AND response = $2 ORDER BY number
"""
_SWEEP: Final = """
    DELETE FROM rounds WHERE (owner, response, number) IN (
        SELECT owner, response, number FROM rounds WHERE created_at < $1
        ORDER BY created_at LIMIT $2
    ) RETURNING 1
"""


class SqlRounds:
    """See `Rounds` for what the methods do."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def find(self, owner: str, response_id: str) -> list[KeptRound]:
        if not self._tables.is_text(response_id):
            return []
        rows = await self._tables.read(lambda: ask(_FIND, owner, response_id))
        return [
            KeptRound(
                owner=owner,
                response_id=response_id,
                number=number,
                kind=kind,
                created_at=created_at,
                size=size,
                body=None if body is None else bytes(body),
            )
            for number, kind, created_at, size, body in rows
        ]

    async def sweep(self, before: int, limit: int) -> int:
        removed = len(await self._tables.change(lambda: ask(_SWEEP, before, limit)))
        if removed:
            await self._tables.remove(_erase)
        return removed


def _erase() -> Steps[bool]:
    """Remove nothing: what was removed before is erased with it."""
    yield from ask("SELECT 1")
    return True
