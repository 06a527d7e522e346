"""Facet `audit` in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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

__all__ = ["MemoryAudit"]


class MemoryAudit:
    """See `Audit` for what the methods do."""

    def __init__(self, check_open: Callable[[], None]) -> None:
        self._check_open = check_open
        self._entries: list[bytes] = []
        self._places: dict[str, int] = {}
        """Where an entry is, by its id."""
        self._last = NO_DIGEST

    async def append(self, record: AuditRecord) -> AuditEntry:
        self._check_open()
        return self.add(record)

    async def page(
        self,
        query: AuditQuery,
        *,
        after: str | None = None,
        limit: int,
        is_descending: bool = True,
    ) -> list[AuditEntry]:
        self._check_open()
        entries = [_decode(body) for body in self._entries]
        if is_descending:
            entries.reverse()
        start = 0
        if after is not None:
            places = [place for place, entry in enumerate(entries) if entry.id == after]
            if not places:
                raise KeyError(after)
            start = places[0] + 1
        return [entry for entry in entries[start:] if _fits(entry, query)][:limit]

    async def verify(self) -> AuditCheck:
        self._check_open()
        chain = AuditChain()
        for body in self._entries:
            chain.add(_decode(body))
        return chain.result()

    def add(self, record: AuditRecord) -> AuditEntry:
        """Add an entry, unless it is there already."""
        known = self._places.get(record.id)
        if known is not None:
            return _decode(self._entries[known])
        entry = chain_entry(record, len(self._entries) + 1, self._last)
        self._places[entry.id] = len(self._entries)
        self._entries.append(msgspec.msgpack.encode(entry))
        self._last = entry.digest
        return entry

    def add_if(self, record: AuditRecord | None) -> None:
        """Add an entry if there is something to add."""
        if record is not None:
            self.add(record)

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
        self._places.clear()
        self._last = NO_DIGEST


def _decode(body: bytes) -> AuditEntry:
    return msgspec.msgpack.decode(body, type=AuditEntry)


def _fits(entry: AuditEntry, query: AuditQuery) -> bool:
    if query.since is not None and entry.at < query.since:
        return False
    if query.until is not None and entry.at >= query.until:
        return False
    wanted: tuple[tuple[str | None, Sequence[str] | None], ...] = (
        (entry.actor, query.actors),
        (entry.action, query.actions),
        (entry.subject, query.subjects),
        (entry.project, query.projects),
    )
    return all(names is None or value in names for value, names in wanted)
