"""Facet `turns` in PostgreSQL: a response from its beginning to its end.

`BEGIN` and `FINISH` are kinds of changes (see `flusher`): those of many turns together. Before
anything is added to a turn, its row is locked, and must name the node that writes (see
`writers`). Rows are locked in the order of their keys, so that two groups cannot wait for each
other. The other functions get a connection; those that remove want a transaction, which the
caller begins. Every WHERE has the owner, except where all owners are concerned (sweep).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from antiphon.protocol.response import Response
from antiphon.store.base import Admit, Batch, Entry
from antiphon.store.encoding import StoredItem, lost_conversation
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.entries import write_entries
from antiphon.store.postgres.flusher import Kind
from antiphon.store.postgres.history import INPUT, OUTPUT, OUTPUT_COLUMN, admit_items, insert_items
from antiphon.store.postgres.log import close_logs, insert_batches
from antiphon.store.postgres.node import CHANNEL
from antiphon.store.postgres.rows import columns, name_of, response_of
from antiphon.store.postgres.writers import LEASE, explain_losses

__all__ = [
    "BEGIN",
    "FINISH",
    "SWEEP_SIZE",
    "Begun",
    "Finished",
    "delete_turn",
    "forget_turn",
    "get_turn",
    "sweep_turns",
]

# Responses removed in one transaction: it ends before others have waited for long.
SWEEP_SIZE: Final = 500
_INSERT: Final = """
    INSERT INTO responses (owner, id, parent, status, writer, created_at, body)
    SELECT owner, id, parent, status, $1, created_at, body
    FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::bytea[])
        WITH ORDINALITY AS wanted (owner, id, parent, status, created_at, body, place)
    ORDER BY place
    ON CONFLICT (owner, id) DO NOTHING
    RETURNING key, owner, id
"""
_INSERT_JOBS: Final = """
    INSERT INTO jobs (response, owner, is_cancelled, request)
    SELECT response, owner, 0, request
    FROM unnest($1::bigint[], $2::text[], $3::bytea[]) AS wanted (response, owner, request)
"""
_NOTIFY: Final = "SELECT pg_notify($1, id) FROM unnest($2::text[]) AS changed (id)"
_HOLD: Final = f"""
    SELECT wanted.place, responses.key, (
        SELECT conversations.key FROM conversations
        WHERE conversations.owner = wanted.owner AND conversations.locked_by = wanted.id
    ) AS conversation
    FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS wanted (owner, id, place)
    JOIN responses ON responses.owner = wanted.owner AND responses.id = wanted.id
    WHERE responses.writer = $1 AND {LEASE}
    ORDER BY responses.key
    FOR UPDATE OF responses
"""  # noqa: S608 # constants
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
    SELECT pg_notify('{CHANNEL}', id) FROM unnest($7::text[]) AS changed (id)
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
_GET: Final = f"SELECT status, body, {OUTPUT_COLUMN} FROM responses WHERE owner = $1 AND id = $2"  # noqa: S608
_REMOVE: Final = """
    WITH doomed AS (
        SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[]) AS doomed (key, owner, id)
    ), unlocked AS (
        UPDATE conversations SET locked_by = NULL, writer = NULL FROM doomed
        WHERE conversations.owner = doomed.owner AND locked_by = doomed.id
    ), claimed AS (
        DELETE FROM claims USING doomed
        WHERE claims.owner = doomed.owner AND claims.response = doomed.id
    ), said AS (
        DELETE FROM items WHERE response = ANY($1::bigint[])
    ), logged AS (
        DELETE FROM log WHERE response = ANY($1::bigint[])
    ), kept AS (
        DELETE FROM logs WHERE response = ANY($1::bigint[])
    ), wanted AS (
        DELETE FROM jobs WHERE response = ANY($1::bigint[])
    ), removed AS (
        DELETE FROM responses WHERE key = ANY($1::bigint[])
    )
    SELECT pg_notify($4, id) FROM doomed
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
    entries: Sequence[Entry] = ()


async def _begin(connection: Connection, turns: Sequence[Begun], _: bool) -> list[None]:
    rows = [(t.owner, t.id, t.parent, t.status, float(t.created_at), t.body) for t in turns]
    found = await connection.fetch(_INSERT, turns[0].writer, *columns(rows, 6))
    keys = {(owner, name): key for key, owner, name in found}
    # A turn that exists already is left unchanged; so is the second of two equal ones.
    new = [(key, turn) for turn in turns if (key := keys.pop((turn.owner, turn.id), None))]
    await insert_items(connection, [(key, INPUT, turn.owner, turn.items) for key, turn in new])
    batches = [(key, turn.owner, turn.batch) for key, turn in new if turn.batch is not None]
    await insert_batches(connection, batches)
    jobs = [(key, turn.owner, turn.request) for key, turn in new if turn.request is not None]
    if jobs:
        await connection.execute(_INSERT_JOBS, *columns(jobs, 3))
    await connection.execute(_NOTIFY, CHANNEL, [turn.id for _, turn in new])
    return [None] * len(turns)


async def _finish(
    connection: Connection, turns: Sequence[Finished], is_again: bool
) -> list[Exception | None]:
    writer, names = turns[0].writer, [(t.owner, t.id) for t in turns]
    found = await connection.fetch(_HOLD, writer, *columns(names, 2))
    held = {row["place"] - 1: row for row in found}
    results: list[Exception | None] = [None] * len(turns)
    bodies = [turn.body for turn in turns] if is_again else []
    lost = await explain_losses(connection, writer, names, held, bodies)
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
    return {key for (key,) in await connection.fetch(_UNLOCK, *columns(locks, 2))}


@dataclass(frozen=True)
class _Ending:
    key: int
    conversation: int | None
    turn: Finished


async def _end(connection: Connection, ending: list[_Ending]) -> None:
    logs = await close_logs(connection, [(e.key, e.turn.owner, e.turn.batch) for e in ending])
    rows = [(e.key, e.turn.status, e.turn.body) for e in ending]
    ids = [e.turn.id for e in ending]
    await connection.execute(_FINISH, *columns(rows, 3), *columns(logs, 3), ids)
    await insert_items(connection, [(e.key, OUTPUT, e.turn.owner, e.turn.items) for e in ending])
    said = [
        (e.conversation, e.turn.owner, name_of(item), item.body)
        for e in ending
        for item in e.turn.said
    ]
    if said:
        await connection.execute(_SAY, *columns(said, 4))
    await write_entries(connection, [entry for e in ending for entry in e.turn.entries])


async def get_turn(
    connection: Connection, owner: str, response_id: str, admit: Admit | None = None
) -> Response | None:
    """Return the response with its output, if that is admitted."""
    await admit_items(connection, owner, response_id, OUTPUT, admit)
    row = await connection.fetchrow(_GET, owner, response_id)
    return None if row is None else response_of(row)


async def delete_turn(connection: Connection, owner: str, response_id: str, channel: str) -> bool:
    """Remove a response and everything that belongs to it; return whether there was one."""
    rows = await connection.fetch(
        "SELECT key, owner, id FROM responses WHERE owner = $1 AND id = $2 FOR UPDATE",
        owner,
        response_id,
    )
    await _remove(connection, rows, channel)
    return bool(rows)


async def forget_turn(
    connection: Connection, owner: str, response_id: str, node: str, channel: str
) -> None:
    """Remove an unfinished response of this node, with everything that belongs to it."""
    rows = await connection.fetch(
        "SELECT key, owner, id FROM responses"
        " WHERE owner = $1 AND id = $2 AND writer = $3 FOR UPDATE",
        owner,
        response_id,
        node,
    )
    await _remove(connection, rows, channel)


async def sweep_turns(connection: Connection, before: int, channel: str) -> int:
    """Remove the oldest responses created before this time, SWEEP_SIZE at most."""
    rows = await connection.fetch(
        "SELECT key, owner, id FROM responses WHERE created_at < $1"
        " ORDER BY created_at, key LIMIT $2 FOR UPDATE SKIP LOCKED",
        float(before),
        SWEEP_SIZE,
    )
    await _remove(connection, rows, channel)
    return len(rows)


async def _remove(connection: Connection, rows: Sequence[Any], channel: str) -> None:
    """Remove turns (key, owner, id) from every table."""
    if rows:
        await connection.execute(_REMOVE, *(list(c) for c in zip(*rows, strict=True)), channel)


BEGIN: Final = Kind(_begin)
FINISH: Final = Kind(_finish)
