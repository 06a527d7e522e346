"""Run hosted tools between the rounds of a turn: the policy of the one loop of rounds.

A turn that declares tools of this gateway has this policy. It lists what the model may call, takes
the model's hosted calls out of its answer, runs them, and asks the model again with their
results, in the same response: one builder, one log, one usage.

    | after a round                               | then                                          |
    |---------------------------------------------|-----------------------------------------------|
    | hosted calls alone                          | they run, and the model gets their results    |
    | hosted calls, and calls of the caller's     | they run, and the response ends `completed`   |
    | the same, where the caller gets no items    | nothing runs: the results would be lost, and  |
    | and none are kept for it (chat, Messages)   | the model would call once more                |
    | a call that needs approval                  | the others run; it ends with the request      |
    | more calls than `max_tool_calls`, or than   | they are not run and make no item; the model  |
    | the gateway or the time allows              | is informed once, and then may not call       |
    | no room for another round                   | nothing runs; `incomplete`, `max_messages`    |
    | the answer was cut, or failed               | nothing runs                                  |

A failed tool is not a failed response: its item is failed, and the model gets the reason. This
policy stands before the one that repairs calls, so it sees answers that are repaired already.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import ClassVar, Final

import msgspec

from antiphon.engine.run.cited_text import CitedText
from antiphon.engine.run.hosted_calls import GatheredCall, HostedCalls
from antiphon.engine.run.hosted_runs import CallNote, HostedRuns, Intents, Work
from antiphon.engine.run.rounds import Next, Policy, RoundEnd, Rounds
from antiphon.engine.run.turn_charges import TurnCharges
from antiphon.plans.hosted_choice import allow_found, allow_hosted, selects
from antiphon.plans.hosted_functions import HostedFunction
from antiphon.plans.hosted_offers import load_hidden, offer_hosted
from antiphon.plans.plan import Plan
from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.call_ids import CallIds, taken_in
from antiphon.protocol.citations import Pattern
from antiphon.protocol.deltas import (
    Delta,
    ItemPassed,
    Reported,
    Stopped,
)
from antiphon.protocol.errors import BackendError
from antiphon.protocol.hosted import data_of, is_made_by_program
from antiphon.protocol.items import Item, Part, item_type
from antiphon.protocol.program_calls import caller_field
from antiphon.protocol.response import Usage
from antiphon.protocol.tools import ToolPolicy
from antiphon.tools.base import (
    Answer,
    Ask,
    Decline,
    HostedCall,
    Outcome,
    ShownResult,
    Start,
    ToolLimits,
    ToolSession,
)
from antiphon.tools.results import cap_result

__all__ = ["Hosted", "HostedSetup"]

_log = logging.getLogger(__name__)
_CLOSE_SECONDS: Final = 5.0
_NO_ID: Final = "call"
_CUT_NOTE: Final = "tools: hosted calls of an answer that was cut are not run"
_LOST_NOTE: Final = (
    "tools: hosted calls beside calls of the caller's were not run: their results cannot be kept"
)
_NEEDS_APPROVAL: Final = "it needs the approval of the user, so a program cannot call it"
_LIMIT_NOTE: Final = "max_tool_calls: further calls of hosted tools were not run"
_OVER: Final = "not run: this response may make no more calls of hosted tools; answer without it"


class HostedSetup(msgspec.Struct, frozen=True):
    """What the policy needs of the turn that it belongs to."""

    sessions: Mapping[str, ToolSession]
    """The sessions by the kinds of tools that they run."""
    limits: ToolLimits
    intents: Intents
    note: CallNote
    name: str
    """How the turn is named in the log of the gateway: the id of the response."""
    most_calls: int
    """How many calls may be run: `max_tool_calls`, or less."""
    seconds: float
    """How long they may take together."""
    give_up: Callable[[], Awaitable[None]]
    """Gives back the approvals of a turn that cannot be made."""
    patterns: Sequence[Pattern] = ()
    """What the answer is looked at for, to be annotated."""
    results: list[ShownResult] = []
    """What the sessions can see of each other: results that the model was shown."""
    deferred: list[HostedFunction] | None = None
    """Functions that a search of this turn may find; None if there is no search."""
    callable: list[HostedFunction] = []
    """Functions that programs of this turn may call."""
    returns_items: bool = True
    """Whether what was done here is in the context again, if the caller has to go on itself."""
    names_calls: bool = False
    """Whether calls of the caller's get ids of ours: what was done here is found by them."""

    @property
    def degraded(self) -> list[str]:
        """What the sessions cannot honour."""
        return [note for one in dict.fromkeys(self.sessions.values()) for note in one.degraded]


class _Result(msgspec.Struct, frozen=True):
    """A call, and what the model gets for it; None while its caller has to approve it."""

    call: HostedCall
    alias: str
    result: str | list[Part] | None


class Hosted(Policy):
    """Runs the hosted calls of a turn."""

    sees: ClassVar[bool] = True

    def __init__(self, setup: HostedSetup, charges: TurnCharges) -> None:
        self._setup = setup
        self._charges = charges
        self._sessions = tuple(dict.fromkeys(setup.sessions.values()))
        self._cites = CitedText(setup.patterns) if setup.patterns else None
        self._functions: list[HostedFunction] | None = None  # None until they were listed
        self._runs: HostedRuns
        self._plan: Plan
        self._answer: HostedCalls
        self._ids: CallIds
        self._loaded: set[str] = set()  # hidden tools of the caller's that a search has found
        self._found: list[HostedFunction] = []  # and hosted functions
        self._approved: list[_Result] = []  # what the model gets first
        self._rounds = 0  # in which it has answered
        self._made = 0
        self._is_over = False  # the model knows that it may call no more

    # Before a round.

    async def prepare(self, plan: Plan, rounds: Rounds) -> Plan | None:
        """Offer the hosted functions; list them, and run approved calls, the first time."""
        if self._functions is None:
            self._functions = []
            deadline = asyncio.get_running_loop().time() + self._setup.seconds
            setup = self._setup
            self._runs = HostedRuns(
                setup.limits, setup.intents, setup.note, deadline, setup.name, self._charges
            )
            self._deadline = deadline
            self._ids = CallIds(is_taken=taken_in(plan.items))
            await self._list(plan, rounds)
            await self._run_approved(self._offer(plan), rounds)
            if any(one.result is None for one in self._approved):
                rounds.spend(Usage())
                rounds.stop(Stopped("stop"))
                return None  # the caller has to answer a program first
        # A context that is shortened before the first answer does not have them yet.
        plan = self._offer(self._with_results(plan, [], self._approved))
        self._plan, self._answer = plan, HostedCalls(plan, names_calls=self._setup.names_calls)
        if self._cites is not None:
            self._cites.begin_round()
        return plan

    async def _list(self, plan: Plan, rounds: Rounds) -> None:
        """Ask every session what may be called, and emit what it reports."""
        for session in self._sessions:
            async for found in _within(session.prepare(), self._setup.limits.list_seconds):
                if isinstance(found, HostedFunction):
                    self._sort_in(found, plan)
                else:
                    await rounds.emit([found])

    def _sort_in(self, found: HostedFunction, plan: Plan) -> None:
        """Note a function for those who may call it: the model, programs, what a search finds."""
        assert self._functions is not None
        hidden = self._setup.deferred
        if hidden is not None and found.is_deferred and not selects(plan.policy, found):
            hidden.append(found)
            return
        if plan.toolbox.may_call("programmatic", found):
            self._setup.callable.append(found)
        if plan.toolbox.may_call("direct", found):
            self._functions.append(found)

    def _offer(self, plan: Plan) -> Plan:
        """Return the plan with the hosted functions in it. Raise BackendError if one is missing."""
        assert self._functions is not None
        toolbox = load_hidden(offer_hosted(plan.toolbox, self._functions), self._loaded)
        found = {toolbox.hosted_alias(one.namespace, one.name) for one in self._found}
        policy = allow_found(allow_hosted(plan.policy, toolbox), toolbox, self._loaded | found)
        if policy.mode == "required" and not any(map(policy.allows, toolbox.aliases)):
            raise BackendError(
                "tool_choice forces a tool that is not available now", code="tool_unavailable"
            )
        return msgspec.structs.replace(plan, toolbox=toolbox, policy=policy)

    async def _run_approved(self, plan: Plan, rounds: Rounds) -> None:
        """Run what the caller has approved, and nothing else, before the model is asked."""
        work: list[tuple[HostedCall, ToolSession]] = [
            (call, session) for session in self._sessions for call in session.approved
        ]
        if work:
            calls = [(call, _alias_of(call, plan.toolbox)) for call, _ in work]
            self._approved = await self._settle(calls, rounds)

    # What the model produces.

    @property
    def note_text(self) -> Callable[[str], object] | None:
        """Notes a text that is forwarded unseen; None while a filter looks at it."""
        cites = self._cites
        if self._answer.is_growing or (cites is not None and cites.is_holding):
            return None
        if cites is None or cites.looks_for is None:
            return self._answer.note_text
        return partial(_note_both, self._answer.note_text, cites.note)

    @property
    def looks_for(self) -> re.Pattern[str] | None:
        """What the filter has to look at."""
        return self._cites.looks_for if self._cites is not None else None

    def see(self, batch: Sequence[Delta]) -> Sequence[Delta]:
        """Return the deltas without the hosted calls."""
        forwarded: list[Delta] = []
        for delta in batch:
            found = self._answer.take(delta)
            if found is not None:
                forwarded += [found] if self._cites is None else self._cites.take(found)
        return forwarded

    # After a round.

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        """Run the hosted calls of the answer; return the round that goes on with their results."""
        self._answer.end_round()
        if self._cites is not None and (rest := self._cites.finish()):
            await rounds.emit(rest)
        calls = self._answer.calls
        if end.error is not None or end.stop is None:
            return None
        self._rounds += 1
        if not calls:
            return None
        if end.stop.reason != "stop":
            await rounds.emit([Reported(_CUT_NOTE)])
            return None
        if self._rounds >= self._setup.limits.rounds:
            await self._stop_at_last_round(rounds)
            return None
        if self._is_over:
            return None  # it was informed, and is not asked again
        if self._answer.has_client_calls and not self._setup.returns_items:
            await rounds.emit([Reported(_LOST_NOTE)])
            return None
        results = await self._settle([self._read(call) for call in calls], rounds)
        has_asked = any(one.result is None for one in results)
        if has_asked or self._answer.has_client_calls:
            return None
        return self._next(results, rounds)

    async def _stop_at_last_round(self, rounds: Rounds) -> None:
        most = self._setup.limits.rounds
        note = f"tools: the model was asked {most} times; its last calls were not run"
        await rounds.emit([Reported(note)])
        rounds.stop(Stopped("rounds"))

    def _read(self, gathered: GatheredCall) -> tuple[HostedCall, str]:
        call = HostedCall(
            function=self._plan.toolbox.functions[gathered.alias],
            arguments=gathered.arguments.strip() or "{}",
            call_id=self._ids.claim(self._wished_id(gathered)),
        )
        return call, gathered.alias

    def _wished_id(self, gathered: GatheredCall) -> str:
        """Return the id of a call. What is kept by it must not meet another conversation's."""
        if self._setup.names_calls:
            return f"{_NO_ID}_{self._setup.name.removeprefix('resp_')}"
        return gathered.call_id or _NO_ID

    async def _settle(
        self, calls: Sequence[tuple[HostedCall, str]], rounds: Rounds
    ) -> list[_Result]:
        """Decide on the calls, run those that may run, and return what the model gets for each."""
        decided = [self._decide(call) for call, _ in calls]
        work = [
            Work(call, self._session_of(call), start)
            for (call, _), start in zip(calls, decided, strict=True)
            if isinstance(start, Start)
        ]
        outcomes = iter(await self._run_to_end(work, rounds) if work else ())
        results: list[_Result] = []
        requests: list[Delta] = []
        for (call, alias), decision in zip(calls, decided, strict=True):
            result: str | list[Part] | None = None
            match decision:
                case Start():
                    result = self._result_of(next(outcomes), call)
                case Ask():
                    requests.append(ItemPassed(decision.item))
                case Decline():
                    result = decision.result
            results.append(_Result(call, alias, result))
        if self._is_over:
            requests.insert(0, Reported(_LIMIT_NOTE))
        if requests:
            await rounds.emit(requests)
        return results

    async def _run_to_end(self, work: Sequence[Work], rounds: Rounds) -> list[Outcome]:
        """Run calls, with those that programs among them make, until nothing is left to run."""
        outcomes = await self._runs.run(work, rounds)
        for number, one in enumerate(work):
            is_open = msgspec.structs.replace(one.start, is_open=True)
            again = Work(one.call, one.session, is_open)
            while calls := outcomes[number].calls:
                one.session.answer(one.call, await self._run_inner(one.call, calls, rounds))
                (outcomes[number],) = await self._runs.run([again], rounds)
        return outcomes

    async def _run_inner(
        self, program: HostedCall, calls: Sequence[HostedCall], rounds: Rounds
    ) -> list[Answer]:
        """Run the hosted calls of a program; return what became of each."""
        decided = [self._decide(call) for call in calls]
        work = [
            Work(call, self._session_of(call), _called_by(program, start))
            for call, start in zip(calls, decided, strict=True)
            if isinstance(start, Start)
        ]
        outcomes = iter(await self._runs.run(work, rounds) if work else ())
        answers: list[Answer] = []
        for decision in decided:
            match decision:
                case Start():
                    outcome = next(outcomes)
                    answers.append(Answer([outcome.item, *outcome.also]))
                case Ask():
                    answers.append(Answer(problem=_NEEDS_APPROVAL))
                case Decline():
                    answers.append(Answer(problem=decision.result))
        return answers

    def _decide(self, call: HostedCall) -> Start | Ask | Decline:
        late = asyncio.get_running_loop().time() >= self._deadline
        if self._made >= self._setup.most_calls or late:
            self._is_over = True
            return Decline(result=_OVER)
        decision = self._session_of(call).decide(call)
        self._made += isinstance(decision, Start)
        return decision

    def _session_of(self, call: HostedCall) -> ToolSession:
        return self._setup.sessions[call.function.kind]

    def _result_of(self, outcome: Outcome, call: HostedCall) -> str | list[Part] | None:
        assert self._functions is not None
        if outcome.result is None:
            return None
        self._functions += outcome.functions
        self._found += outcome.functions
        self._loaded.update(outcome.loads)
        capped = cap_result(outcome.result, self._setup.limits.result_bytes)
        if not outcome.has_failed:
            self._setup.results.append(ShownResult(call.function.kind, capped))
        return data_of(call.function.name, capped)

    # The next round.

    def _next(self, results: Sequence[_Result], rounds: Rounds) -> Next | None:
        plan = self._with_results(self._plan, self._answer.context(), results)
        limit = plan.max_output_tokens
        if limit is not None and (spent := rounds.usage) is not None:
            limit -= spent.output_tokens
            if limit <= 0:
                rounds.stop(Stopped("length"))
                return None
        policy = _after_a_call(plan)
        if self._is_over:
            policy = _without_hosted(plan, policy)
        plan = msgspec.structs.replace(plan, policy=policy, max_output_tokens=limit)
        self._approved = []  # they are in the plan
        return Next(plan, is_longer=True)

    def _with_results(
        self, plan: Plan, context: Sequence[Item], results: Sequence[_Result]
    ) -> Plan:
        settled = [one for one in results if one.result is not None]
        items, settled = _end_programs(plan.items, settled)
        calls = list(map(_call_item, settled))
        outputs = list(map(_output_item, settled))
        items = [*items, *context, *calls, *outputs]
        return msgspec.structs.replace(plan, items=items)

    async def close(self) -> None:
        """Release what the sessions hold, and what is known of the intents of this turn."""
        for session in self._sessions:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await session.close()
            except Exception as error:  # noqa: BLE001 - the end of a turn must not be lost by it
                name, cause = self._setup.name, type(error).__name__
                _log.error("%s: a hosted tool was not closed: %s", name, cause)
        await self._setup.intents.close()


def _called_by(program: HostedCall, start: Start) -> Start:
    item = {**start.item, "caller": caller_field(program.call_id)}
    return msgspec.structs.replace(start, item=item)


def _note_both(first: Callable[[str], object], second: Callable[[str], object], text: str) -> None:
    first(text)
    second(text)


def _alias_of(call: HostedCall, toolbox: Toolbox) -> str:
    return toolbox.hosted_alias(call.function.namespace, call.function.name)


def _after_a_call(plan: Plan) -> ToolPolicy:
    """Return the policy of the next round: a call that was required has been made."""
    if plan.policy.mode != "required":
        return plan.policy
    return ToolPolicy("auto", plan.policy.allowed)


def _without_hosted(plan: Plan, policy: ToolPolicy) -> ToolPolicy:
    """Return the policy without the hosted functions."""
    allowed = {alias for alias in plan.toolbox.aliases if policy.allows(alias)}
    left = frozenset(allowed - plan.toolbox.functions.keys())
    return ToolPolicy(policy.mode, left) if left else ToolPolicy("none")


def _call_item(one: _Result) -> Item:
    return {
        "type": "function_call",
        "call_id": one.call.call_id,
        "name": one.alias,
        "arguments": one.call.arguments,
    }


def _end_programs(
    items: Sequence[Item], results: Sequence[_Result]
) -> tuple[list[Item], list[_Result]]:
    """Return the items as the model is shown them, and the results that are not among them.

    Calls that programs made are left out: their results are for the program. The end of a program
    that waited for them follows it at once.
    """
    by_call = {one.call.call_id: one for one in results}
    made = [item for item in items if is_made_by_program(item)]
    hidden = {item["call_id"] for item in made if item.get("call_id")}
    shown: list[Item] = []
    for item in items:
        if is_made_by_program(item) or item.get("call_id") in hidden:
            continue
        shown.append(item)
        ended = by_call.get(str(item.get("call_id"))) if item_type(item) == "program" else None
        if ended is not None:
            shown.append(_output_item(by_call.pop(ended.call.call_id)))
    return shown, [*by_call.values()]


def _output_item(one: _Result) -> Item:
    return {"type": "function_call_output", "call_id": one.call.call_id, "output": one.result}


async def _within(
    found: AsyncIterator[Delta | HostedFunction], seconds: float
) -> AsyncIterator[Delta | HostedFunction]:
    """Yield what a session lists. Raise BackendError when that takes too long."""
    deadline = asyncio.get_running_loop().time() + seconds
    async with aclosing(found) as given:  # type: ignore[type-var]  # they are generators
        while True:
            try:
                async with asyncio.timeout_at(deadline) as limit:
                    one = await anext(given, None)
            except TimeoutError:
                if not limit.expired():
                    raise
                why = f"the tools were not listed within {seconds:g} seconds"
                raise BackendError(why, code="tool_unavailable") from None
            if one is None:
                return
            yield one
