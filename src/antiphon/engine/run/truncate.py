"""What to leave out when the context is too long and `truncation` is auto.

The oldest turns go first, half of them at a time. A turn begins with a user message, unless a
call before it has its output after it: a call and its output always go together. If only the
newest turn is left, the oldest calls in it go with their outputs, half of them at a time. System
and developer messages, what the user asked last, and the newest calls always stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import msgspec

from antiphon.engine.run.rounds import Next, Policy, RoundEnd, Rounds
from antiphon.plans.plan import Plan
from antiphon.protocol.errors import ContextOverflow
from antiphon.protocol.families import answers, is_call, is_output
from antiphon.protocol.items import Item, item_type
from antiphon.store.base import RoundKind

__all__ = ["Truncate", "drop_oldest"]


class Truncate(Policy):
    """Ask again with a shorter context if the model cannot take the whole.

    `note` is called with a report of what is left out. Between the rounds of a turn, the context
    is what is left of it so far, with what has been added since.
    """

    kind: ClassVar[RoundKind] = "truncation"

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._plan: Plan
        self._dropped = 0

    async def prepare(self, plan: Plan, rounds: Rounds) -> Plan:
        """Note what is asked."""
        self._plan = plan
        return plan

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        """Return a round without the older half of the context, until no more can go."""
        if rounds.is_answering or not isinstance(end.error, ContextOverflow):
            return None
        shorter = drop_oldest(self._plan.items)
        if shorter is None:
            return None
        self._dropped += len(self._plan.items) - len(shorter)
        # Another deployment may have been asked since, which has its own name for the model.
        self._plan = msgspec.structs.replace(self._plan, items=shorter, model=end.plan.model)
        self._note(f"truncation: the {self._dropped} oldest items were left out")
        return Next(self._plan)


def drop_oldest(items: Sequence[Item]) -> list[Item] | None:
    """Return the context without the older half of its turns, or of the calls of its only turn.

    None if nothing more can go.
    """
    head, turns = _split_turns(items)
    if len(turns) > 1:
        return head + [item for turn in turns[len(turns) // 2 :] for item in turn]
    asked, steps = _split_steps(turns[0] if turns else [])
    if len(steps) < 2:
        return None
    return head + asked + [item for step in steps[len(steps) // 2 :] for item in step]


def _split_turns(items: Sequence[Item]) -> tuple[list[Item], list[list[Item]]]:
    head: list[Item] = []
    turns: list[list[Item]] = []
    for item, is_waiting in _with_waiting(items):
        role = item.get("role") if item_type(item) == "message" else None
        if role in ("system", "developer"):
            head.append(item)
        elif not turns or (role == "user" and not is_waiting):
            turns.append([item])
        else:
            turns[-1].append(item)
    return head, turns


def _split_steps(turn: Sequence[Item]) -> tuple[list[Item], list[list[Item]]]:
    """Return what the user said at the beginning of a turn, and the steps after it.

    A step ends with the last output of its calls.
    """
    asked: list[Item] = []
    steps: list[list[Item]] = []
    is_ended = True
    for item, is_waiting in _with_waiting(turn):
        if not steps and item.get("role") == "user":
            asked.append(item)
        elif is_ended and not is_waiting and not is_output(item):
            steps.append([item])
        elif steps:
            steps[-1].append(item)
        else:  # an output without a call
            asked.append(item)
        is_ended = not steps or is_output(item)
    return asked, steps


def _with_waiting(items: Sequence[Item]) -> Iterator[tuple[Item, bool]]:
    """Yield each item, and whether a call before it has its output after it, or there."""
    outputs = {answers(item) for item in items if is_output(item)}
    waiting: set[str | None] = set()
    for item in items:
        yield item, bool(waiting)
        if is_call(item):
            # An output may name its call by either id.
            waiting |= outputs & {answers(item), item.get("id")}
        elif is_output(item):
            waiting.discard(answers(item))
