"""How many tokens, when no backend has counted?

Four bytes of text to a token, over everything that was sent: instructions, items and tool
schemas, which in real agents are most of it. Always marked as an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.backends.base import Plan
from antiphon.protocol.items import Item
from antiphon.protocol.response import OutputDetails, Usage

__all__ = ["estimate_usage"]

_BYTES_PER_TOKEN: Final = 4


def estimate_usage(plan: Plan, output: Sequence[Item]) -> Usage:
    """Return the estimated usage of a plan and what came of it."""
    sent = _tokens([plan.instructions or "", list(plan.items), list(plan.tools)])
    thought = sum(_tokens(item) for item in output if item.get("type") == "reasoning")
    said = sum(_tokens(item) for item in output if item.get("type") != "reasoning")
    return Usage(
        input_tokens=sent,
        output_tokens=said + thought,
        output_tokens_details=OutputDetails(reasoning_tokens=thought),
        total_tokens=sent + said + thought,
    )


def _tokens(value: object) -> int:
    """Count the texts in a value; its keys and ids cost nothing."""
    return -(-sum(_text_bytes(value)) // _BYTES_PER_TOKEN)


def _text_bytes(value: object) -> list[int]:
    if isinstance(value, str):
        return [len(value.encode())]
    if isinstance(value, dict):
        if value.get("type") == "function" and "parameters" in value:
            return [len(msgspec.json.encode(value))]
        names = ("text", "refusal", "arguments", "name", "output", "content", "summary")
        return [size for name in names for size in _text_bytes(value.get(name))]
    if isinstance(value, list):
        return [size for child in value for size in _text_bytes(child)]
    return []
