"""Which parts of an item are files, and how do they read as text or as data? No I/O.

A caller gives a file by its data, by an address or by the id of an upload; an image by id too.
An item whose files were replaced for the model has its original under `ORIGINAL`: what is sealed
or returned to callers is the original, and a later turn reads its files again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from antiphon.protocol.items import Item, Part, item_type
from antiphon.protocol.thread import Thread
from antiphon.wires.files import read_data_url

__all__ = [
    "as_text",
    "data_url",
    "decode_data",
    "file_ids",
    "file_places",
    "has_files",
    "image_type",
    "is_file_part",
    "name_of",
    "parts_of",
    "with_parts",
]

_IMAGES: Final = frozenset({"input_image", "computer_screenshot"})
_MAX_NAME: Final = 200
_MARKS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)


def is_file_part(part: object) -> bool:
    """Return whether a part is a file, or an image that is given by its id."""
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    return kind == "input_file" or (kind in _IMAGES and not part.get("image_url"))


def parts_of(item: Item) -> tuple[str, list[Part]]:
    """Return the field of an item that may hold files, and its parts; no field if there is none."""
    kind = item_type(item)
    field = "content" if kind == "message" else "output" if kind.endswith("_output") else ""
    value = item.get(field)
    if isinstance(value, dict):
        return field, [value]
    return (field, value) if isinstance(value, list) else ("", [])


def has_files(item: Item) -> bool:
    """Return whether the item has a part to look at."""
    return any(map(is_file_part, parts_of(item)[1]))


def file_places(items: Sequence[Item]) -> tuple[int, ...]:
    """Return the places of the items that have files. A thread remembers them."""
    if isinstance(items, Thread):
        return items.fold(has_files, (), _note_place)
    return tuple(place for place, item in enumerate(items) if has_files(item))


def _note_place(known: tuple[int, ...], place: int, item: Item) -> tuple[int, ...]:
    return (*known, place) if has_files(item) else known


def file_ids(items: Sequence[Item], places: Sequence[int]) -> list[str]:
    """Return the ids that the files at these places are given by, each once."""
    parts = (part for place in places for part in parts_of(items[place])[1] if is_file_part(part))
    ids = (part.get("file_id") for part in parts)
    return list(dict.fromkeys(name for name in ids if isinstance(name, str)))


def with_parts(item: Item, field: str, parts: list[Part]) -> Item:
    """Return the item with other parts."""
    return {**item, field: parts[0] if isinstance(item.get(field), dict) else parts}


def name_of(part: Part, other: str = "") -> str:
    """Return what a file is called, in one line."""
    name = part.get("filename")
    words = " ".join((name if isinstance(name, str) and name.strip() else other).split())
    return words[:_MAX_NAME] or "file"


def as_text(name: str, text: str, cut_at: int | None = None) -> Part:
    """Return the text of a file as a part that the model reads; the cut is stated in it."""
    end = f"End of the file {name}"
    if cut_at is not None:
        end = f"The file {name} is longer: only the first {cut_at} bytes of its text are shown"
    return {"type": "input_text", "text": f"[File {name}]\n{text}\n[{end}]"}


def decode_data(data: str) -> tuple[bytes, str]:
    """Return the bytes and the media type of a data URL or of bare base64. Raise ValueError."""
    url = read_data_url(data)
    if not url.is_base64:
        return unquote_to_bytes(url.data), url.media_type
    try:
        return base64.b64decode(url.data, validate=True), url.media_type
    except binascii.Error:
        raise ValueError("it is not valid base64") from None


def data_url(media_type: str, data: bytes) -> str:
    """Return the data URL of a content."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def image_type(head: bytes) -> str | None:
    """Return the media type of an image that begins so."""
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for mark, kind in _MARKS if head.startswith(mark)), None)
