"""Facet `audit`: who changed what in the administration of the gateway.

The log only grows. Each entry has the digest of the one before it, so an entry that was changed,
inserted or removed in the middle is found (`verify`). Removing the newest entries cannot be found
in the log itself: note the number and digest of the last one elsewhere. An entry never holds a
secret, nor a digest of one.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

__all__ = [
    "NO_DIGEST",
    "Audit",
    "AuditChain",
    "AuditCheck",
    "AuditEntry",
    "AuditQuery",
    "AuditRecord",
    "chain_entry",
]

NO_DIGEST: Final = bytes(32)
"""What stands for the digest before the first entry."""
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done."""

    at: int
    """Seconds since the epoch."""
    actor: str
    """Who did it: `key:ID`, `user:ISSUER SUBJECT`, `local`, or `cli:NAME` for a command."""
    action: str
    """As OpenAI names it where it has a name, such as `api_key.created`."""
    subject: str
    """The id of what was changed."""
    project: str | None = None
    """The project that it belongs to, if there is one."""
    body: dict[str, Any] = {}  # Any: a JSON object
    """What was changed; without secrets, and without content of callers."""
    id: str = msgspec.field(default_factory=lambda: f"audit_log-{secrets.token_hex(12)}")
    """A record with the id of one that is stored is not stored again."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A record with its place in the chain. Numbers begin with 1 and have no gaps."""

    number: int
    at: int
    actor: str
    action: str
    subject: str
    project: str | None
    body: dict[str, Any]  # Any: a JSON object
    id: str
    previous: bytes
    """The digest of the entry before it."""
    digest: bytes


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to list. A sequence matches any of its values; None matches all."""

    since: int | None = None
    until: int | None = None
    """`since <= at < until`."""
    actors: Sequence[str] | None = None
    actions: Sequence[str] | None = None
    subjects: Sequence[str] | None = None
    projects: Sequence[str] | None = None


class AuditCheck(msgspec.Struct, frozen=True):
    """What `verify` found. `problem` is None if the chain is whole."""

    count: int
    digest: bytes
    """Of the last entry; NO_DIGEST without any."""
    problem: str | None = None


class Audit(Protocol):
    """The log of one store."""

    async def append(self, record: AuditRecord) -> AuditEntry:
        """Add an entry; durable on return. If it is there already, return it."""
        ...

    async def page(
        self,
        query: AuditQuery,
        *,
        after: str | None = None,
        limit: int,
        is_descending: bool = True,
    ) -> list[AuditEntry]:
        """Return entries in the order of their numbers, from beyond the entry `after` on.

        Raise KeyError if there is no entry with the id `after`.
        """
        ...

    async def verify(self) -> AuditCheck:
        """Read the whole log and check its chain."""
        ...


def chain_entry(record: AuditRecord, number: int, previous: bytes) -> AuditEntry:
    """Return the entry for a record that follows the entry with the digest `previous`."""
    content = (number, previous.hex(), *msgspec.structs.astuple(record))
    digest = hashlib.sha256(_encode(content)).digest()
    return AuditEntry(
        number=number, previous=previous, digest=digest, **msgspec.structs.asdict(record)
    )


class AuditChain:
    """Checks entries that come in the order of their numbers."""

    def __init__(self) -> None:
        self._count = 0
        self._digest = NO_DIGEST
        self._problem: str | None = None

    def add(self, entry: AuditEntry) -> None:
        """Check the next entry. Nothing after the first problem is checked."""
        if self._problem is not None:
            return
        record = AuditRecord(
            at=entry.at,
            actor=entry.actor,
            action=entry.action,
            subject=entry.subject,
            project=entry.project,
            body=entry.body,
            id=entry.id,
        )
        expected = chain_entry(record, self._count + 1, self._digest)
        if entry.number != expected.number:
            self._problem = f"entry {expected.number} is missing"
        elif entry.previous != expected.previous:
            self._problem = f"entry {entry.number} does not follow the entry before it"
        elif entry.digest != expected.digest:
            self._problem = f"entry {entry.number} was changed after it was written"
        else:
            self._count, self._digest = entry.number, entry.digest

    def result(self) -> AuditCheck:
        """Return what was found."""
        return AuditCheck(self._count, self._digest, self._problem)
