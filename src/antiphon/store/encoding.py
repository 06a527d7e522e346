"""How are a response and its items encoded for a store, and decoded?

All stores keep bytes, so they share no object with a caller. A response is stored without its
output: the items of a turn are rows of their own, each under its id. Unknown fields are kept. A
value that cannot be encoded as JSON is the caller's bug, and the error is raised unchanged. The
log of a finished response is one compressed value.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.protocol.codec import decode_response, encode_item, with_written_tools
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import without_state
from antiphon.protocol.pieces import PIECE, PieceDecoder, encode_long, text_size
from antiphon.protocol.response import Response
from antiphon.protocol.thread import Thread
from antiphon.store.base import Admit, Batch, Size
from antiphon.transport.aside import aside, aside_if

__all__ = [
    "StoredItem",
    "admit_bodies",
    "are_short",
    "compress_batches",
    "compress_log",
    "decode_aside",
    "decode_item",
    "decode_turn",
    "encode_aside",
    "encode_items",
    "encode_new_items",
    "encode_turn",
    "end_log",
    "expand_log",
    "is_storable",
    "names_of",
    "read_names",
    "refusal_of",
    "size_of",
]

_EXTRA: Final = "$extra"
_LEVEL: Final = 1
# Encoding so many items takes a millisecond or two, and so does decoding so many bytes.
_MANY: Final = 500
_MUCH: Final = PIECE
_MAX_DEPTH: Final = 512
# Bytes of a log that are compressed in one call: each makes a buffer of its own.
_TOGETHER: Final = 64 * 1024

_body_of: Final = attrgetter("body")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Response).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_objects = msgspec.json.Decoder(list[dict[str, Any]]).decode
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[Batch]).decode


class StoredItem(NamedTuple):
    """An item as all stores keep it."""

    id: str | None
    body: bytes


def encode_turn(response: Response) -> bytes:
    """Return the response as JSON, without its output."""
    return _encode(msgspec.structs.replace(with_written_tools(response), output=[]))


def decode_turn(body: bytes, output: list[Item], status: str | None = None) -> Response:
    """Return the response of this body with this output, as it is shown: without native state.

    `status` is the one it has now, if the body is older. A field that only a newer antiphon
    knows is kept in `extra`.
    """
    try:
        response = _decode(body)
    except msgspec.ValidationError:
        fields = _decode_object(body)
        fields |= fields.pop(_EXTRA, {})
        response = decode_response(_encode(fields))
    response.output = [without_state(item) for item in output]
    if status is not None:
        response.status = status
    if response.status == "cancelled":
        response.incomplete_details = None  # older versions stored a reason here
    return response


def encode_items(items: Iterable[Item]) -> list[StoredItem]:
    """Return the items in order, each with its id and its JSON."""
    return [StoredItem(_id_of(item), encode_item(item)) for item in items]


async def encode_aside(items: Sequence[Item]) -> list[StoredItem]:
    """Like `encode_items`; many or long items are encoded beside the event loop.

    Those of a thread are encoded once, but for its tail.
    """
    if isinstance(items, Thread):
        known: tuple[StoredItem, ...] = items.recall(encode_aside) or ()
        known += tuple(await encode_aside(items[len(known) : items.lasting]))
        items.learn(encode_aside, known)
        return [*known, *await encode_aside(items[items.lasting :])]
    if are_short(items):
        return encode_items(items)
    return await aside(_encode_long_items, items)


def are_short(items: Sequence[Item]) -> bool:
    """Return whether the items may be encoded on the event loop, each time."""
    if isinstance(items, Thread):
        return False
    return len(items) <= _MANY and sum(map(text_size, items)) <= _MUCH


def _encode_long_items(items: Iterable[Item]) -> list[StoredItem]:
    return [StoredItem(_id_of(item), encode_long(item)) for item in items]


async def encode_new_items(items: Sequence[Item]) -> list[StoredItem]:
    """Return the items of a conversation; raise ValueError if an id is missing or repeated."""
    stored = await encode_aside(items)
    seen: set[str] = set()
    for item in stored:
        if item.id is None:
            raise ValueError("an item of a conversation needs an id")
        if item.id in seen:
            raise ValueError(f"the conversation already has an item {item.id!r}")
        seen.add(item.id)
    return stored


def size_of(items: Iterable[StoredItem]) -> int:
    """Return the bytes of these items."""
    return sum(map(len, map(_body_of, items)))


def names_of(items: Iterable[StoredItem]) -> str:
    """Return the ids of these items as a claim stores them: always in ASCII."""
    return json.dumps([item.id for item in items])


def read_names(text: str) -> list[str]:
    """Return the ids that `names_of` wrote."""
    return msgspec.json.decode(text, type=list[str])


def decode_item(body: bytes) -> Item:
    """Return the item of this JSON."""
    if len(body) <= PIECE:
        return _decode_object(body)
    item = PieceDecoder().decode(body, _MAX_DEPTH)
    assert isinstance(item, dict)
    return item


async def decode_aside(bodies: Sequence[bytes]) -> list[Item]:
    """Return the items of these bodies, each of which is an item or a list of items.

    Many or long ones are decoded beside the event loop.
    """
    is_large = len(bodies) > _MANY or sum(map(len, bodies)) > _MUCH
    return await aside_if(is_large, _decode_all, bodies)


def _decode_all(bodies: Sequence[bytes]) -> list[Item]:
    items: list[Item] = []
    for body in bodies:
        if body.startswith(b"["):
            items += _decode_list(body)
        else:
            items.append(decode_item(body))
    return items


def _decode_list(body: bytes) -> list[Item]:
    if len(body) <= PIECE:
        return _decode_objects(body)
    items = PieceDecoder().decode(body, _MAX_DEPTH)
    assert isinstance(items, list)
    return items


def end_log(batches: list[Batch], last: Batch | None) -> list[Batch]:
    """Return the whole log with its last batch, which may repeat events that are there already.

    An append that was reported as failed may still have been written.
    """
    if last is None:
        return batches
    log = [batch for batch in batches if batch.first < last.first]
    log.append(last)
    return log


def compress_log(batches: Sequence[Batch]) -> bytes:
    """Return a whole log as few bytes."""
    return compress_batches(len(batches), batches)


def compress_batches(count: int, batches: Iterable[Batch]) -> bytes:
    """Like `compress_log` for this number of batches, which are read one by one."""
    # Packed events are short and alike: a higher level takes longer and gains little.
    compressor = zlib.compressobj(_LEVEL)
    pieces: list[bytes] = []
    # As one list of MessagePack, some batches at a time: a long log need not be in memory twice.
    packed, size = [b"\xdd" + count.to_bytes(4, "big")], 0
    for batch in batches:
        packed.append(_pack(batch))
        size += len(batch.body)
        if size > _TOGETHER:
            pieces.append(compressor.compress(b"".join(packed)))
            packed, size = [], 0
    pieces += (compressor.compress(b"".join(packed)), compressor.flush())
    return b"".join(pieces)


def expand_log(body: bytes, after: int = -1) -> list[Batch]:
    """Return those batches of a compressed log that have an event after this number."""
    return [batch for batch in _unpack(zlib.decompress(body)) if batch.last > after]


def admit_bodies(admit: Admit | None, bodies: Sequence[bytes]) -> None:
    """Raise what `admit` raises about items of these bodies."""
    if admit is not None:
        admit(Size(len(bodies), sum(map(len, bodies))))


def refusal_of(admit: Admit | None, items: int, size: int) -> AntiphonError | None:
    """Return the error with which `admit` refuses items of this size, or None.

    Returned, not raised: in a transaction of many an error would undo the work of others.
    """
    if admit is None:
        return None
    try:
        admit(Size(items, size))
    except AntiphonError as refusal:
        return refusal
    return None


def is_storable(name: str) -> bool:
    """Return whether a name can be stored: half a surrogate pair cannot, because UTF-8 has none."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _id_of(item: Item) -> str | None:
    item_id = item.get("id")
    return item_id if isinstance(item_id, str) else None
