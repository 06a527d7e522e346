"""Vector stores, attached files and batches as rows, in SQLite and PostgreSQL.

A change of a vector store first takes its lock, so that in PostgreSQL too there is one at a time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Final

from antiphon.store.base.vector_stores import AttachedFile, Attributes, FileBatch, VectorStore
from antiphon.store.sql.steps import Lock, Row, Steps, ask
from antiphon.store.vector_rows import (
    MAX_PARTS,
    MAX_STORES,
    attribute_rows,
    file_body,
    first_part,
    read_file,
    read_store,
    store_body,
    to_counts,
)

__all__ = [
    "FILE",
    "STORE",
    "attach_file",
    "cancel_files",
    "detach_file",
    "detach_from_all",
    "drop_chunks",
    "empty_expired",
    "end_file",
    "find_key",
    "find_store",
    "insert_store",
    "lock_store",
    "new_part",
    "remove_store",
    "set_attributes",
    "show_batch",
    "show_file",
    "show_store",
]

FILE: Final = "file, created_at, batch, status, error_code, error_message, usage, body"
STORE: Final = "key, id, created_at, last_active_at, expires_after_days, body"
_FIND: Final = f"SELECT {STORE} FROM vector_stores WHERE owner = $1 AND id = $2"  # noqa: S608
_COUNTS: Final = """
    SELECT status, count(*), CAST(sum(usage) AS BIGINT) FROM vector_files
    WHERE store = $1 GROUP BY status
"""
_INSERT: Final = """
    INSERT INTO vector_stores (key, owner, id, created_at, last_active_at, expires_after_days,
        expires_at, is_emptied, next_part, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, $8)
"""
_LAST_KEY: Final = """
    SELECT max(key) FROM vector_stores
    UNION ALL SELECT max(part) / 16777216 FROM vector_gone
"""
_IS_USED: Final = """
    SELECT 1 FROM vector_stores WHERE key = $1
    UNION ALL SELECT 1 FROM vector_gone WHERE part >= $2 AND part < $3 LIMIT 1
"""
_ATTACH: Final = """
    INSERT INTO vector_files (store, owner, file, created_at, batch, status, usage, chunks, lease,
        version, embedding, last_call, body)
    VALUES ($1, $2, $3, $4, $5, 'in_progress', 0, 0, 0, 0, '', 0, $6) RETURNING key
"""
_JOB: Final = "INSERT INTO vector_jobs (file, owner, lease, until, tries) VALUES ($1, $2, 0, 0, 0)"
_GONE: Final = """
    INSERT INTO vector_gone SELECT part FROM vector_files WHERE key = $1 AND part IS NOT NULL
"""
_DROP: Final = """
    UPDATE vector_files SET part = NULL, chunks = 0, usage = 0, embedding = '' WHERE key = $1
"""
_END: Final = """
    UPDATE vector_files SET status = $1, error_code = $2, error_message = $3 WHERE key = $4
"""
_ATTRIBUTE: Final = """
    INSERT INTO vector_attributes (store, name, kind, number, text, file)
    VALUES ($1, $2, $3, $4, $5, $6)
"""
_STORES_WITH: Final = """
    SELECT stores.id, files.key FROM vector_files AS files
    JOIN vector_stores AS stores ON stores.key = files.store
    WHERE files.owner = $1 AND files.file = $2 ORDER BY stores.id
"""
_EXPIRED: Final = """
    SELECT owner, id FROM vector_stores
    WHERE expires_at IS NOT NULL AND is_emptied = 0 AND expires_at <= $1
    ORDER BY expires_at LIMIT $2
"""
_EMPTIED: Final = """
    UPDATE vector_stores SET is_emptied = 1
    WHERE owner = $1 AND id = $2 AND is_emptied = 0 AND expires_at <= $3 RETURNING key
"""


def lock_store(owner: str, store_id: str) -> Steps[int | None]:
    """Return the key of a vector store, which no other transaction changes until ours ends."""
    yield Lock(f"vector\n{owner}\n{store_id}")
    return (yield from find_key(owner, store_id))


def find_key(owner: str, store_id: str) -> Steps[int | None]:
    """Return the key of a vector store."""
    rows = yield from ask(_FIND, owner, store_id)
    return int(rows[0][0]) if rows else None


def find_store(owner: str, store_id: str) -> Steps[VectorStore | None]:
    """Return a vector store with its counts."""
    rows = yield from ask(_FIND, owner, store_id)
    return (yield from show_store(rows[0])) if rows else None


def show_store(row: Row) -> Steps[VectorStore]:
    """Return the vector store of a row, with its counts."""
    key, name, created_at, last_active_at, days, body = row
    counts = yield from ask(_COUNTS, key)
    usage = sum(found[2] for found in counts)
    return read_store(name, created_at, last_active_at, days, body, to_counts(counts), usage)


def insert_store(owner: str, store: VectorStore) -> Steps[int]:
    """Add a vector store; return its key."""
    key = yield from _free_key()
    yield from ask(
        _INSERT,
        key,
        owner,
        store.id,
        store.created_at,
        store.last_active_at,
        store.expires_after_days,
        store.expires_at,
        store_body(store),
    )
    return key


def _free_key() -> Steps[int]:
    """Return a key that no vector store has, and none whose chunks are being cleaned up."""
    yield Lock("vector keys")
    rows = yield from ask(_LAST_KEY)
    key = max(int(row[0] or 0) for row in rows) + 1
    while key >= MAX_STORES or (yield from _is_used(key)):
        key = random.randrange(1, MAX_STORES)  # any free one will do
    return key


def _is_used(key: int) -> Steps[bool]:
    return bool((yield from ask(_IS_USED, key, first_part(key), first_part(key + 1))))


def remove_store(owner: str, store_id: str) -> Steps[bool]:
    """Remove a vector store and its files; return whether there was one."""
    store = yield from lock_store(owner, store_id)
    if store is None:
        return False
    for key in (yield from _files_of(store)):
        yield from _remove_file(key)
    yield from ask("DELETE FROM vector_batches WHERE store = $1", store)
    yield from ask("DELETE FROM vector_stores WHERE key = $1", store)
    return True


def empty_expired(now: int, limit: int) -> Steps[int]:
    """Remove the chunks and jobs of vector stores that have expired; return how many."""
    names = yield from ask(_EXPIRED, now, limit)
    for owner, store_id in sorted(tuple(row) for row in names):
        yield from lock_store(owner, store_id)
        for (store,) in (yield from ask(_EMPTIED, owner, store_id, now)):
            yield from _empty(store)
    return len(names)


def _empty(store: int) -> Steps[None]:
    for key in (yield from _files_of(store, "in_progress")):
        yield from end_file(key, "cancelled")
    for key in (yield from _files_of(store)):
        yield from drop_chunks(key)


def attach_file(
    owner: str, store: int, file: AttachedFile, batch_id: str | None = None
) -> Steps[None]:
    """Attach a file and make its job. One that is attached already is replaced."""
    yield from detach_file(store, file.file_id)
    values = (store, owner, file.file_id, file.created_at, batch_id, file_body(file))
    ((key,),) = yield from ask(_ATTACH, *values)
    yield from _insert_attributes(store, key, file.attributes)
    yield from ask(_JOB, key, owner)


def detach_file(store: int, file_id: str) -> Steps[bool]:
    """Remove a file from a vector store; return whether it was there."""
    rows = yield from ask(
        "SELECT key FROM vector_files WHERE store = $1 AND file = $2", store, file_id
    )
    for (key,) in rows:
        yield from _remove_file(key)
    return bool(rows)


def detach_from_all(owner: str, file_ids: Sequence[str]) -> Steps[None]:
    """Remove files from all vector stores of their owner."""
    found: list[Row] = []
    for file_id in file_ids:
        found += yield from ask(_STORES_WITH, owner, file_id)
    for store_id in sorted({row[0] for row in found}):
        yield from lock_store(owner, store_id)
    for file_id in file_ids:
        for _, key in (yield from ask(_STORES_WITH, owner, file_id)):
            yield from _remove_file(key)


def show_file(store: int, file_id: str) -> Steps[AttachedFile | None]:
    """Return an attached file."""
    rows = yield from ask(
        f"SELECT {FILE} FROM vector_files WHERE store = $1 AND file = $2",  # noqa: S608 # constant
        store,
        file_id,
    )
    return read_file(*rows[0]) if rows else None


def set_attributes(store: int, file_id: str, attributes: Attributes) -> Steps[AttachedFile | None]:
    """Replace the attributes of a file."""
    rows = yield from ask(
        "SELECT key, body FROM vector_files WHERE store = $1 AND file = $2", store, file_id
    )
    if not rows:
        return None
    key, body = rows[0]
    filename, _, *sizes = json.loads(body)
    body = json.dumps([filename, attributes, *sizes]).encode()
    yield from ask("UPDATE vector_files SET body = $1 WHERE key = $2", body, key)
    yield from ask("DELETE FROM vector_attributes WHERE file = $1", key)
    yield from _insert_attributes(store, key, attributes)
    return (yield from show_file(store, file_id))


def show_batch(store: int, batch_id: str) -> Steps[FileBatch | None]:
    """Return a batch with its counts."""
    rows = yield from ask(
        "SELECT created_at, is_cancelled FROM vector_batches WHERE store = $1 AND id = $2",
        store,
        batch_id,
    )
    if not rows:
        return None
    counts = yield from ask(
        "SELECT status, count(*) FROM vector_files WHERE store = $1 AND batch = $2 GROUP BY status",
        store,
        batch_id,
    )
    created_at, is_cancelled = rows[0]
    return FileBatch(
        id=batch_id,
        created_at=created_at,
        is_cancelled=bool(is_cancelled),
        counts=to_counts(counts),
    )


def cancel_files(store: int, batch_id: str) -> Steps[None]:
    """Cancel the files of a batch that are in progress."""
    rows = yield from ask(
        "SELECT key FROM vector_files WHERE store = $1 AND batch = $2 AND status = 'in_progress'",
        store,
        batch_id,
    )
    if rows:
        yield from ask(
            "UPDATE vector_batches SET is_cancelled = 1 WHERE store = $1 AND id = $2",
            store,
            batch_id,
        )
    for (key,) in rows:
        yield from end_file(key, "cancelled")


def end_file(
    key: int, status: str, code: str | None = None, message: str | None = None
) -> Steps[None]:
    """End the job of a file. Only a completed one keeps its chunks."""
    text = None if message is None else json.dumps(message).encode()
    yield from ask("DELETE FROM vector_jobs WHERE file = $1", key)
    yield from ask(_END, status, code, text, key)
    if status != "completed":
        yield from drop_chunks(key)


def drop_chunks(key: int) -> Steps[None]:
    """Leave the chunks of a file to be cleaned up."""
    yield from ask(_GONE, key)
    yield from ask(_DROP, key)


def new_part(store: int) -> Steps[int | None]:
    """Return a new part of a vector store; None if it has had too many."""
    ((number,),) = yield from ask(
        "UPDATE vector_stores SET next_part = next_part + 1 WHERE key = $1 RETURNING next_part",
        store,
    )
    part = int(number) - 1
    return None if part >= MAX_PARTS else first_part(store) + part


def _files_of(store: int, status: str | None = None) -> Steps[list[int]]:
    rows = yield from ask("SELECT key, status FROM vector_files WHERE store = $1", store)
    return [row[0] for row in rows if status in (None, row[1])]


def _remove_file(key: int) -> Steps[None]:
    yield from ask("DELETE FROM vector_jobs WHERE file = $1", key)
    yield from ask(_GONE, key)
    yield from ask("DELETE FROM vector_attributes WHERE file = $1", key)
    yield from ask("DELETE FROM vector_files WHERE key = $1", key)


def _insert_attributes(store: int, key: int, attributes: Attributes) -> Steps[None]:
    for row in attribute_rows(attributes):
        yield from ask(_ATTRIBUTE, store, *row, key)
