"""Pages of the files in a vector store, and the texts of a file."""

from __future__ import annotations

from typing import Final

from antiphon.store.base.vector_stores import AttachedFile
from antiphon.store.sql.steps import Steps, ask
from antiphon.store.sql.vector_files import FILE
from antiphon.store.vector_rows import chunk_keys, read_file

__all__ = ["list_files", "list_texts"]

_CURSOR: Final = "SELECT key FROM vector_files WHERE store = $1 AND file = $2"
_PART: Final = "SELECT part, chunks FROM vector_files WHERE store = $1 AND file = $2"
_TEXTS: Final = "SELECT text FROM vector_chunks WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3"


def list_files(
    store: int,
    *,
    batch_id: str | None,
    status: str | None,
    after: str | None,
    before: str | None,
    limit: int,
    is_descending: bool,
) -> Steps[list[AttachedFile]]:
    """Return a page of the files in a vector store. Raise KeyError for a wrong cursor."""
    conditions: list[str] = ["store = $1"]
    values: list[str | int] = [store]
    wanted: list[tuple[str, str | int | None]] = [("batch =", batch_id), ("status =", status)]
    for cursor, is_later in ((after, not is_descending), (before, is_descending)):
        if cursor is not None:
            rows = yield from ask(_CURSOR, store, cursor)
            if not rows:
                raise KeyError(cursor)
            wanted.append(("key >" if is_later else "key <", rows[0][0]))
    for comparison, value in wanted:
        if value is not None:
            values.append(value)
            conditions.append(f"{comparison} ${len(values)}")
    # With `before` alone, the rows next to it are wanted: they are read from there backwards.
    is_backwards = before is not None and after is None
    order = "DESC" if is_descending != is_backwards else "ASC"
    rows = yield from ask(
        f"SELECT {FILE} FROM vector_files WHERE {' AND '.join(conditions)}"  # noqa: S608 # constants
        f" ORDER BY key {order} LIMIT ${len(values) + 1}",
        *values,
        limit,
    )
    return [read_file(*row) for row in (reversed(rows) if is_backwards else rows)]


def list_texts(store: int, file_id: str, after: int, limit: int) -> Steps[list[str | bytes]]:
    """Return the texts of a file's chunks, as they are stored."""
    rows = yield from ask(_PART, store, file_id)
    if not rows or rows[0][0] is None:
        return []
    keys = chunk_keys(rows[0][0])
    found = yield from ask(_TEXTS, keys.start + after + 1, keys.stop, limit)
    return [row[0] for row in found]
