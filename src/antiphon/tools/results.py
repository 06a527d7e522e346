"""How much of a result does the model get, and how much is stored?

A result comes from outside and may be of any length. What is cut states so in its place: a model
must not take a part for the whole. Long texts inside an item are cut the same way.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec

from antiphon.protocol.items import Item, Part

__all__ = ["cap_item", "cap_result", "cut_text"]

_ALL: Final = sys.maxsize
# What the model wrote: the arguments of a call, or a program.
_WRITTEN: Final = ("arguments", "code")
_SHORTEST: Final = 64
# How much of the limit a text may take, and how many entries a list may have, step by step.
_STEPS: Final = ((2, _ALL), (8, _ALL), (64, _ALL), (512, 1000), (512, 100), (4096, 10), (4096, 1))


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
    """Return the item in at most `most` bytes: its longest texts are cut, then its long lists.

    An image is never cut, because a part of one is none; what makes images has its own limit.
    What the model wrote is not cut and does not count: it was streamed already, and was run so.
    """
    if item.get("type") == "image_generation_call":
        return item
    found = {name: value for name, value in item.items() if name not in _WRITTEN}
    capped = found
    for share, entries in _STEPS:
        if len(msgspec.json.encode(capped)) <= most:
            break
        capped = _cut_inside(found, max(most // share, _SHORTEST), entries)
    return item if capped is found else item | capped


def _cut_inside(value: Any, most: int, entries: int) -> Any:  # any JSON value
    if isinstance(value, str):
        return cut_text(value, most)
    if isinstance(value, dict):
        return {name: _cut_inside(inner, most, entries) for name, inner in value.items()}
    if isinstance(value, list):
        return [_cut_inside(inner, most, entries) for inner in value[:entries]]
    return value
