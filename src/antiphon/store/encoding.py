"""How do a response and its items become bytes, and come back?

Both stores keep bytes, so nothing they hold is shared with a caller. A response is kept
without its output: the items of a turn stand on their own, each under its id. Fields we do
not know travel with the rest. What cannot be written as JSON is the caller's bug and is
raised as it comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.protocol.codec import decode_response, encode_item
from antiphon.protocol.items import Item
from antiphon.protocol.response import DONE_STATUSES, Failure, Response

__all__ = [
    "StoredItem",
    "check_final",
    "decode_item",
    "decode_turn",
    "encode_items",
    "encode_turn",
    "fail_turn",
]

_EXTRA: Final = "$extra"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Response).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class StoredItem(NamedTuple):
    """An item as both stores keep it."""

    id: str | None
    body: bytes


def encode_turn(response: Response) -> bytes:
    """Return the response as JSON, without its output."""
    return _encode(msgspec.structs.replace(response, output=[]))


def decode_turn(body: bytes, output: list[Item]) -> Response:
    """Return the response of this body with this output.

    A field that only a newer antiphon knows is kept in `extra`.
    """
    try:
        response = _decode(body)
    except msgspec.ValidationError:
        fields = _decode_object(body)
        fields |= fields.pop(_EXTRA, {})
        response = decode_response(_encode(fields))
    response.output = output
    return response


def encode_items(items: Iterable[Item]) -> list[StoredItem]:
    """Return the items in order, each with its id and its JSON."""
    return [StoredItem(_id_of(item), encode_item(item)) for item in items]


def decode_item(body: bytes) -> Item:
    """Return the item of this JSON."""
    return _decode_object(body)


def fail_turn(body: bytes, failure: Failure) -> bytes:
    """Return the body of the same response, ended as failed."""
    response = decode_turn(body, [])
    response.status = "failed"
    response.error = failure
    return encode_turn(response)


def check_final(response: Response) -> None:
    """Raise ValueError if the response has not come to an end: that is a bug of the caller."""
    if response.status not in DONE_STATUSES:
        raise ValueError(f"a response cannot finish as {response.status!r}")


def _id_of(item: Item) -> str | None:
    item_id = item.get("id")
    return item_id if isinstance(item_id, str) else None
