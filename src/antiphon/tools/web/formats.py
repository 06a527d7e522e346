"""How does each search provider want to be asked, and what does it answer? Pure data and shapes.

A format writes the request for a query and reads the JSON of the answer. It does no I/O and knows
no key: `key_header` states where the key goes. What a provider cannot take of a query, such as a
city, is not in `takes` and is reported. The domains are enforced on the results afterwards; here
they only help the provider to find enough. An answer without results is empty only if the
provider searched: SearXNG may answer with nothing because all its engines failed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

__all__ = ["FORMATS", "Format", "Hit", "Query", "SearchFailed", "SearchRequest"]

_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_MAX_TITLE: Final = 300
_MAX_QUERY: Final = 400  # Brave takes no more characters


class SearchFailed(Exception):
    """A search failed for this reason. Caller and model read the text."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What to search for."""

    text: str
    count: int = 8
    snippet: int = 600
    """Characters of a page that are wanted."""
    domains: Sequence[str] = ()
    location: Mapping[str, str] = {}
    """`city`, `country` (two letters), `region`, `timezone`, as far as they are known."""
    owner: str = ""
    """Whose search it is."""


class SearchRequest(msgspec.Struct, frozen=True):
    """What to send to a provider: a path with its query, headers, and a JSON body for a POST."""

    path: str
    headers: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None


class Hit(msgspec.Struct, frozen=True):
    """A page that was found. `text` is what the provider quotes from it."""

    url: str
    title: str
    text: str
    date: str = ""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One provider's API."""

    base_url: str | None
    """Where it is, if there is one such place."""
    key_header: str | None
    """Where the key goes; None if the provider takes no key."""
    takes: frozenset[str]
    """Fields of a location that it takes."""
    write: Callable[[Query], SearchRequest]
    read: Callable[[Any], list[Hit]]  # Any: JSON of the provider


# Brave.


def _write_brave(query: Query) -> SearchRequest:
    where = query.location
    asked = {"q": _with_sites(query), "count": min(query.count, 20), "text_decorations": "false"}
    if "country" in where:
        asked["country"] = where["country"].upper()
    names = {
        "city": "X-Loc-City",
        "country": "X-Loc-Country",
        "region": "X-Loc-State-Name",
        "timezone": "X-Loc-Timezone",
    }
    headers = {names[field]: _ascii(value) for field, value in where.items() if field in names}
    headers["Accept"] = "application/json"
    return SearchRequest(f"/res/v1/web/search?{urlencode(asked)}", headers)


def _read_brave(answer: Any) -> list[Hit]:
    web = answer.get("web")
    if web is None:  # it searched and found other kinds of things, or nothing
        return []
    return [
        _hit(one, [one.get("description"), *_list(one.get("extra_snippets"))], one.get("page_age"))
        for one in _results(web)
    ]


# Tavily.


def _write_tavily(query: Query) -> SearchRequest:
    asked: dict[str, Any] = {
        "query": query.text,
        "max_results": min(query.count, 20),
        "search_depth": "basic",
    }
    if query.domains:
        asked["include_domains"] = list(query.domains)
    return SearchRequest("/search", {}, asked)


def _read_tavily(answer: Any) -> list[Hit]:
    return [_hit(one, [one.get("content")], one.get("published_date")) for one in _results(answer)]


# Exa.


def _write_exa(query: Query) -> SearchRequest:
    asked: dict[str, Any] = {
        "query": query.text,
        "numResults": min(query.count, 100),
        "contents": {"highlights": {"maxCharacters": query.snippet}},
    }
    if query.domains:
        asked["includeDomains"] = list(query.domains)
    if "country" in query.location:
        asked["userLocation"] = query.location["country"].upper()
    return SearchRequest("/search", {}, asked)


def _read_exa(answer: Any) -> list[Hit]:
    return [
        _hit(
            one,
            [*_list(one.get("highlights")), one.get("summary"), one.get("text")],
            one.get("publishedDate"),
        )
        for one in _results(answer)
    ]


# SearXNG.


def _write_searxng(query: Query) -> SearchRequest:
    asked = {"q": _with_sites(query), "format": "json"}
    return SearchRequest(f"/search?{urlencode(asked)}", {"Accept": "application/json"})


def _read_searxng(answer: Any) -> list[Hit]:
    found = [_hit(one, [one.get("content")], one.get("publishedDate")) for one in _results(answer)]
    silent = _list(answer.get("unresponsive_engines"))
    if not found and silent:
        raise SearchFailed(f"none of the search engines answered ({len(silent)} failed)")
    return found


# What they have in common.


def _results(answer: Any) -> list[dict[str, Any]]:
    found = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(found, list):
        raise SearchFailed("the answer of the search provider has no results field")
    return [one for one in found if isinstance(one, dict) and isinstance(one.get("url"), str)]


def _hit(found: dict[str, Any], texts: Sequence[object], date: object) -> Hit:
    quotes = [plain for text in texts if isinstance(text, str) and (plain := _plain(text))]
    title = found.get("title")
    return Hit(
        found["url"],
        _plain(title)[:_MAX_TITLE] if isinstance(title, str) else "",
        "\n".join(dict.fromkeys(quotes)),
        date[:10] if isinstance(date, str) else "",
    )


def _plain(text: str) -> str:
    """Return a text without tags and entities, which some providers leave in their texts."""
    return " ".join(html.unescape(_TAG.sub("", text)).split())


def _with_sites(query: Query) -> str:
    """Return the query with the domains in it, for providers that have no field for them."""
    if not query.domains:
        return query.text
    sites = " OR ".join(f"site:{domain}" for domain in query.domains[:8])[: _MAX_QUERY // 2]
    text = query.text[: _MAX_QUERY - len(sites) - 3]
    return f"{text} ({sites})" if len(query.domains) > 1 else f"{text} {sites}"


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _ascii(value: str) -> str:
    """Return the value as a header can carry it."""
    return value.encode("ascii", "ignore").decode().replace("\r", "").replace("\n", "")


FORMATS: Final[Mapping[str, Format]] = {
    "brave": Format(
        base_url="https://api.search.brave.com",
        key_header="X-Subscription-Token",
        takes=frozenset({"city", "country", "region", "timezone"}),
        write=_write_brave,
        read=_read_brave,
    ),
    "tavily": Format(
        base_url="https://api.tavily.com",
        key_header="Authorization",
        takes=frozenset(),
        write=_write_tavily,
        read=_read_tavily,
    ),
    "exa": Format(
        base_url="https://api.exa.ai",
        key_header="x-api-key",
        takes=frozenset({"country"}),
        write=_write_exa,
        read=_read_exa,
    ),
    "searxng": Format(
        base_url=None,
        key_header=None,
        takes=frozenset(),
        write=_write_searxng,
        read=_read_searxng,
    ),
}
