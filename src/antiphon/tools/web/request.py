"""What does a request want of a web search? Reads `web_search` tools in all their versions.

Wrong shapes are refused with the place of the mistake. What cannot be honoured is reported:
`external_web_access: false` asks for a search without the web, and there is no stored copy of it
here, so the tool is left out. A restriction is never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.plans.toolbox import DeclaredTool
from antiphon.protocol.errors import InvalidRequest
from antiphon.tools.web.domains import is_allowed, read_domains

__all__ = ["KINDS", "Depth", "SearchWish", "read_wish"]

KINDS: Final = frozenset(
    {"web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"}
)
_FIELDS: Final = frozenset(
    {"type", "filters", "search_context_size", "user_location", "external_web_access"}
    | {"search_content_types", "allowed_callers", "cache_control"}
    | {"name", "allowed_domains", "blocked_domains", "max_uses"}  # as the Messages API writes it
)
_LISTS: Final = ("allowed_domains", "blocked_domains")
_PLACES: Final = ("city", "country", "region", "timezone")
_MAX_DOMAINS: Final = 100


class Depth(msgspec.Struct, frozen=True):
    """How much the model is shown: results of a search, characters of each, and of a page."""

    results: int
    snippet: int
    page: int


_DEPTHS: Final = {
    "low": Depth(4, 300, 6_000),
    "medium": Depth(8, 600, 16_000),
    "high": Depth(12, 1_500, 40_000),
}


class SearchWish(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted. `is_possible` is False if the tool has to be left out."""

    kind: str
    depth: Depth
    domains: Sequence[str] = ()
    blocked: Sequence[str] = ()
    location: Mapping[str, str] = {}
    degraded: Sequence[str] = ()
    is_possible: bool = True
    max_uses: int | None = None
    """How many searches may be made in a response."""

    def allows(self, url: str) -> bool:
        """Return whether a page may be shown and opened."""
        is_blocked = bool(self.blocked) and is_allowed(url, self.blocked)
        return not is_blocked and is_allowed(url, self.domains)


def read_wish(tools: Sequence[DeclaredTool]) -> SearchWish:
    """Return what these tools want; there is at least one. Raise InvalidRequest if it is wrong."""
    (tool, where), *others = tools
    degraded = [f"{other.where}: there is one search tool already" for other in others]
    degraded += [f"{where}.{name}" for name, value in tool.items() if value and name not in _FIELDS]
    domains, blocked = _domains(tool, where, degraded)
    if "image" in _content_types(tool.get("search_content_types"), where):
        degraded.append(f"{where}.search_content_types (image): only texts are searched here")
    is_possible = tool.get("external_web_access") is not False
    if not is_possible:
        why = "there is no stored copy of the web here, so the tool is left out"
        degraded.append(f"{where}.external_web_access: {why}")
    return SearchWish(
        kind=str(tool["type"]),
        depth=_depth(tool.get("search_context_size"), where),
        domains=domains,
        blocked=blocked,
        location=_location(tool.get("user_location"), where),
        degraded=degraded,
        is_possible=is_possible,
        max_uses=_max_uses(tool.get("max_uses"), where),
    )


def _domains(tool: Mapping[str, Any], where: str, degraded: list[str]) -> list[list[str]]:
    """Return the domains that are allowed, and those that are blocked."""
    filters = tool.get("filters")
    if not isinstance(filters, dict | None):
        raise _wrong(f"{where}.filters", "must be an object")
    unknown = [name for name, value in (filters or {}).items() if value and name not in _LISTS]
    degraded += [f"{where}.filters.{name}" for name in unknown]
    return [_list_of(name, tool, filters or {}, where) for name in _LISTS]


def _list_of(
    name: str, tool: Mapping[str, Any], filters: Mapping[str, Any], where: str
) -> list[str]:
    """Return the domains of a list, which stands in `filters` or in the tool itself."""
    given, inner = tool.get(name), filters.get(name)
    param = f"{where}.{name}" if inner is None else f"{where}.filters.{name}"
    if given is not None and inner is not None:
        raise _wrong(param, "is given twice")
    value = given if inner is None else inner
    domains = [] if value is None else read_domains(value)
    if domains is None:
        raise _wrong(param, "must be a list of domain names")
    if len(domains) > _MAX_DOMAINS:
        raise _wrong(param, f"may have {_MAX_DOMAINS} names at most")
    return domains


def _content_types(value: Any, where: str) -> list[str]:
    found = [] if value is None else value
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise _wrong(f"{where}.search_content_types", "must be a list of text and image")
    return found


def _depth(size: Any, where: str) -> Depth:
    found = _DEPTHS.get(size or "medium") if isinstance(size, str | None) else None
    if found is None:
        raise _wrong(f"{where}.search_context_size", "must be low, medium or high")
    return found


def _max_uses(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise _wrong(f"{where}.max_uses", "must be a positive number")
    return value


def _location(value: Any, where: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(f"{where}.user_location", "must be an object")
    # Some clients nest the fields as the Chat Completions API does.
    inner = value.get("approximate")
    fields = inner if isinstance(inner, dict) else value
    found = {name: fields[name] for name in _PLACES if fields.get(name) is not None}
    for name, text in found.items():
        if not isinstance(text, str) or len(text) > 100 or not text.isprintable():
            raise _wrong(f"{where}.user_location.{name}", "must be a short text")
    return {name: text for name, text in found.items() if text}


def _wrong(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {why}", code="invalid_value", param=param)
