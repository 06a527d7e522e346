"""How do hosted items get to the next turn, if its caller gets calls and texts alone?

The caller of such a door sends back its own calls with their results. What hosted tools did in the
same answer is kept with the first of these calls, sealed, and stands before it when a history has
the call again. So the model has it in its context, and does not do it once more.

An answer without a call of the caller's has its results in its text, and nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.engine.prepare.seal import Sealer
from antiphon.protocol.families import answers, is_call, is_output
from antiphon.protocol.items import Item, item_type
from antiphon.tools.results import cap_item

__all__ = ["call_of_caller", "hosted_before_call", "open_items", "seal_items"]

_KIND: Final = "hosted items"
_MAX_ITEM: Final = 64 * 1024
# What the model wrote itself, and what only reports.
_NOT_DONE: Final = frozenset(
    {"message", "reasoning", "compaction", "mcp_list_tools", "mcp_approval_request"}
)
_decode = msgspec.json.Decoder(list[Item]).decode


def call_of_caller(output: Sequence[Item]) -> str | None:
    """Return the id of the first call that the caller has to run."""
    answered = {answers(item) for item in output if is_output(item)}
    for item in output:
        if _is_for_caller(item, answered):
            return str(item["call_id"])
    return None


def hosted_before_call(output: Sequence[Item]) -> list[Item]:
    """Return what hosted tools did in an answer, as far as it has to be kept."""
    answered = {answers(item) for item in output if is_output(item)}
    done = [
        item
        for item in output
        if item_type(item) not in _NOT_DONE and not _is_for_caller(item, answered)
    ]
    return list(map(_small, done))


def _is_for_caller(item: Item, answered: set[str | None]) -> bool:
    call_id = item.get("call_id") if is_call(item) else None
    return isinstance(call_id, str) and call_id not in answered


def _small(item: Item) -> Item:
    """Return the item in the size in which the model was shown its result, without its image."""
    if item_type(item) == "image_generation_call":
        return {**item, "result": ""}
    return cap_item(item, _MAX_ITEM)


def seal_items(items: Sequence[Item], owner: str, sealer: Sealer) -> str:
    """Return the items sealed for their owner."""
    return sealer.seal(owner, _KIND, msgspec.json.encode(items))


def open_items(text: str, owner: str, sealer: Sealer) -> list[Item]:
    """Return the items of a seal; none if it cannot be opened any more."""
    data = sealer.open(owner, _KIND, text)
    return _decode(data) if data is not None else []
