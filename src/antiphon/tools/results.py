"""How much of a result does the model get, and how much is stored?

A result comes from outside and may be of any length. What is cut states so in its place: a model
must not take a part for the whole. Long texts inside an item are cut the same way.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.protocol.items import Item, Part

__all__ = ["cap_item", "cap_result", "cut_text"]


def cut_text(text: str, most: int) -> str:
    """Return the text in at most `most` bytes of UTF-8, with a note on what is missing."""
    if len(text) * 4 <= most:
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    note = f"\n[cut: {most} of {len(data)} bytes are shown]"
    kept = data[: max(0, most - len(note))].decode("utf-8", "ignore")
    return kept + note


def cap_result(result: str | list[Part], most: int) -> str | list[Part]:
    """Return a result that the model can be shown. Images are left out as a whole if too large."""
    if isinstance(result, str):
        return cut_text(result, most)
    parts: list[Part] = []
    left = most
    for part in result:
        text = part.get("text")
        if isinstance(text, str):
            part = {**part, "text": cut_text(text, max(left, 0))}
            left -= len(part["text"])
        parts.append(part)
    return parts


def cap_item(item: Item, most: int) -> Item:
    """Return the item with its texts cut, the longest first, if it takes more than `most` bytes."""
    if len(msgspec.json.encode(item)) <= most:
        return item
    for share in (2, 8, 64, 512):
        capped: Item = _cut_inside(item, max(most // share, 64))
        if len(msgspec.json.encode(capped)) <= most:
            return capped
    return capped


def _cut_inside(value: Any, most: int) -> Any:  # any JSON value
    if isinstance(value, str):
        return cut_text(value, most)
    if isinstance(value, dict):
        return {name: _cut_inside(inner, most) for name, inner in value.items()}
    if isinstance(value, list):
        return [_cut_inside(inner, most) for inner in value]
    return value
