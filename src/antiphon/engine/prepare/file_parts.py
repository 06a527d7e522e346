"""Which parts of an item are files, and how do they read as text or as data? No I/O.

A caller gives a file by its data, by an address or by the id of an upload; an image by id too.
An item whose files were replaced for the model has its original under `ORIGINAL`: what is sealed
or returned to callers is the original, and a later turn reads its files again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from itertools import chain, compress, repeat
from operator import is_
from typing import Any, Final
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
    "remembers_files",
    "with_parts",
]

_IMAGES: Final = frozenset({"input_image", "computer_screenshot"})
_FILES: Final = _IMAGES | {"input_file"}
_MAX_NAME: Final = 200
# So many items are looked at in a few calls of C code, which take some tens of microseconds.
_TOGETHER: Final = 256
_PLAIN: Final = frozenset({str, list, type(None)})
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
    if not isinstance(items, Thread):
        return _places(items, 0, len(items))
    begin, known = items.recall(file_places) or (0, ())
    known += _places(items, begin, items.lasting)
    items.learn(file_places, (items.lasting, known))
    return known + _places(items, items.lasting, len(items))


def remembers_files(items: Sequence[Item]) -> bool:
    """Return whether `file_places` has seen all of these items before, but for a few."""
    if not isinstance(items, Thread):
        return False
    begin, _ = items.recall(file_places) or (0, ())
    return len(items) - begin <= _TOGETHER


def _places(items: Sequence[Item], begin: int, end: int) -> tuple[int, ...]:
    """Return the places of the items from `begin` to `end` that have files."""
    found: list[int] = []
    for start in range(begin, end, _TOGETHER):
        some = items[start : min(start + _TOGETHER, end)]
        if not _are_plain(some):
            found += [place for place, item in enumerate(some, start) if has_files(item)]
    return tuple(found)


def _are_plain(items: Sequence[Item]) -> bool:
    """Return whether no item has a part of a type that files have: seen for all of them at once."""
    contents = map(dict.get, items, repeat("content"))
    outputs = map(dict.get, items, repeat("output"))
    values: list[Any] = [*contents, *outputs]  # Any: of whatever type a caller put there
    types = [*map(type, values)]
    if not _PLAIN.issuperset(types):
        return False
    if list not in types:
        return True
    parts = chain.from_iterable(compress(values, map(is_, types, repeat(list))))
    try:
        return _FILES.isdisjoint(map(dict.get, parts, repeat("type")))
    except TypeError:  # no part, or one of a type that is no text
        return False


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
