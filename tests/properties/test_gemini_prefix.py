"""Turn n of a conversation, as Gemini gets it, is a byte prefix of turn n + 1.

A server can reuse what it has computed only for the same bytes. That holds also for the dummy
signatures of calls that another model made, and for signatures that come back.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from antiphon.plans.plan import Plan
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import NATIVE
from antiphon.wires.gemini.contents import write_contents
from antiphon.wires.gemini.profiles import generation_of
from antiphon.wires.gemini.request import write_request
from antiphon.wires.gemini.signatures import Signed, SignedState, write_state
from tests.wires.gemini.judge import GEMINI, judge

WORDS = st.sampled_from(["look", "it is there", "\u2028", "a\nb"])
MODELS = st.sampled_from(["gemini-2.5-flash", "gemini-3-flash-preview"])


def thought(kind: str, attach: str, account: str) -> Item:
    state = SignedState(kind, (Signed(1, 0, "U2ln"),), "x1" if kind == "part" else None)  # type: ignore[arg-type]  # one of three
    native = write_state(state, account, attach)  # type: ignore[arg-type]  # one of two
    return {"type": "reasoning", "summary": [], NATIVE: native}


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Item]]:
    """Return the items of each exchange: those of the user, then the answer."""
    exchanges: list[list[Item]] = []
    waiting: list[str] = []
    for number in range(draw(st.integers(2, 5))):
        asked: list[Item] = [
            {"type": "function_call_output", "call_id": one, "output": draw(WORDS)}
            for one in waiting
        ]
        if not asked or draw(st.booleans()):
            asked.append({"type": "message", "role": "user", "content": draw(WORDS)})
        if draw(st.booleans()):
            asked.append({"type": "message", "role": "developer", "content": f"note {number}"})
        waiting = [f"{number}_{one}" for one in range(draw(st.integers(0, 2)))]
        exchanges.append([*asked, *draw(_answer(waiting))])
    return exchanges


@st.composite
def _answer(draw: st.DrawFn, call_ids: list[str]) -> list[Item]:
    account = draw(st.sampled_from(["me", "another"]))
    items: list[Item] = []
    if not call_ids or draw(st.booleans()):
        part = {"type": "output_text", "text": draw(WORDS)}
        items.append({"type": "message", "role": "assistant", "content": [part]})
        items += [thought("text", "previous", account)] if draw(st.booleans()) else []
    for place, call_id in enumerate(call_ids):
        if not place and draw(st.booleans()):
            items.append(thought("part", "next", account))
        items.append(
            {"type": "function_call", "call_id": call_id, "name": "look", "arguments": '{"b": 1}'}
        )
    return items


@given(exchanges=conversations(), model=MODELS)
def test_contents_of_a_turn_are_a_prefix_of_those_of_the_next(
    exchanges: list[list[Item]], model: str
) -> None:
    rendered = []
    for count in range(1, len(exchanges)):
        past = [item for exchange in exchanges[:count] for item in exchange]
        asked = [item for item in exchanges[count] if is_asked(item)]
        plan = Plan(model=model, items=[*past, *asked])
        _, contents, _ = write_contents(plan, generation_of(model), "me")
        rendered.append(msgspec.json.encode(contents))
        body, _ = write_request(plan, GEMINI, "me")
        judge(msgspec.json.decode(msgspec.json.encode(body)))
    for before, after in pairwise(rendered):
        assert after.startswith(before[:-1]), "without the bracket that ends the list"


def is_asked(item: Item) -> bool:
    return item["type"] == "function_call_output" or item.get("role") in ("user", "developer")
