"""Search for deferred tools in the gateway, so that a model is shown few of many.

A request that declares `tool_search` and tools with `defer_loading` shows the model one function
instead of all of them. The search ranks the deferred tools by BM25 over their names, descriptions
and parameters; what it finds can be called from the next round on, and in later turns, because
the `tool_search_output` item carries it. Tools of MCP servers with `defer_loading` are found too.
It runs in memory, has no effects and asks nobody.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

from antiphon.plans.toolbox import Offer
from antiphon.protocol.codec import decode_json
from antiphon.protocol.deltas import Degraded, Delta
from antiphon.protocol.items import Item
from antiphon.protocol.tools import Tool
from antiphon.tools.base import (
    Decision,
    Decline,
    HostedCall,
    HostedFunction,
    Outcome,
    Progress,
    Start,
    ToolRequest,
    ToolSession,
)

__all__ = ["MAX_FOUND", "ToolSearch", "rank_places", "rank_tools"]

MAX_FOUND: Final = 10
_KIND: Final = "tool_search"
_MAX_LISTED: Final = 2000
_ABOUT: Final = (
    "Search for further tools by what they do. What is found can be called from then on."
)
_QUERY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tool should do."}},
    "required": ["query"],
}
_SHORT: Final = 3  # a word of so many letters has no plural
# Usual values of BM25.
_SATURATION: Final = 1.2
_LENGTH: Final = 0.75
_COMMON: Final = frozenset({"a", "an", "and", "for", "in", "is", "of", "on", "or", "the", "to"})
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_]+")


class ToolSearch:
    """Runs `tool_search` for any model."""

    def __init__(self) -> None:
        self.kinds = frozenset({_KIND})
        self.includes: frozenset[str] = frozenset()

    async def begin(self, request: ToolRequest) -> ToolSession:
        """Return the search of a turn."""
        return _Search(request)

    async def close(self) -> None:
        """There is nothing to close."""


class _Search(ToolSession):
    def __init__(self, request: ToolRequest) -> None:
        self._request = request
        self._declared = request.tools[0]
        self._offers: list[Offer] = []
        self._functions: dict[int, HostedFunction] = {}  # by their place in the offers

    async def prepare(self) -> AsyncIterator[Delta | HostedFunction]:
        """Yield the search; what can be found is known, because it is prepared last."""
        self._offers = [*self._request.hidden]
        for function in self._request.deferred:
            self._functions[len(self._offers)] = function
            self._offers.append(_as_offer(function))
        if not self._offers:
            yield Degraded(
                f"{self._declared.where} ({_KIND}): no tool is deferred, nothing to find"
            )
            return
        given = self._declared.tool.get("description")
        about = given if isinstance(given, str) and given else _ABOUT
        names = dict.fromkeys(offer.namespace or offer.name for offer in self._offers)
        listed = ", ".join(names)[:_MAX_LISTED]
        yield HostedFunction(
            kind=_KIND,
            name=_KIND,
            description=f"{about}\n\nTo be found: {listed}.",
            parameters=_QUERY,
        )

    def decide(self, call: HostedCall) -> Decision:
        asked = decode_json(call.arguments)
        query = asked.get("query") if isinstance(asked, dict) else None
        if not isinstance(query, str) or not query.strip():
            return Decline(result='error: the arguments must be {"query": "a text"}')
        item: Item = {
            "type": "tool_search_call",
            "arguments": asked,
            "execution": "server",
            "call_id": None,
            "status": "in_progress",
        }
        return Start(item=item, has_effects=False)

    async def run(self, call: HostedCall, start: Start) -> AsyncIterator[Progress | Outcome]:
        query = str(start.item["arguments"]["query"])
        places = rank_places(query, self._offers)
        found = [self._offers[place] for place in places if place not in self._functions]
        hosted = [self._functions[place] for place in places if place in self._functions]
        output: Item = {
            "type": "tool_search_output",
            "tools": [*_as_declared(found), *_as_servers(hosted)],
            "execution": "server",
            "call_id": None,
            "status": "completed",
        }
        names = [offer.alias for offer in found]
        names += [f"{one.name} of {one.namespace or one.kind}" for one in hosted]
        listed = ", ".join(names)
        yield Outcome(
            item=start.item | {"status": "completed"},
            result=f"These tools can be called now: {listed}" if names else "No tool was found.",
            also=[output],
            functions=hosted,
            loads=[offer.alias for offer in found],
        )


def rank_tools(query: str, offers: Sequence[Offer], most: int = MAX_FOUND) -> list[Offer]:
    """Return the tools that fit a query, the best first, `most` at most."""
    return [offers[place] for place in rank_places(query, offers, most)]


def rank_places(query: str, offers: Sequence[Offer], most: int = MAX_FOUND) -> list[int]:
    """Return where the tools are that fit a query, the best first, `most` at most."""
    texts = [Counter(_words(offer)) for offer in offers]
    lengths = [text.total() for text in texts]
    usual = sum(lengths) / len(lengths) if lengths else 1.0
    scores: list[float] = [0.0] * len(offers)
    for word in set(_split(query)):
        having = sum(word in text for text in texts)
        if not having:
            continue
        rarity = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for index, text in enumerate(texts):
            count = text[word]
            damped = _SATURATION * (1 - _LENGTH + _LENGTH * lengths[index] / usual)
            scores[index] += rarity * count * (_SATURATION + 1) / (count + damped)
    ranked = sorted(range(len(offers)), key=lambda index: -scores[index])
    return [index for index in ranked[:most] if scores[index] > 0]


def _words(offer: Offer) -> Iterator[str]:
    """Yield the words that a tool is found by. Its name counts twice."""
    parameters = offer.tool.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    fields = [offer.name, offer.name, offer.namespace or "", offer.about]
    fields.append(str(offer.tool.get("description") or ""))
    fields += map(str, properties if isinstance(properties, dict) else ())
    for field in fields:
        yield from _split(field)


def _split(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        word = match.group().lower()
        if word not in _COMMON:
            yield word.removesuffix("s") if len(word) > _SHORT else word


def _as_declared(found: Sequence[Offer]) -> Iterator[Tool]:
    """Yield the tools as the caller wrote them, those of one namespace together."""
    spaces: dict[str, Tool] = {}
    for offer in found:
        if offer.namespace is None:
            yield offer.tool
            continue
        space = spaces.get(offer.namespace)
        if space is None:
            space = {"type": "namespace", "name": offer.namespace, "tools": []}
            if offer.about:
                space["description"] = offer.about
            spaces[offer.namespace] = space
        space["tools"].append(offer.tool)
    yield from spaces.values()


def _as_offer(function: HostedFunction) -> Offer:
    """Return a hosted function as something that can be ranked."""
    tool: Tool = {"description": function.description, "parameters": function.parameters}
    return Offer("function", function.name, function.namespace, "", tool, function.kind)


def _as_servers(found: Sequence[HostedFunction]) -> Iterator[Tool]:
    """Yield the servers of the functions that were found, each with their names."""
    names: dict[tuple[str, str | None], list[str]] = {}
    for function in found:
        names.setdefault((function.kind, function.namespace), []).append(function.name)
    for (kind, label), tools in names.items():
        yield {"type": kind, "server_label": label, "allowed_tools": tools}
