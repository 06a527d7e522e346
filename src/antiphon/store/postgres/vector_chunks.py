"""Where PostgreSQL keeps the texts of chunks, their words and their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.store.postgres.database import Database
from antiphon.store.postgres.vector_dense import put_dense
from antiphon.store.postgres.vector_words import add_texts
from antiphon.store.sql.steps import Sql, Steps

__all__ = ["PostgresChunks"]

_VECTORS: Final = """
    INSERT INTO vector_vectors SELECT * FROM unnest($1::bigint[], $2::bytea[])
    ON CONFLICT (key) DO UPDATE SET vector = excluded.vector
"""


class PostgresChunks:
    """See `ChunkTables`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_texts(self, store: int, rows: Sequence[tuple[int, str]]) -> Steps[None]:
        return add_texts(rows)

    def put_vectors(self, rows: Sequence[tuple[int, bytes]]) -> Steps[None]:
        if not rows:
            return
        if self._database.pgvector is not None:
            yield from put_dense(self._database.pgvector, rows)
        yield Sql(_VECTORS, ([key for key, _ in rows], [vector for _, vector in rows]))
