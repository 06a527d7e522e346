"""What we ask a PostgreSQL database about responses, and how we take them away.

A function gets a connection. Those of one statement see one state by themselves; `history`,
`claim_orphans` and those that remove want a transaction, which somebody else begins. Every
WHERE has the owner, except where the question is about all owners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import MAX_DEPTH, Admit, Batch, History, Log, Orphan, Size
from antiphon.store.encoding import decode_aside, decode_item, decode_turn, expand_log
from antiphon.store.postgres.database import Connection
from antiphon.store.sqlite.log_statements import MAX_NUMBER

__all__ = [
    "SWEEP_SIZE",
    "ask_cancel",
    "asked_cancels",
    "claim_orphans",
    "delete",
    "find_item",
    "forget",
    "get",
    "held_by",
    "history",
    "input_items",
    "read_log",
    "removals",
    "sweep",
]

# Responses removed in one transaction: nobody waits for it longer than a moment.
SWEEP_SIZE: Final = 500

# Turns whose items are read in one go.
_TURNS_AT_ONCE: Final = 1000

_OUTPUT: Final = """ARRAY(
    SELECT items.body FROM items
    WHERE items.response = responses.key AND items.kind = 1 AND items.owner = $1
    ORDER BY items.position
) AS output"""
_GET: Final = f"SELECT status, body, {_OUTPUT} FROM responses WHERE owner = $1 AND id = $2"  # noqa: S608
# Batches follow each other without a gap: the first one wanted is the last that begins early
# enough. This is found in the index, however long the log is.
_BEHIND: Final = """
    FROM log WHERE log.response = responses.key AND log.owner = $1 AND log.last > $3
        AND log.first >= coalesce((
            SELECT max(early.first) FROM log AS early
            WHERE early.response = responses.key AND early.first <= $3 + 1
        ), 0)
    ORDER BY log.first
"""
_READ_LOG: Final = f"""
    SELECT status, body, {_OUTPUT},
        (SELECT logs.body FROM logs WHERE logs.response = responses.key) AS whole,
        ARRAY(SELECT log.first {_BEHIND}) AS firsts,
        ARRAY(SELECT log.last {_BEHIND}) AS lasts,
        ARRAY(SELECT log.body {_BEHIND}) AS bodies,
        EXISTS (SELECT FROM log WHERE log.response = responses.key) AS is_open
    FROM responses WHERE owner = $1 AND id = $2
"""  # noqa: S608 # constants
_WALK: Final = f"""
    WITH RECURSIVE chain (depth, key, parent) AS (
        SELECT 1, key, parent FROM responses WHERE owner = $1 AND id = $2
        UNION ALL
        SELECT chain.depth + 1, older.key, older.parent
        FROM chain JOIN responses AS older ON older.owner = $1 AND older.id = chain.parent
        WHERE chain.depth < {MAX_DEPTH}
    )
    SELECT key, parent FROM chain ORDER BY depth
"""  # noqa: S608 # a constant
_ITEMS: Final = """
    SELECT items.body FROM unnest($2::bigint[]) WITH ORDINALITY AS turn (key, place)
    JOIN items ON items.response = turn.key AND items.owner = $1
    ORDER BY turn.place, items.kind, items.position
"""
# The length of a body is known without reading it from where long ones are kept.
_SIZE: Final = """
    SELECT count(*), coalesce(sum(octet_length(items.body)), 0)
    FROM unnest($2::bigint[]) AS turn (key)
    JOIN items ON items.response = turn.key AND items.owner = $1
"""
_INPUT_KIND: Final = 0
_OUTPUT_KIND: Final = 1
_SIZE_OF_KIND: Final = """
    SELECT count(*), coalesce(sum(octet_length(items.body)), 0)
    FROM responses JOIN items ON items.response = responses.key AND items.owner = $1
    WHERE responses.owner = $1 AND responses.id = $2 AND items.kind = $3
"""
_INPUT: Final = """
    SELECT ARRAY(
        SELECT items.body FROM items
        WHERE items.response = responses.key AND items.kind = 0 AND items.owner = $1
        ORDER BY items.position
    ) FROM responses WHERE owner = $1 AND id = $2
"""
# Of the turn that began last, and there the last; else of the conversation that was made last.
_FIND_ITEM: Final = """
    SELECT coalesce((
        SELECT body FROM items WHERE owner = $1 AND sha256(id) = sha256($2) AND id = $2
        ORDER BY response DESC, kind DESC, position DESC LIMIT 1
    ), (
        SELECT body FROM conversation_items
        WHERE owner = $1 AND sha256(id) = sha256($2) AND id = $2
        ORDER BY conversation DESC LIMIT 1
    ))
"""
# The row is locked: an end that comes meanwhile must not leave the wish behind.
_ASK_CANCEL: Final = """
    WITH held AS (
        SELECT key, owner FROM responses
        WHERE owner = $1 AND id = $2 AND writer IS NOT NULL FOR UPDATE
    )
    INSERT INTO jobs (response, owner, is_cancelled) SELECT key, owner, 1 FROM held
    ON CONFLICT (response) DO UPDATE SET is_cancelled = 1
    RETURNING pg_notify($3, $2)
"""
# A node without a row has let go. Of one with a row, the lease tells, if we may judge by it.
# The sum keeps the planner from walking along the time of all that ever ended.
_ORPHANS: Final = """
    SELECT key, owner, status, body FROM responses
    WHERE writer IS NOT NULL AND writer <> $1 AND NOT EXISTS (
        SELECT FROM nodes WHERE nodes.name = responses.writer
            AND (nodes.lease_until > clock_timestamp() OR NOT $3::boolean)
    )
    ORDER BY created_at + 0, key LIMIT $2
    FOR UPDATE SKIP LOCKED
"""
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


async def get(
    connection: Connection, owner: str, response_id: str, admit: Admit | None = None
) -> Response | None:
    """Return the response with its output, if that is admitted."""
    if admit is not None:
        count, size = await connection.fetchrow(_SIZE_OF_KIND, owner, response_id, _OUTPUT_KIND)
        admit(Size(count, int(size)))
    row = await connection.fetchrow(_GET, owner, response_id)
    return None if row is None else _response(row)


async def read_log(connection: Connection, owner: str, response_id: str, after: int) -> Log | None:
    """Return the response and every batch of its log behind this number."""
    row = await connection.fetchrow(_READ_LOG, owner, response_id, min(after, MAX_NUMBER))
    if row is None:
        return None
    if row["whole"] is not None:
        return Log(_response(row), expand_log(row["whole"], after), is_kept=True)
    batches = list(map(Batch, row["firsts"], row["lasts"], row["bodies"]))
    return Log(_response(row), batches, is_kept=row["is_open"])


async def history(
    connection: Connection, owner: str, response_id: str, admit: Admit | None = None
) -> History | None:
    """Walk from the head to the root, then read the items the other way, if they are admitted."""
    status = await connection.fetchval(
        "SELECT status FROM responses WHERE owner = $1 AND id = $2", owner, response_id
    )
    if status is None:
        return None
    chain = await connection.fetch(_WALK, owner, response_id)
    keys = [row["key"] for row in reversed(chain)]
    count, weight = await connection.fetchrow(_SIZE, owner, keys)
    if admit is not None:
        admit(Size(count, int(weight)))
    bodies: list[bytes] = []
    for start in range(0, len(keys), _TURNS_AT_ONCE):
        some = keys[start : start + _TURNS_AT_ONCE]
        bodies += [body for (body,) in await connection.fetch(_ITEMS, owner, some)]
    removed, missing = await removals(connection), chain[-1]["parent"]
    items = await decode_aside(bodies)
    return History(items, status, missing, int(weight), len(keys), removed)


async def removals(connection: Connection) -> int:
    """Return how often responses were removed; the database itself counts."""
    return int(await connection.fetchval("SELECT count FROM removals"))


async def input_items(
    connection: Connection, owner: str, response_id: str, admit: Admit | None = None
) -> list[Item] | None:
    """Return the turn's own input items in order, if they are admitted."""
    if admit is not None:
        count, size = await connection.fetchrow(_SIZE_OF_KIND, owner, response_id, _INPUT_KIND)
        admit(Size(count, int(size)))
    bodies = await connection.fetchval(_INPUT, owner, response_id)
    return None if bodies is None else await decode_aside(bodies)


async def find_item(connection: Connection, owner: str, item_id: str) -> Item | None:
    """Return the last item with this id of the turn that began last, else of a conversation."""
    body = await connection.fetchval(_FIND_ITEM, owner, item_id.encode())
    return None if body is None else decode_item(body)


async def ask_cancel(connection: Connection, owner: str, response_id: str, channel: str) -> bool:
    """Note the wish to cancel an unfinished response; say whether there is such one."""
    row = await connection.fetchrow(_ASK_CANCEL, owner, response_id, channel)
    return row is not None


async def asked_cancels(connection: Connection, writer: str) -> list[tuple[str, str]]:
    """Return owner and id of the responses of this writer that are to be cancelled."""
    rows = await connection.fetch(
        "SELECT responses.owner, responses.id FROM jobs"
        " JOIN responses ON responses.key = jobs.response"
        " WHERE jobs.is_cancelled = 1 AND responses.writer = $1 ORDER BY responses.key",
        writer,
    )
    return [(owner, response_id) for owner, response_id in rows]


async def claim_orphans(
    connection: Connection, writer: str, limit: int, *, is_steady: bool
) -> list[Orphan]:
    """Let this writer have the unfinished responses of those who are gone.

    Those whose lease has run out are gone only in the eyes of a node that is steady itself.
    """
    rows = await connection.fetch(_ORPHANS, writer, limit, is_steady)
    if not rows:
        return []
    keys = [row["key"] for row in rows]
    # Only now that the rows are ours: whoever had them may have written until then.
    await connection.execute(
        "UPDATE responses SET writer = $1 WHERE key = ANY($2::bigint[])", writer, keys
    )
    logs: dict[int, list[Batch]] = {key: [] for key in keys}
    for key, *batch in await connection.fetch(
        "SELECT response, first, last, body FROM log WHERE response = ANY($1::bigint[])"
        " ORDER BY response, first",
        keys,
    ):
        logs[key].append(Batch(*batch))
    jobs = {
        row["response"]: row
        for row in await connection.fetch(
            "SELECT response, request, is_cancelled FROM jobs WHERE response = ANY($1::bigint[])",
            keys,
        )
    }
    return [_orphan(row, logs[row["key"]], jobs.get(row["key"])) for row in rows]


async def held_by(
    connection: Connection, writer: str, names: Sequence[tuple[str, str]]
) -> list[bool]:
    """Say of each unfinished response, by owner and id, whether this is its writer.

    A change of it that is under way is waited for.
    """
    return [
        await connection.fetchval(
            "SELECT writer FROM responses WHERE owner = $1 AND id = $2 FOR UPDATE", *name
        )
        == writer
        for name in names
    ]


async def delete(connection: Connection, owner: str, response_id: str, channel: str) -> bool:
    """Remove a response and all that belongs to it; say whether there was one."""
    rows = await connection.fetch(
        "SELECT key, owner, id FROM responses WHERE owner = $1 AND id = $2 FOR UPDATE",
        owner,
        response_id,
    )
    await _remove(connection, rows, channel)
    return bool(rows)


async def forget(
    connection: Connection, owner: str, response_id: str, node: str, channel: str
) -> None:
    """Remove an unfinished response of this node, and all that belongs to it, if there is one."""
    rows = await connection.fetch(
        "SELECT key, owner, id FROM responses"
        " WHERE owner = $1 AND id = $2 AND writer = $3 FOR UPDATE",
        owner,
        response_id,
        node,
    )
    await _remove(connection, rows, channel)


async def sweep(connection: Connection, before: int, channel: str) -> int:
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
    """Remove turns (key, owner, id) from every table. Nobody hears from them again."""
    if rows:
        await connection.execute(_REMOVE, *(list(c) for c in zip(*rows, strict=True)), channel)


def _response(row: Any) -> Response:
    return decode_turn(row["body"], [decode_item(body) for body in row["output"]], row["status"])


def _orphan(row: Any, batches: list[Batch], job: Any) -> Orphan:
    return Orphan(
        row["owner"],
        decode_turn(row["body"], [], row["status"]),
        batches,
        None if job is None else job["request"],
        is_cancelled=job is not None and job["is_cancelled"] == 1,
    )
