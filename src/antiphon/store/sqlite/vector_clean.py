"""What is left of removed chunks, and how it leaves the file in steps.

A removal only names the part whose chunks no file has any more. A step then removes some chunks
with their words and vectors, or rewrites a piece of a full-text index that still has their words.
Each step is a transaction of its own, so indexing and searches go on in between, and a crash
loses nothing: what is left to do is in the tables.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from antiphon.store.sqlite.erasure import mark
from antiphon.store.sqlite.vector_words import merge_words, remove_words
from antiphon.store.vector_rows import PART_BITS, chunk_keys

__all__ = ["clean_step", "has_leftovers"]

_CHUNKS_AT_ONCE: Final = 500


def has_leftovers(connection: sqlite3.Connection) -> bool:
    """Return whether there is anything to clean up."""
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM vector_gone) OR EXISTS (SELECT 1 FROM vector_merges)"
    ).fetchone()
    return bool(row[0])


def clean_step(connection: sqlite3.Connection) -> bool:
    """Clean up a little; return whether there was anything to do."""
    row = connection.execute("SELECT part FROM vector_gone LIMIT 1").fetchone()
    if row is not None:
        _remove_some(connection, row[0])
        return True
    return merge_words(connection)


def _remove_some(connection: sqlite3.Connection, part: int) -> None:
    keys = chunk_keys(part)
    rows = connection.execute(
        "SELECT key, text FROM vector_chunks WHERE key >= ? AND key < ? LIMIT ?",
        (keys.start, keys.stop, _CHUNKS_AT_ONCE),
    ).fetchall()
    if rows:
        remove_words(connection, part >> PART_BITS, rows)
        last = rows[-1][0]
        for table in ("vector_chunks", "vector_vectors"):
            connection.execute(
                f"DELETE FROM {table} WHERE key >= ? AND key <= ?",  # noqa: S608 # constants
                (keys.start, last),
            )
        mark(connection)
    if len(rows) < _CHUNKS_AT_ONCE:
        connection.execute("DELETE FROM vector_gone WHERE part = ?", (part,))
