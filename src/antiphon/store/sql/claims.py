"""Which requests have made something already: the table `file_claims`.

It is separate from `claims`, because SQLite has it in another file.
"""

from __future__ import annotations

from typing import Final

from antiphon.store.base.claims import Claim, ClaimRequest
from antiphon.store.sql.steps import Alive, Lock, Steps, ask

__all__ = ["earlier_claim", "note_claim", "sweep_claims"]

_FIND: Final = """
    SELECT digest, response, created_at, writer FROM file_claims WHERE owner = $1 AND token = $2
"""
_NOTE: Final = """
    INSERT INTO file_claims (owner, token, digest, response, created_at, writer)
    VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (owner, token) DO UPDATE SET digest = excluded.digest,
        response = excluded.response, created_at = excluded.created_at, writer = excluded.writer
"""
_SWEEP: Final = """
    DELETE FROM file_claims WHERE (owner, token) IN (
        SELECT owner, token FROM file_claims WHERE created_at < $1 ORDER BY created_at LIMIT $2
    ) RETURNING 1
"""


def earlier_claim(owner: str, once: ClaimRequest | None) -> Steps[Claim | None]:
    """Return the claim on this token that exists already, if it still counts.

    Other callers with the same token wait until this transaction has ended.
    """
    if once is None:
        return None
    yield Lock(f"claim\n{owner}\n{once.token}")
    rows = yield from ask(_FIND, owner, once.token)
    if not rows:
        return None
    digest, made, created_at, writer = rows[0]
    alive = yield Alive(writer)
    return once.earlier(Claim(digest, made, created_at, is_held=bool(alive[0][0])))


def note_claim(owner: str, once: ClaimRequest | None, made: str, writer: str) -> Steps[None]:
    """Claim the token for what was made in this transaction, in place of any older claim."""
    if once is not None:
        yield from ask(_NOTE, owner, once.token, once.digest, made, once.now, writer)


def sweep_claims(before: int, limit: int) -> Steps[int]:
    """Remove the oldest claims that were made before this time; return how many."""
    return len((yield from ask(_SWEEP, before, limit)))
