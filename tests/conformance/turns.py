"""Turns of every kind, as an upstream plays them, and what must come of each."""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.testing import Call, Cut, Script
from tests.conformance.judges import Json
from tests.conformance.model import MODEL

__all__ = ["MIXED", "TOOLS", "TURNS", "Turn"]

TOOLS: Final[list[Json]] = [
    {
        "type": "function",
        "name": name,
        "description": f"Get the {name.removeprefix('get_')} of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
    for name in ("get_weather", "get_time")
]
_PARIS: Final = Call("get_weather", '{"city": "Paris, France"}', "call_w")
_TOKYO: Final = Call("get_time", '{"city": "Tokyo, Japan"}', "call_t")
_THOUGHT: Final = "Two things are asked. Two tools know."
_USAGE: Final = {
    "prompt_tokens": 120,
    "completion_tokens": 50,
    "total_tokens": 170,
    "prompt_tokens_details": {"cached_tokens": 100},
    "completion_tokens_details": {"reasoning_tokens": 20},
}


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What the upstream plays, what is asked for besides the model, and what must come of it."""

    script: Script
    asks: Json = {}
    status: str = "completed"
    kinds: tuple[str, ...] = ("message",)
    says: tuple[str, ...] = ()
    """The text of each item, in order: of its parts, or its arguments."""

    @property
    def request(self) -> Json:
        """The body that starts this turn."""
        return {"model": MODEL, "input": "Tell me.", **self.asks}


MIXED: Final = Turn(
    script=Script(
        reasoning=_THOUGHT,
        text="Let me look.",
        calls=[_PARIS, _TOKYO],
        interleave=True,
        usage=_USAGE,
    ),
    asks={"tools": TOOLS},
    kinds=("reasoning", "message", "function_call", "function_call"),
    says=(_THOUGHT, "Let me look.", _PARIS.arguments, _TOKYO.arguments),
)

TURNS: Final[dict[str, Turn]] = {
    "text": Turn(script=Script(text="Good day to you."), says=("Good day to you.",)),
    "reasoning": Turn(
        script=Script(reasoning=_THOUGHT, text="Yes."),
        kinds=("reasoning", "message"),
        says=(_THOUGHT, "Yes."),
    ),
    "summary": Turn(
        script=Script(reasoning=_THOUGHT, text="Yes."),
        asks={"reasoning": {"summary": "auto"}},
        kinds=("reasoning", "message"),
        says=(_THOUGHT, "Yes."),
    ),
    "refusal": Turn(script=Script(refusal="I would rather not."), says=("I would rather not.",)),
    "call": Turn(
        script=Script(calls=[_PARIS]),
        asks={"tools": TOOLS},
        kinds=("function_call",),
        says=(_PARIS.arguments,),
    ),
    "parallel calls": Turn(
        script=Script(calls=[_PARIS, _TOKYO]),
        asks={"tools": TOOLS},
        kinds=("function_call", "function_call"),
        says=(_PARIS.arguments, _TOKYO.arguments),
    ),
    "interleaved calls": Turn(
        script=Script(calls=[_PARIS, _TOKYO], interleave=True),
        asks={"tools": TOOLS},
        kinds=("function_call", "function_call"),
        says=(_PARIS.arguments, _TOKYO.arguments),
    ),
    "mixed": MIXED,
    "length": Turn(
        script=Script(text="Once upon a", finish_reason="length"),
        status="incomplete",
        says=("Once upon a",),
    ),
    "length in a call": Turn(
        script=Script(calls=[Call("get_weather", '{"city": "Par')], finish_reason="length"),
        asks={"tools": TOOLS},
        status="incomplete",
        kinds=("function_call",),
        says=('{"city": "Par',),
    ),
    "content filter": Turn(
        script=Script(text="Here is how you", finish_reason="content_filter"),
        status="incomplete",
        says=("Here is how you",),
    ),
    "failure": Turn(
        script=Script(text="The answer is that nobody", faults=[Cut(after=4)]),
        status="failed",
        says=("The answer is",),
    ),
    "empty answer": Turn(script=Script(text=""), kinds=()),
}
