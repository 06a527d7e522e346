"""The contract of a store, the same for every kind.

Everything has an owner, in every row and every question; missing and foreign look alike.
A turn stores its own items and points to its parent, so a conversation of a thousand turns
takes a thousand times the room of one. Whatever goes wrong inside is raised as
`StoreUnavailable`, and then nothing was promised.

A response is an event log. Batches of packed events are appended while it runs, each durable
before anybody sees it, and `finish` adds the last batch together with the final state. A turn
has one writer, the store that began it or claimed it; every append and finish checks that,
so a process that was taken for dead cannot write behind its successor's back.

A store has facets, each with a contract of its own: `conversations`, `claims`, `notices`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response

__all__ = [
    "MAX_DEPTH",
    "Admit",
    "Batch",
    "Claim",
    "ClaimRequest",
    "Claims",
    "Conversation",
    "Conversations",
    "History",
    "ItemPage",
    "KeyRecord",
    "Log",
    "Notice",
    "Notices",
    "Orphan",
    "Size",
    "Store",
]

# A chain is followed this far; what lies beyond is reported as missing.
MAX_DEPTH: Final = 100_000


class Size(NamedTuple):
    """How many items there are, and how many bytes they are as JSON."""

    items: int
    bytes: int


Admit = Callable[[Size], None]
"""Receives the size of the items that are about to be read, perhaps in another thread.

Raises an AntiphonError to refuse them: then none of them is read.
"""


class Batch(NamedTuple):
    """Events of a log that were appended together, packed (see `protocol.log`)."""

    first: int
    """The sequence number of the first event, and of the last."""
    last: int
    body: bytes


class Log(msgspec.Struct, frozen=True):
    """What is known of a response from one sequence number on.

    `response` is the response as it stands, with its output if it has ended. Without
    `is_kept` the turn keeps no log (it was not streamed): its events follow from the response.
    """

    response: Response
    batches: list[Batch]
    is_kept: bool


class History(msgspec.Struct, frozen=True):
    """The items of a chain of turns, oldest first, and how its head stands.

    `missing` is the id of an ancestor that is gone: the items are then not all there.
    `weight` is how many bytes the items are as JSON, `turns` how many turns they are of, and
    `removals` what `Store.removals` was when they were read.
    """

    items: list[Item]
    status: str
    missing: str | None = None
    weight: int = 0
    turns: int = 0
    removals: int = 0


class Orphan(msgspec.Struct, frozen=True):
    """An unfinished response whose writer is gone. Whoever claimed it is its writer now.

    `batches` is its log so far, `request` what was kept to run it, if it is in the background.
    """

    owner: str
    response: Response
    batches: list[Batch]
    request: bytes | None = None
    is_cancelled: bool = False


class KeyRecord(msgspec.Struct, frozen=True):
    """An API key as we keep it: never the secret, only its digest."""

    id: str
    owner: str
    digest: bytes
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    name: str = ""


class Conversation(msgspec.Struct, frozen=True):
    """A conversation without its items."""

    id: str
    created_at: int
    metadata: dict[str, Any] = {}


class ItemPage(msgspec.Struct, frozen=True):
    """Some items of a list, in the order that was asked for."""

    items: list[Item]
    has_more: bool


class ClaimRequest(msgspec.Struct, frozen=True):
    """A token to claim in the same step as a change, so that the change is made once.

    `digest` is that of the request's body. A claim that was made before `since` does not count.
    """

    token: str
    digest: bytes
    now: int
    since: int


class Claim(msgspec.Struct, frozen=True):
    """That a request was made once, and which response it led to.

    If it made no response, `response_id` names what it made: the id of a conversation, or a
    JSON list of the ids of items.

    `digest` is that of its body. `is_held` says that the store that took it is alive and has
    not let go: without a response of that id, the request is still on its way to one.
    """

    digest: bytes
    response_id: str
    created_at: int
    is_held: bool


class Notice(msgspec.Struct, frozen=True):
    """That somebody must be told how a response ended. `id` is the same at every attempt.

    `endpoint` names whom to tell; each endpoint has a notice of its own.
    """

    id: str
    owner: str
    response_id: str
    type: str
    created_at: int
    endpoint: str
    attempts: int = 0


class Conversations(Protocol):
    """Lists of items that grow by turns and by hand, with one writer at a time.

    A conversation is locked by the response that writes to it. The lock ends with `finish` of
    that response, with `unlock`, and with the store that took it, if the response never began.
    """

    async def create(
        self,
        owner: str,
        conversation: Conversation,
        items: Sequence[Item],
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        """Keep a new conversation with its first items (all have ids). Durable on return.

        With `once`, its token is claimed in the same step. If it is claimed already, and the
        conversation that was made then is still there, keep nothing and return that claim.
        """
        ...

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        """Return the conversation without its items."""
        ...

    async def update(
        self, owner: str, conversation_id: str, metadata: dict[str, Any]
    ) -> Conversation | None:
        """Replace the metadata; return the conversation as it is now, None if there is none."""
        ...

    async def delete(self, owner: str, conversation_id: str) -> bool:
        """Remove a conversation and its items for good; say whether there was one.

        Raise ConversationLocked if a turn is writing to it.
        """
        ...

    async def items(
        self, owner: str, conversation_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Return every item in order, None if there is no such conversation.

        Raise what `admit` raises.
        """
        ...

    async def page(
        self,
        owner: str,
        conversation_id: str,
        *,
        after: str | None,
        limit: int,
        is_descending: bool,
        admit: Admit | None = None,
    ) -> ItemPage | None:
        """Return at most `limit` items behind the item `after` in the given order.

        None if there is no such conversation. Raise KeyError if it has no item `after`, and what
        `admit` raises.
        """
        ...

    async def add(
        self,
        owner: str,
        conversation_id: str,
        items: Sequence[Item],
        once: ClaimRequest | None = None,
    ) -> bool | Claim:
        """Add items at the end, durable on return; say whether there is such a conversation.

        With `once`, its token is claimed in the same step; if it is claimed already, add nothing
        and return that claim. Raise ConversationLocked if a turn is
        writing to it. An item whose id is there already raises ValueError, and nothing is added.
        """
        ...

    async def find(self, owner: str, conversation_id: str, item_id: str) -> Item | None:
        """Return one item."""
        ...

    async def remove(self, owner: str, conversation_id: str, item_id: str) -> bool:
        """Remove one item for good; say whether there was one. Raise ConversationLocked."""
        ...

    async def lock(
        self, owner: str, conversation_id: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Become the writer; return every item as it now is, None if there is no such one.

        Durable on return. Raise ConversationLocked if another response holds it, and what
        `admit` raises: in both cases the lock stays as it was. A response that holds it
        already may ask again.
        """
        ...

    async def unlock(
        self,
        owner: str,
        conversation_id: str,
        response_id: str,
        said: Sequence[Item] = (),
    ) -> bool:
        """Add what was said and let go, at once and durable, if this response holds the lock.

        Say whether it did.
        """
        ...


class Claims(Protocol):
    """Which requests were made already, by a token: an idempotency key or a digest."""

    async def take(
        self, owner: str, token: str, digest: bytes, response_id: str, now: int
    ) -> Claim | None:
        """Claim the token, durable on return; return None, or the claim that is there already.

        A claim whose holder is gone, and which led to no response, gives way.
        """
        ...

    async def note(self, owner: str, token: str, digest: bytes, response_id: str, now: int) -> None:
        """Claim the token, in place of any older claim. Need not be durable on return."""
        ...

    async def find(self, owner: str, token: str) -> Claim | None:
        """Return the claim on this token."""
        ...

    async def release(self, owner: str, token: str, response_id: str) -> None:
        """Forget the claim if it leads to this response."""
        ...


class Notices(Protocol):
    """Who must still be told that a response has ended. Rows are added by `Store.finish`.

    A new notice is due at once. `Store.sweep` removes those created before its first time: the
    endpoint may be gone from the settings. `Store.delete` of the response leaves them.
    """

    async def take(self, endpoint: str, now: int, hide_until: int, limit: int) -> list[Notice]:
        """Return notices of this endpoint that are due, oldest first, and hide them till then.

        `attempts` of each is counted up, durable on return: it says which attempt this is.
        """
        ...

    async def postpone(self, notice_id: str, until: int) -> None:
        """Be due again at this time."""
        ...

    async def settle(self, notice_id: str) -> None:
        """Forget the notice: it was delivered, or given up."""
        ...


class Store(Protocol):
    """Where responses, their items and logs, and the keys live."""

    @property
    def conversations(self) -> Conversations:
        """Lists of items that grow."""
        ...

    @property
    def claims(self) -> Claims:
        """Which requests were made already."""
        ...

    @property
    def notices(self) -> Notices:
        """Who must still be told."""
        ...

    async def begin(
        self,
        owner: str,
        response: Response,
        items: Sequence[Item],
        *,
        batch: Batch | None = None,
        request: bytes | None = None,
    ) -> None:
        """Take note of a turn that has begun, with its own input items (all have ids).

        Ordered before the `append` and `finish` of the same response. With a `batch`, the
        first of its log, it is durable on return, else it need not be. `request` is kept until
        the end, for whoever claims the turn. A second begin of one id changes nothing.
        """
        ...

    async def forget(self, owner: str, response_id: str) -> None:
        """Undo the beginning of a response of which nobody has heard.

        If it is not this store's to write, or not there, nothing happens. What it held is erased
        soon after, as if it had been deleted.
        """
        ...

    def append(
        self, owner: str, response_id: str, batch: Batch, *, status: str | None = None
    ) -> Awaitable[bool]:
        """Add to the log of a begun response; durable when that has been awaited.

        `status` is its new one, if it changed. Return whether somebody asked to cancel it.
        Raise TurnLost if it is not this store's to write.
        """
        ...

    async def finish(
        self,
        owner: str,
        response: Response,
        *,
        batch: Batch | None = None,
        said: Sequence[Item] = (),
        notices: Sequence[Notice] = (),
    ) -> None:
        """Make the final state of a begun response durable. Its output is stored with it.

        All at once: the last batch of its log, which is compressed; `said`, which is added to
        the conversation that the response has locked; the end of that lock; the notices; what
        was kept to run it is removed. Raise TurnLost if the response is not there, has already
        ended, or is another store's, or if there is something to say and no such lock: an end
        that was stored is never overwritten.
        """
        ...

    async def get(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> Response | None:
        """Return a response with its output, finished or not. Raise what `admit` raises."""
        ...

    async def read_log(self, owner: str, response_id: str, after: int = -1) -> Log | None:
        """Return every batch that has an event behind the sequence number `after`, in order."""
        ...

    async def wait(self, response_id: str, seconds: float) -> None:
        """Return when something may have happened to the response, after `seconds` at the latest.

        A hint: it may return early, and nothing may have happened.
        """
        ...

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response, its items and its log for good; say whether there was one.

        Its writer, if it still runs, gets TurnLost.
        """
        ...

    async def history(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> History | None:
        """Return input and output items of the whole chain that ends in this response.

        Raise what `admit` raises.
        """
        ...

    async def removals(self) -> int:
        """Return a number that grows whenever a response is removed, by whomever.

        As long as it is the same, every history of a response that had ended is what it was.
        """
        ...

    async def input_items(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Return the turn's own input items in order, or None if there is no such response."""
        ...

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        """Return the newest item with this id, of a response or of a conversation."""
        ...

    async def ask_cancel(self, owner: str, response_id: str) -> bool:
        """Ask the writer of an unfinished response to cancel it; say whether there is such one."""
        ...

    async def asked_cancels(self) -> list[tuple[str, str]]:
        """Return owner and id of those responses of this store that somebody asked to cancel."""
        ...

    async def claim_orphans(self, limit: int) -> list[Orphan]:
        """Become the writer of unfinished responses whose writer is gone, oldest first.

        The turns of this store, and of others that are alive on the same database, go on.
        Durable on return; no two stores claim the same one.
        """
        ...

    async def sweep(self, before: int, claims_before: int) -> int:
        """Remove responses created before the one time, claims before the other; count the first.

        Conversations stay until they are deleted.
        """
        ...

    async def secret(self, name: str, value: bytes) -> bytes:
        """Return the secret of this name; if there is none, keep and return this value."""
        ...

    async def add_key(self, key: KeyRecord) -> None:
        """Keep a new key. Raise ValueError if its id is taken."""
        ...

    async def find_key(self, key_id: str) -> KeyRecord | None:
        """Return the key with this id, revoked or not."""
        ...

    async def list_keys(self) -> list[KeyRecord]:
        """Return every key, oldest first."""
        ...

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Mark a key as revoked; say whether there was one in force."""
        ...

    async def ping(self) -> None:
        """Return if the store can be read and written now."""
        ...

    async def close(self) -> None:
        """Write what is queued and let go of files and threads."""
        ...
