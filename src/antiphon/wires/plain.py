"""Which items of a conversation are just one text of the user or of the assistant?

Most items of a long conversation are. Such a message has no fields to report and nothing to do with
calls, so it is written the same way whatever stands around it. Many items are checked at once, by
one call of C code. A wire that writes them together must write the same bytes as one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, compress, pairwise, repeat
from operator import attrgetter, is_
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from antiphon.protocol.items import Item
from antiphon.wires.texts import PART_FIELDS
from antiphon.wires.turns import MESSAGE_FIELDS

__all__ = ["PlainTexts", "find_plain"]

# So many items are looked at together; fewer are left to others.
_TOGETHER: Final = 64
_TWICE: Final = ("assistant", "assistant")
_role_of: Final = attrgetter("role")
_content_of: Final = attrgetter("content")
_text_of: Final = attrgetter("text")


def _shape(known: Mapping[str, Any], fields: Collection[str]) -> Any:  # Any: types
    """Return what an object must be that has these fields at most; the known ones it must have."""
    names = {field.replace(".", "_"): field for field in fields}
    others = [(name, Any, None) for name in sorted(names.keys() - known.keys())]
    return msgspec.defstruct(
        "_Shape", [*known.items(), *others], rename=names, forbid_unknown_fields=True
    )


_Part: Any = _shape(
    {"type": Literal["input_text", "output_text", "text"], "text": str}, PART_FIELDS
)
_Message: Any = _shape(
    {
        "type": Literal["message"],
        "role": Literal["user", "assistant"],
        "content": str | Annotated[list[_Part], msgspec.Meta(min_length=1, max_length=1)],
    },
    MESSAGE_FIELDS,
)


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
    try:
        messages = msgspec.convert(items, list[_Message])
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter for half a surrogate pair
        return None
    contents = [*map(_content_of, messages)]
    lists = compress(contents, map(is_, map(type, contents), repeat(list)))
    texts = [*map(_text_of, chain.from_iterable(lists))]
    if len(texts) < len(items):
        inner = iter(texts)
        texts = [content if type(content) is str else next(inner) for content in contents]
    return PlainTexts([*map(_role_of, messages)], texts)
