"""What to leave out when the context is too long and `truncation` is auto.

The oldest turns go first, half of them at a time. A turn begins with a user message, unless a
call before it has its output after it: a call and its output always go together. System and
developer messages and the newest turn always stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from antiphon.engine.run.rounds import Next, Policy, RoundEnd, Rounds
from antiphon.plans.plan import Plan
from antiphon.protocol.errors import ContextOverflow
from antiphon.protocol.families import answers, is_call, is_output
from antiphon.protocol.items import Item, item_type

__all__ = ["Truncate", "drop_oldest"]


class Truncate(Policy):
    """Ask again with a shorter context if the model cannot take the whole.

    `note` is called with the shorter plan and a report of what it leaves out.
    """

    def __init__(self, plan: Plan, note: Callable[[Plan, str], None]) -> None:
        self._plan = plan
        self._whole = len(plan.items)
        self._note = note

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        """Return a round without the older half of the turns, until there is only one."""
        if rounds.has_begun or not isinstance(end.error, ContextOverflow):
            return None
        shorter = drop_oldest(self._plan.items)
        if shorter is None:
            return None
        # Another deployment may have been asked since, which has its own name for the model.
        self._plan = msgspec.structs.replace(self._plan, items=shorter, model=end.plan.model)
        dropped = self._whole - len(shorter)
        self._note(self._plan, f"truncation: the {dropped} oldest items were left out")
        return Next(self._plan)


def drop_oldest(items: Sequence[Item]) -> list[Item] | None:
    """Return the context without the older half of its turns, or None if there is but one."""
    head, turns = _split_turns(items)
    if len(turns) < 2:
        return None
    return head + [item for turn in turns[len(turns) // 2 :] for item in turn]


def _split_turns(items: Sequence[Item]) -> tuple[list[Item], list[list[Item]]]:
    head: list[Item] = []
    turns: list[list[Item]] = []
    outputs = {answers(item) for item in items if is_output(item)}
    waiting: set[str | None] = set()
    for item in items:
        role = item.get("role") if item_type(item) == "message" else None
        if role in ("system", "developer"):
            head.append(item)
        elif not turns or (role == "user" and not waiting):
            turns.append([item])
        else:
            turns[-1].append(item)
        if is_call(item):
            # An output may name its call by either id.
            waiting |= outputs & {answers(item), item.get("id")}
        elif is_output(item):
            waiting.discard(answers(item))
    return head, turns
