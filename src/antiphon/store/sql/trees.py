"""Facet `trees` in SQLite and PostgreSQL.

Children are found by the index of responses by parent. A response that continues another one began
later and has the larger key, so the keys are the order of a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.store.base.history import MAX_DEPTH
from antiphon.store.base.trees import TreeNode
from antiphon.store.encoding import decode_item, decode_turn
from antiphon.store.sql.steps import Row, Steps, Tables, ask

__all__ = ["PAGE", "ROOT", "SqlTrees"]

# A longer item is not read for a list.
_LONGEST: Final = 65_536
ROOT: Final = f"""
    WITH RECURSIVE chain (depth, id, parent) AS (
        SELECT 1, id, parent FROM responses WHERE owner = $1 AND id = $2
        UNION ALL
        SELECT chain.depth + 1, older.id, older.parent
        FROM chain JOIN responses AS older ON older.owner = $1 AND older.id = chain.parent
        WHERE chain.depth < {MAX_DEPTH}
    )
    SELECT id FROM chain ORDER BY depth DESC LIMIT 1
"""  # noqa: S608 # a constant
_PLACE: Final = "SELECT key FROM responses WHERE owner = $1 AND id = $2"
PAGE: Final = f"""
    WITH RECURSIVE tree (key, id) AS (
        SELECT key, id FROM responses WHERE owner = $1 AND id IN ({{}})
        UNION
        SELECT younger.key, younger.id
        FROM tree JOIN responses AS younger ON younger.owner = $1 AND younger.parent = tree.id
    )
    SELECT responses.status, responses.body,
        (SELECT count(*) FROM responses AS younger
            WHERE younger.owner = $1 AND younger.parent = responses.id),
        (SELECT CASE WHEN length(items.body) < {_LONGEST} THEN items.body END FROM items
            WHERE items.response = responses.key AND items.owner = $1 AND items.kind = 0
            ORDER BY items.position DESC LIMIT 1)
    FROM tree JOIN responses ON responses.key = tree.key
    WHERE tree.key > $2 ORDER BY tree.key LIMIT $3
"""  # noqa: S608 # constants
_VALUES: Final = 3


class SqlTrees:
    """See `Trees` for what the methods do."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def root(self, owner: str, response_id: str) -> str | None:
        if not self._tables.is_text(response_id):
            return None
        rows = await self._tables.read(lambda: ask(ROOT, owner, response_id))
        return str(rows[0][0]) if rows else None

    async def page(
        self, owner: str, roots: Sequence[str], *, after: str | None = None, limit: int
    ) -> list[TreeNode]:
        if after is not None and not self._tables.is_text(after):
            raise KeyError(after)
        names = [name for name in roots if self._tables.is_text(name)]
        if not names:
            return []
        rows = await self._tables.read(lambda: _read(owner, names, after, limit))
        return [_node(row) for row in rows]


def _read(owner: str, names: Sequence[str], after: str | None, limit: int) -> Steps[Sequence[Row]]:
    place = -1
    if after is not None:
        found = yield from ask(_PLACE, owner, after)
        if not found:
            raise KeyError(after)
        place = found[0][0]
    marks = ", ".join(f"${_VALUES + number}" for number in range(1, len(names) + 1))
    return (yield from ask(PAGE.format(marks), owner, place, limit, *names))


def _node(row: Row) -> TreeNode:
    status, body, children, item = row
    return TreeNode(
        response=decode_turn(bytes(body), [], status),
        children=children,
        last_input=None if item is None else decode_item(bytes(item)),
    )
