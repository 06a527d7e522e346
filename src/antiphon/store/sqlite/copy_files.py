"""The second database of a store and its folder, as a place to copy from and to.

A source without them has no files. A target gets them with the first row. Contents get their final
names at once: until the rows are committed nothing names them, and they are deleted if the copy is
not kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base.blobs import PIECE_BYTES
from antiphon.store.copy_tables import Row, Table
from antiphon.store.sqlite.connection import connect
from antiphon.store.sqlite.copy_rows import DatabaseRows, connect_reader, size_of
from antiphon.store.sqlite.files_migrations import FILES
from antiphon.store.sqlite.folder import BlobFolder, Draft
from antiphon.store.sqlite.queue import WriteQueue
from antiphon.store.sqlite.vector_words import add_words

__all__ = ["FilesPlace"]

_PATIENCE: Final = 5.0
_BLOBS: Final = "SELECT key, id, size FROM blobs WHERE state = 1 ORDER BY key"
_PIECES: Final = f"""
    SELECT coalesce(sum((size + {PIECE_BYTES - 1}) / {PIECE_BYTES}), 0) FROM blobs WHERE state = 1
"""  # noqa: S608 # constants


class FilesPlace:
    """The files of one store. `path` is that of the main file."""

    def __init__(self, path: Path, *, is_target: bool) -> None:
        self._path = path.with_name(f"{path.name}-files")
        self._folder = BlobFolder(path.with_name(f"{path.name}-blobs"))
        self._is_target = is_target
        self._queue = WriteQueue(self._path)
        self._connection: sqlite3.Connection | None = None
        self._contents = _Contents(self._folder)

    def begin(self) -> None:
        """Open the database if there is one, and begin as in `Place`."""
        if self._path.exists():
            self._open()

    def count(self, table: Table) -> int:
        """Return how many rows there are."""
        if self._connection is None:
            return 0
        if table.name == "blob_pieces":
            return int(self._connection.execute(_PIECES).fetchone()[0])
        return DatabaseRows(self._connection).count(table)

    def number(self, question: str) -> int:
        """Return the one number that answers a query; 0 without a database."""
        if self._connection is None:
            return 0
        return int(self._connection.execute(question).fetchone()[0])

    def rows(self, table: Table) -> Iterator[list[Row]]:
        """Yield all rows in the order of their key, some at a time."""
        if self._connection is None:
            return
        if table.name == "blob_pieces":
            self._contents.end()
            for blob in self._connection.execute(_BLOBS).fetchall():
                yield from _pieces(self._folder, *blob)
        else:
            yield from DatabaseRows(self._connection).rows(table)

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows, or pieces of contents."""
        if rows and self._connection is None:
            self._open()
        if not rows or self._connection is None:
            return
        if table.name == "blob_pieces":
            self._contents.write(rows)
            return
        DatabaseRows(self._connection).write(table, rows)
        if table.name == "vector_chunks":
            add_words(self._connection, rows)
        if table.name == "blobs":
            self._contents.expect({row[0]: row[2] for row in rows})

    def size(self) -> int:
        """Return how many bytes the database and the contents take."""
        return size_of(self._path) + self._folder.size()

    def commit(self) -> None:
        """Make durable what was written."""
        self._contents.end()
        if self._connection is not None:
            self._connection.execute("COMMIT")
        self._contents.keep()

    def close(self) -> None:
        """Close; what was not committed is discarded."""
        self._contents.discard()
        if self._connection is not None:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._connection.close()
        self._queue.close()
        self._folder.close()

    def _open(self) -> None:
        if self._is_target:
            # Connected first: a new database is made in turn with other writers, us among them.
            self._connection = connect(self._path, patience=_PATIENCE, schema=FILES)
            self._queue.enter(_PATIENCE)
            self._connection.execute("BEGIN IMMEDIATE")
        else:
            self._connection = connect_reader(self._path, FILES)
            self._connection.execute("BEGIN")


class _Contents:
    """The contents that are written, blob after blob."""

    def __init__(self, folder: BlobFolder) -> None:
        self._folder = folder
        self._names: dict[int, str] = {}
        """The ids of blobs, by the keys by which pieces name them."""
        self._written: list[str] = []
        self._draft: Draft | None = None
        self._key: int | None = None

    def expect(self, names: dict[int, str]) -> None:
        """Note which blobs there will be."""
        self._names |= names

    def write(self, rows: Sequence[Row]) -> None:
        """Add pieces, in the order of the blobs and of their places."""
        for key, _, body in rows:
            if key != self._key:
                self._begin(key)
            assert self._draft is not None
            self._draft.write(body)

    def end(self) -> None:
        """Complete the last blob, and make those that are empty."""
        self._end_draft()
        for key in set(self._names).difference(self._done()):
            self._begin(key)
            self._end_draft()

    def keep(self) -> None:
        """Leave everything where it is."""
        self._written = []

    def discard(self) -> None:
        """Delete what was written, unless it is kept."""
        if self._draft is not None:
            self._draft.discard()
        self._folder.delete(self._written)

    def _begin(self, key: int) -> None:
        self._end_draft()
        self._key = key
        self._draft = self._folder.draft(self._names[key])
        self._written.append(self._names[key])

    def _end_draft(self) -> None:
        draft, self._draft = self._draft, None
        if draft is not None:
            draft.sync()
            draft.publish()

    def _done(self) -> set[int]:
        written = set(self._written)
        return {key for key, name in self._names.items() if name in written}


def _pieces(folder: BlobFolder, key: int, blob: str, size: int) -> Iterator[list[Row]]:
    for position in range(-(-size // PIECE_BYTES)):
        start = position * PIECE_BYTES
        wanted = min(PIECE_BYTES, size - start)
        body = folder.load(blob, start, wanted)
        if body is None or len(body) < wanted:
            raise StoreUnavailable(
                "the content of a file is missing in the folder of the store: it was removed while"
                " the copy was made (then try again), or the folder is not complete"
            )
        yield [(key, position, body)]
