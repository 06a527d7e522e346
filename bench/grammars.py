"""Does a custom call that violates its grammar ever reach a client?

Made-up grammars (tests/grammar_maker.py) go through a real gateway in front of a real chat
server that plays a careless model: it breaks the grammar of its tool at a given rate, also when
it is asked again. Whether a text belongs to its grammar was decided before by judges that have
nothing to do with ours. The process ends with 1 if a violating call was handed over.

    python bench/grammars.py [GRAMMARS] [SHARE OF BAD ANSWERS]
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
from tests.asking import ask, ask_stream, terminal
from tests.grammar_maker import MadeGrammar, make_grammar

from antiphon.backends.chat import ChatBackend
from antiphon.testing import ScriptedUpstream, serve_gateway
from antiphon.testing.gateway import Gateway
from antiphon.testing.script import Call, Script

__all__ = ["main"]

GRAMMARS: Final = 200
BAD: Final = 0.5
_TURNS: Final = 4  # for each grammar: two streamed, two whole


@dataclass
class _Count:
    turns: int = 0
    handed: int = 0
    violating: int = 0
    asked_again: int = 0
    mended: int = 0
    failed: int = 0
    unexpected: list[str] = field(default_factory=list)


class _Careless:
    """A model that calls its one tool, and breaks the grammar as often as it is told."""

    def __init__(self, bad: float) -> None:
        self._dice = random.Random(0)
        self._bad = bad
        self.made: MadeGrammar = make_grammar(0)
        self.said: list[str] = []

    def answer(self, body: dict[str, Any]) -> Script:
        is_bad = self.made.bad and self._dice.random() < self._bad
        text = self._dice.choice(self.made.bad if is_bad else self.made.good)
        self.said.append(text)
        name = body["tools"][0]["function"]["name"]
        arguments = msgspec.json.encode({"input": text}).decode()
        return Script(calls=[Call(name, arguments)])


async def _turn(gateway: Gateway, model: _Careless, *, stream: bool, count: _Count) -> None:
    """Run one turn and count what became of it."""
    made, model.said = model.made, []
    form = {"type": "grammar", "syntax": made.syntax, "definition": made.definition}
    body = {
        "input": "Use the tool.",
        "tools": [{"type": "custom", "name": "write", "description": "", "format": form}],
    }
    if stream:
        events = await ask_stream(gateway, **body)
        output = terminal(events).output
        told = [event.delta for event in events if event.type.endswith("call_input.delta")]
    else:
        answer = (await ask(gateway, **body)).json
        output, told = answer.get("output", []), []
    calls = [item["input"] for item in output if item["type"] == "custom_tool_call"]
    count.turns += 1
    count.handed += len(calls)
    count.violating += sum(text not in made.good for text in calls)
    count.violating += stream and "".join(told) not in ["", *made.good]
    count.asked_again += len(model.said) > 1
    count.mended += len(model.said) > 1 and bool(calls)
    count.failed += not calls
    should_fail = len(model.said) == 2 and model.said[-1] in made.bad
    if should_fail == bool(calls):
        count.unexpected.append(made.name)


async def _run(grammars: int, bad: float) -> _Count:
    count, model = _Count(), _Careless(bad)
    async with (
        ScriptedUpstream(model.answer, remember=False) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
    ):
        for number in range(grammars):
            model.made = make_grammar(number)
            for turn in range(_TURNS):
                await _turn(gateway, model, stream=turn % 2 == 0, count=count)
    return count


def main(grammars: int = GRAMMARS, bad: float = BAD) -> int:
    """Run and print the table; return what the process ends with."""
    start = time.monotonic()
    count = asyncio.run(_run(grammars, bad))
    print(f"{grammars} grammars, {count.turns} turns, {bad:.0%} of the answers bad")
    print(f"  calls handed over            {count.handed:6}")
    print(f"  of them violating            {count.violating:6}  (must be 0)")
    print(f"  repairs asked for            {count.asked_again:6}")
    share = count.mended / count.asked_again if count.asked_again else 1.0
    print(f"  repairs that worked          {count.mended:6}  ({share:.0%})")
    print(f"  turns that failed            {count.failed:6}")
    print(f"  turns that ended otherwise   {len(count.unexpected):6}  (must be 0)")
    print(f"  {time.monotonic() - start:.1f} s, the making of the grammars included")
    return 1 if count.violating or count.unexpected else 0


if __name__ == "__main__":
    raise SystemExit(
        main(
            int(sys.argv[1]) if sys.argv[1:] else GRAMMARS,
            float(sys.argv[2]) if sys.argv[2:] else BAD,
        )
    )
