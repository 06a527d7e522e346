"""Facet `turns` in PostgreSQL: a response from its beginning to its end.

Beginnings and ends of many turns are written together (see `flusher`). Before anything is added
to a turn, its row is locked, and must name the node that writes (see `writers`). Rows are locked
in the order of their keys, so that two groups cannot wait for each other. Every WHERE has the
owner, except where all owners are concerned (sweep).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import Admit, Batch, Entry, Notice, Settlement
from antiphon.store.base.entries import group_entries
from antiphon.store.base.rounds import KeptRound
from antiphon.store.postgres.conversations import insert_said
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.facet import Facet
from antiphon.store.postgres.flusher import Kind, Later
from antiphon.store.postgres.history import INPUT, OUTPUT, OUTPUT_COLUMN, admit_items, insert_items
from antiphon.store.postgres.ledger_work import LEDGER, Work
from antiphon.store.postgres.log import close_logs, insert_batches
from antiphon.store.postgres.node import LEASE
from antiphon.store.postgres.notices import insert_notices
from antiphon.store.postgres.rounds import insert_rounds
from antiphon.store.postgres.rows import columns, is_text, response_of
from antiphon.store.postgres.writers import explain_losses
from antiphon.store.turns import (
    Beginning,
    Ending,
    encode_beginning,
    encode_ending,
    lost_conversation,
)

__all__ = ["KINDS", "PostgresTurns"]

# Writes the entries of each kind (see `base.entries`). Any: of its own kind.
KINDS: Final[dict[type[Entry], Callable[[Connection, Sequence[Any]], Awaitable[None]]]] = {
    Notice: insert_notices,
    KeptRound: insert_rounds,
}
# Settlements lock rows that many turns share: they are made at the end of the transaction.
_LATER: Final = frozenset({Settlement})

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
_END: Final = """
    WITH ended AS (
        UPDATE responses SET status = wanted.status, writer = NULL, body = wanted.body
        FROM unnest($1::bigint[], $2::text[], $3::bytea[]) AS wanted (key, status, body)
        WHERE responses.key = wanted.key
    ), freed AS (
        DELETE FROM jobs WHERE response = ANY($1::bigint[])
    ), kept AS (
        INSERT INTO logs (response, owner, body)
        SELECT * FROM unnest($4::bigint[], $5::text[], $6::bytea[])
    )
    SELECT 1
"""
_UNLOCK: Final = """
    UPDATE conversations SET locked_by = NULL, writer = NULL
    FROM unnest($1::bigint[], $2::text[]) AS held (key, id)
    WHERE conversations.key = held.key AND conversations.locked_by = held.id
    RETURNING conversations.key
"""
_GET: Final = f"SELECT status, body, {OUTPUT_COLUMN} FROM responses WHERE owner = $1 AND id = $2"  # noqa: S608
_FIND: Final = "SELECT key, owner, id FROM responses WHERE owner = $1 AND id = $2 FOR UPDATE"
_FIND_OWN: Final = """
    SELECT key, owner, id FROM responses WHERE owner = $1 AND id = $2 AND writer = $3 FOR UPDATE
"""
_FIND_OLD: Final = """
    SELECT key, owner, id FROM responses WHERE created_at < $1
    ORDER BY created_at, key LIMIT $2 FOR UPDATE SKIP LOCKED
"""
_FIND_OF_OWNER: Final = """
    SELECT key, owner, id FROM responses WHERE owner = $1 ORDER BY id LIMIT $2 FOR UPDATE
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
    ), carried AS (
        DELETE FROM native_states USING doomed
        WHERE native_states.owner = doomed.owner AND native_states.response = doomed.id
    ), called AS (
        DELETE FROM tool_calls USING doomed
        WHERE tool_calls.owner = doomed.owner AND tool_calls.response = doomed.id
    ), approved AS (
        DELETE FROM approvals USING doomed
        WHERE approvals.owner = doomed.owner AND approvals.asked_by = doomed.id
    ), sent AS (
        DELETE FROM rounds USING doomed
        WHERE rounds.owner = doomed.owner AND rounds.response = doomed.id
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
    SELECT 1
"""


async def _begin(connection: Connection, turns: Sequence[Beginning], _: bool) -> list[None]:
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
    return [None] * len(turns)


async def _finish(
    connection: Connection, turns: Sequence[Ending], is_again: bool
) -> list[Exception | Later | None]:
    writer, names = turns[0].writer, [(t.owner, t.id) for t in turns]
    found = await connection.fetch(_HOLD, writer, *columns(names, 2))
    held = {row["place"] - 1: row for row in found}
    results: list[Exception | Later | None] = [None] * len(turns)
    bodies = [turn.body for turn in turns] if is_again else []
    lost = await explain_losses(connection, writer, names, held, bodies)
    for place, error in lost.items():
        results[place] = error
    unlocked = await _unlock(connection, turns, held)
    ending: list[_Held] = []
    for place, row in held.items():
        turn = turns[place]
        conversation = row["conversation"] if row["conversation"] in unlocked else None
        if turn.said and conversation is None:
            results[place] = lost_conversation(turn.id)
        else:
            ending.append(_Held(row["key"], conversation, turn))
            results[place] = _settling(turn)
    if ending:
        await _end(connection, ending)
    return results


def _settling(turn: Ending) -> Later | None:
    settled = [entry for entry in turn.entries if isinstance(entry, Settlement)]
    return Later(LEDGER, Work(turn.writer, settled)) if settled else None


async def _unlock(
    connection: Connection, turns: Sequence[Ending], held: dict[int, Any]
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


class _Held(NamedTuple):
    key: int
    conversation: int | None
    turn: Ending


async def _end(connection: Connection, ending: list[_Held]) -> None:
    logs = await close_logs(connection, [(e.key, e.turn.owner, e.turn.batch) for e in ending])
    rows = [(e.key, e.turn.status, e.turn.body) for e in ending]
    await connection.execute(_END, *columns(rows, 3), *columns(logs, 3))
    await insert_items(connection, [(e.key, OUTPUT, e.turn.owner, e.turn.output) for e in ending])
    said = [(e.conversation, e.turn.owner, e.turn.said) for e in ending if e.conversation]
    await insert_said(connection, said)
    entries = [e for one in ending for e in one.turn.entries if type(e) not in _LATER]
    for kind, some in group_entries(entries).items():
        await KINDS[kind](connection, some)


_BEGIN: Final = Kind(_begin)
_FINISH: Final = Kind(_finish)


class PostgresTurns(Facet):
    """See `Turns` for what the methods do."""

    async def begin(
        self,
        owner: str,
        response: Response,
        items: Sequence[Item],
        *,
        batch: Batch | None = None,
        request: bytes | None = None,
    ) -> None:
        """Store a turn that has begun; always durable on return."""
        writer = await self._node.ensure()
        turn = await encode_beginning(writer, owner, response, items, batch, request)
        await self._flusher.call(_BEGIN, (owner, response.id), turn, turn.size)

    async def forget(self, owner: str, response_id: str) -> None:
        writer = await self._node.ensure()
        await self._remove(_FIND_OWN, owner, response_id, writer)

    async def finish(
        self,
        owner: str,
        response: Response,
        *,
        batch: Batch | None = None,
        said: Sequence[Item] = (),
        entries: Sequence[Entry] = (),
    ) -> None:
        writer = await self._node.ensure()
        turn = await encode_ending(
            writer, owner, response, batch, said, entries, KINDS.keys() | _LATER
        )
        await self._flusher.call(_FINISH, (owner, response.id), turn, turn.size)

    async def get(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> Response | None:
        if not is_text(response_id):
            return None

        async def run(connection: Connection) -> Response | None:
            await admit_items(connection, owner, response_id, OUTPUT, admit)
            row = await connection.fetchrow(_GET, owner, response_id)
            return None if row is None else response_of(row)

        return await self._database.ask(run)

    async def delete(self, owner: str, response_id: str) -> bool:
        if not is_text(response_id):
            return False
        return await self._remove(_FIND, owner, response_id) > 0

    async def _sweep_turns(self, before: int, limit: int) -> int:
        """Remove the oldest responses created before this time, `limit` at most."""
        return await self._remove(_FIND_OLD, float(before), limit)

    async def _remove_turns(self, owner: str, limit: int) -> int:
        """Remove responses of an owner, `limit` at most; return how many."""
        return await self._remove(_FIND_OF_OWNER, owner, limit)

    async def _remove(self, question: str, *values: str | float) -> int:
        """Remove the turns that this question finds, from every table; return how many."""

        async def run(connection: Connection) -> list[str]:
            rows = await connection.fetch(question, *values)
            if rows:
                await connection.execute(_REMOVE, *columns(rows, 3))
            return [row["id"] for row in rows]

        removed = await self._database.change(run)
        for name in removed:
            self._bell.ring(name)
        return len(removed)
