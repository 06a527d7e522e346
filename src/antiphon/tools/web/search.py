"""Search the web for a model, and read pages for it: the runner of `web_search`.

The model is shown three functions. Each call is one `web_search_call` item:

    | function                     | action        | the model gets                              |
    |------------------------------|---------------|---------------------------------------------|
    | web_search(query)            | search        | titles, addresses and quotes, with marks    |
    | open_page(url, start)        | open_page     | the text of the page from there on          |
    | find_in_page(url, pattern)   | find_in_page  | the places in the page with that text       |

What is shown has a mark, and the answer cites by mark (`protocol.citations`). A call that fails
has a failed item, and the model gets the reason: it never looks like an empty result. The domains
of the caller are enforced here, on results, pages and redirects, whatever the provider did.

With `open_pages = "known"` the model can only open what it was shown the address of: in results,
in opened pages, or in what others wrote in the conversation (`known`). A page that talks a model
into sending data to an address that it composes does not get it sent.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from yarl import URL

from antiphon.protocol.citations import CiteAs, WebSource, unmarked
from antiphon.protocol.tool_usage import SEARCHED
from antiphon.tools.base import (
    Decision,
    Decline,
    Fee,
    HostedCall,
    HostedFunction,
    Outcome,
    Progress,
    Start,
    ToolFailed,
    ToolRequest,
    ToolSession,
)
from antiphon.tools.web.domains import is_web_address
from antiphon.tools.web.formats import Hit, Query, SearchFailed
from antiphon.tools.web.functions import functions_for
from antiphon.tools.web.known import was_shown
from antiphon.tools.web.pages import Page, PageReader, can_read_html
from antiphon.tools.web.providers import SearchProvider
from antiphon.tools.web.request import KINDS, SearchWish, read_wish
from antiphon.tools.web.settings import OpenPages

__all__ = ["WebSearch"]

_SOURCES: Final = "web_search_call.action.sources"
_SEARCHING: Final = "response.web_search_call.searching"
_MAX_QUERY: Final = 400
_MAX_PATTERN: Final = 200
_MAX_FINDS: Final = 8
_AROUND: Final = 240  # characters shown on each side of a place that was found
_KEPT_PAGES: Final = 4
_HOW_TO_CITE: Final = (
    "Cite a source by writing its mark, such as 【1】, directly after what it supports."
)
_NO_HTML: Final = "HTML pages cannot be opened: the extra `documents` is not installed"


class WebSearch:
    """Searches and reads the web for all turns."""

    kinds: Final = KINDS
    includes: Final = frozenset({_SOURCES})

    def __init__(
        self,
        provider: SearchProvider,
        pages: PageReader,
        *,
        seconds: float = 10.0,
        page_seconds: float = 15.0,
        open_pages: OpenPages = "known",
        cite_as: CiteAs = "link",
        provider_name: str = "",
        price: int | None = None,
    ) -> None:
        self.provider = provider
        self.pages = pages
        self.seconds = seconds
        self.page_seconds = page_seconds
        self.open_pages = open_pages
        self.cite_as = cite_as
        self.fee = Fee(kind="search", name="web_search", provider=provider_name, cost=price)

    async def begin(self, request: ToolRequest) -> ToolSession:
        """Return the session of a turn. Raise InvalidRequest for a wrong tool."""
        return _Session(self, request, read_wish(request.tools))

    async def close(self) -> None:
        """Close all connections."""
        await self.provider.close()
        await self.pages.close()


class _Session(ToolSession):
    cites = True

    def __init__(self, runner: WebSearch, request: ToolRequest, wish: SearchWish) -> None:
        self._runner = runner
        self._request = request
        self._wish = wish
        self._sources = request.sources
        self._cite_as: CiteAs = "point" if request.is_formatted else runner.cite_as
        self._known: set[str] = set()
        self._kept: dict[str, Page] = {}
        self._searches = 0
        can_open = runner.open_pages != "off"
        self._functions = functions_for(wish, can_open=can_open) if wish.is_possible else ()
        self.degraded = list(wish.degraded)
        if self._functions and can_open and not can_read_html():
            self.degraded.append(f"{request.tools[0].where}: {_NO_HTML}")

    async def prepare(self) -> AsyncIterator[HostedFunction]:
        """Yield the functions that the model may call."""
        for function in self._functions:
            yield function

    def decide(self, call: HostedCall) -> Decision:
        """Start a call whose arguments can be read."""
        arguments = _read_arguments(call.arguments)
        match call.function.key:
            case "search":
                action = _search_action(arguments)
            case "open_page":
                action = _page_action(arguments)
            case _:
                action = _find_action(arguments)
        if isinstance(action, str):
            return Decline(result=f"error: {action}")
        seconds = self._runner.page_seconds + 10.0  # reading the HTML comes after that
        fee = None
        if action["type"] == "search":
            fee = self._runner.fee
            most, seconds = self._wish.max_uses, self._runner.seconds
            if most is not None and self._searches >= most:
                return Decline(result=f"error: max_uses_exceeded: {most} searches may be made")
            self._searches += 1
        item = {"type": "web_search_call", "action": action}
        return Start(item=item, has_effects=False, seconds=seconds, fee=fee)

    async def run(self, call: HostedCall, start: Start) -> AsyncIterator[Progress | Outcome]:
        """Search, or read a page."""
        yield Progress(_SEARCHING)
        action = start.item["action"]
        match action["type"]:
            case "search":
                sources, result = await self._search(action["query"])
                action = {**action, "sources": sources}
            case "open_page":
                start_at = _read_arguments(call.arguments).get("start")
                result = await self._open(action["url"], start_at)
            case _:
                result = await self._find(action["url"], action["pattern"])
        item = {**start.item, "action": action, "status": "completed"}
        usage = SEARCHED if action["type"] == "search" else None
        yield Outcome(item=item, result=result, usage=usage)

    # Searching.

    async def _search(self, text: str) -> tuple[list[dict[str, str]], str]:
        wish, depth = self._wish, self._wish.depth
        takes = self._runner.provider.takes
        query = Query(
            text=text,
            count=depth.results,
            snippet=depth.snippet,
            domains=wish.domains,
            owner=self._request.owner,
            location={name: where for name, where in wish.location.items() if name in takes},
        )
        try:
            found = await self._runner.provider.search(query)
        except SearchFailed as failure:
            raise ToolFailed(str(failure)) from None
        hits = list(self._usable(found))[: depth.results]
        sources = [{"type": "url", "url": hit.url} for hit in hits]
        return sources, self._show_hits(hits, is_filtered=bool(found))

    def _usable(self, found: Sequence[Hit]) -> Iterator[Hit]:
        """Yield the pages that may be shown, each once."""
        seen: set[str] = set()
        for hit in found:
            if not is_web_address(hit.url) or not self._wish.allows(hit.url):
                continue
            url = str(URL(hit.url))
            if url not in seen:
                seen.add(url)
                yield msgspec.structs.replace(hit, url=url)

    def _show_hits(self, hits: Sequence[Hit], *, is_filtered: bool) -> str:
        if not hits:
            return f"No results{' in the allowed domains' if is_filtered else ''}."
        self._known.update(_plain_address(hit.url) for hit in hits)
        blocks = [self._show_hit(hit) for hit in hits]
        return "\n\n".join([*blocks, _HOW_TO_CITE])

    def _show_hit(self, hit: Hit) -> str:
        mark = self._sources.show(WebSource(hit.url, hit.title, self._cite_as))
        date = f" ({hit.date})" if hit.date else ""
        quote = unmarked(_cut(hit.text, self._wish.depth.snippet))
        return f"{mark} {unmarked(hit.title)}{date}\n{hit.url}\n{quote}".rstrip()

    # Pages.

    async def _open(self, url: str, start: object) -> str:
        page = await self._page(url)
        begin = start if type(start) is int and 0 <= start < len(page.text) else 0
        end = min(begin + self._wish.depth.page, len(page.text))
        place = f"characters {begin} to {end} of {len(page.text)}"
        cut = "; the page is longer than is read" if page.is_cut else ""
        text = unmarked(page.text[begin:end]) or "(the page has no text)"
        return f"{self._heading(page)}\n({place}{cut})\n\n{text}\n\n{_HOW_TO_CITE}"

    async def _find(self, url: str, pattern: str) -> str:
        page = await self._page(url)
        places = [found.start() for found in _finder(pattern).finditer(page.text)]
        if not places:
            return f"{self._heading(page)}\nThe text was not found in the page."
        shown = [
            f"at character {at}: …{unmarked(page.text[max(at - _AROUND, 0) : at + _AROUND])}…"
            for at in places[:_MAX_FINDS]
        ]
        count = f"found {len(places)} times" + (
            f", the first {_MAX_FINDS} are shown" if len(places) > _MAX_FINDS else ""
        )
        return "\n\n".join([f"{self._heading(page)}\n({count})", *shown, _HOW_TO_CITE])

    def _heading(self, page: Page) -> str:
        mark = self._sources.show(WebSource(page.url, page.title, self._cite_as))
        return f"{mark} {unmarked(page.title)}\n{page.url}"

    async def _page(self, url: str) -> Page:
        """Return a page, from this turn's own copies if it was opened before."""
        address = _plain_address(url)
        if not self._may_open(address):
            raise ToolFailed(
                "this address was not in any result, page or message of this conversation; "
                "search for it first"
            )
        page = self._kept.get(address)
        if page is None:
            page = await self._runner.pages.read(address, self._wish.allows)
            self._kept[address] = page
            if len(self._kept) > _KEPT_PAGES:
                del self._kept[next(iter(self._kept))]
            self._known.update(map(_plain_address, page.links))
        return page

    def _may_open(self, address: str) -> bool:
        if self._runner.open_pages == "any" or address in self._known:
            return True
        # What the model was shown by other tools; its own results are in `_known`.
        results = [
            {"type": "function_call_output", "output": one.result}
            for one in self._request.results
            if one.kind not in KINDS
        ]
        return was_shown(address, [*self._request.items, *results])


# What the model wrote.


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _search_action(arguments: Mapping[str, Any]) -> dict[str, Any] | str:
    query = arguments.get("query")
    if not isinstance(query, str) or not query.strip():
        return "web_search needs a JSON object with a query"
    words = " ".join(query.split())[:_MAX_QUERY]
    return {"type": "search", "query": words, "queries": [words]}


def _page_action(arguments: Mapping[str, Any]) -> dict[str, Any] | str:
    url = arguments.get("url")
    if not isinstance(url, str) or not is_web_address(url):
        return "open_page needs a JSON object with a url that begins with http:// or https://"
    return {"type": "open_page", "url": url}


def _find_action(arguments: Mapping[str, Any]) -> dict[str, Any] | str:
    action, pattern = _page_action(arguments), arguments.get("pattern")
    if isinstance(action, str) or not isinstance(pattern, str) or not pattern.strip():
        return "find_in_page needs a JSON object with a url and a pattern, which is a text to find"
    return {"type": "find_in_page", "url": action["url"], "pattern": pattern[:_MAX_PATTERN]}


def _finder(pattern: str) -> re.Pattern[str]:
    """Return what finds a text, in any case and with any white space between its words."""
    return re.compile(r"\s+".join(map(re.escape, pattern.split())), re.IGNORECASE)


def _plain_address(url: str) -> str:
    """Return an address without its fragment, in its usual spelling."""
    try:
        return str(URL(url).with_fragment(None))
    except ValueError:
        return url


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length].rstrip()}…"
