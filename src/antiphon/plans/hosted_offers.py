"""Put into a toolbox what is known only while a turn runs: hosted functions, and tools found.

The toolbox of a request is shared and never changed: each of these returns another one.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from antiphon.plans.aliases import free_alias
from antiphon.plans.hosted_functions import MAX_ABOUT, HostedFunction
from antiphon.plans.toolbox import Offer, Toolbox
from antiphon.protocol.tools import Tool

__all__ = ["load_hidden", "offer_hosted"]


def offer_hosted(toolbox: Toolbox, functions: Sequence[HostedFunction]) -> Toolbox:
    """Return the toolbox with these hosted functions in it, after all other tools.

    Those that it has already stay. Of two with one name in one namespace, the first counts.
    """
    has = {(function.namespace, function.name) for function in toolbox.functions.values()}
    if all((function.namespace, function.name) in has for function in functions):
        return toolbox
    known = dict(toolbox.functions)
    taken = set(toolbox.aliases) | {offer.name for offer in toolbox.offers}
    taken |= {name for offer in toolbox.hidden for name in (offer.alias, offer.name)}
    offers = list(toolbox.offers)
    for function in functions:
        if (function.namespace, function.name) in has:
            continue
        has.add((function.namespace, function.name))
        alias = free_alias("hosted", function.namespace, function.name, taken)
        taken.add(alias)
        known[alias] = function
        offers.append(_hosted_offer(alias, function))
    rest = toolbox.deferred, toolbox.upstream, toolbox.declared
    return Toolbox(offers, *rest, known, toolbox.hidden, toolbox.programmatic)


def load_hidden(toolbox: Toolbox, aliases: Container[str] | None = None) -> Toolbox:
    """Return the toolbox with these hidden tools offered, after all others; None for all."""
    found = [one for one in toolbox.hidden if aliases is None or one.alias in aliases]
    if not found:
        return toolbox
    rest = toolbox.deferred, toolbox.upstream, toolbox.declared, toolbox.functions
    left = [one for one in toolbox.hidden if one not in found]
    return Toolbox([*toolbox.offers, *found], *rest, left, toolbox.programmatic)


def _hosted_offer(alias: str, function: HostedFunction) -> Offer:
    about = function.description[:MAX_ABOUT]
    parameters = function.parameters or {"type": "object", "properties": {}}
    tool: Tool = {"type": "function", "name": alias, "parameters": parameters}
    if about:
        tool["description"] = about
    return Offer("function", alias, None, alias, tool, f"tools ({function.kind})")
