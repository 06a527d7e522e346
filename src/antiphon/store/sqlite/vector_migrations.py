"""The tables of vector stores in the second database. See `vector_rows` for the keys of chunks.

The full-text indexes are not here: they are made when they are first used (see `vector_words`),
so that a SQLite without FTS5 can still open the file.
"""

from __future__ import annotations

from typing import Final

__all__ = ["VECTOR_TABLES"]

# `vector_files.part` is where the chunks of a file are, NULL before the first; `lease` is the one
# that wrote them, and `version` changes with the vectors. `vector_gone` names parts that no file
# has any more. `vector_jobs.until` is when the lease ends. `vector_merges` names full-text indexes
# that still have words of chunks that were removed.
VECTOR_TABLES: Final = (
    """CREATE TABLE vector_stores (
        key INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        last_active_at INTEGER NOT NULL,
        expires_after_days INTEGER,
        expires_at INTEGER,
        is_emptied INTEGER NOT NULL,
        next_part INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (owner, id)
    )""",
    "CREATE INDEX vector_stores_by_time ON vector_stores (owner, created_at, key)",
    "CREATE INDEX vector_stores_by_end ON vector_stores (expires_at)"
    " WHERE expires_at IS NOT NULL AND is_emptied = 0",
    """CREATE TABLE vector_files (
        key INTEGER PRIMARY KEY,
        store INTEGER NOT NULL,
        owner TEXT NOT NULL,
        file TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        batch TEXT,
        status TEXT NOT NULL,
        error_code TEXT,
        error_message BLOB,
        usage INTEGER NOT NULL,
        part INTEGER,
        chunks INTEGER NOT NULL,
        lease INTEGER NOT NULL,
        version INTEGER NOT NULL,
        embedding TEXT NOT NULL,
        last_call INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (store, file)
    )""",
    "CREATE INDEX vector_files_by_status ON vector_files (store, status, usage)",
    "CREATE INDEX vector_files_by_batch ON vector_files (store, batch, status)"
    " WHERE batch IS NOT NULL",
    "CREATE INDEX vector_files_by_file ON vector_files (owner, file)",
    "CREATE UNIQUE INDEX vector_files_by_part ON vector_files (part) WHERE part IS NOT NULL",
    """CREATE TABLE vector_attributes (
        store INTEGER NOT NULL,
        name BLOB NOT NULL,
        kind INTEGER NOT NULL,
        number REAL NOT NULL,
        text BLOB NOT NULL,
        file INTEGER NOT NULL,
        PRIMARY KEY (store, name, kind, number, text, file)
    ) WITHOUT ROWID""",
    "CREATE INDEX vector_attributes_by_file ON vector_attributes (file)",
    """CREATE TABLE vector_batches (
        store INTEGER NOT NULL,
        id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        is_cancelled INTEGER NOT NULL,
        PRIMARY KEY (store, id)
    ) WITHOUT ROWID""",
    """CREATE TABLE vector_jobs (
        key INTEGER PRIMARY KEY,
        file INTEGER NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        lease INTEGER NOT NULL,
        until REAL NOT NULL,
        tries INTEGER NOT NULL
    )""",
    "CREATE INDEX vector_jobs_by_owner ON vector_jobs (owner, key)",
    "CREATE INDEX vector_jobs_by_end ON vector_jobs (until, owner) WHERE until > 0",
    """CREATE TABLE vector_chunks (
        key INTEGER PRIMARY KEY,
        text TEXT NOT NULL
    )""",
    """CREATE TABLE vector_vectors (
        key INTEGER PRIMARY KEY,
        vector BLOB NOT NULL
    )""",
    "CREATE TABLE vector_gone (part INTEGER PRIMARY KEY)",
    """CREATE TABLE vector_merges (
        number INTEGER PRIMARY KEY,
        is_begun INTEGER NOT NULL
    )""",
)
