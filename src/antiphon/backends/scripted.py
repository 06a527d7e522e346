"""A fake model that plays a script, for tests and demonstrations.

A script is what one call of the model does, step by step: deltas, batches of deltas, an error
to raise, an event to wait for. It calls tools by their aliases, as a chat model does. Without a
script the model echoes. It is a backend like any other: what it cannot honour it reports, and
cancelling it stops it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import chain

from antiphon.backends.base import Ask, DeltaSink, ModelInfo, Relayed
from antiphon.backends.lifted import lifted
from antiphon.plans.capabilities import Capabilities
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import (
    CallGrew,
    CallOpened,
    Degraded,
    Delta,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError, NotBuilt
from antiphon.protocol.items import Item, item_type, last_user_text, text_of
from antiphon.protocol.response import Usage
from antiphon.protocol.unwrap import is_object
from antiphon.transport.http import Sending

__all__ = ["Script", "ScriptedBackend", "Step", "echo"]

Step = Delta | Sequence[Delta] | BackendError | asyncio.Event
Script = Iterable[Step]


class ScriptedBackend:
    """Plays `script`: a function from the plan to a script, or one script for each call.

    `plans` are the plans it was given, in order. `stopped_early` counts the calls that were
    cancelled before their script had ended; `stopped` is set when that happens.
    """

    def __init__(
        self,
        script: Callable[[Plan], Script] | Sequence[Script] | None = None,
        *,
        models: Sequence[str] = ("scripted", "echo"),
        enforces: frozenset[str] = frozenset({"format", "arguments"}),
        tool_kinds: frozenset[str] = frozenset(),
        continues: bool = False,
        parts: frozenset[str] = frozenset(),
    ) -> None:
        self.plans: list[Plan] = []
        self.stopped_early = 0
        self.stopped = asyncio.Event()
        self.is_closed = False
        self._script = echo if script is None else script
        self._models = models
        self.capabilities = Capabilities(
            tool_kinds=tool_kinds, enforces=enforces, parts=parts, counts=True, continues=continues
        )
        self.patience = None

    async def open(self, plan: Plan) -> Ask:
        """Take the next script. The `Degraded` deltas it begins with are known beforehand."""
        self.plans.append(plan)
        notes, steps = _leading_notes(self._script_at(len(self.plans) - 1, plan))
        return Ask(notes, lifted(partial(self.play, steps), plan.toolbox))

    async def play(self, steps: Iterable[Step], sink: DeltaSink) -> None:
        """Play a script."""
        is_over = False
        try:
            for step in steps:
                # A real model never answers in the same tick.
                await asyncio.sleep(0)
                match step:
                    case asyncio.Event():
                        await step.wait()
                    case BackendError():
                        is_over = True
                        raise step
                    case _:
                        batch = step if isinstance(step, list | tuple) else (step,)
                        if not sink.push(batch):
                            await sink.drained()
            is_over = True
        finally:
            if not is_over:
                self.stopped_early += 1
                self.stopped.set()

    def _script_at(self, index: int, plan: Plan) -> Script:
        if callable(self._script):
            return self._script(plan)
        if index >= len(self._script):
            raise BackendError(
                f"the scripted model was called {index + 1} times; "
                f"write as many scripts as there are calls (there are {len(self._script)})"
            )
        return self._script[index]

    async def count(self, plan: Plan) -> int | None:
        """Return the input tokens of the next script; nothing is played."""
        try:
            script = self._script_at(len(self.plans), plan)
        except BackendError:
            return None
        steps = script if isinstance(script, list | tuple) or callable(self._script) else ()
        batches = [step if isinstance(step, list | tuple) else (step,) for step in steps]
        known = [delta for batch in batches for delta in batch if isinstance(delta, UsageKnown)]
        return known[-1].usage.input_tokens if known else None

    def relay(
        self, path: str, body: bytes, *, is_streamed: bool, sending: Sending
    ) -> AbstractAsyncContextManager[Relayed]:
        """Refuse: there is no server."""
        raise NotBuilt(f"the scripted model does not answer {path}")

    async def models(self) -> Sequence[ModelInfo]:
        """Return the names it answers to."""
        return [ModelInfo(name) for name in self._models]

    async def close(self) -> None:
        """Remember that it was closed."""
        self.is_closed = True


def _leading_notes(script: Script) -> tuple[list[str], Iterable[Step]]:
    """Return what a script reports before anything else, and the rest of it."""
    notes: list[str] = []
    steps = iter(script)
    for step in steps:
        batch = step if isinstance(step, list | tuple) else (step,)
        if not batch or not all(isinstance(delta, Degraded) for delta in batch):
            return notes, chain((step,), steps)
        notes += [delta.what for delta in batch]
    return notes, ()


def echo(plan: Plan) -> Iterator[Step]:
    """Repeat the last user text, word by word; tokens are words.

    A required tool is called instead: the first allowed one, with the user text as its
    arguments if that is a JSON object and with `{}` otherwise.
    """
    if plan.format is not None:
        yield Degraded("text.format: the echo model repeats what it hears")
    text = last_user_text(plan.items)
    if plan.policy.mode == "required":
        names = (offer.alias for offer in plan.toolbox.offers)
        name = next(filter(plan.policy.allows, names), None)
        if name is not None:
            yield from _call(plan, name, text)
            return
    words = re.findall(r"\s*\S+|\s+$", text)
    limit = plan.max_output_tokens
    spoken = words if limit is None else words[:limit]
    yield from (TextGrew(word) for word in spoken)
    yield [_usage(plan, len(spoken)), Stopped("stop" if spoken == words else "length")]


def _call(plan: Plan, name: str, text: str) -> Iterator[Step]:
    arguments = text if is_object(text) else "{}"
    yield CallOpened(0, name)
    yield CallGrew(0, arguments)
    yield [_usage(plan, len(arguments.split())), Stopped("stop")]


def _usage(plan: Plan, output: int) -> UsageKnown:
    heard = [plan.instructions or "", *map(_heard, plan.items)]
    count = sum(len(text.split()) for text in heard)
    return UsageKnown(Usage(input_tokens=count, output_tokens=output, total_tokens=count + output))


def _heard(item: Item) -> str:
    field = {"function_call": "arguments", "function_call_output": "output"}.get(item_type(item))
    return text_of(item.get(field or "content"))
