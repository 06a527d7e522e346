"""A whole gateway on a free loopback port, for tests: ours and yours.

async with serve_gateway(ScriptedBackend()) as gateway:
    client = openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x")
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from antiphon.backends.base import Backend
from antiphon.gateway.assemble import ServerSettings, make_app
from antiphon.gateway.serve import running
from antiphon.routing.catalog import Catalog
from antiphon.routing.describe import ModelSettings
from antiphon.routing.settings import RouteSettings, check_routes
from antiphon.server.app import App
from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.tools.base import ToolLimits, ToolRunner
from antiphon.tools.containers.service import ContainerService
from antiphon.tools.file_search import FileSearch
from antiphon.tools.index.file_index import FileIndex
from antiphon.tools.registry import ToolRegistry

__all__ = ["Gateway", "serve_gateway"]


class Gateway(msgspec.Struct, frozen=True):
    """A gateway that runs: where it is, and its parts to look into."""

    base_url: str
    app: App
    store: Store

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, for raw sockets."""
        host, _, port = self.base_url.removeprefix("http://").removesuffix("/v1").partition(":")
        return host, int(port)


@asynccontextmanager
async def serve_gateway(
    backend: Backend | Mapping[str, Backend],
    *,
    store: Store | None = None,
    settings: ServerSettings | None = None,
    default_model: str | None = None,
    models: Mapping[str, ModelSettings] | None = None,
    routes: Mapping[str, RouteSettings] | None = None,
    max_inflight: Mapping[str, int] | None = None,
    tools: Sequence[ToolRunner] = (),
    tool_limits: ToolLimits | None = None,
    index: FileIndex | None = None,
    containers: ContainerService | None = None,
) -> AsyncIterator[Gateway]:
    """Run a gateway in this event loop. It closes its backends; a store it was given stays.

    `routes`, `max_inflight` (by provider) and `tool_limits` are as in the settings, `tools` run
    hosted tools, `containers` are where their programs run. With `index`, which must have the same
    store, files are searched with it.
    """
    providers = backend if isinstance(backend, Mapping) else {"test": backend}
    own_store = store is None
    store = store or MemoryStore()
    clock = asyncio.get_running_loop().time
    check_routes(routes or {}, providers)
    catalog = Catalog(
        providers,
        clock,
        default_model=default_model,
        models=models,
        routes=routes,
        limits=max_inflight,
    )
    runners = tools if index is None else [*tools, FileSearch(index.searcher)]
    registry = ToolRegistry(runners, tool_limits)
    served = settings or ServerSettings()
    app = await make_app(catalog, store, served, registry, index, containers)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        try:
            async with running(app, sock):
                yield Gateway(f"http://127.0.0.1:{sock.getsockname()[1]}/v1", app, store)
        finally:
            if own_store:
                await store.close()
