"""Claims and notices in a SQLite file. The SQL is in `claim_statements`."""

from __future__ import annotations

from functools import partial

from antiphon.store.base import Claim, Notice
from antiphon.store.encoding import is_storable
from antiphon.store.sqlite import claim_statements as statements
from antiphon.store.sqlite.presence import Presence
from antiphon.store.sqlite.worker import Reader, Writer

__all__ = ["SqliteClaims", "SqliteNotices"]


class SqliteClaims:
    """See `Claims` for what the methods do. A claim is held while its store is alive."""

    def __init__(self, writer: Writer, reader: Reader, presence: Presence) -> None:
        self._writer = writer
        self._reader = reader
        self._presence = presence

    async def take(
        self, owner: str, token: str, digest: bytes, response_id: str, now: int
    ) -> Claim | None:
        """Claim the token; return None, or the claim that is there already."""
        return await self._writer.call(
            partial(
                statements.take_claim,
                owner=owner,
                token=token,
                claim=Claim(digest, response_id, now, is_held=True),
                writer=self._presence.name,
                is_alive=self._presence.is_alive,
            )
        )

    async def note(self, owner: str, token: str, digest: bytes, response_id: str, now: int) -> None:
        """Queue the claim to be written, in place of any older one."""
        run = partial(
            statements.note_claim,
            owner=owner,
            token=token,
            claim=Claim(digest, response_id, now, is_held=True),
            writer=self._presence.name,
        )
        self._writer.post(run, len(token) + len(digest))

    async def find(self, owner: str, token: str) -> Claim | None:
        """Return the claim on this token, also if it is still queued."""
        if not is_storable(token):
            return None
        run = partial(
            statements.find_claim, owner=owner, token=token, is_alive=self._presence.is_alive
        )
        worker = self._writer if self._writer.is_busy else self._reader
        return await worker.call(run)

    async def release(self, owner: str, token: str, response_id: str) -> None:
        """Forget the claim if it leads to this response."""
        await self._writer.call(
            partial(statements.release_claim, owner=owner, token=token, response_id=response_id)
        )


class SqliteNotices:
    """See `Notices` for what the methods do."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def take(self, endpoint: str, now: int, hide_until: int, limit: int) -> list[Notice]:
        """Return notices of this endpoint that are due, oldest first, and hide them till then."""
        return await self._writer.call(
            partial(
                statements.take_notices,
                endpoint=endpoint,
                now=now,
                hide_until=hide_until,
                limit=limit,
            )
        )

    async def postpone(self, notice_id: str, until: int) -> None:
        """Be due again at this time."""
        await self._writer.call(
            partial(statements.postpone_notice, notice_id=notice_id, until=until)
        )

    async def settle(self, notice_id: str) -> None:
        """Forget the notice."""
        await self._writer.call(partial(statements.settle_notice, notice_id=notice_id))
