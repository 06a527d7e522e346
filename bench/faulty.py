"""An upstream whose faults its clients choose: a mark in the prompt names the fault it gets.

So the sender knows of each failure whether a fault explains it. The answer to a prompt is what
`kill_load` expects; a request with tools gets a call first. After half of its healthy answers
the connection is closed unannounced while it is idle; half of these closes cross the next request.
Runs as a process of its own and prints the port it listens on.

    python bench/faulty.py [SEED]
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections.abc import Callable
from typing import Final

from kill_load import MODEL, Json, answer_to

from antiphon.testing import (
    Call,
    Close,
    Cut,
    Empty,
    ErrorChunk,
    Fault,
    Garbage,
    Html,
    IdleClose,
    Reset,
    Script,
    ScriptedUpstream,
    Stall,
    Status,
)

__all__ = ["FAULTS", "arguments_for", "mark", "serial"]

_TOKEN_SECONDS: Final = 0.01
_IDLE_SECONDS: Final = 0.5
_MARK: Final = re.compile(r"\[(\w+) (\d+)( once)?\]")
# What the upstream does with a prompt that holds such a mark.
FAULTS: Final[dict[str, Callable[[int], Fault]]] = {
    "unavailable": lambda _: Status(503),
    "broken": lambda _: Status(500),
    "busy": lambda _: Status(429, headers={"Retry-After": "1"}),
    "reset": Reset,
    "cut": Cut,
    "close": Close,
    "garbage": Garbage,
    "error": ErrorChunk,
    "stall": Stall,
    "html": lambda _: Html(),
    "empty": lambda _: Empty(),
}


def mark(fault: str, after: int, once: str) -> str:
    """Return what asks for this fault in a prompt: each time, or for the first attempt only."""
    return f"[{fault} {after}{once}]"


def arguments_for(prompt: str) -> str:
    """Return the arguments of the call that answers a prompt with tools."""
    return f'{{"word": "{serial(prompt)}"}}'


def serial(prompt: str) -> str:
    """Return the number of a prompt, its first word."""
    return prompt.split()[0]


class _Upstream:
    """Plays the model: the prompt says which fault it wants, and the answer follows from it."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._struck: set[str] = set()

    def play(self, body: Json) -> Script:
        last = body["messages"][-1]
        content = last["content"]
        prompt = content if isinstance(content, str) else "".join(p["text"] for p in content)
        faults = [self._fault(prompt) or self._close()]
        if body.get("tools") and last["role"] == "user":
            call = Call("look", arguments_for(prompt), f"call_{serial(prompt)}")
            return Script(calls=[call], faults=[f for f in faults if f], delay=_TOKEN_SECONDS)
        text = answer_to(prompt)
        pieces = 1 if body.get("stream") else len(text.split()) / 2
        return Script(
            text=text,
            faults=[fault for fault in faults if fault],
            delay=_TOKEN_SECONDS * pieces,
            model=MODEL,
        )

    def _fault(self, prompt: str) -> Fault | None:
        found = _MARK.search(prompt)
        if found is None or (found[3] and prompt in self._struck):
            return None
        self._struck.add(prompt)
        return FAULTS[found[1]](int(found[2]))

    def _close(self) -> Fault | None:
        throw = self._dice.random()
        if throw > 1 / 2:
            return None
        return IdleClose(seconds=self._dice.random() * _IDLE_SECONDS, crosses=throw < 1 / 4)


async def _serve(seed: int) -> None:
    play = _Upstream(random.Random(seed)).play
    async with ScriptedUpstream(play, models=[MODEL], remember=False) as upstream:
        print(upstream.base_url.rpartition(":")[2].removesuffix("/v1"), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    from processes import run_loop

    run_loop(_serve(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
