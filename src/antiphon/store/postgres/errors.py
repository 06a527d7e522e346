"""What do PostgreSQL's errors mean, and whom do they concern?

Error texts go to callers over HTTP, so they name what to do and never the URL of the database,
a user or a host. An error is classified three ways: is the database unreachable (then a retry is
worthwhile), does it concern all changes (then no single one caused it), and which text is sent.
"""

from __future__ import annotations

from typing import Final

import asyncpg

from antiphon.protocol.errors import StoreUnavailable

__all__ = ["FAULTS", "concerns_all", "is_away", "is_broken", "unavailable"]

# Raised by the driver: for a connection that is closed, or that the server is just about to
# close, in which case the driver calls it an internal error.
_DRIVER: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError)
FAULTS: Final = (asyncpg.PostgresError, *_DRIVER, OSError, TimeoutError)
"""The faults of a database. OSError: those of the network and the name server."""

# By the first two characters of SQLSTATE, or by all five where that matters.
_SENTENCES: Final = {
    "08": "the connection to the database was lost; nothing was stored, try again",
    "28": "the database refuses the user or the password of this gateway",
    "3D": "the database server has no database of this name; create it first",
    "3F": "the database has no schema of this name; make it with CREATE SCHEMA first",
    "42501": "the database does not let this gateway's user do that; grant it the right",
    "25006": "the database is read-only and cannot be written; nothing was stored",
    "53": "the database has no room left, or no connection; nothing was stored, try again",
    "53100": "there is no room left on the disk of the database; nothing was stored: free some",
    "55P03": "the database is locked; nothing was stored, try again",
    "57014": "the database did not answer in time; nothing was stored, try again",
    "57": "the database is going down or coming up; nothing was stored, try again",
    "40": "the database is too busy; nothing was stored, try again",
}
_AWAY: Final = "the database cannot be reached; nothing was stored, try again"
_LATE: Final = "the database did not answer in time; try again"


def is_away(error: BaseException) -> bool:
    """Return whether the same may work in a moment, on a new connection or after a deadlock."""
    if isinstance(error, asyncpg.PostgresError):
        state = _state(error)
        return state[:2] in {"08", "40"} or state in {"57P01", "57P02", "57P03", "57P05", "25P03"}
    # An InterfaceError that is a ValueError is about what we sent, others about a connection
    # that was closed under us.
    return isinstance(error, (OSError, *_DRIVER)) and not isinstance(
        error, (TimeoutError, ValueError)
    )


def is_broken(error: BaseException) -> bool:
    """Return whether the connection on which this happened is unusable."""
    return isinstance(error, TimeoutError) or is_away(error)


def concerns_all(error: BaseException) -> bool:
    """Return whether the error is about the database, and not about one of many changes."""
    if isinstance(error, asyncpg.PostgresError):
        return _state(error)[:2] in {"25", "28", "3D", "3F", "53", "55", "57", "58"}
    return isinstance(error, OSError) or is_away(error)


def unavailable(error: BaseException) -> StoreUnavailable:
    """Return the error that a caller gets, with this one as its cause."""
    fault = StoreUnavailable(_sentence(error))
    fault.__cause__ = error
    return fault


def _sentence(error: BaseException) -> str:
    if isinstance(error, StoreUnavailable):
        return error.message
    if isinstance(error, TimeoutError):
        return _LATE
    if isinstance(error, asyncpg.PostgresError):
        state = _state(error)
        sentence = _SENTENCES.get(state) or _SENTENCES.get(state[:2])
        return sentence or f"the database refused it (SQLSTATE {state}); nothing was stored"
    if is_away(error):
        return _AWAY
    return f"the store failed with {type(error).__name__}; nothing was stored"


def _state(error: asyncpg.PostgresError) -> str:
    # None: asyncpg raises errors of its own with this class, such as for a lost connection.
    return getattr(error, "sqlstate", None) or "08000"
