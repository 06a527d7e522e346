"""Which tools does tool_choice mean?

A choice names tools as the caller knows them. The policy that comes of it names them as the model
does: by their aliases, or by their kind if the caller does not run them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from antiphon.plans.hosted_choice import selector
from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.tools import Meant, Tool, ToolChoice, ToolPolicy

__all__ = ["resolve_choice"]

_SEARCH: Final = "web_search"


def resolve_choice(
    choice: ToolChoice, toolbox: Toolbox, tools: Iterable[Tool]
) -> tuple[ToolPolicy, list[str]]:
    """Return the policy that tool_choice means, and a report of what cannot be honoured.

    Raise InvalidRequest if it names an unknown tool, or forces one that cannot be run.
    """
    if choice.meant is None and choice.mode != "required":
        return ToolPolicy(choice.mode), []
    report: list[str] = []
    allowed: frozenset[str] | None = None
    if choice.meant is not None:
        labels = set(_labels(tools))
        aliases: set[str] = set()
        for meant in choice.meant:
            matches = _meant_by(meant, toolbox)
            if not matches and not _is_there(meant, labels, toolbox):
                raise InvalidRequest(
                    f"tool_choice names '{meant.label}', which is not among the tools",
                    code="invalid_value",
                    param="tool_choice",
                )
            if not matches:
                report.append(f"tool_choice ({meant.label}): it cannot be run here")
            aliases |= matches
        allowed = frozenset(aliases)
    can_call = bool(toolbox.aliases | toolbox.kinds if allowed is None else allowed)
    if choice.mode == "required" and not can_call:
        raise InvalidRequest(
            "tool_choice forces a tool, but no tool of the request can be run here",
            code="unsupported_tool",
            param="tool_choice",
        )
    return ToolPolicy(choice.mode, allowed), report


def _meant_by(meant: Meant, toolbox: Toolbox) -> set[str]:
    """Return the aliases of the tools that are meant, or the kind of one that others run.

    A name without a namespace means a tool without one, or else tools in namespaces.
    """
    if meant.type == "namespace":
        inside = (offer for offer in toolbox.offers if offer.namespace is not None)
        return {offer.alias for offer in inside if offer.namespace == meant.name}
    same = [
        offer
        for offer in toolbox.offers
        if offer.kind == meant.type and meant.name in (None, offer.name)
    ]
    if not same:
        kind = _kind_of(meant.type, toolbox)
        hosted = {tool["type"] for tool in toolbox.hosted}
        if kind is not None:
            return {selector(kind, meant.namespace, meant.name) if kind in hosted else kind}
    exact = {offer.alias for offer in same if offer.namespace == meant.namespace}
    if exact or meant.namespace is not None:
        return exact
    return {offer.alias for offer in same}


def _kind_of(meant: str, toolbox: Toolbox) -> str | None:
    """Return the kind of tool that is meant. A search may be named by another version of it."""
    if meant in toolbox.kinds or not meant.startswith(_SEARCH):
        return meant if meant in toolbox.kinds else None
    return next((kind for kind in sorted(toolbox.kinds) if kind.startswith(_SEARCH)), None)


def _is_there(meant: Meant, labels: set[str], toolbox: Toolbox) -> bool:
    """Return whether the tool was offered, even if it cannot be run here."""
    is_offered = meant.label in labels or meant.type in labels
    return is_offered or (meant.namespace or meant.label) in toolbox.deferred


def _labels(tools: Iterable[Tool]) -> Iterator[str]:
    for tool in tools:
        name = tool.get("name")
        label = name if isinstance(name, str) else str(tool.get("type"))
        yield label
        if tool.get("type") == "namespace":
            yield from (f"{label}.{inner}" for inner in _labels(tool.get("tools") or ()))
