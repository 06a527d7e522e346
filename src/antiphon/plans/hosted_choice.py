"""Which hosted functions does tool_choice mean?

When a request is assessed, the functions of a hosted tool are not known yet: an MCP server has
not listed them. So a policy holds a selector for them, which names a kind, perhaps a namespace of
it, perhaps one function. When the functions are in the toolbox, `allow_hosted` puts their aliases
into the policy.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

import msgspec

from antiphon.plans.hosted_functions import HostedFunction
from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.tools import ToolPolicy

__all__ = ["allow_found", "allow_hosted", "selector", "selects"]

_SEARCH: Final = "tool_search"

# A name of a tool is printable, so no alias is like a selector with more than a kind.
_JOINT = "\n"


def selector(kind: str, namespace: str | None, name: str | None) -> str:
    """Return what stands for hosted functions in a policy until they have aliases."""
    parts = [kind, namespace or "", name or ""]
    while not parts[-1]:
        parts.pop()
    return _JOINT.join(parts)


def allow_hosted(policy: ToolPolicy, toolbox: Toolbox) -> ToolPolicy:
    """Return the policy with the aliases of the hosted functions that it selects."""
    if policy.allowed is None or not toolbox.functions:
        return policy
    found = {alias for alias, function in toolbox.functions.items() if selects(policy, function)}
    return msgspec.structs.replace(policy, allowed=policy.allowed | found)


def allow_found(policy: ToolPolicy, toolbox: Toolbox, found: Set[str]) -> ToolPolicy:
    """Return the policy with the tools that a search has found, if it allows the search alone.

    Then they are what was wanted. Where it allows certain tools beside it, these are meant.
    """
    if policy.allowed is None or not found:
        return policy
    chosen = {alias for alias in toolbox.aliases if policy.allows(alias)} - found
    functions = toolbox.functions
    if any(alias not in functions or functions[alias].kind != _SEARCH for alias in chosen):
        return policy
    return msgspec.structs.replace(policy, allowed=policy.allowed | found)


def selects(policy: ToolPolicy, function: HostedFunction) -> bool:
    """Return whether tool_choice names this function, or its server or kind."""
    return policy.allowed is not None and not policy.allowed.isdisjoint(_selectors(function))


def _selectors(function: HostedFunction) -> set[str]:
    """Return everything that selects this function."""
    kind, space, name = function.kind, function.namespace, function.name
    return {
        selector(kind, None, None),
        selector(kind, space, None),
        selector(kind, space, name),
        selector(kind, None, name),
    }
