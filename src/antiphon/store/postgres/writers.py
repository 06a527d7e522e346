"""Facet `writers` in PostgreSQL: cancellations, and the turns of nodes that have died.

A turn may be written by the node that its row names, and only while the lease of that node is
good by the database's clock (the fence). A node that takes a turn over locks the same row.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final

from antiphon.protocol.errors import StoreUnavailable, TurnLost
from antiphon.store.base import Batch, Orphan
from antiphon.store.encoding import decode_turn
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.facet import Facet
from antiphon.store.postgres.flusher import LeaseLapsed
from antiphon.store.postgres.ledger_abandoned import claim_charges
from antiphon.store.postgres.node import LEASE
from antiphon.store.postgres.rows import columns, is_text
from antiphon.store.turns import lost_turn

__all__ = ["PostgresWriters", "explain_losses", "read_open_logs"]

_STATES: Final = """
    SELECT wanted.place, responses.status, responses.writer, responses.body
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (owner, id, place)
    JOIN responses ON responses.owner = wanted.owner AND responses.id = wanted.id
"""
_LOGS: Final = """
    SELECT response, first, last, body FROM log
    WHERE response = ANY($1::bigint[]) ORDER BY response, first
"""
# The row is locked: a concurrent end must not leave the request behind.
_ASK_CANCEL: Final = """
    WITH held AS (
        SELECT key, owner FROM responses
        WHERE owner = $1 AND id = $2 AND writer IS NOT NULL FOR UPDATE
    )
    INSERT INTO jobs (response, owner, is_cancelled) SELECT key, owner, 1 FROM held
    ON CONFLICT (response) DO UPDATE SET is_cancelled = 1
    RETURNING response
"""
_ASKED_CANCELS: Final = """
    SELECT responses.owner, responses.id FROM jobs
    JOIN responses ON responses.key = jobs.response
    WHERE jobs.is_cancelled = 1 AND responses.writer = $1 ORDER BY responses.key
"""
# A node without a row has ended. One with a row is judged by its lease, if we are steady.
# The sum keeps the planner from scanning the index of all responses by time.
_ORPHANS: Final = """
    SELECT key, owner, id, status, body FROM responses
    WHERE writer IS NOT NULL AND writer <> $1 AND NOT EXISTS (
        SELECT FROM nodes WHERE nodes.name = responses.writer
            AND (nodes.lease_until > clock_timestamp() OR NOT $3::boolean)
    )
    ORDER BY created_at + 0, key LIMIT $2
    FOR UPDATE SKIP LOCKED
"""


_ALIVE: Final = "SELECT count(*) FROM nodes WHERE lease_until > clock_timestamp()"


class PostgresWriters(Facet):
    """See `Writers` for what the methods do."""

    _doubtful: Sequence[Orphan] = ()
    """Those that were claimed by a commit whose answer was lost, if it was made."""

    async def ask_cancel(self, owner: str, response_id: str) -> bool:
        if not is_text(response_id):
            return False
        is_asked = bool(await self._database.ask_rows(_ASK_CANCEL, owner, response_id))
        if is_asked:
            self._bell.ring(response_id)
        return is_asked

    async def asked_cancels(self) -> list[tuple[str, str]]:
        rows = await self._database.ask_rows(_ASKED_CANCELS, self._node.name)
        return [(owner, response_id) for owner, response_id in rows]

    async def count_alive(self) -> int:
        await self._node.ensure()
        [(count,)] = await self._database.ask_rows(_ALIVE)
        return int(count)

    async def claim_orphans(self, limit: int) -> list[Orphan]:
        """Become the writer of unfinished responses of nodes that have died.

        A node that has just started, or was disconnected, does not yet trust expired leases.
        """
        writer = await self._node.ensure()
        if self._doubtful and (claimed := await self._claimed(writer)):
            return claimed
        found: list[Orphan] = []

        async def run(connection: Connection) -> list[Orphan]:
            found[:] = await _claim(connection, writer, limit, is_steady=self._node.is_steady)
            return found

        try:
            return await self._database.change(run)
        except StoreUnavailable:
            self._doubtful = found  # the answer to the commit may be lost
            raise

    async def _claimed(self, writer: str) -> list[Orphan]:
        """Return those doubtful ones that are ours. Waits for changes in progress."""
        question = "SELECT writer FROM responses WHERE owner = $1 AND id = $2 FOR UPDATE"

        async def run(connection: Connection) -> list[Orphan]:
            return [
                orphan
                for orphan in self._doubtful
                if await connection.fetchval(question, orphan.owner, orphan.response.id) == writer
            ]

        claimed = await self._database.change(run)
        self._doubtful = ()
        return claimed


async def explain_losses(
    connection: Connection,
    writer: str,
    names: Sequence[tuple[str, str]],
    held: Container[int],
    bodies: Sequence[bytes] = (),
) -> dict[int, TurnLost]:
    """Return why turns are not held, by their places; raise LeaseLapsed if that is why.

    The turns are given by owner and id, and `held` has the places of those that are held.
    `bodies` are the final states that an earlier attempt may have stored: a turn that has
    ended with its own is not lost.
    """
    missing = [place for place in range(len(names)) if place not in held]
    if not missing:
        return {}
    if not await connection.fetchval(f"SELECT {LEASE}", writer):
        raise LeaseLapsed
    found = await connection.fetch(_STATES, *columns([names[place] for place in missing], 2))
    states = {missing[row["place"] - 1]: row for row in found}
    lost: dict[int, TurnLost] = {}
    for place in missing:
        state = states.get(place)
        if bodies and state and state["body"] == bodies[place]:
            continue
        lost[place] = lost_turn(names[place][1], state and (state["status"], state["writer"]))
    return lost


async def _claim(
    connection: Connection, writer: str, limit: int, *, is_steady: bool
) -> list[Orphan]:
    """Make this the writer of unfinished responses whose writer has died.

    An expired lease counts as death only for a node that is steady itself.
    """
    rows = await connection.fetch(_ORPHANS, writer, limit, is_steady)
    if not rows:
        return []
    keys = [row["key"] for row in rows]
    # Only now that the rows are ours: the previous writer may have written until then.
    await connection.execute(
        "UPDATE responses SET writer = $1 WHERE key = ANY($2::bigint[])", writer, keys
    )
    await claim_charges(connection, writer, [row["id"] for row in rows])
    logs = await read_open_logs(connection, keys)
    jobs = {
        row["response"]: row
        for row in await connection.fetch(
            "SELECT response, request, is_cancelled FROM jobs WHERE response = ANY($1::bigint[])",
            keys,
        )
    }
    return [_orphan(row, logs[row["key"]], jobs.get(row["key"])) for row in rows]


async def read_open_logs(connection: Connection, keys: Sequence[int]) -> dict[int, list[Batch]]:
    """Return the batches of these unfinished responses, by their keys."""
    logs: dict[int, list[Batch]] = {key: [] for key in keys}
    for key, *batch in await connection.fetch(_LOGS, keys):
        logs[key].append(Batch(*batch))
    return logs


def _orphan(row: Any, batches: list[Batch], job: Any) -> Orphan:
    return Orphan(
        row["owner"],
        decode_turn(row["body"], [], row["status"]),
        batches,
        None if job is None else job["request"],
        is_cancelled=job is not None and job["is_cancelled"] == 1,
    )
