"""What are turns made with? All that the settings decide and a reload may replace.

It is replaced as a whole, by one assignment. A turn takes what is there when it begins, and
keeps it: what is checked, offered and asked for one request comes from one set of settings.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from antiphon.engine.prepare.context_size import ContextLimits
from antiphon.engine.prepare.input_files import InputFiles
from antiphon.engine.prepare.prompts import PromptTemplate
from antiphon.engine.run.hosted_setup import HostedTools
from antiphon.engine.run.reader import OnDisconnect
from antiphon.protocol.machines.builder import ReasoningAs
from antiphon.routing.catalog import Catalog

__all__ = ["TurnSetup"]


class TurnSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Models, tools and rules for new turns."""

    catalog: Catalog
    tools: HostedTools
    input_files: InputFiles
    prompts: Mapping[str, PromptTemplate]
    reasoning_as: ReasoningAs
    context_limits: ContextLimits
    on_disconnect: OnDisconnect
