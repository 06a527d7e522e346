"""Was the model shown this address, by somebody else, earlier in the conversation?

Only what came from outside counts: messages of others, results of tools, pages that were opened,
sources that were found. What a model wrote itself does not count, neither its text nor the
arguments of its calls, nor an address that it was refused before: otherwise it could compose an
address in one turn and open it in the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from antiphon.protocol.items import Item, item_type

__all__ = ["was_shown"]

_IN_ADDRESS: Final = "-_/?&=%#~+@:"


def was_shown(address: str, items: Iterable[Item]) -> bool:
    """Return whether the items of a conversation show this address to the model."""
    spellings = {address, address.removesuffix("/")}
    return any(
        _mentions(text, spelling)
        for item in items
        for text in _texts(list(_from_outside(item)))
        for spelling in spellings
    )


def _from_outside(item: Item) -> Iterator[object]:
    """Yield what of an item was not written by the model."""
    kind = item_type(item)
    if kind == "message" and item.get("role") != "assistant":
        yield item.get("content")
    elif kind == "message":
        yield list(_annotations(item.get("content")))
    elif kind.endswith("_output"):
        yield item
    elif kind == "mcp_call":
        yield item.get("output")
    elif kind == "file_search_call":
        yield item.get("results")
    elif kind == "web_search_call" and item.get("status") == "completed":
        action = item.get("action")
        if isinstance(action, dict):
            yield action.get("sources")
            yield action.get("url")


def _annotations(content: object) -> Iterator[object]:
    """Yield the sources that an answer cites: they were shown, or they could not be cited."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            yield part.get("annotations")


def _texts(value: object) -> Iterator[str]:
    """Yield every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner)


def _mentions(text: str, address: str) -> bool:
    """Return whether a text has the address, and not only a longer one that begins so."""
    at = text.find(address)
    while at >= 0:
        rest = text[at + len(address) :][:1]
        if not rest or not (rest.isalnum() or rest in _IN_ADDRESS):
            return True
        at = text.find(address, at + 1)
    return False
