"""Which MCP servers may be used? The table `[mcp]` of the settings, checked before anything starts.

Nothing is connected here. Secrets are read from the environment variables that the settings name,
and from nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from antiphon.gateway.errors import BadSettings
from antiphon.store.base import Keys
from antiphon.tools.mcp.approvals import KEY_BYTES, ApprovalIds
from antiphon.tools.mcp.declared import Directory
from antiphon.tools.mcp.endpoints import configured_endpoints
from antiphon.tools.mcp.loading import HOW_TO, has_library
from antiphon.tools.mcp.pool import McpPool
from antiphon.tools.mcp.runner import McpRunner
from antiphon.tools.mcp.settings import McpSettings

__all__ = ["open_mcp", "read_directory"]

_KEY_NAME = "mcp approvals"


def read_directory(settings: McpSettings, environ: Mapping[str, str]) -> Directory:
    """Return the servers that may be used. Raise BadSettings if one cannot be."""
    if settings.is_used and not has_library():
        raise BadSettings(f"[mcp]: {HOW_TO}")
    try:
        return Directory(configured_endpoints(settings, environ), settings.allow_urls)
    except ValueError as error:
        raise BadSettings(str(error)) from None


async def open_mcp(
    settings: McpSettings,
    environ: Mapping[str, str],
    store: Keys,
    mark: str,
    pool: McpPool | None = None,
) -> McpRunner | None:
    """Return what runs MCP tools, or None if no server may be used.

    `pool` has the connections, if others use them too. The key that approvals are bound with is
    kept in the store: all its gateways share it.
    """
    if not settings.is_used:
        return None
    directory = read_directory(settings, environ)
    pool = McpPool(settings) if pool is None else pool
    key = await store.secret(_KEY_NAME, os.urandom(KEY_BYTES))
    runner = McpRunner(directory, pool, ApprovalIds(key, mark))
    if directory.endpoints:
        runner.warm_up()
    return runner
