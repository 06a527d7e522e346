"""What is the context of a turn, and does the new input fit it?

The context of a turn is the history of its parent, or its conversation, oldest first, then the
new items. A chain that cannot be read whole is refused, never shortened in silence; so is the
output of a call that was never made. `instructions` are not part of it and are not inherited.
A turn that reads a conversation to continue it becomes its only writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from antiphon.engine.keep.pending_writes import Defer, Write
from antiphon.engine.prepare.context_size import ContextSize
from antiphon.engine.prepare.history_cache import HistoryCache, Past
from antiphon.engine.prepare.no_storage import refuse_chain
from antiphon.protocol.errors import (
    ContextTooLarge,
    ConversationLocked,
    InvalidRequest,
    NotFound,
    StoreUnavailable,
    no_conversation,
)
from antiphon.protocol.families import answers, is_output
from antiphon.protocol.items import Item, item_prefix, item_type, with_id
from antiphon.protocol.machines.builder import Mint
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.thread import Thread
from antiphon.store.base import Histories, History, Size, Store
from antiphon.store.encoding import encode_aside

__all__ = ["Context", "Recall", "conversation_of", "load_context", "refuse_orphans"]

Recall = Callable[[str, ContextSize], Awaitable[History | None]]
"""Returns the history of a response that is remembered elsewhere than in the store."""

# Items in which the call of an output is looked for first.
_NEAR: Final = 64

_TRIGGER: Final = "compaction_trigger"

_CANNOT_GO_ON: Final = {
    "failed": "failed and cannot be continued",
    "cancelled": "was cancelled and cannot be continued",
    "queued": "has not finished yet",
    "in_progress": "has not finished yet",
}


class Context(msgspec.Struct, frozen=True):
    """The items a turn begins with: those of earlier turns, and its own.

    `past` is the chain that it goes on with, if it is one of stored responses. If there is nothing
    earlier and the turn's own items are long, these are a thread.
    """

    earlier: Sequence[Item]
    own: Sequence[Item]
    past: Past | None = None

    def join(self) -> Sequence[Item]:
        """Return all of them, in order."""
        if not self.earlier:
            return self.own
        if isinstance(self.earlier, Thread):
            return self.earlier.grow(self.own)
        return [*self.earlier, *self.own]


def conversation_of(request: CreateResponse) -> str | None:
    """Return the id of the conversation that the request goes on with."""
    given = request.conversation
    if given is None or isinstance(given, str):
        return given
    name = given.get("id")
    if isinstance(name, str):
        return name
    if name is None:
        raise InvalidRequest(
            "conversation.id is missing",
            code="missing_required_parameter",
            param="conversation.id",
        )
    raise InvalidRequest(
        "conversation.id must be a string", code="invalid_type", param="conversation.id"
    )


async def load_context(
    store: Store,
    owner: str,
    request: CreateResponse,
    mint: Mint,
    *,
    response_id: str,
    defer: Defer,
    threads: HistoryCache,
    size: ContextSize,
    recall: Recall | None = None,
    keeps_lock: bool = False,
    reads_store: bool = True,
) -> Context:
    """Return the context of the turn that becomes `response_id`.

    `threads` is what this process remembers, `recall` what the caller does. `size` is asked
    before anything is read. Raise InvalidRequest if the context is not complete or too large,
    ConversationLocked if another turn is writing to the conversation; on return, this one is.
    With `keeps_lock` it is that also after an error: a queued turn is tried again. Without
    `reads_store`, a chain is taken from `recall` or refused.
    """
    name = conversation_of(request)
    if name is None:
        earlier, past = await _chain(
            store, owner, request, threads, size, recall, reads_store=reads_store
        )
        return Context(earlier, await _gather(store, owner, request, mint, earlier, size), past)
    if request.previous_response_id is not None:
        raise InvalidRequest(
            "conversation and previous_response_id cannot be used together",
            code="mutually_exclusive_parameters",
            param="previous_response_id",
        )
    locking = asyncio.ensure_future(
        store.conversations.lock(owner, name, response_id, admit=size.admit_conversation)
    )
    try:
        said = await asyncio.shield(locking)
        if said is None:
            raise no_conversation(name, "conversation")
        own = await _gather(store, owner, request, mint, said, size)
        return Context(said, await size.run(_with_ids_of_their_own, said, own, mint))
    except ConversationLocked:
        raise
    except BaseException:
        if keeps_lock:
            raise
        unlock = partial(store.conversations.unlock, owner, name, response_id)
        await asyncio.shield(_unlock(locking, unlock, defer))
        raise


async def _unlock(locking: asyncio.Future[list[Item] | None], unlock: Write, defer: Defer) -> None:
    """Unlock a conversation, also if the client has disconnected in the meantime."""
    await asyncio.wait({locking})
    if isinstance(locking.exception(), ConversationLocked | ContextTooLarge):
        return  # it was never ours
    try:
        await unlock()
    except StoreUnavailable:
        defer(unlock)


async def _chain(
    store: Histories,
    owner: str,
    request: CreateResponse,
    threads: HistoryCache,
    size: ContextSize,
    recall: Recall | None,
    *,
    reads_store: bool,
) -> tuple[Sequence[Item], Past | None]:
    previous = request.previous_response_id
    if previous is None:
        return [], None
    recalled = await recall(previous, size) if recall else None
    if recalled is not None:
        return _whole(previous, recalled).items, None
    if not reads_store:
        raise refuse_chain()
    past = threads.find(owner, previous)
    if past is not None and past.removals == await store.removals():
        size.admit_chain(Size(len(past.thread), past.thread.weight))
        return past.thread, past
    threads.forget(owner, previous)
    found = await store.history(owner, previous, admit=size.admit_chain)
    history = _whole(previous, found)
    thread = Thread(history.items, history.weight)
    return thread, Past(thread, history.turns, history.removals)


async def _gather(
    store: Histories,
    owner: str,
    request: CreateResponse,
    mint: Mint,
    earlier: Sequence[Item],
    size: ContextSize,
) -> Sequence[Item]:
    """Return the turn's own items, with ids; one that is there already is not added again."""
    given = request.items
    if isinstance(given, Thread) and not earlier:
        thread = await size.run_own(_own_thread, given, mint)
        if thread is not None:
            return thread
    own, references = await size.run_own(_own_items, given, mint)
    if not references:
        return own
    known = {said["id"] for said in earlier if "id" in said}
    found: dict[int, Item] = {}
    for place, index in references.items():
        item_id = own[place]["id"]
        if item_id not in known:
            known.add(item_id)
            found[place] = await _find(store, owner, item_id, f"input[{index}].id")
            (stored,) = await encode_aside([found[place]])
            size.add_reference(len(stored.body))
    return [
        found.get(place, item)
        for place, item in enumerate(own)
        if place in found or place not in references
    ]


def _own_thread(given: Thread, mint: Mint) -> Thread | None:
    """Return the items with ids, which those that last keep; None if some are references."""
    known: Thread = given.recall(_own_thread) or Thread()
    new, references = _own_items(given[len(known) : given.lasting], mint)
    tail, others = _own_items(given[given.lasting :], mint)
    if references or others:
        return None
    if new:
        known = known.grow(new, given.weight - known.weight)
        given.learn(_own_thread, known)
    return known.with_tail(tail)


def _own_items(given: Sequence[Item], mint: Mint) -> tuple[list[Item], dict[int, int]]:
    """Return the items with ids, references as they are, and where those stand, here and there."""
    own: list[Item] = []
    references: dict[int, int] = {}
    for index, item in enumerate(given):
        kind = item_type(item)
        if kind == _TRIGGER:
            continue  # an instruction, not part of the context
        if kind == "item_reference":
            references[len(own)] = index
        own.append(item if kind == "item_reference" else with_id(item, mint))
    return own, references


def _with_ids_of_their_own(
    earlier: Sequence[Item], given: Sequence[Item], mint: Mint
) -> list[Item]:
    """Return the turn's own items; what came under an id that is taken gets another one."""
    taken = {item.get("id") for item in earlier}
    own: list[Item] = []
    for item in given:
        if item["id"] in taken:
            item = {**item, "id": mint(item_prefix(item_type(item)))}
        taken.add(item["id"])
        own.append(item)
    return own


def _whole(response_id: str, history: History | None) -> History:
    if history is None:
        raise _chain_error(f"Previous response with id '{response_id}' not found.")
    if history.missing is not None:
        raise _chain_error(
            f"Previous response with id '{history.missing}', on which '{response_id}' builds, "
            "is not stored, or no longer; its history is incomplete."
        )
    problem = _CANNOT_GO_ON.get(history.status)
    if problem is not None:
        raise _chain_error(f"Previous response with id '{response_id}' {problem}.")
    return history


def _chain_error(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="previous_response_not_found", param="previous_response_id")


async def _find(store: Histories, owner: str, item_id: str, param: str) -> Item:
    item = await store.find_item(owner, item_id)
    if item is None:
        raise NotFound(f"Item with id '{item_id}' not found.", code="item_not_found", param=param)
    return item


def refuse_orphans(shown: Sequence[Item], own: Sequence[Item]) -> None:
    """Refuse an output among the turn's own items whose call the model is not shown before it."""
    orphan = _find_orphan(shown, own)
    if orphan is not None:
        raise InvalidRequest(
            f"No tool call found for function call output with call_id {answers(orphan)}.",
            code="tool_call_not_found",
            param="input",
        )


def _find_orphan(shown: Sequence[Item], own: Sequence[Item]) -> Item | None:
    if isinstance(own, Thread) and isinstance(shown, Thread):
        return _orphan_of_thread(shown)
    outputs = {item["id"] for item in own if is_output(item) and not _is_hosted(item)}
    if not outputs:
        return None
    # Most outputs answer the calls just before them: then the rest is not searched.
    near = _orphan(shown[-(len(own) + _NEAR) :], outputs.__contains__, set())
    return near and _orphan(shown, outputs.__contains__, set())


def _orphan_of_thread(shown: Thread) -> Item | None:
    """Return the first output that no call comes before, of a thread of the turn's own items."""
    begin, known = shown.recall(_orphan_of_thread) or (0, frozenset())
    calls = set(known)
    orphan = _orphan(shown[begin : shown.lasting], None, calls)
    if orphan is not None:
        return orphan
    if begin < shown.lasting:
        shown.learn(_orphan_of_thread, (shown.lasting, frozenset(calls)))
    return _orphan(shown[shown.lasting :], None, calls)


def _orphan(
    shown: Sequence[Item], is_own: Callable[[object], bool] | None, calls: set[str]
) -> Item | None:
    """Return the first output that no call comes before; `calls` has those before, and gets more.

    `is_own` is about the ids of outputs; None if all are the turn's own.
    """
    for item in shown:
        if not is_output(item):
            for name in (item.get("call_id"), item.get("id")):
                if isinstance(name, str):
                    calls.add(name)
        elif answers(item) in calls:
            continue
        elif not _is_hosted(item) if is_own is None else is_own(item.get("id")):
            return item
    return None


def _is_hosted(item: Item) -> bool:
    """Return whether a server ran the search itself: then there is no call to answer."""
    return item_type(item) == "tool_search_output" and item.get("call_id") is None
