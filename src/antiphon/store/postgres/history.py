"""Facet `history` in PostgreSQL: the items of turns, and of chains of turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from antiphon.protocol.items import Item
from antiphon.store.base import MAX_DEPTH, Admit, History, Size
from antiphon.store.encoding import StoredItem, decode_aside, decode_item, is_storable
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.facet import Facet
from antiphon.store.postgres.rows import columns, is_text, name_of

__all__ = [
    "INPUT",
    "OUTPUT",
    "OUTPUT_COLUMN",
    "PostgresHistories",
    "admit_items",
    "insert_items",
]

# The kinds of items.
INPUT: Final = 0
OUTPUT: Final = 1
# Turns whose items are read in one go.
_TURNS_AT_ONCE: Final = 1000
OUTPUT_COLUMN: Final = """ARRAY(
    SELECT items.body FROM items
    WHERE items.response = responses.key AND items.kind = 1 AND items.owner = $1
    ORDER BY items.position
) AS output"""
_STATUS: Final = "SELECT status FROM responses WHERE owner = $1 AND id = $2"
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
_SIZE_OF_KIND: Final = """
    SELECT count(*), coalesce(sum(octet_length(items.body)), 0)
    FROM responses JOIN items ON items.response = responses.key AND items.owner = $1
    WHERE responses.owner = $1 AND responses.id = $2 AND items.kind = $3
"""
_INPUT_ITEMS: Final = """
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
_INSERT_ITEMS: Final = """
    INSERT INTO items (response, kind, position, owner, id, body)
    SELECT * FROM unnest(
        $1::bigint[], $2::int[], $3::int[], $4::text[], $5::bytea[], $6::bytea[]
    )
"""


class PostgresHistories(Facet):
    """See `Histories` for what the methods do."""

    async def history(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> History | None:
        """Walk from the head to the root, then read the items the other way."""
        if not is_text(response_id):
            return None

        async def run(connection: Connection) -> History | None:
            status = await connection.fetchval(_STATUS, owner, response_id)
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
            removed, missing = await _read_removals(connection), chain[-1]["parent"]
            items = await decode_aside(bodies)
            return History(items, status, missing, int(weight), len(keys), removed)

        return await self._database.view(run)

    async def removals(self) -> int:
        return await self._database.ask(_read_removals)

    async def input_items(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        if not is_text(response_id):
            return None

        async def run(connection: Connection) -> list[Item] | None:
            await admit_items(connection, owner, response_id, INPUT, admit)
            bodies = await connection.fetchval(_INPUT_ITEMS, owner, response_id)
            return None if bodies is None else await decode_aside(bodies)

        return await self._database.ask(run)

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        if not is_storable(item_id):
            return None
        body = await self._database.ask_value(_FIND_ITEM, owner, item_id.encode())
        return None if body is None else decode_item(body)


async def _read_removals(connection: Connection) -> int:
    """Return how often responses were removed, as counted by the database."""
    return int(await connection.fetchval("SELECT count FROM removals"))


async def admit_items(
    connection: Connection, owner: str, response_id: str, kind: int, admit: Admit | None
) -> None:
    """Raise what `admit` raises about the items of this kind, before any is read."""
    if admit is not None:
        count, size = await connection.fetchrow(_SIZE_OF_KIND, owner, response_id, kind)
        admit(Size(count, int(size)))


async def insert_items(
    connection: Connection, turns: Iterable[tuple[int, int, str, Sequence[StoredItem]]]
) -> None:
    """Insert items of turns, each given with its key, the kind of the items, and the owner."""
    rows = [
        (key, kind, position, owner, name_of(item), item.body)
        for key, kind, owner, items in turns
        for position, item in enumerate(items)
    ]
    if rows:
        await connection.execute(_INSERT_ITEMS, *columns(rows, 6))
