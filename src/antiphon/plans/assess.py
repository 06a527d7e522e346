"""What of a request can be done by the backend that answers it?

The request is assessed when its backend is known. Shapes were checked when the request was read.
Rule: nothing is dropped in silence.

    | a tool                                  | becomes                                      |
    |-----------------------------------------|----------------------------------------------|
    | of a kind that the upstream runs        | passed through: `toolbox.upstream`           |
    | of a kind that the registry knows       | run here: `toolbox.hosted`                   |
    | that the caller runs                    | offered; the wire emulates kinds it lacks    |
    | of another kind                         | degraded: left out and reported              |
    | that must be called, and cannot be      | refused: InvalidRequest                      |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.plans.capabilities import Capabilities
from antiphon.plans.tool_choice import resolve_choice
from antiphon.plans.toolbox import Toolbox, gather_tools
from antiphon.protocol.items import Item
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.tools import ToolPolicy, read_choice

__all__ = ["Assessment", "assess"]

# Asking for what we always do is no degradation; asking for the rest is.
_SEALED: Final = "reasoning.encrypted_content"
_INCLUDED: Final = frozenset(
    {
        "message.output_text.logprobs",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        _SEALED,
    }
)


class Assessment(msgspec.Struct, frozen=True):
    """What can be run of a request, and what cannot be honoured."""

    toolbox: Toolbox
    policy: ToolPolicy
    degraded: list[str]


def assess(
    request: CreateResponse,
    items: Sequence[Item],
    capabilities: Capabilities,
    registry: frozenset[str] = frozenset(),
    registry_includes: frozenset[str] = frozenset(),
    *,
    can_seal: bool = False,
    how_to_seal: str = "",
) -> Assessment:
    """Return what can be run of this request. Raise InvalidRequest for what must not be lost.

    `items` is the whole context, because tools are offered there too. `registry` holds the kinds
    of tools that are run here, `registry_includes` what their items honour. `how_to_seal` is added
    to the report of what needs sealing where nothing can be sealed.
    """
    tools = request.tools or []
    toolbox, degraded = gather_tools(tools, items, capabilities.tool_kinds, registry)
    policy, unmeant = resolve_choice(read_choice(request.tool_choice), toolbox, tools)
    degraded += unmeant
    if request.only_compacts or request.generate is False:
        policy = ToolPolicy("none")
    if not can_seal:
        unsealed = _needs_sealing(request)
        degraded.extend(f"{what}: {how_to_seal}" if how_to_seal else what for what in unsealed)
    degraded += _unhonoured(request, capabilities.includes | registry_includes)
    return Assessment(toolbox, policy, degraded)


def _needs_sealing(request: CreateResponse) -> list[str]:
    found = [f"include ({name})" for name in request.include or () if name == _SEALED]
    return found if request.compact_threshold is None else [*found, "context_management"]


def _unhonoured(request: CreateResponse, includes: frozenset[str]) -> list[str]:
    found: list[str] = []
    if request.include:
        honoured = _INCLUDED | includes
        found += [f"include ({name})" for name in request.include if name not in honoured]
    for index, entry in enumerate(request.context_management or ()):
        if entry.type != "compaction":
            found.append(f"context_management[{index}] ({entry.type}): unknown type")
        elif entry.compact_threshold is None:
            found.append(f"context_management[{index}]: it has no compact_threshold")
    if request.stream_options and request.stream_options.include_obfuscation:
        found.append("stream_options.include_obfuscation")
    return found
