"""Where a prompt is cached: at most four breakpoints, the caller's own or ours.

The caller's breakpoints are kept as they are, the last four of them. With `cache = "auto"` and none
of the caller's, they are set at the last tool, at the last system block, at the end of the last
request and at the end of this one: the next request begins with all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

__all__ = ["MAX_BREAKPOINTS", "has_mark", "place_breakpoints"]

MAX_BREAKPOINTS: Final = 4

_CACHED: Final = {"type": "ephemeral"}
_Block = dict[str, Any]


def place_breakpoints(
    tools: Sequence[_Block],
    system: list[_Block],
    messages: Sequence[dict[str, Any]],
    *,
    is_auto: bool,
    report: list[str],
) -> list[_Block]:
    """Set the breakpoints in the blocks; return the tools with theirs, which are copied."""
    contents = [message["content"] for message in messages]
    blocks = [*system, *(block for content in contents for block in content)]
    marked = [block for block in (*tools, *blocks) if has_mark(block)]
    if len(marked) > MAX_BREAKPOINTS:
        report.append(f"cache_control: the last {MAX_BREAKPOINTS} of {len(marked)} are kept")
        return _unmark(tools, blocks, len(marked) - MAX_BREAKPOINTS)
    if marked or not is_auto:
        return list(tools)
    for content in _ends(messages):
        _mark_last(content)
    _mark_last(system)
    copied = list(tools)
    if copied:
        copied[-1] = {**copied[-1], "cache_control": _CACHED}
    return copied


def has_mark(block: _Block | msgspec.Raw) -> bool:
    """Return whether a breakpoint is set at the block."""
    return isinstance(block, dict) and block.get("cache_control") is not None


def _unmark(tools: Sequence[_Block], blocks: Sequence[_Block], count: int) -> list[_Block]:
    """Take the first breakpoints away; return the tools."""
    kept: list[_Block] = []
    for tool in tools:
        if has_mark(tool) and count:
            count -= 1
            tool = {name: tool[name] for name in tool if name != "cache_control"}
        kept.append(tool)
    for block in blocks:
        if has_mark(block) and count:
            count -= 1
            del block["cache_control"]
    return kept


def _ends(messages: Sequence[dict[str, Any]]) -> list[list[_Block]]:
    """Return the content of the last message, and that of the last one of the request before."""
    ends = [messages[-1]["content"]] if messages else []
    before = [one["content"] for one in messages[:-1] if one["role"] == "user"]
    return [*ends, *before[-1:]]


def _mark_last(blocks: Sequence[_Block | msgspec.Raw]) -> None:
    """Mark the last block that may be one; thinking, which is bytes, may not."""
    for block in reversed(blocks):
        if isinstance(block, dict):
            block["cache_control"] = _CACHED
            return
