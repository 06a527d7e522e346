"""Which functions is a model shown for `web_search`, and how are they described?

The model is shown the location of the user here, also if the provider takes none: a model that
knows it can put the city into its query.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.tools.base import HostedFunction
from antiphon.tools.web.request import SearchWish

__all__ = ["functions_for"]

_CITE: Final = (
    "Every source has a mark such as 【1】. Where your answer uses a source, write its mark "
    "directly after the words it supports; never write a mark that you were not shown."
)
_URL: Final = {"type": "string", "description": "An address from a result, a page or a message."}


def functions_for(wish: SearchWish, *, can_open: bool) -> tuple[HostedFunction, ...]:
    """Return the functions of a turn."""
    search = _function(
        wish,
        "web_search",
        "search",
        f"Search the web. {_CITE}{_about(wish)}",
        {"query": {"type": "string", "description": "What to search for, in a few words."}},
    )
    if not can_open:
        return (search,)
    start = {"type": "integer", "description": "At which character of its text to begin; 0."}
    opening = _function(
        wish, "open_page", "open_page", f"Read a page of the web. {_CITE}", {"url": _URL}, start
    )
    pattern = {"type": "string", "description": "A text to find, as it stands in the page."}
    finding = _function(
        wish,
        "find_in_page",
        "find_in_page",
        "Find a text in a page of the web, and show what stands around it.",
        {"url": _URL, "pattern": pattern},
    )
    return search, opening, finding


def _function(
    wish: SearchWish,
    name: str,
    key: str,
    about: str,
    fields: dict[str, Any],
    start: dict[str, Any] | None = None,
) -> HostedFunction:
    properties = fields if start is None else {**fields, "start": start}
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(fields),
        "additionalProperties": False,
    }
    return HostedFunction(kind=wish.kind, name=name, description=about, parameters=schema, key=key)


def _about(wish: SearchWish) -> str:
    words = ""
    if wish.domains:
        words += f" Only these domains are searched: {', '.join(wish.domains[:20])}."
    if wish.blocked:
        words += f" These domains are left out: {', '.join(wish.blocked[:20])}."
    if wish.location:
        names = ("city", "region", "country", "timezone")
        place = ", ".join(wish.location[name] for name in names if name in wish.location)
        words += f" The user is about here: {place}."
    return words
