"""What did the tools of a response take, beside the tokens of its model?

`tool_usage` has numbers for searches and for images. Every call states what it took, and the
builder adds it up. The field is there only if something was taken; what was not has zeros then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["SEARCHED", "ToolUsage", "add_tool_usage", "image_usage"]

ToolUsage = dict[str, Any]
"""As on the wire: `{"image_gen": {…}, "web_search": {"num_requests": 1}}`."""

SEARCHED: Final[ToolUsage] = {"web_search": {"num_requests": 1}}
"""What one search takes."""

_DETAILS: Final = ("image_tokens", "text_tokens")
_COUNTS: Final = ("input_tokens", "output_tokens", "total_tokens")


def add_tool_usage(known: ToolUsage | None, more: ToolUsage) -> ToolUsage:
    """Return both together, with zeros for what neither has. Neither is changed."""
    nothing = {
        "image_gen": {
            **dict.fromkeys(_COUNTS, 0),
            "input_tokens_details": dict.fromkeys(_DETAILS, 0),
        },
        "web_search": {"num_requests": 0},
    }
    return _sum(_sum(nothing, known or {}), more)


def image_usage(found: object) -> ToolUsage | None:
    """Return what an image took, from what an images server states; None if it does not."""
    if not isinstance(found, Mapping) or not all(_is_count(found.get(name)) for name in _COUNTS):
        return None
    details = found.get("input_tokens_details")
    known = details if isinstance(details, Mapping) else {}
    split = {name: known[name] if _is_count(known.get(name)) else 0 for name in _DETAILS}
    counts = {name: found[name] for name in _COUNTS}
    return {"image_gen": {**counts, "input_tokens_details": split}}


def _sum(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    total = dict(one)
    for name, value in other.items():
        before = total.get(name)
        if isinstance(value, Mapping):
            total[name] = _sum(before or {}, value)
        else:
            total[name] = (before or 0) + value
    return total


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0
