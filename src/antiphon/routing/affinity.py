"""Which requests belong together, and should go to the same deployment?

A server keeps what it computed for the beginning of a prompt. A conversation that stays on one
deployment is cheaper and faster there. Its key is, in this order: `prompt_cache_key` (the
Messages door puts the session of `metadata.user_id` there), the conversation, the root of the
chain of responses, the session that a header names. With affinity "prefix" it is a hash of what
a prompt begins with, whatever the conversation is.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

from antiphon.plans.plan import Plan
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.native_state import state_of
from antiphon.protocol.request import CreateResponse

__all__ = ["SESSION_HEADER", "accounts_in", "prefix_key", "session_key"]

SESSION_HEADER: Final = "X-Claude-Code-Session-Id"
"""The header in which Claude Code names its session."""

_encode = msgspec.json.Encoder().encode


def session_key(
    request: CreateResponse, items: Sequence[Item], conversation: str | None, session: str | None
) -> str | None:
    """Return the key of a request by what it belongs to; None if it stands alone.

    `items` is its context: the first one is the root of a chain of responses, and the same in
    each of them. `session` is that of the header.
    """
    if request.prompt_cache_key:
        return request.prompt_cache_key
    if conversation is not None:
        return conversation
    if request.previous_response_id is not None:
        return _root(items) or session
    # Nothing was stored before; what comes after will have this item as its root.
    return session or (_root(items) if request.store is not False else None)


def prefix_key(plan: Plan) -> str:
    """Return a hash of what the prompt begins with: tools, instructions, first user message."""
    digest = sha256()
    for offer in plan.toolbox.offers:
        digest.update(_encode(offer.tool))
    digest.update((plan.instructions or "").encode("utf-8", "surrogatepass"))
    first = next((one for one in plan.items if one.get("role") == "user"), None)
    if first is not None and item_type(first) == "message":
        digest.update(_encode(first.get("content")))
    return digest.hexdigest()


def accounts_in(items: Sequence[Item]) -> frozenset[str]:
    """Return whose native state the open tool loop carries: the items after the last message.

    State of earlier answers may be left out, that of an open loop is missed by its model.
    """
    found: set[str] = set()
    for item in reversed(items):
        if item.get("role") == "user":
            break
        state = state_of(item)
        if state is not None and state.account:
            found.add(state.account)
    return frozenset(found)


def _root(items: Sequence[Item]) -> str | None:
    root = items[0].get("id") if items else None
    return root if isinstance(root, str) else None
