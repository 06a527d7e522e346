"""Stores one turn while it runs.

Events are in the log before any client sees them. A turn that is not streamed has no log, only
its beginning and its end, which is written once. Events come in by `post`; those of the end by
`finish`, with the response. A turn goes through these phases:

    NEW ── begin_early ──> OPENING ── settled ──> OPEN ── post … ──> OPEN ── stop ──> ENDING
     │                        │                    ^                                     │
     │                        └── abandon ──> NEW  │                             finish ─┴──> ENDED
     ├── queue, take_over, settled after post ─────┘
     └── settled, when the store refuses ──> LOST (the store may have taken it all the same)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Final

import msgspec

from antiphon.accounts.loop_share import Way
from antiphon.accounts.principal import Principal
from antiphon.engine.keep.live import Channel, Live
from antiphon.engine.keep.pending_writes import Defer
from antiphon.engine.run.sinks import NO_READER, EventSink, catch_up
from antiphon.protocol.errors import StoreUnavailable, TurnLost
from antiphon.protocol.events import Event, sequence_of
from antiphon.protocol.items import Item
from antiphon.protocol.machines.log import pack_events, split_events
from antiphon.protocol.response import Response
from antiphon.store.base import Batch, Entry, Store
from antiphon.store.promise import Promise, promised, promised_soon

__all__ = ["Phase", "StoragePolicy", "TurnLog"]

# Events that may wait while others are written: the reader gets them together. A reader that
# keeps up may be sent more at once with each batch, so that a fast stream needs few commits; one
# that stops reading costs what it may be sent, twice.
_FEW_EVENTS: Final = 64
_MORE_EVENTS: Final = 32
_MOST_EVENTS: Final = 2048
# Characters of an end that are packed together.
_LONG: Final = 1024 * 1024


class Phase(Enum):
    """How far the turn is in the store."""

    NEW = auto()
    OPENING = auto()
    """The beginning is being stored early; the first post must confirm it."""
    OPEN = auto()
    ENDING = auto()
    ENDED = auto()
    LOST = auto()
    """Storing the beginning failed; the store may have taken it all the same."""


_OPEN: Final = Phase.OPEN
_BEGUN: Final = frozenset({Phase.OPEN, Phase.ENDING, Phase.ENDED})


class StoragePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be remembered of a turn.

    `conversation` is the one that the turn has locked and adds to when it has answered.
    """

    principal: Principal
    items: Sequence[Item]
    is_stored: bool
    is_logged: bool
    may_roll_back: bool = False
    """No client knows of the turn before its first event is shown."""
    conversation: str | None = None
    has_error_event: bool = True


class TurnLog:
    """The memory of one turn. `response` is the response as it begins.

    `clock` returns seconds since the epoch. Each batch of the log has its time by this clock.
    """

    def __init__(
        self,
        store: Store,
        live: Live,
        policy: StoragePolicy,
        response: Response,
        defer: Defer,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._clock = clock
        # `created_at` has whole seconds; a turn that begins now knows the fraction too.
        self._began = now if (now := clock()) < response.created_at + 1 else response.created_at
        self._defer = defer
        self._live = live
        self._policy = policy
        self._owner = policy.principal.owner
        self._response = response
        self._unshown: list[Event] = []
        self._writing: Promise[bool] | asyncio.Future[bool] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._written = 0  # how many of the unshown that is about
        self._posts = 0  # how many events came since
        self._most = _FEW_EVENTS  # and how many may come
        self._trouble: Exception | None = None
        self._channel: Channel | None = None
        self._opening: Promise[None] | None = None
        self._early: list[Event] = []  # what is stored early
        self._is_queued = False
        self.phase = Phase.NEW
        self.is_cancelled = False
        """The turn is to be cancelled, perhaps asked for in another process."""
        self._is_read = True  # whether the reader keeps up with what it is shown
        self.sink: EventSink = NO_READER
        """Is shown what was posted as soon as it is durable."""
        self.way: Way | None = None
        """The right of way of the request, until its first events are shown, or its model is
        what it waits for."""
        self.alarm: Callable[[Exception], None] | None = None
        """Called with an error about what was posted, if nothing waits for that at the moment."""

    async def queue(self, events: list[Event], request: bytes) -> None:
        """Begin a turn that waits to be run, with what is needed to run it elsewhere."""
        policy = self._policy
        queued = msgspec.structs.replace(self._response, status="queued")
        self._unshown = events
        await self._store.begin(
            self._owner, queued, policy.items, batch=self._pack(events), request=request
        )
        self._unshown = []
        self.take_over()

    def take_over(self) -> None:
        """Go on with a turn that is in the store already."""
        self.phase, self._is_queued = _OPEN, True
        self._channel = self._live.open(self._owner, self._response.id)

    @property
    def has_begun(self) -> bool:
        """Whether the turn is in the store, or need not be, so that it must end."""
        return self.phase in _BEGUN

    @property
    def may_begin_early(self) -> bool:
        """Whether the beginning may be stored before there is anything to show."""
        policy = self._policy
        return policy.may_roll_back and policy.is_logged and self.phase is Phase.NEW

    @property
    def keeps_entries(self) -> bool:
        """Whether `finish` stores entries: there is none of a response that is not stored."""
        return self._policy.is_stored

    def begin_early(self, events: list[Event]) -> None:
        """Store the beginning while the model is asked: it is shown that much earlier.

        When there is something to show, `post` these events again, with what follows them. A turn
        that is abandoned before that is removed again: no client knows of it.
        """
        self._early = events
        self.phase = Phase.OPENING
        store = partial(self._store_beginning, self._pack(events))
        if self.way is None:  # the request to the model goes out first
            self._opening = promised_soon(store)
        else:  # there may be much to do before the next pass of the loop
            self._opening = promised(store)
            self._opening.add_done_callback(self._note_opened)

    async def opened(self) -> None:
        """Wait until a beginning that is stored early is stored, or could not be."""
        if self._opening is not None:
            await self._opening.arrived()

    def end_way(self) -> None:
        """Give up the right of way, if the turn has it."""
        if self.way is not None:
            self.way.end()
            self.way = None

    def _note_opened(self, _: Promise[None]) -> None:
        if not self._unshown:  # the model has sent nothing yet
            self.end_way()

    def post(self, events: list[Event]) -> bool:
        """Log these events, and show them as soon as they are durable, in their order.

        Return whether more may be posted at once: not if the reader or the store is behind, or
        the turn is to be cancelled. Then await `settled` before the next. The first events of a
        turn that has not begun always wait for it.
        """
        if events:
            self._unshown += events
            if self.phase is not _OPEN:
                return False
            if not self._policy.is_logged:
                self._show(len(self._unshown))
            elif self._writing is None:
                self._write_down()
            else:
                self._posts += len(events)
        return (
            self._is_read
            and self._posts <= self._most
            and self._trouble is None
            and not self.is_cancelled
        )

    async def settled(self) -> None:
        """Wait until what was posted is durable and shown, and the reader has room for more.

        A turn that has not begun begins now. Raise StoreUnavailable if that cannot be stored,
        ReaderGone if the client has disconnected.
        """
        if self.phase is _OPEN:
            if self._writing is not None:
                await self._quiet()
            if self._trouble is not None:
                self._own_up(self._trouble)
        else:
            self._show(await self._begin())
        if self.sink is not NO_READER:
            await catch_up(self.sink)
        if self.way is not None:
            self.end_way()
        self._is_read = True
        if self._unshown:
            self._write_down()  # what was posted after a beginning that was stored early

    async def stop(self) -> None:
        """Leave what is not in the log yet to the end. Raise what broke.

        But not what the store could not do: an end that it can write makes up for that.
        """
        self.phase = Phase.ENDING
        if self._writing is not None:
            await self._quiet()
        if self._trouble is not None and not isinstance(self._trouble, StoreUnavailable):
            self._own_up(self._trouble)

    async def finish(
        self, events: list[Event], response: Response, entries: Sequence[Entry] = ()
    ) -> list[Event]:
        """Make the end durable, with all entries; return the events that may be shown then.

        `response` is the one of the last event, with the native states that are stored.
        Raise StoreUnavailable if it could not be; `events` are then forgotten.
        """
        policy = self._policy
        answered = response.status in ("completed", "incomplete")
        said = [*policy.items, *response.output] if answered and policy.conversation else []
        if not policy.is_stored:
            await self._tell_conversation(said)
            self.phase = Phase.ENDED
            return events
        await self.stop()
        last = self._unshown + events
        try:
            rest = await self._log_long_end(last) if policy.is_logged else []
            await self._store.finish(
                self._owner,
                response,
                batch=self._pack(rest) if rest else None,
                said=said,
                entries=entries,
            )
        finally:
            if self._channel is not None:
                self._live.close(self._owner, response.id)
        self._unshown = []
        self.phase = Phase.ENDED
        return last

    async def _log_long_end(self, events: list[Event]) -> list[Event]:
        """Write all but the last piece of the end into the log; return that piece.

        Packed together, the events that repeat a long answer would take several times its size.
        """
        if self._trouble is not None:
            return events
        *pieces, rest = split_events(events, _LONG)
        status = "in_progress" if self._is_queued else None
        for piece in pieces:
            await self._store.append(
                self._owner, self._response.id, self._pack(piece), status=status
            )
        return rest

    def defer_end(
        self, events: list[Event], response: Response, entries: Sequence[Entry] = ()
    ) -> None:
        """Queue a retry for a terminal event that was sent but not stored."""
        policy = self._policy
        if not policy.is_stored:
            return
        batch = self._pack(events) if policy.is_logged else None
        write = partial(self._store.finish, self._owner, response, batch=batch, entries=entries)
        self._defer(write, is_in_doubt=not self.has_begun)

    async def abandon(self) -> None:
        """Give up a turn that never began."""
        policy = self._policy
        if self._opening is not None:
            await self._undo()
        if policy.conversation is None:
            return
        unlock = partial(
            self._store.conversations.unlock, self._owner, policy.conversation, self._response.id
        )
        try:
            await unlock()
        except StoreUnavailable:
            self._defer(unlock)

    def unshown(self) -> list[Event]:
        """Return, and forget, what could not be remembered and was not shown."""
        events, self._unshown = self._unshown, []
        return events

    async def _begin(self) -> int:
        """Store the beginning, if it is to be stored; return how many events may be shown."""
        policy = self._policy
        if not policy.is_stored:
            self.phase = _OPEN
            return len(self._unshown)
        count, begin = len(self._early), self._opening
        if begin is not None and self._unshown[:count] != self._early:
            # It begins otherwise than we had thought that it would.
            if not await self._undo():
                raise StoreUnavailable("what was begun cannot be undone now; try again")
            begin = None
        if begin is None:
            count = len(self._unshown)
            batch = self._pack(self._unshown) if policy.is_logged else None
            begin = promised(partial(self._store_beginning, batch))
        self._early, self._opening, self.phase = [], None, Phase.NEW
        try:
            await begin
        except StoreUnavailable:
            self.phase = Phase.LOST
            raise
        except asyncio.CancelledError:
            # A turn that is left now has begun, if the store took it, and must end.
            await begin.arrived()
            self.phase = _OPEN if begin.error is None else Phase.LOST
            raise
        finally:
            del begin  # it holds its error, whose traceback holds this frame
        self.phase = _OPEN
        if policy.is_logged:
            self._channel = self._live.open(self._owner, self._response.id)
        return count

    def _store_beginning(self, batch: Batch | None) -> Awaitable[None]:
        return self._store.begin(self._owner, self._response, self._policy.items, batch=batch)

    async def _undo(self) -> bool:
        """Remove a stored beginning that was never shown; return whether it is surely gone.

        `_opening` stays set until then, so that a caller that is cancelled here can call again.
        """
        opening = self._opening
        assert opening is not None
        await opening.arrived()
        is_in_doubt = opening.error is not None
        forget = partial(self._store.forget, self._owner, self._response.id)
        is_gone = not is_in_doubt
        try:
            await forget()
        except StoreUnavailable:
            is_gone = False
        if not is_gone:
            self._defer(forget, is_in_doubt=is_in_doubt)
        self._opening, self.phase = None, Phase.NEW
        return is_gone

    def _write_down(self) -> None:
        """Put into the log what is not there yet. One batch of a turn is on its way at a time."""
        if self._trouble is not None:
            return
        status = "in_progress" if self._is_queued else None
        self._written = len(self._unshown)
        self._posts = 0
        try:
            appended = self._store.append(
                self._owner, self._response.id, self._pack(self._unshown), status=status
            )
        except StoreUnavailable as error:
            self._trouble = error
            asyncio.get_running_loop().call_soon(self._report)  # after our caller has returned
            return
        if not isinstance(appended, Promise):
            appended = asyncio.ensure_future(appended)
        self._writing = appended
        appended.add_done_callback(self._note_written)

    def _note_written(self, done: Promise[bool] | asyncio.Future[bool]) -> None:
        self._writing = None
        try:
            self.is_cancelled = done.result()
            self._is_queued = False
            self._show(self._written)
            if self._unshown and self.phase is _OPEN:
                self._write_down()
        except asyncio.CancelledError:  # with every other task, when the loop ends
            self._trouble = StoreUnavailable("the gateway ends; the log was not written")
        except Exception as error:  # noqa: BLE001 # no caller is above us; `settled` raises it
            self._trouble = error
        if self._waiter is not None or self._trouble is not None:
            self._report()

    def _report(self) -> None:
        """Wake the waiter when no write is under way; without one, report an error to `alarm`."""
        if self._writing is not None:
            return
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
        elif self._trouble is not None and self.alarm is not None:
            self.alarm(self._trouble)

    def _own_up(self, trouble: Exception) -> None:
        """Raise what went wrong. What broke is raised once: an end must still be possible."""
        if not isinstance(trouble, StoreUnavailable):
            self._trouble = None
        raise trouble

    def _show(self, count: int) -> None:
        """Show the first of the events that are not shown: they are durable now."""
        events, rest = self._unshown, []
        if count < len(events):
            rest = events[count:]
            del events[count:]
        self._unshown = rest
        if self._channel is not None:
            self._channel.publish(events)  # to followers
        self._is_read = is_read = self.sink.show(events)
        if not is_read:
            self._most = max(self._most // 2, _FEW_EVENTS)
        elif self._most < _MOST_EVENTS:
            self._most = min(self._most + _MORE_EVENTS, _MOST_EVENTS)

    async def _quiet(self) -> None:
        """Wait until nothing is on its way to the log."""
        while self._writing is not None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def _tell_conversation(self, said: list[Item]) -> None:
        """Add to the conversation the output of a response that is not stored."""
        conversation = self._policy.conversation
        if conversation is None:
            return
        unlock = partial(
            self._store.conversations.unlock, self._owner, conversation, self._response.id
        )
        try:
            is_ours = await unlock(said)
        except StoreUnavailable:
            self._defer(unlock)  # the turn ends as failed, and adds nothing
            raise
        if not is_ours:
            raise TurnLost(f"the conversation {conversation!r} is not this turn's any more")

    def _pack(self, events: list[Event]) -> Batch:
        first = sequence_of(events[0])
        at = int((self._clock() - self._began) * 1000) if first else 0
        body = pack_events(
            events, has_error_event=self._policy.has_error_event, at=at if at > 0 else 0
        )
        return Batch(first, first if len(events) == 1 else sequence_of(events[-1]), body)
