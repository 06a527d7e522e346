"""What we ask and tell the database about logs, and about who writes them.

A function gets a connection inside a transaction, which somebody else begins and commits.
What must not be done is returned as an error and nothing is changed: an error that is raised
would undo the work of others in the same transaction.

Every batch is added under the same check: the response is unfinished and `writer` is the
store that asks. Whoever was taken for dead has lost its turns and hears so here. There is no
index on `log`: its rows are found by what `open_turns` knows, or by looking through the table.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from itertools import chain, starmap
from typing import Final

import msgspec

from antiphon.protocol.errors import TurnLost
from antiphon.store.base import Batch, Orphan
from antiphon.store.encoding import (
    compress_batches,
    compress_log,
    decode_turn,
    end_log,
    expand_log,
)
from antiphon.store.sqlite.connection import LONG, Connection, Look, insert_row, turns_of
from antiphon.store.sqlite.open_turns import Name, OpenTurn

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
    "remove_own_rows",
    "remove_rows",
]

# The greatest sequence number that anybody may ask for: SQLite's integers end at twice that.
MAX_NUMBER: Final = 2**62

# Responses whose logs somebody follows here, of which we remember how far we looked.
_MAX_LOOKS: Final = 1000

_encode: Final = msgspec.json.Encoder().encode
_decode_heads: Final = msgspec.json.Decoder(list[tuple[int, int, int]]).decode

_INTO: Final = "log (response, first, last, owner, body)"
_INSERT: Final = f"INSERT INTO {_INTO} VALUES "  # noqa: S608 # constants
# Prepared for so many rows: each statement gives up the interpreter, and may get it back late.
_INSERTS: Final = {
    1 << power: _INSERT + ", ".join(["(?, ?, ?, ?, ?)"] * (1 << power)) for power in range(7)
}
_MOST_AT_ONCE: Final = max(_INSERTS)
# A log in one row, for the same reason: [first, last, length] of each batch, and their bodies.
_HEADS: Final = "json_group_array(json_array(first, last, length(body)))"
_BODIES: Final = "group_concat(body, '')"
_OF_KEYS: Final = f"""
    SELECT count(*), {_HEADS}, CAST({_BODIES} AS BLOB)
    FROM json_each(:rows) AS place
    CROSS JOIN log ON log.key = place.value AND log.response = :key AND log.owner = :owner
"""  # noqa: S608 # constants
# A long log, row by row: it need not be in memory as a whole. `end` is where the last batch begins.
_EACH: Final = """
    SELECT first, last, body FROM json_each(:rows) AS place
    CROSS JOIN log ON log.key = place.value AND log.response = :key AND log.owner = :owner
    WHERE first < :end
"""
_COUNT: Final = """
    SELECT count(*), count(*) FILTER (WHERE first < :end) FROM json_each(:rows) AS place
    CROSS JOIN log ON log.key = place.value AND log.response = :key AND log.owner = :owner
"""
_BEHIND: Final = f"""
    SELECT max(key), max(last), {_HEADS} FILTER (WHERE last > :after),
        CAST({_BODIES} FILTER (WHERE last > :after) AS BLOB), (SELECT max(key) FROM log),
        EXISTS (SELECT 1 FROM log WHERE key = :row AND response = :key)
    FROM log WHERE key > :place AND response = :key AND owner = :owner
"""  # noqa: S608 # constants
_OF_ALL: Final = """
    SELECT response, first, last, body FROM log
    WHERE response IN (SELECT value FROM json_each(?)) ORDER BY key
"""
_REMOVE: Final = """
    DELETE FROM log WHERE (response, owner) IN (
        SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))
"""
_REMOVE_OWN: Final = (
    "DELETE FROM log WHERE key IN (SELECT value FROM json_each(?)) AND response = ? AND owner = ?"
)
CLOSED: Final = "response IN (SELECT logs.response FROM logs WHERE logs.response = log.response)"
"""Whether a row of `log` says nothing any more, because the whole log is in `logs`."""
# Two questions, each answered at one end of the table: asked as one, it would be read through.
_FROM: Final = "SELECT (SELECT min(key) FROM log WHERE key >= ?), (SELECT max(key) FROM log)"
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


def insert_batch(connection: sqlite3.Connection, owner: str, turn: OpenTurn, batch: Batch) -> None:
    """Add to a log that begins, and to what is known of it."""
    values = (turn.key, batch.first, batch.last, owner, batch.body)
    row = insert_row(connection, _INTO, values)
    assert row is not None
    turns_of(connection).add(turn, row, batch)


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
        """Do all of these with few statements; answer each, in their order.

        They are of one store, so they have one writer.
        """
        names = [(append.owner, append.response_id) for append in appends]
        found = turns_of(connection).find(connection, appends[0].writer, names)
        ours = [
            (turn, append) for turn, append in zip(found, appends, strict=True) if turn is not None
        ]
        _insert_all(connection, ours)
        if changed := [(append.status, turn.key) for turn, append in ours if append.status]:
            connection.executemany("UPDATE responses SET status = ? WHERE key = ?", changed)
        return [
            lost(connection, *name) if turn is None else turn.is_cancelled
            for turn, name in zip(found, names, strict=True)
        ]


def _insert_all(connection: sqlite3.Connection, appends: Sequence[tuple[OpenTurn, Append]]) -> None:
    add = turns_of(connection).add
    for turn, append in appends:
        if len(append.batch.body) >= LONG:
            insert_batch(connection, append.owner, turn, append.batch)
    appends = [one for one in appends if len(one[1].batch.body) < LONG]
    start = 0
    while left := len(appends) - start:
        count = 1 << (min(left, _MOST_AT_ONCE).bit_length() - 1)
        some = appends[start : start + count]
        values: list[int | str | bytes] = []
        for turn, append in some:
            first, last, body = append.batch
            values += (turn.key, first, last, append.owner, body)
        end = connection.execute(_INSERTS[count], values).lastrowid
        assert end is not None
        for row, (turn, append) in enumerate(some, end - count + 1):
            add(turn, row, append.batch)
        start += count


def lost(connection: sqlite3.Connection, owner: str, response_id: str) -> TurnLost:
    """Return why this response is not the asking store's to write."""
    turns_of(connection).forget((owner, response_id))
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


def close_log(
    connection: sqlite3.Connection, writer: str, name: Name, key: int, last: Batch | None
) -> bool:
    """Put a log, with its last batch, into one compressed row; say whether it has others.

    Those stay until they are purged with the rows of other logs: they lie on many pages, between
    rows of other turns, and each page is written once for all of them then.
    """
    turns = turns_of(connection)
    turn = turns.known(connection, writer, name)
    body = _compress_rows(connection, name[0], turn, last) if turn and turn.key == key else None
    has_rows = body is not None
    if body is None:
        written = _written(connection, name[0], key, turn)
        has_rows, batches = bool(written), end_log(written, last)
        body = compress_log(batches) if batches else None
    turns.forget(name)
    if body is not None:
        insert_row(connection, "logs (response, owner, body)", (key, name[0], body))
    return has_rows


def _compress_rows(
    connection: sqlite3.Connection, owner: str, turn: OpenTurn, last: Batch | None
) -> bytes | None:
    """Return a long log, compressed row by row; None if it is short, or rows are missing."""
    if turn.size < LONG:
        return None
    places = {
        "rows": _encode(turn.rows.tolist()).decode(),
        "key": turn.key,
        "owner": owner,
        "end": MAX_NUMBER if last is None else last.first,
    }
    found, count = connection.execute(_COUNT, places).fetchone()
    if found != len(turn.rows):
        return None
    rows = starmap(Batch, connection.execute(_EACH, places))
    if last is None:
        return compress_batches(count, rows)
    return compress_batches(count + 1, chain(rows, [last]))


def _written(
    connection: sqlite3.Connection, owner: str, key: int, turn: OpenTurn | None
) -> list[Batch]:
    """Return the whole log of an open response, with the help of what is known of it."""
    if turn is not None and turn.key == key:
        if turn.batches is not None:
            return turn.batches
        places = {"rows": _encode(turn.rows.tolist()).decode(), "key": key, "owner": owner}
        count, heads, bodies = connection.execute(_OF_KEYS, places).fetchone()
        if count == len(turn.rows):
            return _split(heads, bodies)
    question = {"key": key, "owner": owner, "after": -1, "place": 0, "row": 0}
    heads, bodies = connection.execute(_BEHIND, question).fetchone()[2:4]
    return _split(heads, bodies)


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
    connection: sqlite3.Connection, owner: str, key: int, after: int, *, is_open: bool
) -> list[Batch] | None:
    """Return the batches behind this number, or None if the response keeps no log.

    Whoever follows an open log asks again and again, so the table is looked through from where
    the connection last found the end of that log.
    """
    looks = connection.looks if isinstance(connection, Connection) else {}
    seen = looks.pop(key, Look())
    whole = connection.execute(
        "SELECT body FROM logs WHERE response = ? AND owner = ?", (key, owner)
    ).fetchone()
    if whole is not None:
        return expand_log(whole[0], after)
    if not is_open:
        return None
    after = min(after, MAX_NUMBER)
    start = seen.place if after >= seen.number else 0
    question = {"key": key, "owner": owner, "after": after, "place": start, "row": seen.row}
    found = connection.execute(_BEHIND, question).fetchone()
    row, number, heads, bodies, end, is_kept = found
    looks[key] = Look(seen.number if number is None else number, end or 0, row or seen.row)
    if len(looks) > _MAX_LOOKS:
        del looks[next(iter(looks))]
    return _split(heads, bodies) if row is not None or is_kept else None


def remove_rows(connection: sqlite3.Connection, places: Sequence[tuple[int, str]]) -> None:
    """Remove the rows of responses, given by key and owner: the table is looked through once."""
    connection.execute(_REMOVE, (_encode(places).decode(),))


def remove_own_rows(connection: sqlite3.Connection, writer: str, name: Name, key: int) -> None:
    """Remove the rows of an unfinished response of this writer."""
    turn = turns_of(connection).known(connection, writer, name)
    if turn is None or turn.key != key:
        remove_rows(connection, [(key, name[0])])
    else:
        connection.execute(_REMOVE_OWN, (_encode(turn.rows.tolist()).decode(), key, name[0]))


def ask_cancel(connection: sqlite3.Connection, owner: str, response_id: str) -> bool:
    """Note the wish to cancel an unfinished response; say whether there is such one."""
    cursor = connection.execute(
        "INSERT INTO jobs (response, owner, is_cancelled)"
        " SELECT key, owner, 1 FROM responses"
        " WHERE owner = ? AND id = ? AND writer IS NOT NULL"
        " ON CONFLICT (response) DO UPDATE SET is_cancelled = 1",
        (owner, response_id),
    )
    turns_of(connection).doubt((owner, response_id))
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
    turns_of(connection).forget_all()
    batches: dict[int, list[Batch]] = {row[0]: [] for row in rows}
    for key, *batch in connection.execute(_OF_ALL, (json.dumps(list(batches)),)):
        batches[key].append(Batch(*batch))
    return [
        Orphan(owner, decode_turn(body, [], status), batches[key], request, bool(is_cancelled))
        for key, owner, status, body, request, is_cancelled in rows
    ]


def _writers(connection: sqlite3.Connection) -> list[str]:
    """Return the writers of all unfinished responses."""
    rows = connection.execute("SELECT DISTINCT writer FROM responses WHERE writer IS NOT NULL")
    return [writer for (writer,) in rows]


def _split(heads: str, bodies: bytes | None) -> list[Batch]:
    """Return the batches of these bodies, which lie one behind the other."""
    batches, start = [], 0
    for first, last, size in _decode_heads(heads):
        batches.append(Batch(first, last, (bodies or b"")[start : start + size]))
        start += size
    return batches
