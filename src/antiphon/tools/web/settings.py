"""What can be set for searching the web: `[web_search]`."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

import msgspec

from antiphon.protocol.citations import CiteAs

__all__ = ["OpenPages", "ProviderName", "WebSearchSettings"]

ProviderName = Literal["brave", "tavily", "exa", "searxng", "mcp"]
OpenPages = Literal["known", "any", "off"]


class WebSearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who searches, and how pages are read. Without a provider nothing is searched."""

    provider: ProviderName | None = None
    base_url: str | None = None
    """Where the provider is, if not at its usual address."""
    key_env: str | None = None
    """The name of the environment variable that holds the key, never the key itself."""
    server: str | None = None
    """For `mcp`: the label of a server in `[mcp.servers]`."""
    tool: str | None = None
    """For `mcp`: the tool of that server that searches."""
    query_argument: str = "query"
    """For `mcp`: the argument of the tool that takes the query."""
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """How long a search may take."""
    price: Decimal | None = None
    """US dollars for one search."""
    citations: CiteAs = "link"
    """What stands in the text where the model cites a page: a link, or nothing (`point`)."""
    open_pages: OpenPages = "known"
    """Which pages the model may open: those that it was shown, any, or none (`off`)."""
    open_places: tuple[str, ...] = ()
    """Places that are not public and may be read all the same, each as `host:port`."""
    page_seconds: Annotated[float, msgspec.Meta(gt=0)] = 15.0
    page_bytes: Annotated[int, msgspec.Meta(gt=0)] = 2 * 1024 * 1024
    pdf_bytes: Annotated[int, msgspec.Meta(gt=0)] = 16 * 1024 * 1024
    """How large a PDF may be. A page that is longer is cut, a PDF is not read."""
