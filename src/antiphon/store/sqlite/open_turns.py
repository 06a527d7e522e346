"""What does a writing connection remember about the turns that it writes?

- The keys of their rows in `log`, so that the table needs no index: with many streams an index
  would be most of what a commit writes.
- The content of those rows while it is small: then it need not be read again at the end.
- That the turns still belong to its store, while no other connection changes the file: then an
  append needs no query.

Rules:

- The memory lives as long as the connection. A transaction that fails closes its connection
  (see `worker`), so a rollback also removes what was remembered.
- All open turns of the writer are known, or none: in that case the table is scanned.
- `data_version` shows whether another connection has changed anything. If so, a turn is queried
  again before anything is added to it.
- Keys are not trusted: code that reads rows by them checks that all exist and belong to the
  response (`log.close_log`).

Everything here runs inside a writing transaction, so no other process changes the file.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.store.base import Batch

__all__ = ["MAX_KEPT", "Name", "OpenTurn", "OpenTurns"]

# Bytes of all batches that are kept in memory, with what Python needs for each of them.
MAX_KEPT: Final = 8 * 1024 * 1024
_MAX_OF_ONE: Final = 1024 * 1024
_OVERHEAD: Final = 150

Name = tuple[str, str]
"""The owner of a response and its id."""

# All in one row: between two rows another thread may take the interpreter and return it late.
_STATES: Final = """
    SELECT json_group_array(json_array(
        responses.owner, responses.id, responses.key, coalesce(jobs.is_cancelled, 0)))
"""
_OURS: Final = f"""{_STATES}
    FROM responses LEFT JOIN jobs ON jobs.response = responses.key WHERE responses.writer = ?
"""
_ROWS: Final = """
    SELECT json_group_array(json_array(response, key)) FROM log
    WHERE response IN (SELECT value FROM json_each(?))
"""
# Which of these are still the writer's, and are they to be cancelled? The key of a response that
# was deleted may be given to another one, so the name is compared as well.
_STILL_OURS: Final = f"""{_STATES}
    FROM json_each(?) AS turn
    CROSS JOIN responses ON responses.key = turn.value AND responses.writer = ?
    LEFT JOIN jobs ON jobs.response = responses.key
"""

_encode: Final = msgspec.json.Encoder().encode
_decode_turns: Final = msgspec.json.Decoder(list[tuple[str, str, int, bool]], strict=False).decode
_decode_rows: Final = msgspec.json.Decoder(list[tuple[int, int]]).decode


class OpenTurn:
    """An unfinished response of ours: its key, and those of its rows in `log`, in order.

    `batches` is the content of the rows, or None if it is not kept.
    """

    __slots__ = ("batches", "is_cancelled", "key", "rows", "size", "version")

    def __init__(self, key: int, version: int, *, is_cancelled: bool = False) -> None:
        self.key = key
        self.rows = array("q")
        self.size = 0
        """Bytes of the rows that were added here."""
        self.batches: list[Batch] | None = []
        self.is_cancelled = is_cancelled
        # Of the file, when this was known to be ours.
        self.version = version

    @property
    def weight(self) -> int:
        """How much memory its batches take, about."""
        return 0 if self.batches is None else self.size + _OVERHEAD * len(self.batches)


class OpenTurns:
    """The unfinished responses of one writer, as one connection knows them."""

    def __init__(self) -> None:
        self._writer: str | None = None
        self._version = 0
        self._turns: dict[Name, OpenTurn] = {}
        self._weight = 0

    def begin(self, connection: sqlite3.Connection, writer: str, name: Name, key: int) -> OpenTurn:
        """Note a response that is new in the file."""
        self.known(connection, writer, name)
        self.forget(name)
        turn = self._turns[name] = OpenTurn(key, self._version)
        return turn

    def add(self, first: int, written: Sequence[tuple[OpenTurn, Batch]]) -> None:
        """Note rows that are new in the log: each of its response, their keys from `first` on."""
        kept = self._weight
        for row, (turn, batch) in enumerate(written, first):
            turn.rows.append(row)
            added = len(batch[2])
            turn.size = size = turn.size + added
            batches = turn.batches
            if batches is None:
                continue
            batches.append(batch)
            kept += added + _OVERHEAD
            if kept > MAX_KEPT or size + _OVERHEAD * len(batches) > _MAX_OF_ONE:
                kept -= turn.weight
                turn.batches = None
        self._weight = kept

    def find(
        self, connection: sqlite3.Connection, writer: str, names: Sequence[Name]
    ) -> list[OpenTurn | None]:
        """Return those of these responses that are unfinished and this writer's."""
        self._refresh(connection, writer)
        turns = list(map(self._turns.get, names))
        version = self._version
        if doubtful := [turn.key for turn in turns if turn and turn.version != version]:
            self._ask_again(connection, doubtful)
            for place, turn in enumerate(turns):
                if turn and turn.version != version:
                    self.forget(names[place])
                    turns[place] = None
        return turns

    def known(self, connection: sqlite3.Connection, writer: str, name: Name) -> OpenTurn | None:
        """Return what is known about a response. The caller checks that it is ours."""
        if writer != self._writer:
            self._refresh(connection, writer)
        return self._turns.get(name)

    def doubt(self, name: Name) -> None:
        """Query this response again before it is used."""
        if turn := self._turns.get(name):
            turn.version = -1

    def forget(self, name: Name) -> None:
        """Forget a response that has ended, was removed, or has another writer."""
        if turn := self._turns.pop(name, None):
            self._drop_batches(turn)

    def forget_all(self) -> None:
        """Forget everything; the next call reads it again."""
        self._writer = None
        self._turns.clear()
        self._weight = 0

    def _drop_batches(self, turn: OpenTurn) -> None:
        self._weight -= turn.weight
        turn.batches = None

    def _refresh(self, connection: sqlite3.Connection, writer: str) -> None:
        """Check whether the file has changed; read everything if nothing is known."""
        self._version = connection.execute("PRAGMA data_version").fetchone()[0]
        if writer == self._writer:
            return
        self.forget_all()
        (found,) = connection.execute(_OURS, (writer,)).fetchone()
        by_key: dict[int, OpenTurn] = {}
        for owner, response_id, key, is_cancelled in _decode_turns(found):
            turn = OpenTurn(key, self._version, is_cancelled=is_cancelled)
            self._turns[owner, response_id] = by_key[key] = turn
        (rows,) = connection.execute(_ROWS, (_encode(list(by_key)).decode(),)).fetchone()
        for key, row in sorted(_decode_rows(rows)):
            by_key[key].rows.append(row)
            by_key[key].batches = None
        self._writer = writer

    def _ask_again(self, connection: sqlite3.Connection, keys: list[int]) -> None:
        """Update those of these turns that are still ours."""
        question = (_encode(keys).decode(), self._writer)
        (found,) = connection.execute(_STILL_OURS, question).fetchone()
        for owner, response_id, key, is_cancelled in _decode_turns(found):
            turn = self._turns.get((owner, response_id))
            if turn is not None and turn.key == key:
                turn.is_cancelled = is_cancelled
                turn.version = self._version
