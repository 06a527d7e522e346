"""How are turns written: begun, continued and ended, many at once?

Each function here is the `make` of a kind of change (see `flusher`). Before anything
is added to a turn its row is locked, and must name the node that writes, whose lease must be
good by the database's clock. Rows are locked in the order of their keys, so that two groups
cannot wait for each other. Whoever takes a turn over locks the same row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from antiphon.protocol.errors import TurnLost
from antiphon.store.base import Batch, Notice
from antiphon.store.encoding import StoredItem, compress_log, end_log, lost_conversation
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.flusher import Kind, LeaseLapsed
from antiphon.store.postgres.node import CHANNEL

__all__ = ["APPEND", "BEGIN", "FINISH", "Appended", "Begun", "Finished", "insert_items"]

_INPUT: Final = 0
_OUTPUT: Final = 1

# Bytes of logs from which on a thread compresses them.
_MUCH: Final = 256 * 1024

_LEASE: Final = (
    "EXISTS (SELECT FROM nodes WHERE name = $1 AND nodes.lease_until > clock_timestamp())"
)

_INSERT: Final = """
    INSERT INTO responses (owner, id, parent, status, writer, created_at, body)
    SELECT owner, id, parent, status, $1, created_at, body
    FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::bytea[])
        WITH ORDINALITY AS wanted (owner, id, parent, status, created_at, body, place)
    ORDER BY place
    ON CONFLICT (owner, id) DO NOTHING
    RETURNING key, owner, id
"""
_INSERT_ITEMS: Final = """
    INSERT INTO items (response, kind, position, owner, id, body)
    SELECT * FROM unnest(
        $1::bigint[], $2::int[], $3::int[], $4::text[], $5::bytea[], $6::bytea[]
    )
"""
_INSERT_EVENTS: Final = """
    INSERT INTO log (response, first, last, body, owner)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $5::text[])
"""
_INSERT_JOBS: Final = """
    INSERT INTO jobs (response, owner, is_cancelled, request)
    SELECT response, owner, 0, request
    FROM unnest($1::bigint[], $2::text[], $3::bytea[]) AS wanted (response, owner, request)
"""
_NOTIFY: Final = "SELECT pg_notify($1, id) FROM unnest($2::text[]) AS told (id)"

_APPEND: Final = f"""
    WITH wanted AS (
        SELECT * FROM unnest(
            $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::text[]
        ) WITH ORDINALITY AS wanted (owner, id, first, last, body, status, place)
    ), held AS MATERIALIZED (
        SELECT wanted.place, wanted.owner, wanted.id, wanted.first, wanted.last, wanted.body,
            wanted.status, responses.key
        FROM wanted
        JOIN responses ON responses.owner = wanted.owner AND responses.id = wanted.id
        WHERE responses.writer = $1 AND {_LEASE}
        ORDER BY responses.key
        FOR UPDATE OF responses
    ), added AS (
        INSERT INTO log (response, first, last, owner, body)
        SELECT key, first, last, owner, body FROM held
        {{on_conflict}}
    ), moved AS (
        UPDATE responses SET status = held.status FROM held
        WHERE responses.key = held.key AND held.status IS NOT NULL
    )
    SELECT place, pg_notify('{CHANNEL}', id), EXISTS (
        SELECT FROM jobs WHERE jobs.response = held.key AND jobs.is_cancelled = 1
    ) AS is_cancelled FROM held
"""  # noqa: S608 # constants
_APPEND_ONCE: Final = _APPEND.format(on_conflict="")
_APPEND_AGAIN: Final = _APPEND.format(on_conflict="ON CONFLICT (response, first) DO NOTHING")

_HOLD: Final = f"""
    SELECT wanted.place, responses.key, (
        SELECT conversations.key FROM conversations
        WHERE conversations.owner = wanted.owner AND conversations.locked_by = wanted.id
    ) AS conversation
    FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS wanted (owner, id, place)
    JOIN responses ON responses.owner = wanted.owner AND responses.id = wanted.id
    WHERE responses.writer = $1 AND {_LEASE}
    ORDER BY responses.key
    FOR UPDATE OF responses
"""  # noqa: S608 # constants
_STATES: Final = """
    SELECT wanted.place, responses.status, responses.writer, responses.body
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (owner, id, place)
    JOIN responses ON responses.owner = wanted.owner AND responses.id = wanted.id
"""
_LOGS: Final = """
    SELECT response, first, last, body FROM log
    WHERE response = ANY($1::bigint[]) ORDER BY response, first
"""
_FINISH: Final = f"""
    WITH ended AS (
        UPDATE responses SET status = wanted.status, writer = NULL, body = wanted.body
        FROM unnest($1::bigint[], $2::text[], $3::bytea[]) AS wanted (key, status, body)
        WHERE responses.key = wanted.key
    ), freed AS (
        DELETE FROM jobs WHERE response = ANY($1::bigint[])
    ), closed AS (
        DELETE FROM log WHERE response = ANY($1::bigint[])
    ), kept AS (
        INSERT INTO logs (response, owner, body)
        SELECT * FROM unnest($4::bigint[], $5::text[], $6::bytea[])
    )
    SELECT pg_notify('{CHANNEL}', id) FROM unnest($7::text[]) AS told (id)
"""  # noqa: S608 # constants
_SAY: Final = """
    INSERT INTO conversation_items (conversation, position, owner, id, body)
    SELECT wanted.conversation, wanted.place + coalesce((
        SELECT max(position) FROM conversation_items
        WHERE conversation_items.conversation = wanted.conversation
    ), 0), wanted.owner, wanted.id, wanted.body
    FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bytea[])
        WITH ORDINALITY AS wanted (conversation, owner, id, body, place)
    ORDER BY wanted.place
    ON CONFLICT (conversation, sha256(id)) DO NOTHING
"""
_UNLOCK: Final = """
    UPDATE conversations SET locked_by = NULL, writer = NULL
    FROM unnest($1::bigint[], $2::text[]) AS held (key, id)
    WHERE conversations.key = held.key AND conversations.locked_by = held.id
    RETURNING conversations.key
"""
_INSERT_NOTICES: Final = """
    INSERT INTO notices (id, owner, response, type, created_at, endpoint, attempts, due_at)
    SELECT id, owner, response, type, created_at, endpoint, attempts, 0 FROM unnest(
        $1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[]
    ) WITH ORDINALITY AS wanted (
        id, owner, response, type, created_at, endpoint, attempts, place
    )
    ORDER BY place
    ON CONFLICT (id) DO NOTHING
"""


@dataclass(frozen=True)
class Begun:
    """A turn that begins."""

    writer: str
    owner: str
    id: str
    parent: str | None
    status: str
    created_at: float
    body: bytes
    items: list[StoredItem]
    batch: Batch | None = None
    request: bytes | None = None


@dataclass(frozen=True)
class Appended:
    """More of the log of a turn."""

    writer: str
    owner: str
    id: str
    batch: Batch
    status: str | None = None


@dataclass(frozen=True)
class Finished:
    """A turn that ends."""

    writer: str
    owner: str
    id: str
    status: str
    body: bytes
    items: list[StoredItem]
    batch: Batch | None = None
    said: list[StoredItem] = field(default_factory=list)
    notices: Sequence[Notice] = ()


async def _begin(connection: Connection, turns: Sequence[Begun], _: bool) -> list[None]:
    rows = [(t.owner, t.id, t.parent, t.status, float(t.created_at), t.body) for t in turns]
    found = await connection.fetch(_INSERT, turns[0].writer, *_columns(rows, 6))
    keys = {(owner, name): key for key, owner, name in found}
    # A turn that is there already is left as it is; so is the second of two alike.
    new = [(key, turn) for turn in turns if (key := keys.pop((turn.owner, turn.id), None))]
    await insert_items(connection, [(key, _INPUT, turn.owner, turn.items) for key, turn in new])
    batches = [(key, *turn.batch, turn.owner) for key, turn in new if turn.batch is not None]
    if batches:
        await connection.execute(_INSERT_EVENTS, *_columns(batches, 5))
    jobs = [(key, turn.owner, turn.request) for key, turn in new if turn.request is not None]
    if jobs:
        await connection.execute(_INSERT_JOBS, *_columns(jobs, 3))
    await connection.execute(_NOTIFY, CHANNEL, [turn.id for _, turn in new])
    return [None] * len(turns)


async def _append(
    connection: Connection, turns: Sequence[Appended], is_again: bool
) -> list[bool | TurnLost]:
    rows = [(t.owner, t.id, *t.batch, t.status) for t in turns]
    statement = _APPEND_AGAIN if is_again else _APPEND_ONCE
    found = await connection.fetch(statement, turns[0].writer, *_columns(rows, 6))
    cancelled = {row["place"] - 1: row["is_cancelled"] for row in found}
    lost = await _explain(connection, turns, cancelled)
    return [lost[place] if place in lost else cancelled[place] for place in range(len(turns))]


async def _finish(
    connection: Connection, turns: Sequence[Finished], is_again: bool
) -> list[Exception | None]:
    names = _columns([(t.owner, t.id) for t in turns], 2)
    found = await connection.fetch(_HOLD, turns[0].writer, *names)
    held = {row["place"] - 1: row for row in found}
    results: list[Exception | None] = [None] * len(turns)
    lost = await _explain(connection, turns, held, is_again=is_again)
    for place, error in lost.items():
        results[place] = error
    unlocked = await _unlock(connection, turns, held)
    ending: list[_Ending] = []
    for place, row in held.items():
        turn = turns[place]
        conversation = row["conversation"] if row["conversation"] in unlocked else None
        if turn.said and conversation is None:
            results[place] = lost_conversation(turn.id)
        else:
            ending.append(_Ending(row["key"], conversation, turn))
    if ending:
        await _end(connection, ending)
    return results


async def _unlock(
    connection: Connection, turns: Sequence[Finished], held: dict[int, Any]
) -> set[int]:
    """End the locks of these turns; return the keys of the conversations that were theirs."""
    locks = [
        (row["conversation"], turns[place].id)
        for place, row in held.items()
        if row["conversation"] is not None
    ]
    if not locks:
        return set()
    return {key for (key,) in await connection.fetch(_UNLOCK, *_columns(locks, 2))}


@dataclass(frozen=True)
class _Ending:
    key: int
    conversation: int | None
    turn: Finished


async def _end(connection: Connection, ending: list[_Ending]) -> None:
    logs = await _close_logs(connection, ending)
    rows = [(e.key, e.turn.status, e.turn.body) for e in ending]
    ids = [e.turn.id for e in ending]
    await connection.execute(_FINISH, *_columns(rows, 3), *_columns(logs, 3), ids)
    await insert_items(connection, [(e.key, _OUTPUT, e.turn.owner, e.turn.items) for e in ending])
    said = [
        (e.conversation, e.turn.owner, _name(item), item.body)
        for e in ending
        for item in e.turn.said
    ]
    if said:
        await connection.execute(_SAY, *_columns(said, 4))
    notices = [
        (n.id, n.owner, n.response_id, n.type, n.created_at, n.endpoint, n.attempts)
        for e in ending
        for n in e.turn.notices
    ]
    if notices:
        await connection.execute(_INSERT_NOTICES, *_columns(notices, 7))


async def _close_logs(
    connection: Connection, ending: list[_Ending]
) -> list[tuple[int, str, bytes]]:
    """Return the whole log of each turn that kept one, compressed, with key and owner."""
    logs: dict[int, list[Batch]] = {e.key: [] for e in ending}
    for key, *batch in await connection.fetch(_LOGS, list(logs)):
        logs[key].append(Batch(*batch))
    for e in ending:
        logs[e.key] = end_log(logs[e.key], e.turn.batch)
    rows = [(e.key, e.turn.owner, logs[e.key]) for e in ending if logs[e.key]]
    size = sum(len(batch.body) for batches in logs.values() for batch in batches)
    if size > _MUCH:
        return await asyncio.to_thread(_compress, rows)
    return _compress(rows)


def _compress(rows: list[tuple[int, str, list[Batch]]]) -> list[tuple[int, str, bytes]]:
    return [(key, owner, compress_log(batches)) for key, owner, batches in rows]


async def _explain(
    connection: Connection,
    turns: Sequence[Appended | Finished],
    held: dict[int, Any],
    *,
    is_again: bool = False,
) -> dict[int, TurnLost]:
    """Return why turns are not held, by their places; raise LeaseLapsed if that is why.

    An end that was stored by the attempt before this one is none of them.
    """
    if len(held) == len(turns):
        return {}
    if not await connection.fetchval(f"SELECT {_LEASE}", turns[0].writer):
        raise LeaseLapsed
    missing = [place for place in range(len(turns)) if place not in held]
    names = _columns([(turns[place].owner, turns[place].id) for place in missing], 2)
    states = {missing[row["place"] - 1]: row for row in await connection.fetch(_STATES, *names)}
    lost: dict[int, TurnLost] = {}
    for place in missing:
        turn, state = turns[place], states.get(place)
        if is_again and isinstance(turn, Finished) and state and state["body"] == turn.body:
            continue
        lost[place] = TurnLost(f"response {turn.id!r} {_obstacle(state)}; nothing was stored")
    return lost


def _obstacle(state: Any) -> str:
    if state is None:
        return "is not in the store: its beginning could not be written, or it was deleted"
    if state["writer"] is None:
        return f"has already ended as {state['status']}"
    return "was taken over by another process"


async def insert_items(
    connection: Connection, turns: Iterable[tuple[int, int, str, Sequence[StoredItem]]]
) -> None:
    """Insert items of turns, each given with its key, the kind of the items, and the owner."""
    rows = [
        (key, kind, position, owner, _name(item), item.body)
        for key, kind, owner, items in turns
        for position, item in enumerate(items)
    ]
    if rows:
        await connection.execute(_INSERT_ITEMS, *_columns(rows, 6))


def _name(item: StoredItem) -> bytes | None:
    # Bytes, because text cannot hold a NUL here, and an item's id is what a client made it.
    return None if item.id is None else item.id.encode()


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Turn rows into columns, also if there are none."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width


BEGIN: Final = Kind(_begin)
APPEND: Final = Kind(_append, is_one_statement=True)
FINISH: Final = Kind(_finish)
