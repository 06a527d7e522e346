"""Facet `keys` in SQLite and PostgreSQL: API keys of all owners, and the gateway's own secrets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from antiphon.store.base import Access, AuditRecord, KeyChange, KeyRecord
from antiphon.store.key_rules import apply_change, is_in_force, rotate
from antiphon.store.sql.audit import add_audit
from antiphon.store.sql.steps import Lock, Row, Steps, Tables, ask, ask_in

__all__ = ["SqlKeys"]

_NAMES: Final = (
    "id",
    "owner",
    "digest",
    "created_at",
    "expires_at",
    "revoked_at",
    "name",
    "role",
    "user_name",
    "models",
    "never_store",
    "hint",
    "previous_digest",
    "previous_until",
    "last_used_at",
    "run_budget",
    "max_run_budget",
)
_COLUMNS: Final = ", ".join(f"keys.{name}" for name in _NAMES)
_SELECT: Final = f"SELECT {_COLUMNS} FROM keys"  # noqa: S608 # constants
_FIND: Final = f"{_SELECT} WHERE keys.id = $1"
_ACCESSES: Final = f"""
    SELECT projects.archived_at, coalesce(projects.never_store, 0), {_COLUMNS}
    FROM keys LEFT JOIN projects ON projects.id = keys.owner WHERE keys.id IN ({{}})
"""  # noqa: S608 # constants
_INSERT: Final = f"""
    INSERT INTO keys ({", ".join(_NAMES)})
    VALUES ({", ".join(f"${place}" for place in range(1, len(_NAMES) + 1))})
    ON CONFLICT (id) DO NOTHING RETURNING id
"""  # noqa: S608 # constants
# What never changes is not written; `last_used_at` is written by others.
_CHANGING: Final = tuple(
    name for name in _NAMES if name not in ("id", "owner", "created_at", "last_used_at")
)
_UPDATE: Final = f"""
    UPDATE keys SET {", ".join(f"{name} = ${place}" for place, name in enumerate(_CHANGING, 2))}
    WHERE id = $1
"""  # noqa: S608 # constants
_NOTE_USE: Final = """
    UPDATE keys SET last_used_at = $2
    WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)
"""
_KEEP: Final = """
    INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING
"""


class SqlKeys:
    """See `Keys` for what the methods do. `order` is the column with the order of insertion."""

    def __init__(self, tables: Tables, order: str) -> None:
        self._key_tables = tables
        self._order = order

    async def secret(self, name: str, value: bytes) -> bytes:
        def run() -> Steps[bytes]:
            yield from ask(_KEEP, name, value)
            rows = yield from ask("SELECT value FROM secrets WHERE name = $1", name)
            return bytes(rows[0][0])

        return await self._key_tables.change(run)

    async def add_key(self, key: KeyRecord, *, audit: AuditRecord | None = None) -> None:
        def run() -> Steps[None]:
            values = _values(key)
            if (yield from ask(_INSERT, *(values[name] for name in _NAMES))):
                yield from add_audit(audit)
            elif (yield from _find(key.id)) != key:  # else the answer to our commit was lost
                raise ValueError(f"there already is a key {key.id!r}")

        await self._key_tables.change(run)

    async def find_key(self, key_id: str) -> KeyRecord | None:
        if not self._key_tables.is_text(key_id):
            return None
        return await self._key_tables.read(lambda: _find(key_id))

    async def find_accesses(self, key_ids: Collection[str]) -> dict[str, Access]:
        names = [name for name in key_ids if self._key_tables.is_text(name)]
        if not names:
            return {}
        rows = await self._key_tables.read(lambda: ask_in(_ACCESSES, (), names))
        found = (_read_access(row) for row in rows)
        return {access.key.id: access for access in found}

    async def list_keys(self, owner: str | None = None) -> list[KeyRecord]:
        if owner is not None and not self._key_tables.is_text(owner):
            return []
        condition, values = ("", ()) if owner is None else (" WHERE owner = $1", (owner,))
        statement = f"{_SELECT}{condition} ORDER BY created_at, {self._order}"
        return [_read(row) for row in await self._key_tables.read(lambda: ask(statement, *values))]

    async def update_key(
        self, key_id: str, change: KeyChange, *, audit: AuditRecord | None = None
    ) -> KeyRecord | None:
        def run() -> Steps[KeyRecord | None]:
            key = yield from _lock(key_id)
            if key is None:
                return None
            return (yield from _put(apply_change(key, change), audit))

        return await self._key_tables.change(run) if self._key_tables.is_text(key_id) else None

    async def rotate_key(
        self,
        key_id: str,
        digest: bytes,
        hint: str,
        *,
        now: int,
        until: int,
        audit: AuditRecord | None = None,
    ) -> KeyRecord | None:
        def run() -> Steps[KeyRecord | None]:
            key = yield from _lock(key_id)
            rotated = rotate(key, digest, hint, now, until)
            if rotated is None or rotated is key:
                return rotated
            return (yield from _put(rotated, audit))

        return await self._key_tables.change(run) if self._key_tables.is_text(key_id) else None

    async def revoke_key(self, key_id: str, now: int, *, audit: AuditRecord | None = None) -> bool:
        def run() -> Steps[bool]:
            key = yield from _lock(key_id)
            if key is None or not is_in_force(key, now):
                return False
            yield from _put(msgspec.structs.replace(key, revoked_at=now), audit)
            return True

        return self._key_tables.is_text(key_id) and await self._key_tables.change(run)

    async def note_uses(self, times: Mapping[str, int]) -> None:
        def run() -> Steps[None]:
            for key_id in sorted(times):  # always in this order: no deadlock
                yield from ask(_NOTE_USE, key_id, times[key_id])

        if times:
            await self._key_tables.change(run)


def _lock(key_id: str) -> Steps[KeyRecord | None]:
    yield Lock(f"antiphon key {key_id}")
    return (yield from _find(key_id))


def _find(key_id: str) -> Steps[KeyRecord | None]:
    rows = yield from ask(_FIND, key_id)
    return _read(rows[0]) if rows else None


def _put(key: KeyRecord, audit: AuditRecord | None) -> Steps[KeyRecord]:
    values = _values(key)
    yield from ask(_UPDATE, key.id, *(values[name] for name in _CHANGING))
    yield from add_audit(audit)
    return key


def _values(key: KeyRecord) -> dict[str, Any]:  # Any: text, numbers, bytes and None
    values = dict(zip(_NAMES, msgspec.structs.astuple(key), strict=True))
    models = None if key.models is None else msgspec.json.encode(key.models)
    return values | {"models": models, "never_store": int(key.never_store)}


def _read(row: Row) -> KeyRecord:
    values = list(row)
    models = values[9]
    values[9] = None if models is None else msgspec.json.decode(models, type=tuple[str, ...])
    values[10] = bool(values[10])
    return KeyRecord(*values)


def _read_access(row: Row) -> Access:
    key = _read(row[2:])
    return Access(key, row[0] is not None, key.never_store or bool(row[1]))
