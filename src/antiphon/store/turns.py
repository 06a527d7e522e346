"""What is stored when a turn begins and when it ends, and why may that be refused?

The same for every store. A turn is written by one store only: the one that its row names as its
writer. A row without a writer is that of a turn that has ended.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from antiphon.protocol.errors import TurnLost
from antiphon.protocol.items import Item
from antiphon.protocol.response import DONE_STATUSES, Response
from antiphon.store.base import Batch, Entry
from antiphon.store.base.entries import check_entries
from antiphon.store.encoding import StoredItem, encode_aside, encode_items, encode_turn, size_of

__all__ = [
    "Beginning",
    "Ending",
    "encode_beginning",
    "encode_ending",
    "encode_short_beginning",
    "lost_conversation",
    "lost_turn",
]


class Beginning(NamedTuple):
    """What `begin` writes, in one transaction. `items` are the turn's own input."""

    writer: str
    owner: str
    id: str
    parent: str | None
    status: str
    created_at: float
    body: bytes
    items: Sequence[StoredItem] = ()
    batch: Batch | None = None
    request: bytes | None = None

    @property
    def size(self) -> int:
        """The bytes to write."""
        return len(self.body) + size_of(self.items) + _size(self.batch) + len(self.request or b"")


class Ending(NamedTuple):
    """What `finish` writes, in one transaction. `said` goes to the locked conversation."""

    writer: str
    owner: str
    id: str
    status: str
    body: bytes
    output: Sequence[StoredItem] = ()
    batch: Batch | None = None
    said: Sequence[StoredItem] = ()
    entries: Sequence[Entry] = ()
    has_conversation: bool = True
    """Whether the turn may have locked a conversation: its response names one then."""

    @property
    def size(self) -> int:
        """The bytes to write, without the entries."""
        return len(self.body) + size_of(self.output) + size_of(self.said) + _size(self.batch)


async def encode_beginning(
    writer: str,
    owner: str,
    response: Response,
    items: Sequence[Item],
    batch: Batch | None,
    request: bytes | None,
) -> Beginning:
    """Return what `begin` writes. The response may change as soon as this was called."""
    turn = encode_short_beginning(writer, owner, response, (), batch, request)
    return turn._replace(items=await encode_aside(items))


def encode_short_beginning(
    writer: str,
    owner: str,
    response: Response,
    items: Sequence[Item],
    batch: Batch | None,
    request: bytes | None,
) -> Beginning:
    """Return what `begin` writes for a turn whose items are short."""
    return Beginning(
        writer,
        owner,
        response.id,
        response.previous_response_id,
        response.status,
        response.created_at,
        encode_turn(response),
        encode_items(items),
        batch,
        request,
    )


async def encode_ending(
    writer: str,
    owner: str,
    response: Response,
    batch: Batch | None,
    said: Sequence[Item],
    entries: Sequence[Entry],
    kinds: Container[type[Entry]],
) -> Ending:
    """Return what `finish` writes.

    Raise ValueError if the response has not come to an end, or if the store has no such `kinds`
    of entries: both are bugs of the caller.
    """
    if response.status not in DONE_STATUSES:
        raise ValueError(f"a response cannot finish as {response.status!r}")
    check_entries(entries, kinds)
    return Ending(
        writer,
        owner,
        response.id,
        response.status,
        encode_turn(response),
        encode_items(response.output),
        batch,
        await encode_aside(said) if said else (),
        entries,
        bool(said or response.conversation),
    )


def lost_turn(response_id: str, state: tuple[str, str | None] | None) -> TurnLost:
    """Return the error of a store that is not the writer of this response.

    `state` is the status of the response and its writer, or None if it does not exist.
    """
    if state is None:
        obstacle = "is not in the store: its beginning could not be written, or it was deleted"
    elif state[1] is None:
        obstacle = f"has already ended as {state[0]}"
    else:
        obstacle = "was taken over by another process"
    return TurnLost(f"response {response_id!r} {obstacle}; nothing was stored")


def lost_conversation(response_id: str) -> TurnLost:
    """Return the error of a turn that has items for a conversation but holds no lock."""
    return TurnLost(
        f"response {response_id!r} has locked no conversation, or its lock was taken over;"
        " nothing was stored"
    )


def _size(batch: Batch | None) -> int:
    return 0 if batch is None else len(batch.body)
