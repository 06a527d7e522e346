"""Which hosted tools does this gateway run? From settings to a registry of runners.

Every kind of tool that is built adds its runner here, if the settings configure it. Nothing is
connected: runners connect when a turn uses them.
"""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.gateway.config import Settings
from antiphon.tools.base import ToolRunner
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool_search import ToolSearch

__all__ = ["open_tools"]


def open_tools(settings: Settings, environ: Mapping[str, str]) -> ToolRegistry:
    """Return the registry of this process. Raise BadSettings for what cannot be used."""
    runners: list[ToolRunner] = [ToolSearch()]
    return ToolRegistry(runners, settings.tools)
