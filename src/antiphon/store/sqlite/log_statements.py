"""What we ask and tell the database about logs, and about who writes them.

A function gets a connection inside a transaction, which somebody else begins and commits.
What must not be done is returned as an error and nothing is changed: an error that is raised
would undo the work of others in the same transaction.

Every batch is added under the same check: the response is unfinished and `writer` is the
store that asks. Whoever was taken for dead has lost its turns and hears so here.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from antiphon.protocol.errors import TurnLost
from antiphon.store.base import Batch, Orphan
from antiphon.store.encoding import compress_log, decode_turn, end_log, expand_log

__all__ = [
    "CLOSED",
    "MAX_NUMBER",
    "Append",
    "ask_cancel",
    "asked_cancels",
    "claim_orphans",
    "close_log",
    "has_orphans",
    "insert_batch",
    "insert_job",
    "lost",
    "purge",
    "read_batches",
]

# The greatest sequence number that anybody may ask for: SQLite's integers end at twice that.
MAX_NUMBER: Final = 2**62

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[tuple[int, int, int | None]]).decode

# Which of these responses are still the writer's, and are they to be cancelled? All in one row:
# between two rows another thread may take the interpreter, and give it back late.
_OPEN: Final = """
    SELECT json_group_array(json_array(turn.key, responses.key, jobs.is_cancelled))
    FROM json_each(?) AS turn
    CROSS JOIN responses ON responses.owner = ? AND responses.id = turn.value
        AND responses.writer = ?
    LEFT JOIN jobs ON jobs.response = responses.key
"""
_INSERT: Final = "INSERT INTO log (response, first, last, owner, body) VALUES (?, ?, ?, ?, ?)"
# Rows as [response, first, last, place of the body, its length]; the bodies are one blob.
_INSERT_ALL: Final = """
    INSERT INTO log (response, first, last, owner, body)
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
        ?, coalesce(substr(?, json_extract(value, '$[3]'), json_extract(value, '$[4]')), x'')
    FROM json_each(?)
"""
# Batches follow each other without a gap: the first one wanted is the last that begins early
# enough. This is found in the index, however long the log is.
_BATCHES: Final = """
    SELECT first, last, body FROM log
    WHERE response = :key AND owner = :owner AND last > :after AND first >= coalesce(
        (SELECT max(first) FROM log WHERE response = :key AND first <= :after + 1), 0)
    ORDER BY first
"""
_ALL_BATCHES: Final = (
    "SELECT first, last, body FROM log WHERE response = ? AND owner = ? ORDER BY first"
)
CLOSED: Final = "response IN (SELECT logs.response FROM logs WHERE logs.response = log.response)"
"""Whether a row of `log` says nothing any more, because the whole log is in `logs`."""
_FROM: Final = "SELECT min(key), max(key) FROM log WHERE key >= ?"
_PURGE: Final = f"DELETE FROM log WHERE key >= ? AND key < ? AND {CLOSED}"  # noqa: S608 # constants
# Looked through while others wait to write: some milliseconds.
_ROWS_AT_ONCE: Final = 1000
_ORPHANS: Final = """
    SELECT responses.key, responses.owner, responses.status, responses.body,
        jobs.request, coalesce(jobs.is_cancelled, 0)
    FROM responses LEFT JOIN jobs ON jobs.response = responses.key
    WHERE responses.writer IN (SELECT value FROM json_each(?))
    ORDER BY responses.created_at, responses.key LIMIT ?
"""


def insert_batch(connection: sqlite3.Connection, owner: str, key: int, batch: Batch) -> None:
    """Add to a log. Whoever asks has made sure that the turn is its own."""
    connection.execute(_INSERT, (key, batch.first, batch.last, owner, batch.body))


def insert_job(connection: sqlite3.Connection, owner: str, key: int, request: bytes) -> None:
    """Keep what is needed to run the turn again."""
    connection.execute(
        "INSERT INTO jobs (response, owner, is_cancelled, request) VALUES (?, ?, 0, ?)",
        (key, owner, request),
    )


class Append(msgspec.Struct, frozen=True):
    """A batch for the log of an unfinished response. The answer: whether it is to be cancelled."""

    owner: str
    response_id: str
    writer: str
    batch: Batch
    status: str | None

    def __call__(self, connection: sqlite3.Connection) -> bool | TurnLost:
        """Do it alone."""
        return self.together(connection, [self])[0]

    @staticmethod
    def together(
        connection: sqlite3.Connection, appends: Sequence[Append]
    ) -> list[bool | TurnLost]:
        """Do all of these with few statements; answer each, in their order."""
        answers: dict[int, bool | TurnLost] = {}
        places: dict[tuple[str, str], list[int]] = {}
        for place, append in enumerate(appends):
            places.setdefault((append.owner, append.writer), []).append(place)
        for (owner, writer), some in places.items():
            found = _append_all(connection, owner, writer, [appends[place] for place in some])
            answers.update(zip(some, found, strict=True))
        return [answers[place] for place in range(len(appends))]


def _append_all(
    connection: sqlite3.Connection, owner: str, writer: str, appends: Sequence[Append]
) -> list[bool | TurnLost]:
    names = _encode([append.response_id for append in appends]).decode()
    (row,) = connection.execute(_OPEN, (names, owner, writer)).fetchone()
    found = {place: (key, bool(is_cancelled)) for place, key, is_cancelled in _decode(row)}
    rows, bodies, end = [], [], 1  # SQLite counts from one
    for place, (key, _) in found.items():
        first, last, body = appends[place].batch
        rows.append((key, first, last, end, len(body)))
        bodies.append(body)
        end += len(body)
    connection.execute(_INSERT_ALL, (owner, b"".join(bodies), _encode(rows).decode()))
    for place, (key, _) in found.items():
        if appends[place].status is not None:
            connection.execute(
                "UPDATE responses SET status = ? WHERE key = ?", (appends[place].status, key)
            )
    return [
        found[place][1] if place in found else lost(connection, owner, append.response_id)
        for place, append in enumerate(appends)
    ]


def lost(connection: sqlite3.Connection, owner: str, response_id: str) -> TurnLost:
    """Return why this response is not the asking store's to write."""
    row = connection.execute(
        "SELECT status, writer FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    if row is None:
        obstacle = "is not in the store: its beginning could not be written, or it was deleted"
    elif row[1] is None:
        obstacle = f"has already ended as {row[0]}"
    else:
        obstacle = "was taken over by another process"
    return TurnLost(f"response {response_id!r} {obstacle}; nothing was stored")


def close_log(connection: sqlite3.Connection, owner: str, key: int, last: Batch | None) -> None:
    """Put a log, with its last batch, into one compressed row.

    Its own rows stay until they are purged with those of others: they lie on many pages, with
    rows of other turns, and each page is written once for all of them then.
    """
    batches = end_log(_batches(connection.execute(_ALL_BATCHES, (key, owner))), last)
    if batches:
        connection.execute(
            "INSERT INTO logs (response, owner, body) VALUES (?, ?, ?)",
            (key, owner, compress_log(batches)),
        )


def purge(connection: sqlite3.Connection, start: int) -> int | None:
    """Remove the rows of closed logs from here on, some; return where to go on, if anywhere.

    They are taken in the order in which they lie in the file, so that each page is written once.
    """
    first, last = connection.execute(_FROM, (start,)).fetchone()
    if first is None:
        return None
    end: int = first + _ROWS_AT_ONCE
    connection.execute(_PURGE, (first, end))
    return end if end <= last else None


def read_batches(
    connection: sqlite3.Connection, owner: str, key: int, after: int
) -> list[Batch] | None:
    """Return the batches behind this number, or None if the response keeps no log."""
    whole = connection.execute(
        "SELECT body FROM logs WHERE response = ? AND owner = ?", (key, owner)
    ).fetchone()
    if whole is not None:
        return expand_log(whole[0], after)
    place = {"key": key, "owner": owner, "after": min(after, MAX_NUMBER)}
    batches = _batches(connection.execute(_BATCHES, place))
    if batches or _has_log(connection, key):
        return batches
    return None


def ask_cancel(connection: sqlite3.Connection, owner: str, response_id: str) -> bool:
    """Note the wish to cancel an unfinished response; say whether there is such one."""
    cursor = connection.execute(
        "INSERT INTO jobs (response, owner, is_cancelled)"
        " SELECT key, owner, 1 FROM responses"
        " WHERE owner = ? AND id = ? AND writer IS NOT NULL"
        " ON CONFLICT (response) DO UPDATE SET is_cancelled = 1",
        (owner, response_id),
    )
    return cursor.rowcount == 1


def asked_cancels(connection: sqlite3.Connection, writer: str) -> list[tuple[str, str]]:
    """Return owner and id of the responses of this writer that are to be cancelled."""
    return connection.execute(
        "SELECT responses.owner, responses.id FROM jobs"
        " CROSS JOIN responses ON responses.key = jobs.response"
        " WHERE jobs.is_cancelled AND responses.writer = ?",
        (writer,),
    ).fetchall()


def has_orphans(connection: sqlite3.Connection, is_alive: Callable[[str], bool]) -> bool:
    """Say whether there are unfinished responses whose writer is gone."""
    return not all(is_alive(writer) for writer in _writers(connection))


def claim_orphans(
    connection: sqlite3.Connection, writer: str, is_alive: Callable[[str], bool], limit: int
) -> list[Orphan]:
    """Let this writer have the unfinished responses of those that are gone."""
    gone = [name for name in _writers(connection) if not is_alive(name)]
    rows = connection.execute(_ORPHANS, (json.dumps(gone), limit)).fetchall()
    connection.executemany(
        "UPDATE responses SET writer = ? WHERE key = ?", [(writer, row[0]) for row in rows]
    )
    return [
        Orphan(
            owner,
            decode_turn(body, [], status),
            _batches(connection.execute(_ALL_BATCHES, (key, owner))),
            request,
            bool(is_cancelled),
        )
        for key, owner, status, body, request, is_cancelled in rows
    ]


def _writers(connection: sqlite3.Connection) -> list[str]:
    """Return the writers of all unfinished responses."""
    rows = connection.execute("SELECT DISTINCT writer FROM responses WHERE writer IS NOT NULL")
    return [writer for (writer,) in rows]


def _has_log(connection: sqlite3.Connection, key: int) -> bool:
    found = connection.execute("SELECT 1 FROM log WHERE response = ? LIMIT 1", (key,))
    return found.fetchone() is not None


def _batches(rows: Iterable[tuple[int, int, bytes]]) -> list[Batch]:
    return [Batch(*row) for row in rows]
