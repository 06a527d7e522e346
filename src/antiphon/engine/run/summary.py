"""Let the model write down what a conversation was about.

The model reads the items as they are, under the caller's own instructions, and is then asked
for notes to itself. What is too long for it is read in pieces, each with the notes on those
before it. An item that is too long alone loses its middle, and that is reported. A summary is
never empty: the model that writes none has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from antiphon.engine.run.ask_route import ask_route
from antiphon.engine.run.turn_charges import TurnCharges
from antiphon.plans.estimate import BYTES_PER_TOKEN, estimate_tokens
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta, Stopped, TextGrew
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.protocol.items import Item
from antiphon.protocol.tools import ToolPolicy
from antiphon.routing.candidates import Route
from antiphon.transport.aside import aside_if

__all__ = ["Summariser", "cut_texts"]

_MAX_CALLS: Final = 32
_MAX_SUMMARY: Final = 256 * 1024
_MIN_TEXT: Final = 256
_TEXTS: Final = frozenset({"text", "content", "output", "arguments", "input"})
# Reports about items by their place, or about tools that are not called, concern nobody here.
_IRRELEVANT: Final = ("input[", "tool_choice", "tools", "parallel_tool_calls", "max_output_tokens")

_ORDER: Final = """\
Stop here for a moment. The conversation above is about to be removed from your memory, and \
all that you keep is what you write now. Write notes to yourself that let you go on as if \
nothing had been removed. Do not answer the last message and call no tool: only write the notes.

Cover, as far as the conversation has it:
- what the user wants, in the end and right now, with every condition and preference they gave;
- what was decided, and why, and what was tried and given up;
- facts that were learnt: names, numbers, dates, paths, identifiers, commands, exact wordings;
- results of tools that still matter, with the values themselves, not only that they exist;
- what is done, what is still open, and the very next step.

Be complete but brief. Copy names, paths and figures exactly; invent nothing. Leave out \
greetings and what has no bearing on what comes next. Write plain text in the language of the \
conversation."""
_NOTES_SO_FAR: Final = "[Notes on the part of the conversation before this one.]\n\n"


class Summariser:
    """Writes one summary. Knows afterwards what was lost on the way.

    `context` is how many tokens the model takes, if that is known; `charges` pay for it.
    """

    def __init__(
        self,
        route: Route,
        plan: Plan,
        context: int | None,
        charges: TurnCharges,
        check_reader: Callable[[], None] = lambda: None,
    ) -> None:
        self._check_reader = check_reader
        self._notes: list[str] = []
        self._route = route
        self._plan = plan
        self._context = context
        self._charges = charges
        self._calls = 0

    @property
    def notes(self) -> list[str]:
        """What could not be honoured, each once."""
        return list(dict.fromkeys(self._notes))

    async def write(self, items: Sequence[Item]) -> str:
        """Return the summary of these items. Raise BackendError if the model gives none."""
        waiting = list(items)
        room = None if self._context is None else self._context // 2
        notes = ""
        while waiting:
            if self._calls >= _MAX_CALLS:
                raise ContextOverflow(
                    f"the conversation is too long to be summed up in {_MAX_CALLS} steps"
                )
            piece = await aside_if(self._plan.is_large, _take, waiting, room)
            try:
                notes = await self._ask([_note(notes), *piece] if notes else piece)
            except ContextOverflow:
                if len(piece) > 1:
                    room = estimate_tokens(piece) // 2
                else:
                    waiting[0] = self._cut(waiting[0])
            else:
                del waiting[: len(piece)]
        return notes

    def _cut(self, item: Item) -> Item:
        """Return the item with half of its text; what is in the middle goes."""
        half = estimate_tokens(item) * BYTES_PER_TOKEN // 2
        if half < _MIN_TEXT:
            raise ContextOverflow("the conversation cannot be compacted: it is too long in total")
        self._notes.append("compaction: the middle of an item was too long to be summed up")
        return cut_texts(item, half)

    async def _ask(self, items: Sequence[Item]) -> str:
        self._calls += 1
        plan = _summary_plan(self._plan, items)
        answer = _Notes(self._check_reader)
        with suppress(_TooLong):
            await ask_route(self._route, plan, (), answer, self._charges, kind="compaction")
        self._notes += [note for note in answer.degraded if not note.startswith(_IRRELEVANT)]
        return self._judge(answer.text.strip()[:_MAX_SUMMARY], answer.reason)

    def _judge(self, text: str, reason: str | None) -> str:
        if reason is None:
            raise BackendError("the model broke off", code="upstream_closed")
        if not text:
            raise BackendError(
                "the model wrote no summary, so nothing was compacted; try again, "
                "or compact with another model",
                code="upstream_invalid_response",
            )
        if reason != "stop":
            self._notes.append("compaction: the summary was cut off at the model's limit")
        return text


class _TooLong(Exception):
    """The model writes more than a summary may have."""


class _Notes:
    """Takes the notes that a model writes."""

    def __init__(self, check_reader: Callable[[], None]) -> None:
        self.check_reader = check_reader
        """See `RoundsSink`."""
        self.text = ""
        self.reason: str | None = None
        self.degraded: list[str] = []

    def push(self, batch: Sequence[Delta]) -> bool:
        for delta in batch:
            match delta:
                case TextGrew():
                    self.text += delta.text
                case Stopped():
                    self.reason = delta.reason
                case _:
                    pass
        if len(self.text) > _MAX_SUMMARY:
            self.reason = "length"
            raise _TooLong
        return True

    async def drained(self) -> None:
        return

    async def settled(self) -> None:
        """Return at once: nothing of this is logged."""

    def note_degraded(self, notes: Sequence[str], *, is_said: bool) -> None:
        self.degraded += notes

    def begin_round(self, plan: Plan, *, continues: bool) -> None:
        self.check_reader()


def cut_texts(item: Item, size: int) -> Item:
    """Return the item with texts of at most about `size` characters, cut in the middle."""
    return {name: _cut_field(name, value, size) for name, value in item.items()}


def _cut_field(name: str, value: Any, size: int) -> Any:  # any JSON value
    if isinstance(value, list):
        return [cut_texts(part, size) if isinstance(part, dict) else part for part in value]
    if name not in _TEXTS or not isinstance(value, str) or len(value) <= size:
        return value
    half = size // 2
    text = f"{value[:half]}\n[… {len(value) - 2 * half} characters left out …]\n{value[-half:]}"
    # Servers read the arguments of a call as JSON.
    return msgspec.json.encode({"cut": text}).decode() if name == "arguments" else text


def _summary_plan(plan: Plan, items: Sequence[Item]) -> Plan:
    """Return the plan that asks for a summary: same model and tools, but none may be called."""
    return msgspec.structs.replace(
        plan,
        items=[*items, _said(_ORDER)],
        stream=True,
        policy=ToolPolicy("none"),
        parallel_tool_calls=None,
        format=None,
        verbosity=None,
        max_output_tokens=None,
        logprobs=False,
        top_logprobs=None,
    )


def _take(items: Sequence[Item], room: int | None) -> list[Item]:
    """Return the first items that have room together, at least one."""
    if room is None:
        return list(items)
    taken = [items[0]]
    size = estimate_tokens(items[0])
    for item in items[1:]:
        size += estimate_tokens(item)
        if size > room:
            break
        taken.append(item)
    return taken


def _note(notes: str) -> Item:
    return _said(_NOTES_SO_FAR + notes)


def _said(text: str) -> Item:
    return {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": text}],
    }
