"""What becomes of charges in PostgreSQL whose node has died, and of old ones?

A charge of an unfinished response goes with it to the node that claims it. All others are settled
with what was held. A node that has just started, or was disconnected, does not yet trust expired
leases. A function gets a connection inside a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.ledger_rows import HELD, pack_id, to_millis, unpack_id
from antiphon.store.ledger_rules import RUN_PREFIX, assume
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.ledger_limits import mark_change
from antiphon.store.postgres.ledger_locks import close_gate, enter_gate
from antiphon.store.postgres.ledger_names import NOW, condition_of, number_names
from antiphon.store.postgres.ledger_work import Work, make_works
from antiphon.store.postgres.rows import columns

__all__ = ["claim_charges", "has_abandoned", "settle_dead", "sweep_charges", "sweep_runs"]

_DEAD: Final = f"""
    FROM charges JOIN names AS writers ON writers.key = charges.writer
    JOIN names AS projects ON projects.key = charges.project
    WHERE charges.state = {HELD} AND writers.name <> $1 AND NOT EXISTS (
        SELECT FROM nodes WHERE nodes.name = writers.name
            AND (nodes.lease_until > clock_timestamp() OR NOT $2::boolean)
    )
"""
_HAS_DEAD: Final = f"SELECT EXISTS (SELECT {_DEAD})"
_FIND: Final = f"""
    SELECT charges.key, response, number, projects.name AS project, reserved_at, held_cost,
        held_fresh, held_cached, held_cache_write, held_output, held_reasoning, {NOW} AS now
    {_DEAD} AND charges.key > $3
    ORDER BY charges.key LIMIT $4 FOR UPDATE OF charges SKIP LOCKED
"""  # constants
_UNFINISHED: Final = """
    SELECT responses.owner, responses.id
    FROM unnest($1::text[], $2::text[]) AS wanted (owner, id)
    JOIN responses ON responses.owner = wanted.owner AND responses.id = wanted.id
    WHERE responses.writer IS NOT NULL
"""
_TAKE: Final = "UPDATE charges_held SET writer = $1 WHERE key = ANY($2::bigint[])"
_CLAIM: Final = f"""
    UPDATE charges SET writer = $1 WHERE response = ANY($2::bytea[]) AND state = {HELD}
"""  # noqa: S608 # constants
_SWEEP: Final = """
    WITH gone AS (
        DELETE FROM charges_ended WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM charges_ended WHERE reserved_at < $1
            ORDER BY reserved_at LIMIT $2 FOR UPDATE SKIP LOCKED
        )) RETURNING TRUE
    ) SELECT count(*) FROM gone
"""
_MARK: Final = """
    INSERT INTO ledger_marks VALUES ('swept_before', $1)
    ON CONFLICT (name) DO UPDATE SET value = greatest(ledger_marks.value, excluded.value)
"""
_OLD_RUNS: Final = (
    "SELECT key, scope_id FROM budgets WHERE scope = 'run' AND created_at < $1 AND held = 0"  # noqa: S608
    f" AND starts_with(id, '{RUN_PREFIX}') ORDER BY key LIMIT $2"
)
_DAY: Final = 86_400


async def has_abandoned(connection: Connection, writer: str, *, is_steady: bool) -> bool:
    """Return whether a charge is held by a node that has died."""
    return bool(await connection.fetchval(_HAS_DEAD, writer, is_steady))


async def settle_dead(connection: Connection, writer: str, limit: int, *, is_steady: bool) -> int:
    """Settle held charges of nodes that have died; return how many."""
    await enter_gate(connection, writer)
    dead: list[Any] = []  # Any: rows of asyncpg
    last = 0
    while len(dead) < limit:
        rows = await connection.fetch(_FIND, writer, is_steady, last, limit - len(dead))
        if not rows:
            break
        last = rows[-1]["key"]
        names = [(row["project"], unpack_id(row["response"])) for row in rows]
        unfinished = set(map(tuple, await connection.fetch(_UNFINISHED, *columns(names, 2))))
        dead += [row for row, name in zip(rows, names, strict=True) if name not in unfinished]
    if not dead:
        return 0
    number = (await number_names(connection, [writer]))[writer]
    await connection.execute(_TAKE, number, [row["key"] for row in dead])
    settled = [
        assume(
            unpack_id(row["response"]),
            row["number"],
            TokenCounts(*tuple(row)[6:11]),
            row["held_cost"],
            max(0, to_millis(row["now"]) - row["reserved_at"]),
        )
        for row in dead
    ]
    await make_works(connection, [Work(writer, settled)], False)
    return len(dead)


async def claim_charges(connection: Connection, writer: str, response_ids: Sequence[str]) -> None:
    """Make this the writer of the held charges of responses that it has claimed."""
    if response_ids:
        number = (await number_names(connection, [writer]))[writer]
        await connection.execute(_CLAIM, number, [pack_id(one) for one in response_ids])


async def sweep_charges(connection: Connection, before: int, limit: int) -> int:
    """Remove the oldest ended charges reserved before this time; return how many."""
    removed = int(await connection.fetchval(_SWEEP, before * 1000, limit))
    if removed:
        # Sums by day are no longer those of the charges on this day.
        await connection.execute(_MARK, -(-before // _DAY) * _DAY)
    return removed


async def sweep_runs(connection: Connection, before: int, limit: int) -> None:
    """Remove the budgets of old runs that have no charge any more, in a transaction of its own."""
    if not await connection.fetch(_OLD_RUNS, before, 1):
        return
    await close_gate(connection)
    gone = []
    for key, run in await connection.fetch(_OLD_RUNS, before, limit):
        condition = await condition_of(connection, "run", run)
        if not await connection.fetchval(
            f"SELECT EXISTS (SELECT FROM charges WHERE {condition})"  # noqa: S608 # numbers
        ):
            gone.append(key)
    if gone:
        await connection.execute("DELETE FROM budgets WHERE key = ANY($1::bigint[])", gone)
        await mark_change(connection)
