"""Which hosted tools does this gateway run? From settings to a registry of runners.

Every kind of tool that is built adds its runner here, if the settings configure it. Nothing is
connected: runners connect when a turn uses them.
"""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.gateway.config import Settings
from antiphon.gateway.mcp import open_mcp
from antiphon.store.base import Store
from antiphon.tools.base import ToolRunner
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool_search import ToolSearch

__all__ = ["open_tools"]


async def open_tools(settings: Settings, environ: Mapping[str, str], store: Store) -> ToolRegistry:
    """Return the registry of this process. Raise BadSettings for what cannot be used."""
    runners: list[ToolRunner] = [ToolSearch()]
    mcp = await open_mcp(settings.mcp, environ, store, settings.id_mark)
    if mcp is not None:
        runners.append(mcp)
    return ToolRegistry(runners, settings.tools)
