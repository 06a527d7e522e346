"""What an application gets as data, because it has no part for it: items, and notes on text.

An item of a type that no part stands for (a search, a compaction, another server's own) is
handed over as its JSON, so that nothing is lost in silence. A note on the text is a link in
it, or data beside it. A link is Markdown and comes from a model, so nothing in it may break
out of it: brackets are escaped, and only web addresses become links.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from antiphon.protocol.halves import join_halves
from antiphon.protocol.items import Item
from antiphon.protocol.machines.partial_items import encode_json
from antiphon.wires.host.parts import DataPart, TextPart

__all__ = [
    "ANNOTATION_MIME",
    "ITEM_MIME",
    "Annotations",
    "show_annotation",
    "show_item",
]

Annotations = Literal["inline", "data", "none"]

ITEM_MIME: Final = "application/vnd.openresponses.item+json"
ANNOTATION_MIME: Final = "application/vnd.antiphon.annotation+json"
_WEB: Final = re.compile(r"https?://\S", re.IGNORECASE)
_BRACKETS: Final = re.compile(r"([\\\[\]])")
# What would end a link's address, or hide where it leads.
_UNSAFE: Final = re.compile(r"[\x00-\x20()<>\\\x7f-\x9f]")


def show_item(item: Item) -> DataPart:
    """Return the item as data."""
    return DataPart(encode_json(item), ITEM_MIME)


def show_annotation(annotation: dict[str, Any], way: Annotations) -> list[TextPart | DataPart]:
    """Return the part that shows a note, if it is to be shown."""
    if way == "none":
        return []
    link = _link(annotation) if way == "inline" else None
    if link is not None:
        return [TextPart(link)]
    return [DataPart(encode_json(annotation), ANNOTATION_MIME)]


def _link(annotation: dict[str, Any]) -> str | None:
    url, title = annotation.get("url"), annotation.get("title")
    if annotation.get("type") != "url_citation":
        return None
    if not isinstance(url, str) or not _WEB.match(url):
        return None
    address = _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", url)
    words = " ".join(title.split()) if isinstance(title, str) else ""
    words = _BRACKETS.sub(r"\\\1", words or url)
    return join_halves(f" [{words}]({address})")
