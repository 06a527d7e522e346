"""The tree of a response or a conversation: which turns there are, and which continue which.

Pages are in the order in which the turns began, so that a turn always follows the one it
continues. The turns of a conversation are found by their charges, and each with those that continue
it from outside of the conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from antiphon.protocol.errors import no_conversation, no_response
from antiphon.protocol.items import Item, text_of
from antiphon.protocol.rounds import TurnObject
from antiphon.server.api.objects import answer_page, wrong_cursor
from antiphon.server.api.pages import read_page_query
from antiphon.server.app import Call, Route
from antiphon.store.base import TreeNode
from antiphon.store.base.requests import RequestQuery

__all__ = ["ROUTES"]

_MOST: Final = 500
_DEFAULT: Final = 100
_MOST_TURNS: Final = 1000
"""Turns of a conversation that are looked for: the newest ones."""
_LONGEST_TEXT: Final = 200


async def tree_of_response(call: Call) -> web.StreamResponse:
    """Return a page of the tree that a response is in, from its root on."""
    root = await call.app.engine.store.trees.root(call.owner, call.path_id)
    if root is None:
        raise no_response(call.path_id)
    return await _page(call, [root])


async def tree_of_conversation(call: Call) -> web.StreamResponse:
    """Return a page of the turns of a conversation, and of those that continue them."""
    store = call.app.engine.store
    if await store.conversations.get(call.owner, call.path_id) is None:
        raise no_conversation(call.path_id)
    asked = RequestQuery(projects=(call.owner,), conversations=(call.path_id,), limit=_MOST_TURNS)
    found = await store.ledger.requests(asked)
    return await _page(call, [charges[0].response_id for charges in found])


async def _page(call: Call, roots: Sequence[str]) -> web.Response:
    query = read_page_query(call, max_limit=_MOST, default_limit=_DEFAULT)
    try:
        nodes = await call.app.engine.store.trees.page(
            call.owner, roots, after=query.after, limit=query.limit + 1
        )
    except KeyError:
        raise wrong_cursor("after", query.after) from None
    return answer_page(call, [_show(node) for node in nodes], query.limit)


def _show(node: TreeNode) -> TurnObject:
    response = node.response
    known = response.conversation
    return TurnObject(
        id=response.id,
        previous_response_id=response.previous_response_id,
        conversation_id=known.get("id") if isinstance(known, dict) else None,
        status=response.status,
        created_at=response.created_at,
        model=response.model,
        usage=response.usage,
        cost=response.antiphon.cost if response.antiphon else None,
        children=node.children,
        text=_text(node.last_input),
    )


def _text(item: Item | None) -> str:
    if item is None:
        return ""
    content = item.get("content") or item.get("output")
    return " ".join(text_of(content).split())[:_LONGEST_TEXT]


ROUTES: Final = [
    Route("GET", "/v1/responses/{id}/antiphon/tree", tree_of_response),
    Route("GET", "/v1/conversations/{id}/antiphon/tree", tree_of_conversation),
]
