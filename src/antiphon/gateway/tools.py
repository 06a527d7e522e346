"""Which hosted tools does this gateway run? From settings to a registry of runners.

Every kind of tool that is built adds its runner here, if the settings configure it. Nothing is
connected: runners connect when a turn uses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from antiphon.gateway.config import Settings
from antiphon.gateway.containers import container_runners, open_containers
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.files import check_files, open_index
from antiphon.gateway.mcp import open_mcp, read_directory
from antiphon.gateway.providers import read_key
from antiphon.models.prices import nanos
from antiphon.store.base import Store
from antiphon.tools.base import ToolRunner
from antiphon.tools.documents.reader import Documents
from antiphon.tools.file_search import FileSearch
from antiphon.tools.image_api import ImagesUpstream
from antiphon.tools.images import ImageGeneration
from antiphon.tools.index.file_index import FileIndex
from antiphon.tools.mcp.pool import McpPool
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool_search import ToolSearch
from antiphon.tools.web.domains import is_place
from antiphon.tools.web.formats import FORMATS
from antiphon.tools.web.pages import PageLimits, PageReader
from antiphon.tools.web.providers import HttpProvider, SearchProvider
from antiphon.tools.web.search import WebSearch

__all__ = ["check_tools", "open_tools"]


async def open_tools(
    settings: Settings,
    environ: Mapping[str, str],
    store: Store,
    index: FileIndex | None = None,
    documents: Documents | None = None,
    code: Sequence[ToolRunner] | None = None,
) -> ToolRegistry:
    """Return the registry of this process. Raise BadSettings for what cannot be used.

    `index` is the one that the process indexes with, `documents` what reads documents there, and
    `code` what runs programs; they are made if they are not given.
    """
    _check_places("input_files", settings.input_files.open_places)
    documents = documents or Documents(settings.documents)
    index = index or open_index(settings, environ, store, documents)
    files = FileSearch(index.searcher, seconds=settings.file_search.seconds)
    pool = McpPool(settings.mcp)
    web = _web_runners(settings, environ, pool, documents)
    runners: list[ToolRunner] = [ToolSearch(), files, *web]
    if code is None:
        code = container_runners(settings, open_containers(settings, store))
    runners += code
    mcp = await open_mcp(settings.mcp, environ, store, settings.id_mark, pool)
    if mcp is not None:
        runners.append(mcp)
    return ToolRegistry(runners, settings.tools, documents)


async def check_tools(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raise BadSettings if searches, images or MCP servers cannot be used as set."""
    await check_files(settings, environ)
    read_directory(settings.mcp, environ)
    _check_places("input_files", settings.input_files.open_places)
    for runner in _web_runners(settings, environ, McpPool(settings.mcp), Documents()):
        await runner.close()


def _check_places(table: str, places: Sequence[str]) -> None:
    for place in places:
        if not is_place(place):
            raise BadSettings(f"[{table}] open_places: {place!r} is not host:port")


def _web_runners(
    settings: Settings, environ: Mapping[str, str], pool: McpPool, documents: Documents
) -> list[ToolRunner]:
    runners: list[ToolRunner] = []
    if settings.web_search.provider is not None:
        provider = _search_provider(settings, environ, pool)
        runners.append(_web_search(settings, provider, documents))
    if settings.images.base_url is not None:
        runners.append(_images(settings, environ))
    return runners


def _web_search(settings: Settings, provider: SearchProvider, documents: Documents) -> WebSearch:
    chosen = settings.web_search
    _check_places("web_search", chosen.open_places)
    limits = PageLimits(
        seconds=chosen.page_seconds, bytes=chosen.page_bytes, pdf_bytes=chosen.pdf_bytes
    )
    return WebSearch(
        provider,
        PageReader(limits, frozenset(chosen.open_places), documents),
        seconds=chosen.seconds,
        page_seconds=chosen.page_seconds,
        open_pages=chosen.open_pages,
        cite_as=chosen.citations,
        provider_name=chosen.provider or "",
        price=_price("web_search", chosen.price),
    )


def _search_provider(
    settings: Settings, environ: Mapping[str, str], pool: McpPool
) -> SearchProvider:
    chosen = settings.web_search
    assert chosen.provider is not None
    if chosen.provider == "mcp":
        return _mcp_provider(settings, environ, pool)
    form = FORMATS[chosen.provider]
    base_url = chosen.base_url or form.base_url
    if base_url is None:
        raise BadSettings(f"[web_search] base_url is missing: where is the {chosen.provider}?")
    if form.key_header is None and chosen.key_env is not None:
        raise BadSettings(f"[web_search] key_env: {chosen.provider} takes no key")
    if form.key_header is not None and chosen.key_env is None:
        raise BadSettings(f"[web_search] key_env is missing: {chosen.provider} needs a key")
    key = read_key(chosen.key_env, environ, "[web_search] key_env")
    return HttpProvider(form, base_url, key, chosen.seconds, proxies=settings.use_proxies)


def _mcp_provider(settings: Settings, environ: Mapping[str, str], pool: McpPool) -> SearchProvider:
    """Return a search by an MCP tool. Its connections are those of the tools of the server."""
    from antiphon.tools.web.mcp_provider import McpProvider

    chosen = settings.web_search
    if not chosen.server or not chosen.tool:
        raise BadSettings("[web_search]: provider = 'mcp' needs server and tool")
    endpoint = read_directory(settings.mcp, environ).endpoints.get(chosen.server)
    if endpoint is None:
        raise BadSettings(f"[web_search] server: there is no [mcp.servers.{chosen.server}]")
    return McpProvider(pool, endpoint, chosen.tool, chosen.query_argument, chosen.seconds)


def _images(settings: Settings, environ: Mapping[str, str]) -> ImageGeneration:
    chosen = settings.images
    assert chosen.base_url is not None
    upstream = ImagesUpstream(
        chosen.base_url,
        read_key(chosen.key_env, environ, "[images] key_env"),
        model=chosen.model,
        response_format=chosen.response_format,
        seconds=chosen.seconds,
        most_bytes=chosen.bytes,
        proxies=settings.use_proxies,
    )
    price = _price("images", chosen.price)
    return ImageGeneration(upstream, seconds=chosen.seconds, price=price)


def _price(table: str, dollars: Decimal | None) -> int | None:
    """Return what one piece costs, in nano-dollars."""
    try:
        return nanos(dollars)
    except ValueError as error:
        raise BadSettings(f"[{table}] price: {error}") from None
