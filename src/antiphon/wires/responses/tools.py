"""The caller's tools and tool_choice, as a Responses server takes them.

Kinds that the profile lists are passed as the caller wrote them, under their aliases, because
servers refuse names with other characters; in a namespace a tool keeps its name. All others become
functions (`wires.lower`). What the server runs itself is passed unchanged.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.plans.plan import Plan
from antiphon.plans.toolbox import Offer, Toolbox
from antiphon.protocol.tools import Tool
from antiphon.wires.lower import lower_tools
from antiphon.wires.responses.profiles import Profile

__all__ = ["choice_of", "is_passed", "tools_of"]

_NO_PARAMETERS: Final = {"type": "object", "properties": {}}
# They mean something to the gateway, not to every server.
_OURS: Final = frozenset({"cache_control"})


def is_passed(offer: Offer, profile: Profile) -> bool:
    """Return whether the server is shown the tool as it is, not as a function."""
    if offer.namespace is not None and "namespace" not in profile.kinds:
        return False
    return offer.kind in profile.kinds


def tools_of(plan: Plan, profile: Profile) -> list[Tool]:
    """Return the tools that the model is shown. They are shared: not to be changed."""
    toolbox = plan.toolbox
    if not plan.shows_tools or not (toolbox.offers or toolbox.upstream):
        return []
    return toolbox.derived.get((tools_of, profile.kinds), lambda: _write(toolbox, profile))


def _write(toolbox: Toolbox, profile: Profile) -> list[Tool]:
    tools: list[Tool] = []
    spaces: dict[str, Tool] = {}
    for offer, function in zip(toolbox.offers, lower_tools(toolbox), strict=True):
        if not is_passed(offer, profile):
            tools.append(_as_function(function))
        elif offer.namespace is None:
            tools.append(_as_given(offer, function))
        elif offer.namespace in spaces:
            spaces[offer.namespace]["tools"].append(_inner(offer))
        else:
            space = spaces[offer.namespace] = _space(offer)
            tools.append(space)
    return [*tools, *toolbox.upstream]


def _as_function(function: Tool) -> Tool:
    # Servers take a function as strict if nothing is said, and this one was never meant so.
    return {"parameters": _NO_PARAMETERS, "strict": False, **function}


def _as_given(offer: Offer, function: Tool) -> Tool:
    if offer.kind == "function":
        return {"parameters": _NO_PARAMETERS, **function, **_deferred(offer)}
    tool = {name: value for name, value in offer.tool.items() if name not in _OURS}
    return tool | {"name": offer.alias} if offer.kind == "custom" else tool


def _deferred(offer: Offer) -> Tool:
    return {"defer_loading": True} if offer.tool.get("defer_loading") is True else {}


def _space(offer: Offer) -> Tool:
    about = {"description": offer.about} if offer.about else {}
    return {"type": "namespace", "name": offer.namespace, **about, "tools": [_inner(offer)]}


def _inner(offer: Offer) -> Tool:
    return {name: value for name, value in offer.tool.items() if name not in _OURS}


def choice_of(plan: Plan, profile: Profile) -> str | dict[str, Any] | None:
    """Return tool_choice; None means auto. The turn suppresses calls that are not allowed."""
    policy = plan.policy
    if policy.mode == "none" or policy.allowed is None:
        return None if policy.mode == "auto" else policy.mode
    meant = [_meant(name, plan.toolbox, profile) for name in sorted(policy.allowed)]
    if policy.mode == "required" and len(meant) == 1:
        return meant[0]
    if profile.allowed_tools:
        return {"type": "allowed_tools", "mode": policy.mode, "tools": meant}
    return None if policy.mode == "auto" else policy.mode


def _meant(name: str, toolbox: Toolbox, profile: Profile) -> dict[str, Any]:
    """Return how tool_choice names a tool: by its kind, and by its name if it has one."""
    offer = toolbox.called(name)
    if offer is None:
        return {"type": name}
    if not is_passed(offer, profile):
        return {"type": "function", "name": offer.alias}
    if offer.kind not in ("function", "custom"):
        return {"type": offer.kind}
    if offer.namespace is not None:
        return {"type": offer.kind, "name": offer.name, "namespace": offer.namespace}
    return {"type": offer.kind, "name": offer.alias}
