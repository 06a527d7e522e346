"""The response as it begins: what the specification wants echoed, in its words."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.protocol.codec import encode_event, encode_response
from antiphon.protocol.echo import first_response
from antiphon.protocol.events import ResponseCreated
from antiphon.protocol.request import read_request
from antiphon.protocol.response import Notes, Reasoning, Response
from antiphon.protocol.tool_list import ToolList, WrittenTools
from antiphon.store.encoding import encode_turn
from tests.building import assessed


def begun(**fields: Any) -> Response:
    request = read_request({"input": "x", **fields})
    return first_response(request, assessed(request).degraded, "resp_1", "m", 7)


def test_what_was_not_asked_for_is_echoed_as_its_default() -> None:
    assert begun() == Response(id="resp_1", model="m", created_at=7, reasoning=Reasoning())


def test_what_was_asked_for_is_echoed() -> None:
    response = begun(
        temperature=0.0,
        store=False,
        user="u",
        metadata={"a": "b"},
        reasoning={"effort": "low", "generate_summary": "auto"},
        text={"verbosity": "low"},
        truncation="auto",
    )

    assert (response.temperature, response.store, response.user) == (0.0, False, "u")
    assert response.metadata == {"a": "b"}
    assert response.reasoning == Reasoning("low", "auto")
    assert response.text == {"format": {"type": "text"}, "verbosity": "low"}
    assert response.truncation == "auto"


def test_schemas_tools_and_choices_get_the_keys_that_are_required() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {}}
    tools = [{"type": "function", "name": "f"}, {"type": "web_search"}]
    choice = {"type": "allowed_tools", "tools": [tools[0]]}

    response = begun(text={"format": form}, tools=tools, tool_choice=choice)

    assert response.text == {"format": form | {"description": None, "strict": False}}
    assert response.tools == [
        {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None},
        {"type": "web_search"},
    ]
    assert response.tool_choice == choice | {"mode": "auto"}


def test_what_cannot_be_honoured_is_noted() -> None:
    assert begun().antiphon is UNSET
    assert begun(tools=[{"type": "web_search"}]).antiphon == Notes(
        degraded=("tools[0] (web_search): it cannot be run here",)
    )


def test_tools_that_were_read_before_are_written_the_same_in_every_event() -> None:
    tools = [{"type": "function", "name": f"é{n}", "parameters": {"a": n}} for n in range(3)]
    plain, kept = begun(tools=tools), begun(tools=ToolList(tools, 9))
    assert isinstance(kept.tools, WrittenTools)
    assert kept.tools == plain.tools
    for response in (kept, msgspec.structs.replace(kept, status="completed", output=[])):
        again = msgspec.structs.replace(response, tools=plain.tools)
        events = [ResponseCreated(sequence_number=1, response=one) for one in (response, again)]
        assert encode_response(response) == encode_response(again)
        assert encode_event(events[0]) == encode_event(events[1])
        assert encode_turn(response) == encode_turn(again)
