"""Which tables does the second database of a store have, the one with the files of callers?

The rules are those of `migrations`; the number in the header differs, so that neither file is
taken for the other. The contents of blobs are not in here, but in files beside it (see `blobs`).
"""

from __future__ import annotations

from typing import Final

from antiphon.store.sqlite.migrations import Migration, Schema
from antiphon.store.sqlite.vector_migrations import VECTOR_TABLES

__all__ = ["FILES"]

# `blobs.state`: 0 no row names it, 1 a row does, 2 removed, and its content perhaps not yet.
# `blob` in the other tables is the id of the one blob that the row has. Bodies are JSON.
# Paths are bytes: a program may have made a name that is not UTF-8.
# `skills.last_version` is the greatest number that was ever given.
# `erasure` is as in the main file, and `file_claims` as `claims` there.
_FIRST: Final[Migration] = (
    """CREATE TABLE blobs (
        key INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        id TEXT NOT NULL UNIQUE,
        size INTEGER NOT NULL,
        sha256 BLOB NOT NULL,
        created_at INTEGER NOT NULL,
        state INTEGER NOT NULL
    )""",
    "CREATE INDEX blobs_by_owner ON blobs (owner, size) WHERE state = 1",
    "CREATE INDEX blobs_without_row ON blobs (state, created_at) WHERE state <> 1",
    """CREATE TABLE files (
        key INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        purpose TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        blob TEXT NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (owner, id)
    )""",
    "CREATE INDEX files_by_time ON files (owner, created_at, key)",
    "CREATE INDEX files_by_end ON files (expires_at) WHERE expires_at IS NOT NULL",
    """CREATE TABLE uploads (
        key INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        expires_at INTEGER NOT NULL,
        status TEXT NOT NULL,
        file TEXT,
        body BLOB NOT NULL,
        UNIQUE (owner, id)
    )""",
    "CREATE INDEX uploads_by_end ON uploads (status, expires_at)",
    """CREATE TABLE upload_parts (
        key INTEGER PRIMARY KEY,
        upload INTEGER NOT NULL,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        blob TEXT NOT NULL
    )""",
    "CREATE INDEX upload_parts_by_upload ON upload_parts (upload, key)",
    """CREATE TABLE containers (
        key INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        last_active_at INTEGER NOT NULL,
        idle_seconds INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        holder TEXT NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (owner, id)
    )""",
    "CREATE INDEX containers_by_time ON containers (owner, created_at, key)",
    "CREATE INDEX containers_by_end ON containers (last_active_at + idle_seconds)",
    """CREATE TABLE container_files (
        key INTEGER PRIMARY KEY,
        container INTEGER NOT NULL,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        path BLOB NOT NULL,
        source TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        blob TEXT NOT NULL,
        UNIQUE (container, path)
    )""",
    "CREATE INDEX container_files_by_time ON container_files (container, created_at, key)",
    """CREATE TABLE skills (
        key INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        default_version INTEGER NOT NULL,
        last_version INTEGER NOT NULL,
        UNIQUE (owner, id)
    )""",
    "CREATE INDEX skills_by_time ON skills (owner, created_at, key)",
    """CREATE TABLE skill_versions (
        key INTEGER PRIMARY KEY,
        skill INTEGER NOT NULL,
        version INTEGER NOT NULL,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        blob TEXT NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (skill, version)
    )""",
    """CREATE TABLE file_claims (
        owner TEXT NOT NULL,
        token TEXT NOT NULL,
        digest BLOB NOT NULL,
        response TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        writer TEXT NOT NULL,
        PRIMARY KEY (owner, token)
    ) WITHOUT ROWID""",
    "CREATE INDEX file_claims_by_time ON file_claims (created_at)",
    """CREATE TABLE erasure (
        due INTEGER NOT NULL,
        done INTEGER NOT NULL
    )""",
    "INSERT INTO erasure VALUES (0, 0)",
)

FILES: Final = Schema(int.from_bytes(b"antf"), (_FIRST, VECTOR_TABLES))
