"""Let a tool of an MCP server search the web.

The operator names the server and the tool. What a tool returns has no fixed shape: JSON with
objects that have a `url`, wherever they are in it, or text in blocks with one address each. An
answer that names no address is a failed search, with its beginning as the reason, because a tool
may report a failure in words. Every owner has connections of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from antiphon.tools.mcp.endpoints import Endpoint
from antiphon.tools.mcp.faults import McpFault
from antiphon.tools.mcp.pool import McpPool
from antiphon.tools.web.formats import Hit, Query, SearchFailed

__all__ = ["McpProvider", "read_answer"]

_URL: Final = re.compile(r"https?://[^\s<>\"'`\])}|]+")
_LABEL: Final = re.compile(r"^(?:[-*#>\d.\s]|title:|name:|\*\*)*", re.IGNORECASE)
_TEXTS: Final = ("content", "snippet", "description", "text", "summary", "highlights")
_DATES: Final = ("date", "published", "publishedDate", "published_date", "page_age")
_MAX_DEPTH: Final = 6


class McpProvider:
    """Searches with one tool of one server."""

    takes: frozenset[str] = frozenset()

    def __init__(
        self, pool: McpPool, endpoint: Endpoint, tool: str, argument: str, seconds: float
    ) -> None:
        self._pool = pool
        self._endpoint = endpoint
        self._tool = tool
        self._argument = argument
        self._seconds = seconds

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return what was found. Raise SearchFailed if the search failed."""
        try:
            async with self._pool.lease(query.owner, self._endpoint) as connection:
                arguments = {self._argument: query.text}
                result = await connection.call(self._tool, arguments, self._seconds)
        except McpFault as fault:
            raise SearchFailed(f"the search tool failed: {fault.message}") from None
        if result.error is not None:
            raise SearchFailed(f"the search tool failed: {_start_of(result.output)}")
        return read_answer(result.output)

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()


def read_answer(text: str) -> list[Hit]:
    """Return the pages that an answer names. Raise SearchFailed if it names none."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        hits = list(_in_blocks(text))
    else:
        if _is_empty(value):
            return []
        hits = list(_in_json(value, 0))
    if not hits:
        raise SearchFailed(f"the search tool named no pages: {_start_of(text)}")
    return hits


def _is_empty(value: Any) -> bool:  # any JSON value
    """Return whether a list of results is there, and has nothing in it."""
    return value == [] or (isinstance(value, dict) and value.get("results") == [])


def _in_json(value: Any, depth: int) -> Iterator[Hit]:  # any JSON value
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for one in value:
            yield from _in_json(one, depth + 1)
    elif isinstance(value, dict):
        url = value.get("url") or value.get("link")
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            yield _hit(url, value)
        else:
            for one in value.values():
                yield from _in_json(one, depth + 1)


def _hit(url: str, found: dict[str, Any]) -> Hit:
    texts: list[str] = []
    for name in _TEXTS:
        value = found.get(name)
        texts += [one for one in (value if isinstance(value, list) else [value]) if one]
    dates = (found[name] for name in _DATES if isinstance(found.get(name), str))
    title = found.get("title") or found.get("name")
    return Hit(
        url,
        str(title or ""),
        "\n".join(dict.fromkeys(map(str, texts))),
        next(dates, "")[:10],
    )


def _in_blocks(text: str) -> Iterator[Hit]:
    """Yield a page for each block of a text that has an address."""
    for block in re.split(r"\n\s*\n", text):
        found = _URL.search(block)
        if found is not None:
            first = _LABEL.sub("", block.strip().splitlines()[0]).strip(" *[")
            title = first.partition("](")[0]
            yield Hit(found[0].rstrip(".,;"), title[:300], block.strip())


def _start_of(text: str) -> str:
    return " ".join(text.split())[:200] or "it returned nothing"
