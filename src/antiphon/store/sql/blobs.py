"""Which row has which blob: the table `blobs`, for the facets that name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.store.base.blobs import UNNAMED_SECONDS, Blob, BlobGone
from antiphon.store.sql.steps import Gone, Row, Steps, ask, ask_in

__all__ = ["BLOB", "drop_blobs", "name_blobs", "read_blob", "remove_blobs", "sweep_blobs", "used"]

BLOB: Final = "blobs.id, blobs.size, blobs.sha256"
"""The last columns of a row that has a blob."""

_NAME: Final = (
    "UPDATE blobs SET state = 1 WHERE owner = $1 AND state = 0 AND id IN ({}) RETURNING id"
)
_REMOVE: Final = "UPDATE blobs SET state = 2 WHERE owner = $1 AND id IN ({}) RETURNING id"
_DROP: Final = (
    "UPDATE blobs SET state = 2 WHERE owner = $1 AND state = 0 AND id IN ({}) RETURNING id"
)
_USED: Final = "SELECT sum(size) FROM blobs WHERE owner = $1 AND state = 1"
_OLD: Final = """
    UPDATE blobs SET state = 2 WHERE state = 0 AND key IN (
        SELECT key FROM blobs WHERE state = 0 AND created_at < $1 LIMIT $2
    ) RETURNING id
"""
_LEFT: Final = "SELECT id FROM blobs WHERE state = 2 LIMIT $1"


def read_blob(row: Row) -> Blob:
    """Return the blob of the last columns of a row."""
    blob, size, digest = row[-3:]
    return Blob(blob, size, digest)


def name_blobs(owner: str, blobs: Sequence[str]) -> Steps[None]:
    """Note that rows of this transaction have these blobs. Raise BlobGone if one cannot be had."""
    named = yield from ask_in(_NAME, (owner,), blobs)
    if len(named) < len(blobs):
        raise BlobGone


def remove_blobs(owner: str, blobs: Sequence[str]) -> Steps[None]:
    """Remove the blobs of rows that this transaction removes."""
    removed = yield from ask_in(_REMOVE, (owner,), blobs)
    yield Gone([row[0] for row in removed])


def drop_blobs(owner: str, blobs: Sequence[str]) -> Steps[None]:
    """Remove blobs that were written for a row that is not stored, unless another row has them."""
    removed = yield from ask_in(_DROP, (owner,), blobs)
    yield Gone([row[0] for row in removed])


def used(owner: str) -> Steps[int]:
    """Return the bytes of all blobs of this owner that rows have."""
    rows = yield from ask(_USED, owner)
    return int(rows[0][0] or 0)


def sweep_blobs(now: int, limit: int) -> Steps[int]:
    """Remove blobs that no row has named for too long, and what is left of removed ones."""
    old = yield from ask(_OLD, now - UNNAMED_SECONDS, limit)
    left = yield from ask(_LEFT, limit)
    yield Gone([row[0] for row in left])
    return max(len(old), len(left))
