"""Run the hosted calls of a round together, each at most once.

Some run at a time; their items open in the order of the calls. A call that may have effects
starts only after its intent is durable: `Intents.make_durable` returns when the events that open
its item are in the log, or a row of the journal is written where a turn keeps no log. So after a
crash, what was open may have run, and what was not open has not.

Only the task of the turn emits deltas. The calls run in tasks of their own and report through a
queue, which is bounded: a caller that reads slowly slows them down. Cancelling the turn cancels
all of them; their items are then closed as incomplete with everything else.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from pathlib import PurePath
from typing import Final, Protocol

import msgspec

from antiphon.accounts.refusals import describe_refusal
from antiphon.engine.run.rounds import Rounds
from antiphon.engine.run.turn_charges import TurnCharges, Wanted
from antiphon.plans.aliases import is_plain
from antiphon.protocol.deltas import Delta, ItemClosed, ItemOpened, ItemPassed, ItemProgressed
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.token_counts import NO_TOKENS
from antiphon.store.base.ledger import LineItem, Refused
from antiphon.tools.base import (
    Follow,
    HostedCall,
    Outcome,
    Progress,
    Start,
    ToolFailed,
    ToolLimits,
    ToolSession,
)
from antiphon.tools.results import cap_item

__all__ = ["CallNote", "HostedRuns", "Intents", "Work"]

_log = logging.getLogger(__name__)
_MOST_WAITING: Final = 64
_CLEAN_UP_SECONDS: Final = 5.0
_FRAMES: Final = 5
_BROKE: Final = "the tool broke; the log of the gateway has the reason"
# What opens an item of a type: the event that has its text, or its first stage.
_TEXTS: Final = {
    "mcp_call": ("response.mcp_call_arguments.done", "arguments"),
    "code_interpreter_call": ("response.code_interpreter_call_code.done", "code"),
}
_STAGED: Final = frozenset({"web_search_call", "file_search_call", "image_generation_call"})

_Report = tuple[int, Progress | Follow | Outcome]
"""Something that happened to a call, by its number."""

CallNote = Callable[[str, str, float, str], None]
"""Called with the kind of tool, how a call ended, how many seconds it ran, and its name."""


class Work(msgspec.Struct, frozen=True):
    """A call to run."""

    call: HostedCall
    session: ToolSession
    start: Start


class Intents(Protocol):
    """Makes it durable that calls are about to start."""

    async def make_durable(self, work: Sequence[Work], rounds: Rounds) -> None:
        """Return when a crash cannot hide that these calls may have run.

        Their items were emitted. Raise StoreUnavailable if it cannot be done: nothing starts.
        """
        ...

    async def close(self) -> None:
        """Forget what only a running turn needs. Nothing is raised."""
        ...


class _Timeout(Exception):
    """A call ran longer than it may."""


class HostedRuns:
    """Runs the calls of one turn. `deadline` is the time of the event loop when all must end."""

    def __init__(
        self,
        limits: ToolLimits,
        intents: Intents,
        note: CallNote,
        deadline: float,
        name: str,
        charges: TurnCharges,
    ) -> None:
        self._limits = limits
        self._intents = intents
        self._note = note
        self._deadline = deadline
        self._name = name
        self._charges = charges
        self._opened = 0

    async def run(self, work: Sequence[Work], rounds: Rounds) -> list[Outcome]:
        """Run these calls and emit their items; return the outcomes in the order of the calls."""
        waiting = deque(enumerate(work))
        keys: list[str] = []
        tasks: set[asyncio.Task[None]] = set()
        reports: asyncio.Queue[_Report] = asyncio.Queue(_MOST_WAITING)
        outcomes: dict[int, Outcome] = {}
        followed: set[int] = set()
        try:
            while len(outcomes) < len(work):
                room = self._room(len(keys) - len(outcomes), rounds)
                some = [waiting.popleft() for _ in range(min(room, len(waiting)))]
                if some:
                    keys += await self._open([one for _, one in some], rounds)
                    for number, one in some:
                        tasks.add(asyncio.create_task(self._drive(number, one, reports)))
                deltas: list[Delta] = []
                for number, report in await _take_all(reports):
                    if isinstance(report, Outcome):
                        report = outcomes[number] = self._capped(report, number in followed)
                    deltas += self._deltas_of(keys[number], work[number].start, report)
                    if isinstance(report, Follow):
                        followed.add(number)
                        keys[number] = self._new_key()
                        deltas.append(ItemOpened(keys[number], report.opens))
                await rounds.emit(deltas)
        finally:
            await _stop(tasks)
        return [outcomes[number] for number in range(len(work))]

    def _room(self, running: int, rounds: Rounds) -> int:
        """Return how many calls may start now.

        Raise AntiphonError if nothing more is to be begun, once the calls that run have ended.
        """
        try:
            rounds.check_reader()
        except AntiphonError:
            if running:
                return 0
            raise
        return self._limits.at_once - running

    async def _open(self, some: Sequence[Work], rounds: Rounds) -> list[str]:
        """Open the items of calls that start now; return their keys when that is durable."""
        keys: list[str] = []
        deltas: list[Delta] = []
        for one in some:
            keys.append(self._new_key())
            deltas += [] if one.start.is_open else _opening(keys[-1], one.start.item)
        await rounds.emit(deltas)
        effective = [one for one in some if one.start.has_effects]
        if effective:
            await self._intents.make_durable(effective, rounds)
        return keys

    def _new_key(self) -> str:
        self._opened += 1
        return f"hosted-{self._opened}"

    def _capped(self, outcome: Outcome, is_streamed: bool) -> Outcome:
        if is_streamed:
            return outcome
        item = cap_item(outcome.item, self._limits.stored_bytes)
        return msgspec.structs.replace(outcome, item=item)

    def _deltas_of(
        self, key: str, start: Start, report: Progress | Follow | Outcome
    ) -> list[Delta]:
        if isinstance(report, Progress):
            return [ItemProgressed(key, report.event, report.fields)]
        if isinstance(report, Follow):
            return [ItemClosed(key, report.item)]
        also = map(ItemPassed, report.also)
        if start.is_open:
            return [*also]
        return [ItemClosed(key, report.item, report.usage), *also]

    # One call.

    async def _drive(self, number: int, work: Work, reports: asyncio.Queue[_Report]) -> None:
        """Run a call to its end, whatever it does; report everything."""
        began = asyncio.get_running_loop().time()
        ending = "cancelled"
        try:
            outcome, ending = await self._paid_outcome_of(number, work, reports)
            await reports.put((number, outcome))
        finally:
            seconds = asyncio.get_running_loop().time() - began
            kind, name = work.call.function.kind, work.call.function.name
            shown = name if is_plain(name) else "a tool"  # servers may name theirs anything
            self._note(kind, ending, seconds, shown)
            _log.info("%s: %s call of %s %s, %.3f s", self._name, kind, shown, ending, seconds)

    async def _paid_outcome_of(
        self, number: int, work: Work, reports: asyncio.Queue[_Report]
    ) -> tuple[Outcome, str]:
        """Run a call that may have a price; without room in a budget, do not run it."""
        fee, charges = work.start.fee, self._charges
        if fee is None:
            return await self._outcome_of(number, work, reports)
        wanted = Wanted(kind=fee.kind, served=fee.name, provider=fee.provider, items_cost=fee.cost)
        held = await charges.reserve(wanted, is_limited=await charges.limits_apply())
        if isinstance(held, Refused):
            charges.note_refused(held)
            why = f"not run: {describe_refusal(held)}"
            return work.session.fail(work.call, work.start, why), "failed"
        piece, ending = LineItem(fee.name, 1, fee.cost), "cancelled"
        try:
            outcome, ending = await self._outcome_of(number, work, reports)
            return outcome, ending
        finally:
            match ending:
                case "completed":
                    charges.settle(held, "completed", "reported", NO_TOKENS, [piece])
                case "failed":
                    charges.settle(held, "released", "reported", NO_TOKENS)
                case _:  # it was asked for, and may have been done
                    charges.settle(held, "cancelled", "assumed", NO_TOKENS, [piece])

    async def _outcome_of(
        self, number: int, work: Work, reports: asyncio.Queue[_Report]
    ) -> tuple[Outcome, str]:
        seconds = self._seconds_for(work)
        call, start, session = work.call, work.start, work.session
        try:
            async with aclosing(_until(session.run(call, start), seconds)) as given:
                async for report in given:
                    if isinstance(report, Outcome):
                        return report, "failed" if report.has_failed else "completed"
                    await reports.put((number, report))
        except _Timeout:
            why = f"it took longer than {seconds:g} seconds, and was stopped"
            return session.fail(call, start, why), "timeout"
        except ToolFailed as error:
            return session.fail(call, start, str(error)), "failed"
        except Exception as error:  # noqa: BLE001 - a tool that breaks must not break the turn
            kind, cause = call.function.kind, _cause(error)
            _log.error("%s: a call of %s broke: %s", self._name, kind, cause)
            return session.fail(call, start, _BROKE), "failed"
        _log.error("%s: a call of %s has no outcome", self._name, call.function.kind)
        return session.fail(call, start, _BROKE), "failed"

    def _seconds_for(self, work: Work) -> float:
        allowed = work.start.seconds or self._limits.call_seconds
        left = self._deadline - asyncio.get_running_loop().time()
        return max(0.0, min(allowed, left))


def _opening(key: str, item: Item) -> list[Delta]:
    """Return the deltas that open an item and show what is asked."""
    kind = item_type(item)
    opened: list[Delta] = [ItemOpened(key, item)]
    if kind in _TEXTS:
        event, field = _TEXTS[kind]
        opened.append(ItemProgressed(key, event, {field: item.get(field)}))
    elif kind in _STAGED:
        opened.append(ItemProgressed(key, f"response.{kind}.in_progress"))
    return opened


async def _take_all(reports: asyncio.Queue[_Report]) -> list[_Report]:
    """Wait for a report; return it with all that are there by then, to be emitted together."""
    found = [await reports.get()]
    while not reports.empty():
        found.append(reports.get_nowait())
    return found


async def _until(
    reports: AsyncIterator[Progress | Follow | Outcome], seconds: float
) -> AsyncGenerator[Progress | Follow | Outcome, None]:
    """Yield the reports of a call. Raise _Timeout when it has run for so long by itself."""
    left = seconds
    loop = asyncio.get_running_loop()
    async with aclosing(reports) as given:  # type: ignore[type-var]  # they are generators
        while True:
            began = loop.time()
            try:
                async with asyncio.timeout(left) as limit:
                    report = await anext(given, None)
            except TimeoutError as error:
                if not limit.expired():
                    raise
                raise _Timeout from error
            left -= loop.time() - began
            if report is None:
                return
            yield report


def _cause(error: Exception) -> str:
    """Return what broke and where, without its text, which may hold what a server has sent."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = [f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in reversed(frames)]
    return f"{type(error).__name__} at {', '.join(places)}"


async def _stop(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel what still runs, and give it some time to close its connections."""
    running = {task for task in tasks if not task.done()}
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=_CLEAN_UP_SECONDS)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # it was reported, or the turn ends with an error of its own
