"""Imports the MCP library when it is needed, beside the event loop.

The import takes more than half a second of CPU time: a thread does it, so that the gateway
answers in the meantime. Without the extra, the error contains the command that installs it.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from antiphon.tools.mcp.connection import Connection

__all__ = ["HOW_TO", "has_library", "load_connection"]

HOW_TO: Final = "MCP servers need `pip install '.[mcp]'` in antiphon's directory"
# The library logs what servers send, and the URLs of requests; our faults hold what matters.
_SILENT: Final = ("mcp", "httpx2", "httpcore2")
_SHARED: Final = "client"


def has_library() -> bool:
    """Return whether the extra is installed."""
    return importlib.util.find_spec("mcp") is not None


async def load_connection() -> type[Connection]:
    """Return the class of connections. Raise ImportError without the extra."""
    return await asyncio.to_thread(_import)


def _import() -> type[Connection]:
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    shared = logging.getLogger(_SHARED)
    if _drop_library not in shared.filters:
        shared.addFilter(_drop_library)
    module = importlib.import_module("antiphon.tools.mcp.connection")
    found: type[Connection] = module.Connection
    return found


def _drop_library(record: logging.LogRecord) -> bool:
    """Return whether a record is not the library's: it logs under a name that others may use."""
    return "mcp" not in record.pathname.replace("\\", "/").split("/")
