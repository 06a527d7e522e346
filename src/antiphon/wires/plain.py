"""Which items of a conversation are just one text of the user or of the assistant?

Most items of a long conversation are. Such a message has no fields to report and nothing to do with
calls, so it is written the same way whatever stands around it. Many items are checked at once, by a
few calls of C code. A wire that writes them together must write the same bytes as one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress, pairwise, repeat
from operator import is_
from typing import Any, Final, NamedTuple

from antiphon.protocol.items import Item
from antiphon.wires.texts import PART_FIELDS
from antiphon.wires.turns import MESSAGE_FIELDS

__all__ = ["PlainTexts", "find_plain"]

# So many items are looked at together; fewer are left to others.
_TOGETHER: Final = 64
_MESSAGE: Final = frozenset({"message"})
_ROLES: Final = frozenset({"user", "assistant"})
_TEXTS: Final = frozenset({"input_text", "output_text", "text"})
_STRING: Final = frozenset({str})
_OBJECT: Final = frozenset({dict})
_CONTENTS: Final = frozenset({str, list})
_ONE: Final = frozenset({1})
_TWICE: Final = ("assistant", "assistant")


class PlainTexts(NamedTuple):
    """Messages in a row: the role and the text of each."""

    roles: list[str]
    texts: list[str]


def find_plain(items: Sequence[Item], begin: int, end: int) -> PlainTexts:
    """Return the plain messages from `begin` on, before `end`, up to the last that ends its turn.

    What the assistant says goes on with the next item, unless that is the user's: so two such
    items in a row are not plain, and the last message is never the assistant's. There may be
    more of them than are returned.
    """
    roles: list[str] = []
    texts: list[str] = []
    for start in range(begin, end - _TOGETHER + 1, _TOGETHER):
        some = _read(items[start : start + _TOGETHER])
        if some is None or _TWICE in pairwise((*roles[-1:], *some.roles)):
            break
        roles += some.roles
        texts += some.texts
    if roles and roles[-1] == "assistant":
        del roles[-1], texts[-1]
    return PlainTexts(roles, texts)


def _read(items: Sequence[Item]) -> PlainTexts | None:
    """Return the messages that these items are, if each of them is plain."""
    if not all(map(MESSAGE_FIELDS.issuperset, items)):
        return None
    roles = _field(items, "role")
    if not _all_in(_field(items, "type"), _MESSAGE) or not _all_in(roles, _ROLES):
        return None
    contents = _field(items, "content")
    types = [*map(type, contents)]
    if not _CONTENTS.issuperset(types):
        return None
    lists = [*compress(contents, map(is_, types, repeat(list)))]
    parts = [*chain.from_iterable(lists)]
    if not _ONE.issuperset(map(len, lists)) or not _are_texts(parts):
        return None
    texts = _field(parts, "text")
    if len(texts) < len(items):
        inner = iter(texts)
        texts = [content if type(content) is str else next(inner) for content in contents]
    return PlainTexts(roles, texts) if _STRING.issuperset(map(type, texts)) else None


def _are_texts(parts: Sequence[Any]) -> bool:  # Any: what a caller sent
    """Return whether all parts are texts without a field to report."""
    return (
        _OBJECT.issuperset(map(type, parts))
        and all(map(PART_FIELDS.issuperset, parts))
        and _all_in(_field(parts, "type"), _TEXTS)
    )


def _field(objects: Sequence[dict[str, Any]], name: str) -> list[Any]:  # Any: what a caller sent
    return [*map(dict.get, objects, repeat(name))]


def _all_in(values: Sequence[object], known: frozenset[str]) -> bool:
    return _STRING.issuperset(map(type, values)) and known.issuperset(values)
