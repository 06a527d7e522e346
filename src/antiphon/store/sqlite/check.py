"""Are the pages of the database files sound, and is every content in the folder, as it was sent?"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from antiphon.store.sqlite.backup import parts_of

__all__ = ["check_contents", "check_pages"]

_MOST: Final = 20
_PIECE: Final = 1024 * 1024
_PATIENCE: Final = 5.0


def check_pages(path: Path) -> Iterator[tuple[str, str]]:
    """Yield what SQLite itself finds wrong with the files of a store: where, and what."""
    parts = parts_of(path)
    for file in (parts.main, parts.files):
        if not file.is_file():
            continue
        try:
            with contextlib.closing(_open(file)) as connection:
                for (line,) in connection.execute(f"PRAGMA integrity_check({_MOST})"):
                    if line != "ok":
                        yield "database", f"{file.name}: {' '.join(line.split())}"
        except sqlite3.DatabaseError as error:
            yield "database", f"{file.name}: {error}"


def check_contents(path: Path) -> Iterator[tuple[str, str]]:
    """Yield which contents are missing, damaged, or belong to nothing."""
    parts = parts_of(path)
    # Before the rows: a content has a row before it is here, and keeps it until it is deleted.
    there = sorted(parts.blobs.iterdir()) if parts.blobs.is_dir() else []
    known: dict[str, tuple[int, int, bytes]] = {}
    if parts.files.is_file():
        try:
            with contextlib.closing(_open(parts.files)) as connection:
                rows = connection.execute("SELECT id, state, size, sha256 FROM blobs")
                known = {name: (state, size, sha256) for name, state, size, sha256 in rows}
        except sqlite3.DatabaseError as error:
            yield "contents", f"they cannot be checked: {error}"
            return
    for name, (state, size, sha256) in known.items():
        if state != 1:
            continue
        problem = _problem_of(parts.blobs / name, size, sha256)
        if problem and _is_named(parts.files, name):
            yield "contents", f"{name} {problem}"
    for entry in there:
        if entry.is_dir() and entry.name.startswith("backup-"):
            yield "contents", f"{entry.name} was left by a backup that broke off; delete it"
        elif entry.name != "new" and entry.name not in known and entry.exists():
            yield "contents", f"{entry.name} belongs to no file"


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode=ro", uri=True, timeout=_PATIENCE, isolation_level=None
    )


def _is_named(path: Path, name: str) -> bool:
    """Return whether a content is still in use: its file may have been deleted since."""
    with contextlib.closing(_open(path)) as connection:
        question = "SELECT 1 FROM blobs WHERE id = ? AND state = 1"
        return connection.execute(question, (name,)).fetchone() is not None


def _problem_of(path: Path, size: int, sha256: bytes) -> str | None:
    """Return what is wrong with the content of a file, if anything is."""
    digest, found = hashlib.sha256(), 0
    try:
        with path.open("rb") as content:
            while piece := content.read(_PIECE):
                digest.update(piece)
                found += len(piece)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if found != size:
        return f"has {found:,} bytes instead of {size:,}"
    return None if digest.digest() == sha256 else "differs from what was sent"
