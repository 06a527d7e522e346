"""Facet `audit` in SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.store.base.audit import (
    NO_DIGEST,
    AuditChain,
    AuditCheck,
    AuditEntry,
    AuditQuery,
    AuditRecord,
    chain_entry,
)
from antiphon.store.sql.steps import Lock, Row, Steps, Tables, ask

__all__ = ["SqlAudit", "add_audit"]

_LOCK: Final = "antiphon audit"
_COLUMNS: Final = "number, at, actor, action, subject, project, body, id, previous, digest"
_FIND: Final = f"SELECT {_COLUMNS} FROM audit WHERE id = $1"  # noqa: S608 # constants
_LAST: Final = "SELECT number, digest FROM audit ORDER BY number DESC LIMIT 1"
_INSERT: Final = f"""
    INSERT INTO audit ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""  # noqa: S608 # constants
_AT_ONCE: Final = 500
_FROM: Final = f"SELECT {_COLUMNS} FROM audit WHERE number > $1 ORDER BY number LIMIT {_AT_ONCE}"  # noqa: S608 # constants


class SqlAudit:
    """See `Audit` for what the methods do."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def append(self, record: AuditRecord) -> AuditEntry:
        return await self._tables.change(lambda: _add(record))

    async def page(
        self,
        query: AuditQuery,
        *,
        after: str | None = None,
        limit: int,
        is_descending: bool = True,
    ) -> list[AuditEntry]:
        if after is not None and not self._tables.is_text(after):
            raise KeyError(after)

        def run() -> Steps[Sequence[Row]]:
            start = None
            if after is not None:
                found = yield from ask(_FIND, after)
                if not found:
                    raise KeyError(after)
                start = found[0][0]
            statement, values = _question(query, start, limit, is_descending, self._tables)
            return (yield from ask(statement, *values))

        return [_read(row) for row in await self._tables.read(run)]

    async def verify(self) -> AuditCheck:
        chain = AuditChain()
        number = 0
        while True:
            rows = await self._tables.read(lambda start=number: ask(_FROM, start))  # type: ignore[misc] # mypy does not see the default
            for row in rows:
                chain.add(_read(row))
                number = row[0]
            if len(rows) < _AT_ONCE:
                return chain.result()


def add_audit(record: AuditRecord | None) -> Steps[None]:
    """Add an entry in this transaction, if there is something to add."""
    if record is not None:
        yield from _add(record)


def _add(record: AuditRecord) -> Steps[AuditEntry]:
    yield Lock(_LOCK)
    known = yield from ask(_FIND, record.id)
    if known:  # the answer to our commit was lost
        return _read(known[0])
    last = yield from ask(_LAST)
    number, digest = last[0] if last else (0, NO_DIGEST)
    entry = chain_entry(record, number + 1, bytes(digest))
    body = msgspec.json.encode(entry.body)
    values = msgspec.structs.asdict(entry) | {"body": body}
    yield from ask(_INSERT, *(values[name] for name in _COLUMNS.split(", ")))
    return entry


def _question(
    query: AuditQuery, start: int | None, limit: int, is_descending: bool, tables: Tables
) -> tuple[str, list[Any]]:  # Any: text and numbers
    values: list[Any] = []

    def mark(value: object) -> str:
        values.append(value)
        return f"${len(values)}"

    conditions = ["TRUE"]
    if start is not None:
        conditions.append(f"number {'<' if is_descending else '>'} {mark(start)}")
    if query.since is not None:
        conditions.append(f"at >= {mark(query.since)}")
    if query.until is not None:
        conditions.append(f"at < {mark(query.until)}")
    for column, names in (
        ("actor", query.actors),
        ("action", query.actions),
        ("subject", query.subjects),
        ("project", query.projects),
    ):
        if names is not None:
            marks = ", ".join(mark(name) for name in names if tables.is_text(name))
            conditions.append(f"{column} IN ({marks})" if marks else "FALSE")
    order = "DESC" if is_descending else "ASC"
    return (
        f"SELECT {_COLUMNS} FROM audit WHERE {' AND '.join(conditions)}"  # noqa: S608 # placeholders
        f" ORDER BY number {order} LIMIT {mark(limit)}",
        values,
    )


def _read(row: Row) -> AuditEntry:
    values = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return AuditEntry(**(values | {"body": msgspec.json.decode(values["body"])}))
