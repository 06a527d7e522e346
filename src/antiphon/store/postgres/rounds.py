"""Facet `rounds` in PostgreSQL: how rounds are inserted. `store.sql.rounds` has the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.store.base.rounds import KeptRound
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.rows import columns

__all__ = ["insert_rounds"]

_INSERT: Final = """
    INSERT INTO rounds (owner, response, number, kind, created_at, size, body)
    SELECT owner, response, number, kind, created_at, size, body FROM unnest(
        $1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bytea[]
    ) AS wanted (owner, response, number, kind, created_at, size, body)
    ON CONFLICT (owner, response, number) DO NOTHING
"""


async def insert_rounds(connection: Connection, rounds: Sequence[KeptRound]) -> None:
    """Store the rounds of turns that end now."""
    rows = [
        (r.owner, r.response_id, r.number, r.kind, r.created_at, r.size, r.body) for r in rounds
    ]
    await connection.execute(_INSERT, *columns(rows, 7))
