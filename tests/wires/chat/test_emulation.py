"""A call that is forced without the server's help."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from antiphon.plans.plan import Plan, make_plan
from antiphon.protocol.deltas import (
    CallClosed,
    CallGrew,
    CallOpened,
    ReasoningGrew,
    Stopped,
    TextGrew,
)
from antiphon.protocol.request import read_request
from antiphon.wires.chat.emulation import emulate
from antiphon.wires.chat.profiles import PROFILES, Profile
from antiphon.wires.chat.request import write_request
from tests.building import assessed

LLAMA: Final = PROFILES["llamacpp"]
VLLM: Final = PROFILES["vllm"]
GENERIC: Final = PROFILES["generic"]
STOP: Final = Stopped("stop")

WEATHER: Final = {
    "type": "function",
    "name": "weather",
    "description": "Say how it is outside.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CLOCK: Final = {"type": "function", "name": "clock"}
SUM: Final = {
    "type": "custom",
    "name": "sum",
    "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]+ [+] [0-9]+"},
}


def planned(**fields: Any) -> Plan:
    request = read_request({"input": "x", "tool_choice": "required", **fields})
    return make_plan(request, assessed(request), request.items, "m")


def emulated(profile: Profile, **fields: Any) -> Any:  # Any: an emulation, which there must be
    emulation = emulate(planned(**fields), profile)
    assert emulation is not None
    return emulation


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_nothing_is_emulated_unless_a_call_is_required(choice: str) -> None:
    assert emulate(planned(tools=[WEATHER], tool_choice=choice), LLAMA) is None


def test_a_server_that_enforces_is_left_to_it_until_it_has_failed() -> None:
    plan = planned(tools=[WEATHER])

    assert emulate(plan, GENERIC) is None
    assert emulate(msgspec.structs.replace(plan, must_emulate=True), GENERIC) is not None


def test_a_server_without_schemas_cannot_be_made_to() -> None:
    plan = msgspec.structs.replace(planned(tools=[WEATHER]), must_emulate=True)

    assert emulate(plan, PROFILES["deepseek"]) is None


def test_the_model_is_shown_the_tools_in_words_and_can_write_nothing_but_a_call() -> None:
    emulation = emulated(LLAMA, tools=[WEATHER, CLOCK], instructions="Be brief.")

    body, report = write_request(emulation.plan, LLAMA)

    assert report == []
    assert "tools" not in body
    system = body["messages"][0]["content"]
    assert system.startswith("Be brief.")
    assert "Say how it is outside." in system
    schema = body["response_format"]["json_schema"]["schema"]
    names = [call["properties"]["name"]["const"] for call in schema["anyOf"]]
    assert names == ["weather", "clock"]


def test_only_the_tools_that_may_be_called_are_offered() -> None:
    choice = {"type": "function", "name": "clock"}
    emulation = emulated(LLAMA, tools=[WEATHER, CLOCK], tool_choice=choice)

    assert emulation.plan.format["schema"]["properties"]["name"] == {"const": "clock"}


def test_parameters_that_refer_to_their_own_parts_still_find_them() -> None:
    inner = {"$ref": "#/$defs/city", "$defs": {"city": {"type": "object"}}}
    emulation = emulated(LLAMA, tools=[WEATHER | {"parameters": inner}, CLOCK])

    schema = emulation.plan.format["schema"]

    assert schema["anyOf"][0]["properties"]["arguments"] == {"$ref": "#/$defs/tool_0"}
    assert schema["$defs"]["tool_0"]["$ref"] == "#/$defs/tool_0/$defs/city"


def test_the_answer_is_told_as_the_call_it_stands_for() -> None:
    emulation = emulated(LLAMA, tools=[WEATHER, CLOCK])

    early = emulation.feed([ReasoningGrew("hm"), TextGrew('{"name":"weather","argu')])
    late = emulation.feed([TextGrew('ments":{"city": "Rome"}}'), STOP])

    assert list(early) == [ReasoningGrew("hm")]
    assert list(late) == [
        CallOpened(0, "weather"),
        CallGrew(0, '{"city": "Rome"}'),
        CallClosed(0),
        STOP,
    ]


@pytest.mark.parametrize("text", ["well", '{"name":"other","arguments":{}}', '{"name":"weather"'])
def test_an_answer_that_is_no_call_stays_text(text: str) -> None:
    emulation = emulated(LLAMA, tools=[WEATHER])

    assert list(emulation.feed([TextGrew(text), STOP])) == [TextGrew(text), STOP]


def test_an_answer_that_breaks_off_is_not_lost() -> None:
    emulation = emulated(LLAMA, tools=[WEATHER])

    assert list(emulation.feed([TextGrew('{"na')])) == []
    assert emulation.release() == [TextGrew('{"na')]


@pytest.mark.parametrize(
    ("profile", "field"),
    [(LLAMA, "grammar"), (VLLM, "structured_outputs")],
)
def test_the_one_custom_tool_is_bound_by_its_grammar_where_the_server_can(
    profile: Profile, field: str
) -> None:
    emulation = emulated(
        profile, tools=[SUM, WEATHER], tool_choice={"type": "custom", "name": "sum"}
    )

    body, report = write_request(emulation.plan, profile)

    assert field in body
    assert report == []
    assert "tools" not in body
    told = [*emulation.feed([TextGrew('1 + "')]), *emulation.feed([TextGrew("2"), STOP])]
    arguments = "".join(delta.arguments for delta in told if isinstance(delta, CallGrew))
    assert (told[0], msgspec.json.decode(arguments)) == (CallOpened(0, "sum"), {"input": '1 + "2'})
    assert told[-2:] == [CallClosed(0), STOP]


def test_among_several_tools_a_grammar_binds_nobody() -> None:
    emulation = emulated(LLAMA, tools=[SUM, WEATHER])

    assert emulation.plan.format["type"] == "json_schema"


def test_a_server_that_makes_the_call_itself_is_believed() -> None:
    choice = {"type": "custom", "name": "sum"}
    emulation = emulated(VLLM, tools=[SUM], tool_choice=choice)
    native = [CallOpened(1, "sum"), CallGrew(1, '{"input":"1 + 2"}'), STOP]

    assert list(emulation.feed(native)) == native
