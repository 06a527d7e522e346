"""How does this call continue what came before it?

A server that keeps threads gets the place to continue from and the new items. A server that
lost the thread, or keeps none, gets everything.

    asked by name, with messages    what follows the model's last item; everything as fallback
    asked by name, with input       as it is: only the server knows what came before
    a session in a conversation     as if that conversation had been asked for by name
    a session, with messages        what follows the known items, if the history begins with
                                    them; else everything, from no thread
    a session, with input           the input; the thread's items and the input as fallback
    nothing of these                as it is

"By name" is `previous_response_id` or `conversation` in the call. The fallback is sent once, if
the server reports that the thread is gone or that a call has no output. There is none where we do
not have the whole conversation, because a part of it would be answered as if it were the whole.

A thread is never continued without the outputs of its last calls. If the caller continues
without them, an output that states this is sent with the new items (see `history`), and with the
fallback. A call that no text can answer makes a session send everything, as it is.

With `store=False` the server keeps nothing to continue from, so a session sends everything.
Reasoning goes back where it holds the model's thought, sealed or open. Otherwise it is an id
that the server has forgotten, or a summary for people; then it is left out, and with it the
ids of messages and calls, by which a server would look for the reasoning that belongs to them.
Output is remembered as JSON can hold it: half a character becomes U+FFFD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.client.conversation import Thread
from antiphon.client.errors import BadCall
from antiphon.client.history import (
    answer_calls,
    complete_history,
    is_model_made,
    new_items,
    repair_text,
    trim_to_new,
    unanswered_calls,
)
from antiphon.client.request import Request
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.response import Response

__all__ = [
    "Continuation",
    "continue_from",
    "conversation_id",
    "full_history",
    "kept_id",
    "next_thread",
]

_BYTES_PER_TOKEN: Final = 4
_NAMED: Final = ("previous_response_id", "conversation")


class Continuation(msgspec.Struct, frozen=True):
    """What to send. `fallback` is the whole conversation, for a server that asks for it."""

    body: dict[str, Any]
    fallback: dict[str, Any] | None
    items: list[Item]
    """The conversation up to now, as far as we know it."""
    is_whole: bool = True
    """The items are all there is; see `Thread`."""
    is_kept: bool = True
    """The server can be asked to continue from the response."""
    thread: Thread | None = None
    """Where the session stood when the request was made."""
    note: str = ""
    """A log line about the choice."""


def continue_from(
    request: Request, thread: Thread | None, *, server_keeps_threads: bool = True
) -> Continuation:
    """Return how to send a request, given where its session stands.

    `thread` is ignored if the request is not stateful. A server that keeps no threads (one of
    chat completions) is always sent everything, and cannot be asked to continue by name.
    """
    thread = thread if request.is_stateful else None
    made = _continue(request, thread, server_keeps_threads)
    return msgspec.structs.replace(made, thread=thread)


def _continue(request: Request, thread: Thread | None, server_keeps_threads: bool) -> Continuation:
    is_kept = server_keeps_threads and request.body.get("store") is not False
    named = next((name for name in _NAMED if name in request.body), None)
    if named is not None:
        if not server_keeps_threads:
            raise BadCall(
                f"{named} names a thread, and a server of chat completions keeps no threads to "
                "continue; send messages",
                param=named,
            )
        return _continue_named(request, thread, is_kept)
    if thread is None:
        return _continue_nothing(request, is_kept, server_keeps_threads)
    if thread.conversation and server_keeps_threads:
        body = {**request.body, "conversation": thread.conversation}
        return _continue_named(msgspec.structs.replace(request, body=body), thread, is_kept)
    if request.is_history:
        return _continue_history(request, thread, is_kept)
    return _continue_input(request, thread, is_kept, server_keeps_threads)


def next_thread(current: Thread | None, continuation: Continuation, response: Response) -> Thread:
    """Return where a conversation stands after a response.

    `current` is where it stands now; another turn may have ended since this one began. What all
    turns have cost adds up there. What comes next follows this turn: its items, its response.
    None stands for a thread forgotten meanwhile; then it is the one that the turn began with.

    A response that failed or was cancelled is no place to go on from: the thread stays where
    it is, and only the cost is added. One that still runs is, but its output is not known.
    If the server does not report what the turn cost, that is estimated: four bytes to a token.
    """
    before = current or continuation.thread or Thread()
    after = before.add_usage(
        response, _estimate(continuation, response) if response.usage is None else 0
    )
    if response.status in ("failed", "cancelled"):
        return msgspec.structs.replace(after, context_tokens=before.context_tokens)
    return msgspec.structs.replace(
        after,
        response_id=kept_id(response, was_asked=continuation.is_kept),
        conversation=conversation_id(continuation.body),
        # A copy: what a caller does to the response must not change what we remember.
        items=(*continuation.items, *repair_text(response.output)),
        is_whole=continuation.is_whole and response.status in ("completed", "incomplete"),
    )


def kept_id(response: Response, *, was_asked: bool) -> str | None:
    """Return the id to continue from a response with, or None if the server stored nothing.

    `was_asked` is whether it was asked to store it; the server decides.
    """
    return (response.id or None) if was_asked and response.store is not False else None


def full_history(items: Sequence[Item]) -> list[Item]:
    """Return remembered items as they can be sent to a server that knows none of them."""
    kept = [
        item
        for item in items
        if item_type(item) != "reasoning" or item.get("encrypted_content") or item.get("content")
    ]
    if len(kept) == len(items):
        return kept
    return [
        {name: value for name, value in item.items() if name != "id"}
        if item_type(item) in ("message", "function_call")
        else item
        for item in kept
    ]


def _continue_nothing(
    request: Request, is_kept: bool, server_keeps_threads: bool, note: str = ""
) -> Continuation:
    """Send everything as it is; with outputs for all calls if the server asks for them."""
    fallback = None
    if request.is_history and server_keeps_threads:
        complete = complete_history(request.items)
        if len(complete) > len(request.items):
            fallback = {**request.body, "input": complete}
    return Continuation(request.body, fallback, request.items, is_kept=is_kept, note=note)


def _continue_named(request: Request, thread: Thread | None, is_kept: bool) -> Continuation:
    parent = request.body.get("previous_response_id")
    if not request.is_history:
        items, is_whole = request.items, False
        if parent and thread and thread.response_id == parent:
            items, is_whole = [*thread.items, *request.items], thread.is_whole
        body = request.body
        if thread is not None and _is_at(thread, body):
            body = _with_outputs(body, thread, request)
        return Continuation(body, None, items, is_whole, is_kept)
    new = trim_to_new(request.items)
    # Without a message of the model, the messages can only be the new ones.
    is_whole = any(is_model_made(item) for item in request.items)
    fallback = None
    if parent and is_whole:
        fallback = {**request.body, "input": complete_history(request.items)}
        del fallback["previous_response_id"]
    body = {**request.body, "input": new}
    note = _trimmed(new, request.items)
    return Continuation(body, fallback, request.items, is_whole, is_kept, note=note)


def _is_at(thread: Thread, body: Mapping[str, Any]) -> bool:
    """Return whether a request names the place where a session stands."""
    parent, conversation = body.get("previous_response_id"), conversation_id(body)
    return thread.response_id == parent if parent else thread.conversation == conversation


def _with_outputs(body: dict[str, Any], thread: Thread, request: Request) -> dict[str, Any]:
    """Return the body, with an output for each call that the input goes on without."""
    new = answer_calls(thread.items, request.items)
    return {**body, "input": new} if len(new) > len(request.items) else body


def _continue_history(request: Request, thread: Thread, is_kept: bool) -> Continuation:
    if not (is_kept and thread.response_id and thread.is_whole):
        return _continue_nothing(request, is_kept, server_keeps_threads=True)
    new = new_items(thread.items, request.items)
    sent = answer_calls(thread.items, new) if new else []
    if not new or unanswered_calls(thread.items, sent):
        note = f"history differs from the thread: all {len(request.items)} items are sent"
        return _continue_nothing(request, is_kept, server_keeps_threads=True, note=note)
    body = {**request.body, "previous_response_id": thread.response_id, "input": sent}
    fallback = {**request.body, "input": complete_history(request.items)}
    note = _trimmed(new, request.items)
    return Continuation(body, fallback, [*thread.items, *new], note=note)


def _continue_input(
    request: Request, thread: Thread, is_kept: bool, server_keeps_threads: bool
) -> Continuation:
    items = [*thread.items, *request.items]
    whole = [*full_history(thread.items), *request.items]
    full = {**request.body, "input": complete_history(whole)}
    if thread.is_whole and not (is_kept and thread.response_id):
        return Continuation(full, None, items, is_kept=is_kept)
    if thread.response_id is None or not server_keeps_threads:
        raise BadCall(
            "the session cannot go on: the server kept none of its last turn, and what came "
            "before did not go through this client; send messages",
            param="session",
        )
    sent = answer_calls(thread.items, request.items)
    if thread.is_whole and unanswered_calls(thread.items, sent):
        note = f"a call of the thread has no output: all {len(full['input'])} items are sent"
        return Continuation(full, None, items, is_kept=is_kept, note=note)
    body = {**request.body, "previous_response_id": thread.response_id}
    body = _with_outputs(body, thread, request)
    return Continuation(body, full if thread.is_whole else None, items, thread.is_whole, is_kept)


def _trimmed(new: Sequence[Item], items: Sequence[Item]) -> str:
    """Return a log line about items that were left out; empty if none were."""
    count = len(items) - len(new)
    return f"trimmed {count} of {len(items)} items that the server has" if count > 0 else ""


def conversation_id(body: Mapping[str, Any]) -> str | None:
    """Return the id of the conversation that a request names, if it names one."""
    given = body.get("conversation")
    found = given.get("id") if isinstance(given, Mapping) else given
    return found if isinstance(found, str) else None


def _estimate(continuation: Continuation, response: Response) -> int:
    read = [continuation.body.get(name) for name in ("instructions", "tools")]
    size = len(msgspec.json.encode(repair_text([*read, continuation.items, response.output])))
    return size // _BYTES_PER_TOKEN
