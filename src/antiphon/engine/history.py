"""What has been said before, and does the new input fit to it?

The context of a turn is the history of its parent, oldest first, then the new items. A chain
that cannot be read whole is refused, never shortened in silence; so is the output of a call
that nobody made. `instructions` are not part of it and are not inherited.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.protocol.builder import Mint
from antiphon.protocol.errors import InvalidRequest, NotFound
from antiphon.protocol.items import Item, item_type, with_id
from antiphon.protocol.request import CreateResponse
from antiphon.store.base import Store

__all__ = ["Context", "load_context"]

_CANNOT_GO_ON: Final = {
    "failed": "failed and cannot be continued",
    "cancelled": "was cancelled and cannot be continued",
    "queued": "has not finished yet",
    "in_progress": "has not finished yet",
}


class Context(msgspec.Struct, frozen=True):
    """The items a turn begins with: those of earlier turns, and its own."""

    earlier: list[Item]
    own: list[Item]

    @property
    def items(self) -> list[Item]:
        """All of them, in order."""
        return self.earlier + self.own


async def load_context(store: Store, owner: str, request: CreateResponse, mint: Mint) -> Context:
    """Return the context of a turn. Raise InvalidRequest if it cannot be had whole."""
    earlier: list[Item] = []
    if request.previous_response_id is not None:
        earlier = await _load_chain(store, owner, request.previous_response_id)
    known = {item["id"]: item for item in earlier if "id" in item}
    own: list[Item] = []
    for index, item in enumerate(request.items):
        if item_type(item) != "item_reference":
            own.append(with_id(item, mint))
        elif item["id"] not in known:
            own.append(await _find(store, owner, item["id"], f"input[{index}].id"))
    context = Context(earlier, own)
    _refuse_orphans(context)
    return context


async def _load_chain(store: Store, owner: str, response_id: str) -> list[Item]:
    history = await store.history(owner, response_id)
    if history is None:
        raise _chain_error(f"Previous response with id '{response_id}' not found.")
    if history.missing is not None:
        raise _chain_error(
            f"Previous response with id '{history.missing}', on which '{response_id}' builds, "
            "was deleted; its history is not whole."
        )
    problem = _CANNOT_GO_ON.get(history.status)
    if problem is not None:
        raise _chain_error(f"Previous response with id '{response_id}' {problem}.")
    return history.items


def _chain_error(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="previous_response_not_found", param="previous_response_id")


async def _find(store: Store, owner: str, item_id: str, param: str) -> Item:
    item = await store.find_item(owner, item_id)
    if item is None:
        raise NotFound(f"Item with id '{item_id}' not found.", code="item_not_found", param=param)
    return item


def _refuse_orphans(context: Context) -> None:
    """Refuse the output of a call that is not in the context before it."""
    calls = {item["call_id"] for item in context.earlier if "call_id" in item}
    for item in context.own:
        kind = item_type(item)
        if kind == "function_call_output" and item["call_id"] not in calls:
            raise InvalidRequest(
                f"No tool call found for function call output with call_id {item['call_id']}.",
                code="tool_call_not_found",
                param="input",
            )
        if isinstance(item.get("call_id"), str) and not kind.endswith("_output"):
            calls.add(item["call_id"])
