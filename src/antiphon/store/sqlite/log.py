"""Facet `log` in SQLite: the batches of running and of finished responses.

A function gets a connection inside a transaction, which the caller begins and commits.
What must not be done is returned as an error and nothing is changed: an error that is raised
would undo the work of others in the same transaction.

Every batch is added under the same check: the response is unfinished and `writer` is the
store that asks. There is no index on `log`: its rows are found through `open_turns`, or by
scanning the table.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain, starmap
from operator import attrgetter
from typing import Final

import msgspec

from antiphon.protocol.errors import StoreUnavailable, TurnLost
from antiphon.protocol.response import DONE_STATUSES
from antiphon.store.base import Batch, Log
from antiphon.store.encoding import compress_batches, compress_log, end_log, expand_log
from antiphon.store.limits import MAX_NUMBER
from antiphon.store.promise import Promise
from antiphon.store.sqlite.backlog import Run
from antiphon.store.sqlite.connection import LONG, Connection, Look, insert_row, turns_of
from antiphon.store.sqlite.facet import Facet
from antiphon.store.sqlite.history import find_response
from antiphon.store.sqlite.open_turns import Name, OpenTurn, OpenTurns
from antiphon.store.sqlite.writers import explain_loss

__all__ = [
    "CLOSED",
    "Append",
    "SqliteLogs",
    "close_log",
    "insert_batch",
    "purge",
    "read_log",
    "remove_own_rows",
    "remove_rows",
]

# How often to check what another process did to a response.
_LOOK_AGAIN: Final = 0.1
# Closed logs whose rows are removed together, and how long the first of them waits for others.
_PURGE_AT_ONCE: Final = 100
_PURGE_SECONDS: Final = 5.0
# Responses for which we remember how far their log was read.
_MAX_LOOKS: Final = 1000
_name_of: Final[Callable[[Append], Name]] = attrgetter("owner", "response_id")
_encode: Final = msgspec.json.Encoder().encode
_decode_heads: Final = msgspec.json.Decoder(list[tuple[int, int, int]]).decode
_INTO: Final = "log (response, first, last, owner, body)"
_INSERT: Final = f"INSERT INTO {_INTO} VALUES "  # noqa: S608 # constants
# Rows that one statement inserts: these, or fewer than the last. Each statement releases the
# interpreter, and may get it back late; each that was prepared keeps a copy of its last values.
_AT_ONCE: Final = (64, 32, 16)
_COLUMNS: Final = 5
# A log in one row, for the same reason: [first, last, length] of each batch, and their bodies.
_HEADS: Final = "json_group_array(json_array(first, last, length(body)))"
_BODIES: Final = "group_concat(body, '')"
_KNOWN: Final = """
    FROM json_each(:rows) AS place
    CROSS JOIN log ON log.key = place.value AND log.response = :key AND log.owner = :owner
"""
_OF_KEYS: Final = f"SELECT count(*), {_HEADS}, CAST({_BODIES} AS BLOB) {_KNOWN}"
# A long log, row by row: it need not be in memory as a whole. `end` is where the last batch begins.
_EACH: Final = f"SELECT first, last, body {_KNOWN} WHERE first < :end"
_COUNT: Final = f"SELECT count(*), count(*) FILTER (WHERE first < :end) {_KNOWN}"
_BEHIND: Final = f"""
    SELECT max(key), max(last), {_HEADS} FILTER (WHERE last > :after),
        CAST({_BODIES} FILTER (WHERE last > :after) AS BLOB), (SELECT max(key) FROM log),
        EXISTS (SELECT 1 FROM log WHERE key = :row AND response = :key)
    FROM log WHERE key > :place AND response = :key AND owner = :owner
"""  # noqa: S608 # constants
_REMOVE: Final = """
    DELETE FROM log WHERE (response, owner) IN (
        SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))
"""
_REMOVE_OWN: Final = (
    "DELETE FROM log WHERE key IN (SELECT value FROM json_each(?)) AND response = ? AND owner = ?"
)
CLOSED: Final = "response IN (SELECT logs.response FROM logs WHERE logs.response = log.response)"
"""Condition: the row of `log` is obsolete, because the whole log is in `logs`."""
# Two questions, each answered at one end of the table: asked as one, it would be read through.
_FROM: Final = "SELECT (SELECT min(key) FROM log WHERE key >= ?), (SELECT max(key) FROM log)"
_PURGE: Final = f"DELETE FROM log WHERE key >= ? AND key < ? AND {CLOSED}"  # noqa: S608 # constants
# Scanned while others wait to write: some milliseconds.
_ROWS_AT_ONCE: Final = 1000


class SqliteLogs(Facet):
    """See `Logs` for what the methods do. Also removes what closed logs have left."""

    _closed = 0
    """How many closed logs are still in the file row by row as well."""
    _purging: asyncio.Task[None] | None = None

    def append(
        self, owner: str, response_id: str, batch: Batch, *, status: str | None = None
    ) -> Promise[bool]:
        """Return a promise that is done when the batch is on the disk. Streams share commits."""
        run: Run[bool] = Append(owner, response_id, self._presence.name, batch, status)
        return self._writer.share(run, len(batch.body))

    async def read_log(self, owner: str, response_id: str, after: int = -1) -> Log | None:
        return await self._read(
            response_id, lambda connection: read_log(connection, owner, response_id, after)
        )

    async def wait(self, response_id: str, seconds: float) -> None:
        """Return when this process changed the response, or it is time to check again."""
        await self._waiters.wait(response_id, min(seconds, _LOOK_AGAIN))

    async def _purge(self) -> None:
        """Remove the rows of all closed logs, in steps between which others write."""
        place: int | None = 0
        while place is not None:
            place = await self._writer.share(partial(purge, start=place), 0)

    def _purge_later(self) -> None:
        """Remove the rows of a closed log together with those of others."""
        self._closed += 1
        if self._closed >= _PURGE_AT_ONCE:
            self._begin_purge()
        elif self._closed == 1:
            asyncio.get_running_loop().call_later(_PURGE_SECONDS, self._begin_purge)

    def _begin_purge(self) -> None:
        if self._closed and (self._purging is None or self._purging.done()):
            self._closed = 0
            self._purging = asyncio.get_running_loop().create_task(self._try_to_purge())

    async def _try_to_purge(self) -> None:
        with suppress(StoreUnavailable):  # closed, or not working: the next sweep does it
            await self._purge()
        if self._closed:  # since
            asyncio.get_running_loop().call_later(_PURGE_SECONDS, self._begin_purge)

    async def _purge_last(self) -> None:
        """Remove what is left, for a store that is about to close."""
        if self._purging is not None:
            self._purging.cancel()
        is_left = self._closed > 0 or self._purging is not None
        self._closed = 0  # a timer that is set will find nothing to do
        if is_left:
            await self._try_to_purge()


def insert_batch(connection: sqlite3.Connection, owner: str, turn: OpenTurn, batch: Batch) -> None:
    """Add a batch to the log of an open turn, and to what is known about the turn."""
    values = (turn.key, batch.first, batch.last, owner, batch.body)
    row = insert_row(connection, _INTO, values)
    assert row is not None
    turns_of(connection).add(row, [(turn, batch)])


class Append(msgspec.Struct, frozen=True):
    """A batch for the log of an unfinished response. Returns whether it shall be cancelled."""

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
        turns = turns_of(connection)
        found = turns.find(connection, appends[0].writer, list(map(_name_of, appends)))
        answers: list[bool | TurnLost] = []
        values: list[int | str | bytearray] = []
        written: list[tuple[OpenTurn, Batch]] = []
        changed: list[tuple[str, int]] = []
        for turn, append in zip(found, appends, strict=True):
            if turn is None:
                answers.append(explain_loss(connection, append.owner, append.response_id))
                continue
            answers.append(turn.is_cancelled)
            if append.status:
                changed.append((append.status, turn.key))
            first, last, body = batch = append.batch
            if len(body) >= LONG:
                insert_batch(connection, append.owner, turn, batch)
            else:
                # For `bytes` the module looks for an adapter each time, longer than a copy takes.
                values += (turn.key, first, last, append.owner, bytearray(body))
                written.append((turn, batch))
        if written:
            _insert_all(connection, turns, written, values)
        if changed:
            connection.executemany("UPDATE responses SET status = ? WHERE key = ?", changed)
        return answers


def _insert_all(
    connection: sqlite3.Connection,
    turns: OpenTurns,
    written: Sequence[tuple[OpenTurn, Batch]],
    values: Sequence[int | str | bytearray],
) -> None:
    """Insert these batches, whose rows have these values, and note where they are."""
    start = 0
    while left := len(written) - start:
        count = left if left < _AT_ONCE[-1] else next(most for most in _AT_ONCE if most <= left)
        some = written[start : start + count]
        place = start * _COLUMNS
        end = connection.execute(_insert(count), values[place : place + count * _COLUMNS]).lastrowid
        assert end is not None
        turns.add(end - count + 1, some)
        start += count


@cache
def _insert(count: int) -> str:
    """Return the statement that inserts so many rows. A connection prepares each of them once."""
    return _INSERT + ", ".join(["(?, ?, ?, ?, ?)"] * count)


def close_log(
    connection: sqlite3.Connection, writer: str, name: Name, key: int, last: Batch | None
) -> bool:
    """Put a log, with its last batch, into one compressed row; return whether others are left.

    Those are purged later with the rows of other logs: they lie on many pages, between rows of
    other turns, and then each page is written once for all of them.
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
    """Return the whole log of an open response, from what is known about it if possible."""
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
    """Remove some rows of closed logs from this key on; return where to continue, or None.

    They are removed in the order of the file, so that each page is written once.
    """
    first, last = connection.execute(_FROM, (start,)).fetchone()
    if first is None:
        return None
    end: int = first + _ROWS_AT_ONCE
    connection.execute(_PURGE, (first, end))
    return end if end <= last else None


def read_log(
    connection: sqlite3.Connection, owner: str, response_id: str, after: int
) -> Log | None:
    """Return the response and every batch of its log after this number."""
    found = find_response(connection, owner, response_id)
    if found is None:
        return None
    key, response = found
    is_open = response.status not in DONE_STATUSES
    batches = _read_batches(connection, owner, key, after, is_open=is_open)
    return Log(response, batches or [], is_kept=batches is not None)


def _read_batches(
    connection: sqlite3.Connection, owner: str, key: int, after: int, *, is_open: bool
) -> list[Batch] | None:
    """Return the batches after this number, or None if the response keeps no log.

    A follower of an open log reads it again and again, so the table is scanned from where this
    connection last found the end of that log.
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
    """Remove the rows of responses, given by key and owner: the table is scanned once."""
    connection.execute(_REMOVE, (_encode(places).decode(),))


def remove_own_rows(connection: sqlite3.Connection, writer: str, name: Name, key: int) -> None:
    """Remove the rows of an unfinished response of this writer."""
    turn = turns_of(connection).known(connection, writer, name)
    if turn is None or turn.key != key:
        remove_rows(connection, [(key, name[0])])
    else:
        connection.execute(_REMOVE_OWN, (_encode(turn.rows.tolist()).decode(), key, name[0]))


def _split(heads: str, bodies: bytes | None) -> list[Batch]:
    """Return the batches of these concatenated bodies."""
    batches, start = [], 0
    for first, last, size in _decode_heads(heads):
        batches.append(Batch(first, last, (bodies or b"")[start : start + size]))
        start += size
    return batches
