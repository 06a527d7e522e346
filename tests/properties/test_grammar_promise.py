"""No custom call that violates its grammar ever reaches a client.

The road is the real one: a gateway in front of a chat server that plays a careless model. Which
texts belong to a grammar is decided by judges that share nothing with us
(`tests.grammar_maker`), before anything is asked.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.protocol.events import CustomInputDelta
from antiphon.testing import ScriptedUpstream, serve_gateway
from antiphon.testing.gateway import Gateway
from antiphon.testing.script import Call, Json, Script
from tests.asking import ask, ask_stream, terminal
from tests.grammar_maker import MadeGrammar, make_grammar


class Careless:
    """A model that says what it is told to, one text for each time it is asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def answer(self, body: Json) -> Script:
        name = body["tools"][0]["function"]["name"]
        arguments = msgspec.json.encode({"input": self.texts.pop(0)}).decode()
        return Script(calls=[Call(name, arguments)])


def tool(made: MadeGrammar) -> dict[str, Any]:
    form = {"type": "grammar", "syntax": made.syntax, "definition": made.definition}
    return {"type": "custom", "name": "write", "description": "", "format": form}


async def handed(gateway: Gateway, model: Careless, made: MadeGrammar, *texts: str) -> list[str]:
    """Return the inputs that a client gets when the model says these texts in turn."""
    model.texts = [*texts]
    events = await ask_stream(gateway, tools=[tool(made)])
    told = "".join(event.delta for event in events if isinstance(event, CustomInputDelta))
    inputs = [item["input"] for item in terminal(events).output if "input" in item]
    assert told == "".join(inputs)
    assert model.texts == []

    model.texts = [*texts]
    whole = (await ask(gateway, tools=[tool(made)])).json
    assert [item["input"] for item in whole["output"] if "input" in item] == inputs
    return inputs


@pytest.mark.parametrize("first", range(0, 200, 20))
async def test_a_call_against_its_grammar_never_reaches_a_client(first: int) -> None:
    model = Careless()
    async with (
        ScriptedUpstream(model.answer, remember=False) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
    ):
        for number in range(first, first + 20):
            made = make_grammar(number)
            good = made.good[0]
            assert await handed(gateway, model, made, good) == [good]
            for bad in made.bad[:1]:
                assert await handed(gateway, model, made, bad, good) == [good]
                assert await handed(gateway, model, made, bad, made.bad[-1]) == []
