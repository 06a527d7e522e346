"""Make a long conversation short: the model sums it up, and the sum takes its place.

What stays word for word: system and developer messages, the newest user messages as far as
there is room for them, and calls that wait for their output. All the rest is in the summary,
which is sealed into one compaction item; `window` puts it back in its place.

It happens at `POST /v1/responses/compact` (`compact`), and inside a turn (`Compaction`): when
the input ends in a compaction_trigger, after which there is nothing to say, or when the
context has grown over the caller's threshold, after which the model goes on. Then the newest
turn stays as it is if it is not the very thing that is too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.engine.prepare.seal import HOW_TO, Sealer
from antiphon.engine.prepare.window import (
    Memory,
    digest_of,
    is_standing,
    is_user_message,
    remember,
    seal_memory,
)
from antiphon.engine.run.rounds import Policy, Rounds
from antiphon.engine.run.summary import Summariser, cut_texts
from antiphon.engine.run.turn_charges import TurnCharges
from antiphon.plans.estimate import estimate_tokens, estimate_usage
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Degraded, Delta, ItemPassed, Stopped
from antiphon.protocol.errors import InvalidRequest, NotBuilt
from antiphon.protocol.families import answers, is_call, is_output
from antiphon.protocol.items import Item, Part, as_given, item_type, with_id
from antiphon.protocol.machines.builder import Mint
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Usage
from antiphon.routing.candidates import Route
from antiphon.transport.aside import aside_if

__all__ = ["Compacted", "Compaction", "compact", "compaction_of"]

_MAX_KEPT_TOKENS: Final = 20_000
_MAX_COVERED: Final = 10_000
# What is sealed must be accepted back: a compaction item may hold 10 MiB.
_MAX_SEALED_PART: Final = 128 * 1024
_MAX_SEALED_TEXT: Final = 1024 * 1024
_TEXT_PARTS: Final = frozenset({"input_text", "output_text", "text", "refusal"})
_TOO_LARGE: Final = "compaction: attachments over 128 KiB and texts over 1 MiB are not kept whole"


class Compacted(msgspec.Struct, frozen=True):
    """A compacted conversation: the items that take its place, and what that cost."""

    output: list[Item]
    usage: Usage
    is_estimated: bool
    degraded: list[str]


class _Division(msgspec.Struct, frozen=True):
    """A context, divided: what stands, what users said, what is summed up, what comes behind."""

    standing: list[Item]
    said: list[Item]
    """User messages that stay."""
    gone: list[Item]
    """User messages that only the summary knows."""
    told: list[Item]
    """What the summary is made of: everything that is not behind it."""
    behind: list[Item]


async def compact(
    route: Route,
    plan: Plan,
    owner: str,
    sealer: Sealer,
    mint: Mint,
    charges: TurnCharges,
) -> Compacted:
    """Return the context of a plan in short, as items to begin the next request with.

    Raise InvalidRequest if there is nothing to compact, BackendError if the model gives no
    summary.
    """
    context = route.context_length
    division = await aside_if(plan.is_large, _divide_whole, plan.items, _kept(context))
    writer = Summariser(route, plan, context, charges)
    summary = await writer.write(division.told)
    # The messages that stay are in the output, and the caller may yet drop one.
    stay = set(map(digest_of, division.said))
    covered = [digest for digest in map(digest_of, division.gone) if digest not in stay]
    memory = Memory(summary=summary, covered=covered[-_MAX_COVERED:])
    sealed = seal_memory(memory, owner, sealer)
    kept = [*division.standing, *division.said, sealed, *division.behind]
    return Compacted(
        [with_id(as_given(item), mint) for item in kept],
        charges.usage,
        charges.basis != "reported",
        writer.notes,
    )


def compaction_of(
    request: CreateResponse,
    owner: str,
    sealer: Sealer | None,
    route: Route,
    charges: TurnCharges,
) -> Compaction | None:
    """Return the policy that compacts when the request asks for it, or None if it does not.

    Raise NotBuilt if the request asks for nothing else and nothing can be sealed here.
    """
    if request.only_compacts:
        if sealer is None:
            raise NotBuilt(f"compaction is not possible here: {HOW_TO}", param="input")
        return Compaction(owner, sealer, None, route, charges)
    threshold = request.compact_threshold
    if threshold is None or sealer is None:
        return None
    return Compaction(owner, sealer, threshold, route, charges)


class Compaction(Policy):
    """Compact the context before the model is asked. Without a threshold, do only that."""

    def __init__(
        self,
        owner: str,
        sealer: Sealer,
        threshold: int | None,
        route: Route,
        charges: TurnCharges,
    ) -> None:
        self._owner = owner
        self._sealer = sealer
        self._threshold = threshold
        self._route = route
        self._context = route.context_length
        self._charges = charges

    async def prepare(self, plan: Plan, rounds: Rounds) -> Plan | None:
        """Compact if it is time to; return the plan with what is left."""
        threshold = self._threshold
        if threshold is None:
            kept = _kept(self._context)
            division = await aside_if(plan.is_large, _divide_whole, plan.items, kept)
            await self._sum_up(plan, division, rounds)
            rounds.stop(Stopped("stop"))
            return None
        usage = await aside_if(plan.is_large, estimate_usage, plan, ())
        if usage.input_tokens <= threshold:
            return plan
        limit = min(threshold, self._context or threshold)
        most = min(_MAX_KEPT_TOKENS, limit // 2)
        division = await aside_if(plan.is_large, _divide_for_answer, plan.items, _kept(limit), most)
        if _gain(division) < max(1, threshold // 4):
            return plan
        memory = await self._sum_up(plan, division, rounds)
        return msgspec.structs.replace(plan, items=remember(memory, division.standing))

    async def _sum_up(self, plan: Plan, division: _Division, rounds: Rounds) -> Memory:
        """Let the model write the summary, and emit it sealed."""
        writer = Summariser(self._route, plan, self._context, self._charges, rounds.check_reader)
        memory = _keep(await writer.write(division.told), division)
        await rounds.emit([*map(Degraded, writer.notes), *self._pass(memory)])
        return memory

    def _pass(self, memory: Memory) -> list[Delta]:
        """Return the deltas that hand the memory over, and what had to be left out of it."""
        sealed = msgspec.structs.replace(
            memory, before=_slim(memory.before), behind=_slim(memory.behind)
        )
        notes = [Degraded(_TOO_LARGE)] if sealed != memory else []
        return [*notes, ItemPassed(seal_memory(sealed, self._owner, self._sealer))]


def _keep(summary: str, division: _Division) -> Memory:
    """Return a memory that holds all it keeps itself."""
    users = [*division.gone, *division.said, *filter(is_user_message, division.behind)]
    return Memory(
        summary=summary,
        before=division.said,
        behind=division.behind,
        covered=[digest_of(message) for message in users[-_MAX_COVERED:]],
    )


def _kept(limit: int | None) -> int:
    return _MAX_KEPT_TOKENS if limit is None else min(_MAX_KEPT_TOKENS, limit // 4)


def _divide_whole(items: Sequence[Item], budget: int) -> _Division:
    """Divide a context of which only calls that wait for their output come behind."""
    if all(is_standing(item) for item in items):
        raise InvalidRequest("there is nothing to compact", code="invalid_value", param="input")
    division = _divide(items, _open_calls(items), budget)
    if not any(item for item in division.told if not is_standing(item)):
        raise InvalidRequest(
            "there is nothing to compact but calls that wait for their output; send it first",
            code="invalid_value",
            param="input",
        )
    return division


def _divide_for_answer(items: Sequence[Item], budget: int, newest_budget: int) -> _Division:
    """Divide a context that the model goes on from: the newest turn is not summed up.

    If the turn is too long, its last calls with their outputs stay. What the user said last
    always stays.
    """
    user = _last_user(items)
    behind = _open_calls(items)
    for start in (user, _last_calls(items)):
        if start is not None and estimate_tokens(list(items[start:])) <= newest_budget:
            behind |= set(range(start, len(items)))
            break
    return _divide(items, behind | _calls_of(items, behind), budget, always=user)


def _divide(
    items: Sequence[Item], behind: set[int], budget: int, *, always: int | None = None
) -> _Division:
    """Divide a context. User messages stay from the newest on, as far as the budget goes."""
    behind = {index for index in behind if not is_standing(items[index])}
    said: list[Item] = []
    gone: list[Item] = []
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        if index in behind or not is_user_message(item):
            continue
        budget -= estimate_tokens(item)
        (said if budget >= 0 or index == always else gone).append(item)
    return _Division(
        standing=[item for item in items if is_standing(item)],
        said=said[::-1],
        gone=gone[::-1],
        told=[item for index, item in enumerate(items) if index not in behind],
        behind=[items[index] for index in sorted(behind)],
    )


def _gain(division: _Division) -> int:
    """Return how many tokens a summary would take the place of."""
    newest = division.said[-1:]
    told = [item for item in division.told if not is_standing(item) and item not in newest]
    return estimate_tokens(told)


def _open_calls(items: Sequence[Item]) -> set[int]:
    """Return the places of the calls whose output is not there."""
    outputs = {answers(item) for item in items if is_output(item)}
    return {
        index
        for index, item in enumerate(items)
        if is_call(item) and outputs.isdisjoint({answers(item), item.get("id")})
    }


def _calls_of(items: Sequence[Item], places: set[int]) -> set[int]:
    """Return the places of the calls whose outputs stand at these places."""
    newest: dict[object, int] = {}
    found: set[int] = set()
    for index, item in enumerate(items):
        if is_call(item):
            newest |= dict.fromkeys((answers(item), item.get("id")), index)
        elif index in places and is_output(item) and answers(item) in newest:
            found.add(newest[answers(item)])
    return found


def _last_user(items: Sequence[Item]) -> int | None:
    places = (index for index in range(len(items) - 1, -1, -1) if is_user_message(items[index]))
    return next(places, None)


def _last_calls(items: Sequence[Item]) -> int | None:
    """Return where the calls begin whose outputs end the context, with the thought before them."""
    start = len(items)
    while start and is_output(items[start - 1]):
        start -= 1
    if start == len(items):
        return None
    while start and (is_call(items[start - 1]) or item_type(items[start - 1]) == "reasoning"):
        start -= 1
    return start


def _slim(items: list[Item]) -> list[Item]:
    """Return the items as they are sealed: without large attachments, with long texts cut."""
    return [
        cut_texts(_without_attachments(given), _MAX_SEALED_TEXT) for given in map(as_given, items)
    ]


def _without_attachments(item: Item) -> Item:
    lists = {
        name: [_slim_part(part) for part in value]
        for name, value in item.items()
        if isinstance(value, list)
    }
    return item | lists


def _slim_part(part: Part) -> Part:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXT_PARTS or len(msgspec.json.encode(part)) <= _MAX_SEALED_PART:
        return part
    return {"type": "input_text", "text": f"[{kind} left out when the conversation was compacted]"}
