"""A store in a PostgreSQL database, which many gateways share.

Each store is a node: its turns carry its name, and its lease shows the others that it is alive.
All writes of turns go through a flusher, many in one commit; the rest are short transactions of
their own. A caller that waits for a response is woken by NOTIFY, which is a hint: it checks
again when its time is over, and often while the node has lost its connection.

This module joins the parts. Each facet has a module with its SQL; `migrations` holds the tables,
`node` the lease, `flusher` the commits and `database` the connections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import Admit, Batch, Entry, History, KeyRecord, Log, Notice, Orphan
from antiphon.store.base.entries import check_entries
from antiphon.store.encoding import (
    StoredItem,
    check_final,
    encode_aside,
    encode_items,
    encode_turn,
)
from antiphon.store.postgres.claims import PostgresClaims, sweep_claims
from antiphon.store.postgres.conversations import PostgresConversations
from antiphon.store.postgres.database import Connection, Database
from antiphon.store.postgres.entries import KINDS
from antiphon.store.postgres.flusher import Flusher
from antiphon.store.postgres.history import find_item, read_history, read_input_items, read_removals
from antiphon.store.postgres.keys import add_key, find_key, keep_secret, list_keys, revoke_key
from antiphon.store.postgres.log import APPEND, Appended, read_log
from antiphon.store.postgres.node import CHANNEL, Node, sweep_nodes
from antiphon.store.postgres.notices import PostgresNotices, sweep_notices
from antiphon.store.postgres.rows import is_bytes, is_text
from antiphon.store.postgres.turns import (
    BEGIN,
    FINISH,
    SWEEP_SIZE,
    Begun,
    Finished,
    delete_turn,
    forget_turn,
    get_turn,
    sweep_turns,
)
from antiphon.store.postgres.writers import ask_cancel, asked_cancels, claim_orphans, held_by
from antiphon.store.waiting import Waiters

__all__ = ["PostgresStore"]

# How often to poll while no notifications arrive.
_POLL_SECONDS: Final = 0.25
# Claims or notices removed in one transaction: it ends before any other has waited for long.
_ROWS_AT_ONCE: Final = 5_000

_T = TypeVar("_T")


class PostgresStore:
    """A store in a PostgreSQL database. See `Store` for what the methods do.

    Nothing is opened before the first use, which must be in the event loop of all others.
    `patience` bounds how long a caller waits for a database that is away or slow.
    """

    def __init__(self, url: str, *, patience: float = 5.0) -> None:
        self._database = Database(url, patience)
        self._waiters = Waiters()
        self._node = Node(self._database, self._waiters, patience)
        self._flusher = Flusher(self._database, self._node.renew, patience)
        self._is_closed = False
        self._doubtful: list[Orphan] = []  # possibly claimed
        self.conversations = PostgresConversations(self._database, self._node.ensure)
        self.claims = PostgresClaims(self._database, self._node.ensure)
        self.notices = PostgresNotices(self._database)

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
        turn = Begun(
            await self._node.ensure(),
            owner,
            response.id,
            response.previous_response_id,
            response.status,
            response.created_at,
            encode_turn(response),
            await encode_aside(items),
            batch,
            request,
        )
        size = _size(turn.body, turn.items, batch) + len(request or b"")
        await self._flusher.call(BEGIN, (owner, response.id), turn, size)
        self._waiters.wake(response.id)

    async def forget(self, owner: str, response_id: str) -> None:
        """Undo a beginning that this node has made."""
        node = await self._node.ensure()
        await self._database.change(
            lambda connection: forget_turn(connection, owner, response_id, node, CHANNEL)
        )

    async def append(
        self, owner: str, response_id: str, batch: Batch, *, status: str | None = None
    ) -> bool:
        """Add to the log of a turn of this node; return whether it shall be cancelled."""
        turn = Appended(await self._node.ensure(), owner, response_id, batch, status)
        is_cancelled: bool = await self._flusher.call(
            APPEND, (owner, response_id), turn, len(batch.body)
        )
        self._waiters.wake(response_id)
        return is_cancelled

    async def finish(
        self,
        owner: str,
        response: Response,
        *,
        batch: Batch | None = None,
        said: Sequence[Item] = (),
        notices: Sequence[Notice] = (),
        entries: Sequence[Entry] = (),
    ) -> None:
        """Make the final state of a turn of this node durable, with all that belongs to it."""
        check_final(response)
        kept = (*notices, *entries)
        check_entries(kept, KINDS)
        turn = Finished(
            await self._node.ensure(),
            owner,
            response.id,
            response.status,
            encode_turn(response),
            encode_items(response.output),
            batch,
            await encode_aside(said),
            kept,
        )
        size = _size(turn.body, [*turn.items, *turn.said], batch)
        await self._flusher.call(FINISH, (owner, response.id), turn, size)
        self._waiters.wake(response.id)

    async def get(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> Response | None:
        """Return a response with its output, finished or not."""
        return await self._read(partial(get_turn, admit=admit), owner, response_id)

    async def read_log(self, owner: str, response_id: str, after: int = -1) -> Log | None:
        """Return every batch that has an event after the sequence number `after`."""
        if not is_text(response_id):
            return None
        return await self._database.ask(
            lambda connection: read_log(connection, owner, response_id, after)
        )

    async def wait(self, response_id: str, seconds: float) -> None:
        """Return when a notification for the response arrived, or the time is over."""
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        if not self._node.is_listening:
            seconds = min(seconds, _POLL_SECONDS)
        await self._waiters.wait(response_id, seconds)

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response and everything that belongs to it; return whether there was one."""
        if not is_text(response_id):
            return False
        is_gone = await self._database.change(
            lambda connection: delete_turn(connection, owner, response_id, CHANNEL)
        )
        self._waiters.wake(response_id)
        return is_gone

    async def history(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> History | None:
        """Return the items of the whole chain that ends in this response."""
        if not is_text(response_id):
            return None
        return await self._database.view(
            lambda connection: read_history(connection, owner, response_id, admit)
        )

    async def removals(self) -> int:
        """Return how often responses were removed, by any node."""
        return await self._database.ask(read_removals)

    async def input_items(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Return the turn's own input items in order."""
        return await self._read(partial(read_input_items, admit=admit), owner, response_id)

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        """Return the newest item with this id; a response's comes before a conversation's."""
        if not is_bytes(item_id):
            return None
        return await self._database.ask(lambda connection: find_item(connection, owner, item_id))

    async def ask_cancel(self, owner: str, response_id: str) -> bool:
        """Ask the writer of an unfinished response to cancel it; return whether there is one."""
        if not is_text(response_id):
            return False
        return await self._database.ask(
            lambda connection: ask_cancel(connection, owner, response_id, CHANNEL)
        )

    async def asked_cancels(self) -> list[tuple[str, str]]:
        """Return owner and id of the responses of this node that shall be cancelled."""
        return await self._database.ask(
            lambda connection: asked_cancels(connection, self._node.name)
        )

    async def claim_orphans(self, limit: int) -> list[Orphan]:
        """Become the writer of unfinished responses of nodes that have died.

        A node that has just started, or was disconnected, does not yet trust expired leases.
        """
        writer = await self._node.ensure()
        if self._doubtful:
            claimed = await self._claimed(writer)
            if claimed:
                return claimed
        found: list[Orphan] = []

        async def run(connection: Connection) -> list[Orphan]:
            found[:] = await claim_orphans(
                connection, writer, limit, is_steady=self._node.is_steady
            )
            return found

        try:
            return await self._database.change(run)
        except StoreUnavailable:
            self._doubtful = found  # the answer to the commit may be lost
            raise

    async def _claimed(self, writer: str) -> list[Orphan]:
        """Return the orphans that were claimed by a commit whose answer was lost."""
        names = [(orphan.owner, orphan.response.id) for orphan in self._doubtful]
        held = await self._database.change(lambda connection: held_by(connection, writer, names))
        claimed = [orphan for orphan, is_ours in zip(self._doubtful, held, strict=True) if is_ours]
        self._doubtful = []
        return claimed

    async def sweep(self, before: int, claims_before: int) -> int:
        """Remove what is older than these times, in steps."""
        removed = await self._in_steps(
            lambda connection: sweep_turns(connection, before, CHANNEL), SWEEP_SIZE
        )
        await self._in_steps(
            lambda connection: sweep_notices(connection, before, _ROWS_AT_ONCE), _ROWS_AT_ONCE
        )
        await self._in_steps(
            lambda connection: sweep_claims(connection, claims_before, _ROWS_AT_ONCE), _ROWS_AT_ONCE
        )
        await self._database.change(sweep_nodes)
        return removed

    async def secret(self, name: str, value: bytes) -> bytes:
        """Return the secret of this name; if it is new, store and return this value."""
        return await self._database.change(lambda connection: keep_secret(connection, name, value))

    async def add_key(self, key: KeyRecord) -> None:
        """Store a new key. Raise ValueError if its id is taken."""
        if not await self._database.change(lambda connection: add_key(connection, key)):
            raise ValueError(f"there already is a key {key.id!r}")

    async def find_key(self, key_id: str) -> KeyRecord | None:
        """Return the key with this id, revoked or not."""
        if not is_text(key_id):
            return None
        return await self._database.ask(lambda connection: find_key(connection, key_id))

    async def list_keys(self) -> list[KeyRecord]:
        """Return every key, oldest first."""
        return await self._database.ask(list_keys)

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Mark a key as revoked; False if it does not exist, was revoked or has expired."""
        if not is_text(key_id):
            return False
        return await self._database.change(lambda connection: revoke_key(connection, key_id, now))

    async def ping(self) -> None:
        """Return if the database can be read and written now: the lease is renewed."""
        await self._node.renew()

    async def close(self) -> None:
        """Write what is queued, give up the lease, and close all connections."""
        self._is_closed = True
        await self._flusher.close()
        await self._node.close()
        await self._database.close()
        self._waiters.wake_all()

    async def _in_steps(self, step: Callable[[Connection], Awaitable[int]], size: int) -> int:
        """Remove until a step finds less than `size`; return how many there were."""
        removed = 0
        while True:
            found = await self._database.change(step)
            removed += found
            if found < size:
                return removed

    async def _read(
        self,
        ask: Callable[[Connection, str, str], Awaitable[_T | None]],
        owner: str,
        name: str,
    ) -> _T | None:
        if not is_text(name):
            return None
        return await self._database.ask(lambda connection: ask(connection, owner, name))


def _size(body: bytes, items: Sequence[StoredItem], batch: Batch | None) -> int:
    return len(body) + sum(len(item.body) for item in items) + (len(batch.body) if batch else 0)
