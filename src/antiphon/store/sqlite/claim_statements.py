"""What we ask and tell the database about claims, notices and secrets.

A function gets a connection inside a transaction, which somebody else begins and commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from antiphon.store.base import Claim, ClaimRequest, Notice

__all__ = [
    "earlier_claim",
    "find_claim",
    "insert_notices",
    "keep_secret",
    "note_claim",
    "note_once",
    "postpone_notice",
    "release_claim",
    "settle_notice",
    "sweep_claims",
    "sweep_notices",
    "take_claim",
    "take_notices",
]

_IsAlive = Callable[[str], bool]

_DUE: Final = (
    "SELECT key, id, owner, response, type, created_at, endpoint, attempts + 1 FROM notices"
    " WHERE endpoint = ? AND due_at <= ? ORDER BY created_at, key LIMIT ?"
)


def take_claim(
    connection: sqlite3.Connection,
    owner: str,
    token: str,
    claim: Claim,
    writer: str,
    is_alive: _IsAlive,
) -> Claim | None:
    """Claim the token unless somebody has; return the claim that is there already."""
    found = find_claim(connection, owner, token, is_alive)
    if found is not None and (found.is_held or _led(connection, owner, found.response_id)):
        return found
    note_claim(connection, owner, token, claim, writer)
    return None


def note_claim(
    connection: sqlite3.Connection, owner: str, token: str, claim: Claim, writer: str
) -> None:
    """Claim the token, in place of any older claim."""
    connection.execute(
        "INSERT OR REPLACE INTO claims (owner, token, digest, response, created_at, writer)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (owner, token, claim.digest, claim.response_id, claim.created_at, writer),
    )


def find_claim(
    connection: sqlite3.Connection, owner: str, token: str, is_alive: _IsAlive
) -> Claim | None:
    """Return the claim on this token; it is held for as long as its writer is alive."""
    row = connection.execute(
        "SELECT digest, response, created_at, writer FROM claims WHERE owner = ? AND token = ?",
        (owner, token),
    ).fetchone()
    if row is None:
        return None
    digest, response_id, created_at, writer = row
    return Claim(digest, response_id, created_at, is_held=is_alive(writer))


def earlier_claim(
    connection: sqlite3.Connection, owner: str, once: ClaimRequest | None, is_alive: _IsAlive
) -> Claim | None:
    """Return the claim on this token that is there already, if it still counts."""
    found = None if once is None else find_claim(connection, owner, once.token, is_alive)
    return None if once is None or found is None or found.created_at < once.since else found


def note_once(
    connection: sqlite3.Connection, owner: str, once: ClaimRequest | None, made: str, writer: str
) -> None:
    """Claim the token for what was made in this transaction, in place of any older claim."""
    if once is not None:
        claim = Claim(once.digest, made, once.now, is_held=True)
        note_claim(connection, owner, once.token, claim, writer)


def release_claim(connection: sqlite3.Connection, owner: str, token: str, response_id: str) -> None:
    """Forget the claim if it leads to this response."""
    connection.execute(
        "DELETE FROM claims WHERE owner = ? AND token = ? AND response = ?",
        (owner, token, response_id),
    )


def sweep_claims(connection: sqlite3.Connection, before: int, limit: int) -> int:
    """Forget the oldest claims that were made before this time, `limit` at most."""
    cursor = connection.execute(
        "DELETE FROM claims WHERE (owner, token) IN ("
        " SELECT owner, token FROM claims WHERE created_at < ? ORDER BY created_at LIMIT ?)",
        (before, limit),
    )
    return cursor.rowcount


def insert_notices(connection: sqlite3.Connection, notices: Sequence[Notice]) -> None:
    """Keep notices that are due at once."""
    connection.executemany(
        "INSERT OR IGNORE INTO notices"
        " (id, owner, response, type, created_at, endpoint, attempts, due_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
        [
            (n.id, n.owner, n.response_id, n.type, n.created_at, n.endpoint, n.attempts)
            for n in notices
        ],
    )


def take_notices(
    connection: sqlite3.Connection, endpoint: str, now: int, hide_until: int, limit: int
) -> list[Notice]:
    """Return what is due, oldest first, and hide it; count the attempt."""
    rows = connection.execute(_DUE, (endpoint, now, limit)).fetchall()
    connection.executemany(
        "UPDATE notices SET attempts = attempts + 1, due_at = ? WHERE key = ?",
        [(hide_until, row[0]) for row in rows],
    )
    return [Notice(*row[1:]) for row in rows]


def postpone_notice(connection: sqlite3.Connection, notice_id: str, until: int) -> None:
    """Let a notice be due again at this time."""
    connection.execute("UPDATE notices SET due_at = ? WHERE id = ?", (until, notice_id))


def settle_notice(connection: sqlite3.Connection, notice_id: str) -> None:
    """Forget a notice."""
    connection.execute("DELETE FROM notices WHERE id = ?", (notice_id,))


def sweep_notices(connection: sqlite3.Connection, before: int) -> None:
    """Forget notices that were made before this time."""
    connection.execute("DELETE FROM notices WHERE created_at < ?", (before,))


def keep_secret(connection: sqlite3.Connection, name: str, value: bytes) -> bytes:
    """Return the secret of this name; keep this value if there is none."""
    connection.execute("INSERT OR IGNORE INTO secrets (name, value) VALUES (?, ?)", (name, value))
    row = connection.execute("SELECT value FROM secrets WHERE name = ?", (name,)).fetchone()
    return bytes(row[0])


def _led(connection: sqlite3.Connection, owner: str, response_id: str) -> bool:
    row = connection.execute(
        "SELECT 1 FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    return row is not None
