"""Token counts by turn, by response and by conversation.

A turn is started with an estimate of its input and ended by any terminal event, or abandoned
when the stream broke. The server's figures take precedence: they replace the estimate of their
turn, and no estimate ever replaces them. A figure that rests on an estimate is marked as one.
A response that has not ended has no figures yet, and zeros for an answer are none. A turn that
never ran took nothing and is not booked. Nothing is keyed by the model alone: two conversations
with one model stay two. A turn of no conversation is known by its response only.

Listeners are called after the books are updated, outside the lock. They must not raise: a
turn is neither undone nor failed by what happens to a status line (`listeners`).

Memory is bounded: the conversations and responses used longest ago are forgotten first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Literal

import msgspec
from msgspec import UNSET

from antiphon.host.last_used import LastUsed
from antiphon.host.listeners import Listeners, Tasks
from antiphon.protocol.response import Response, Usage, with_total

__all__ = [
    "Listener",
    "Totals",
    "TrackedTurn",
    "TurnEnded",
    "TurnStarted",
    "TurnUsage",
    "Update",
    "UsageTracker",
]

_log: Final = logging.getLogger("antiphon.host")
_ANSWERS: Final = frozenset({"completed", "incomplete"})
_ENDS: Final = _ANSWERS | {"failed", "cancelled"}


class TurnUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn took, once it has ended.

    `usage` is the server's own count, or None if it gave none; then `estimate` is all there is.
    `is_estimate` is also True for figures that the server itself marks as estimated. `status`
    is the response's, or `abandoned` if it came to no end, or `not_run`. A turn of no
    conversation has None for it.
    """

    conversation: str | None
    model: str
    response_id: str | None
    status: str
    usage: Usage | None
    estimate: Usage
    max_input: int | None = None
    is_estimate: bool = False

    @property
    def counted(self) -> Usage:
        """The figures to go by: the server's, else the estimate."""
        return self.estimate if self.usage is None else self.usage


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the turns of a conversation; `estimated_turns` of them rest on estimates."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    total: int = 0
    turns: int = 0
    estimated_turns: int = 0


class TurnStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A request is about to go out. `estimated_input` is all that is known of its size."""

    conversation: str | None
    model: str
    estimated_input: int
    max_input: int | None = None


class TurnEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A turn has ended, well or badly. `totals` are of its conversation, this turn included.

    Without a conversation they are of this turn alone.
    The same turn may end twice: given up at first, then counted by the server after all.
    """

    turn: TurnUsage
    totals: Totals


Update = TurnStarted | TurnEnded
Listener = Callable[[Update], object]
"""Takes each update; what it returns is awaited if it can be. It must not raise."""


class TrackedTurn:
    """A turn under way; the tracker's handle for it. `usage` is there once it has ended."""

    def __init__(self, started: TurnStarted) -> None:
        self.started: Final = started
        self.usage: TurnUsage | None = None
        self._booked_in: _Book | None = None
        self._listening = Tasks()

    async def told(self) -> None:
        """Wait until the asynchronous listeners have handled the updates of this turn."""
        await self._listening.wait()


class UsageTracker:
    """Keeps the books. Safe to use from several threads.

    `max_conversations` and `max_responses` bound what is remembered.
    """

    def __init__(self, *, max_conversations: int = 1000, max_responses: int = 10_000) -> None:
        self._lock = threading.Lock()
        self._books: LastUsed[str, _Book] = LastUsed(max_conversations)
        self._responses: LastUsed[str, TurnUsage] = LastUsed(max_responses)
        self._listeners: Listeners[Update] = Listeners()

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every update from now on. Return a function that stops it.

        It may be asynchronous where turns are booked in an event loop, as a provider does.
        """
        return self._listeners.add(listener)

    def start(
        self,
        conversation: str | None,
        model: str,
        estimated_input: int,
        max_input: int | None = None,
    ) -> TrackedTurn:
        """Begin a turn, of a conversation or of none. `max_input` is what the model takes."""
        started = TurnStarted(
            conversation=conversation,
            model=model,
            estimated_input=estimated_input,
            max_input=max_input,
        )
        turn = TrackedTurn(started)
        self._listeners.notify(started, turn._listening)
        return turn

    def complete(
        self, turn: TrackedTurn, response: Response, *, estimated_output: int = 0
    ) -> TurnUsage:
        """End a turn with its response, whatever its status. Return its final figures.

        `estimated_output` counts only if the server gave no usage.
        """
        return self._end(turn, response, response.status, estimated_output)

    def abandon(
        self, turn: TrackedTurn, partial: Response | None = None, *, estimated_output: int = 0
    ) -> TurnUsage:
        """End a turn whose stream broke. `partial` is what arrived, if anything.

        The turn stays in the books as an estimate, with the status `abandoned`.
        """
        return self._end(turn, partial, "abandoned", estimated_output)

    def discard(self, turn: TrackedTurn) -> TurnUsage:
        """End a turn that never ran: refused, or not sent. It took nothing and is not booked.

        Listeners are called, with the status `not_run`. A turn that has ended stays as it is.
        """
        if turn.usage is not None:
            return turn.usage
        ended = _weigh(turn.started, None, "not_run", 0)
        ended = msgspec.structs.replace(ended, estimate=Usage(), is_estimate=False)
        _log.debug("turn not run")
        totals = self.totals(ended.conversation)
        self._listeners.notify(TurnEnded(turn=ended, totals=totals), turn._listening)
        return ended

    def totals(self, conversation: str | None) -> Totals:
        """Return the sums of a conversation; all zero if it is not known, or no longer."""
        with self._lock:
            book = None if conversation is None else self._books.find(conversation)
            return book.totals if book else Totals()

    def of(self, response_id: str) -> TurnUsage | None:
        """Return what a response took, or None if it is not known, or no longer."""
        with self._lock:
            return self._responses.find(response_id)

    def _end(
        self, turn: TrackedTurn, response: Response | None, status: str, estimated_output: int
    ) -> TurnUsage:
        ended = _weigh(turn.started, response, status, estimated_output)
        with self._lock:
            if turn.usage is not None and _trust(turn.usage) > _trust(ended):
                return turn.usage
            totals = self._book(turn, ended)
        counted = ended.counted
        _log.debug(
            "turn %s: %d tokens in, %d out%s",
            ended.status,
            counted.input_tokens,
            counted.output_tokens,
            ", estimated" if ended.is_estimate else "",
        )
        self._listeners.notify(TurnEnded(turn=ended, totals=totals), turn._listening)
        return ended

    def _book(self, turn: TrackedTurn, ended: TurnUsage) -> Totals:
        book = self._book_of(ended.conversation)
        if turn.usage is not None and turn._booked_in is book:
            book.add(turn.usage, -1)
        book.add(ended, 1)
        turn.usage = ended
        turn._booked_in = book
        self._remember(ended)
        return book.totals

    def _book_of(self, conversation: str | None) -> _Book:
        """Return the book of a conversation; one that is not stored if there is none."""
        if conversation is None:
            return _Book()
        book = self._books.find(conversation)
        if book is None:
            book = _Book()
            self._books.keep(conversation, book)
        return book

    def _remember(self, ended: TurnUsage) -> None:
        if ended.response_id is None:
            return
        known = self._responses.find(ended.response_id)
        if known is None or _trust(known) <= _trust(ended):
            self._responses.keep(ended.response_id, ended)


class _Book:
    """The sums of one conversation."""

    def __init__(self) -> None:
        self.totals = Totals()

    def add(self, turn: TurnUsage, sign: Literal[1, -1]) -> None:
        usage, old = turn.counted, self.totals
        self.totals = Totals(
            input=old.input + sign * usage.input_tokens,
            output=old.output + sign * usage.output_tokens,
            cached=old.cached + sign * usage.input_tokens_details.cached_tokens,
            reasoning=old.reasoning + sign * usage.output_tokens_details.reasoning_tokens,
            total=old.total + sign * with_total(usage).total_tokens,
            turns=old.turns + sign,
            estimated_turns=old.estimated_turns + sign * turn.is_estimate,
        )


def _weigh(
    started: TurnStarted, response: Response | None, status: str, estimated_output: int
) -> TurnUsage:
    usage = _usage_of(response) if response else None
    notes = response.antiphon if response else UNSET
    return TurnUsage(
        conversation=started.conversation,
        model=started.model,
        response_id=(response.id or None) if response else None,
        status=status,
        usage=usage,
        estimate=Usage(
            input_tokens=started.estimated_input,
            output_tokens=estimated_output,
            total_tokens=started.estimated_input + estimated_output,
        ),
        max_input=started.max_input,
        is_estimate=usage is None or (notes is not UNSET and notes.usage == "estimated"),
    )


def _trust(turn: TurnUsage) -> int:
    """Rank figures: counted by the server, estimated by the server, estimated by us."""
    if turn.usage is None:
        return 0
    return 1 if turn.is_estimate else 2


def _usage_of(response: Response) -> Usage | None:
    """Return the server's count, if there is one.

    Figures before the end do not count. An answer with zero tokens was not counted either; only
    a response that failed without output may have used none.
    """
    usage = response.usage
    if usage is None or response.status not in _ENDS:
        return None
    is_zero = not (usage.input_tokens or usage.output_tokens or usage.total_tokens)
    has_answer = response.status in _ANSWERS or bool(response.output)
    return None if is_zero and has_answer else usage
