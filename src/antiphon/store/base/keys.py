"""Facet `keys`: API keys, and the secrets that the gateway makes for itself.

A key is an id with a digest of its secret. While a key is rotated it has two secrets, and both
are good until `previous_until`. A change of a key can carry an audit record, which is then stored
in the same transaction: neither is stored without the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from antiphon.store.base.audit import AuditRecord

__all__ = ["ROLES", "Access", "KeyChange", "KeyRecord", "Keys", "Role"]

Role = Literal["user", "viewer", "admin", "metrics"]
"""What a credential is for.

`user`: ask models, and see the data of its project. `viewer`: the same, and the usage of its
project. `admin`: manage the organization; it has no access to the data of projects. `metrics`:
read `/metrics` and nothing else.
"""
ROLES: Final[tuple[Role, ...]] = ("user", "viewer", "admin", "metrics")


class KeyRecord(msgspec.Struct, frozen=True):
    """An API key as it is stored: never the secret, only its digest.

    `owner` is the project of the key. For the roles admin and metrics it only names who manages
    the key: they see nothing of a project.
    """

    id: str
    owner: str
    digest: bytes
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    name: str = ""
    role: Role = "user"
    user: str | None = None
    """The person or service that the key was given to."""
    models: tuple[str, ...] | None = None
    """The only models that may be asked for; None for all."""
    never_store: bool = False
    """Whether nothing of its requests may be stored."""
    hint: str = ""
    """The last four characters of the secret, to recognise it by; empty for older keys."""
    previous_digest: bytes | None = None
    previous_until: int | None = None
    """The secret before the last rotation, and the time when it ends."""
    last_used_at: int | None = None
    """Written at most once a minute."""
    run_budget: int | None = None
    """Nano-dollars that a run may cost whose requests name no budget; None if nothing limits it."""
    max_run_budget: int | None = None
    """The most that a run may cost, in nano-dollars, whatever its requests name."""

    def accepts(self, digest: bytes, now: int) -> bool:
        """Return whether this is the digest of a secret of the key that is good now."""
        if digest == self.digest:
            return True
        until = self.previous_until
        return until is not None and now < until and digest == self.previous_digest


class KeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """What to change of a key. What is UNSET stays."""

    name: str | UnsetType = UNSET
    role: Role | UnsetType = UNSET
    user: str | UnsetType | None = UNSET
    models: tuple[str, ...] | UnsetType | None = UNSET
    never_store: bool | UnsetType = UNSET
    expires_at: int | UnsetType | None = UNSET
    run_budget: int | UnsetType | None = UNSET
    max_run_budget: int | UnsetType | None = UNSET


class Access(msgspec.Struct, frozen=True):
    """A key with what its project says about it."""

    key: KeyRecord
    is_archived: bool = False
    """Whether the project of the key is archived: then the key is refused."""
    never_store: bool = False
    """Whether the key or its project stores nothing."""


class Keys(Protocol):
    """Stores API keys of all owners."""

    async def secret(self, name: str, value: bytes) -> bytes:
        """Return the secret of this name; if there is none, store and return this value."""
        ...

    async def add_key(self, key: KeyRecord, *, audit: AuditRecord | None = None) -> None:
        """Store a new key. Raise ValueError if its id is taken."""
        ...

    async def find_key(self, key_id: str) -> KeyRecord | None:
        """Return the key with this id, revoked or not."""
        ...

    async def find_accesses(self, key_ids: Collection[str]) -> dict[str, Access]:
        """Return the keys with these ids, revoked or not, with what their projects say."""
        ...

    async def list_keys(self, owner: str | None = None) -> list[KeyRecord]:
        """Return every key, or those of an owner, oldest first."""
        ...

    async def update_key(
        self, key_id: str, change: KeyChange, *, audit: AuditRecord | None = None
    ) -> KeyRecord | None:
        """Change a key; return it as it is now, or None if there is none with this id."""
        ...

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
        """Give a key a new secret; its present one is good until then.

        Return the key as it is now, or None if none with this id is in force. If this digest is
        one of its two already, nothing changes: a rotation can be repeated. A secret from before
        the last rotation ends at once, because a key has two secrets at most.
        """
        ...

    async def revoke_key(self, key_id: str, now: int, *, audit: AuditRecord | None = None) -> bool:
        """Mark a key as revoked; return whether there was one in force."""
        ...

    async def note_uses(self, times: Mapping[str, int]) -> None:
        """Set `last_used_at` of these keys. A time before the stored one changes nothing."""
        ...
