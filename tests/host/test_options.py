"""Every option of a turn is in the request, or is refused by name."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from antiphon.backends.chat import ChatBackend
from antiphon.client import errors, function_tool
from antiphon.client.parameters import PARAMETERS, REFUSED
from antiphon.host import GateConfig, Message, RespondOptions, TextPart, ToolSpec
from antiphon.host.options import make_params, session_of, system_text
from antiphon.host.translate import Translation
from antiphon.protocol.deltas import TextGrew
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Response
from antiphon.testing import Call, Script, ScriptedUpstream, serve_gateway
from tests.building import COUNTED, STOP
from tests.client.native import native, response
from tests.host.providing import provider

ANSWER = response(TextGrew("one"), COUNTED, STOP)
HELLO = [Message.system("Be brief."), Message.user("Hello there")]
WEATHER = ToolSpec("weather", "Tells the weather.", {"type": "object"})
SEARCH = {"type": "web_search"}
NAMED = {"type": "function", "name": "weather"}

# A value for each keyword, and where it must be in the request. Those that are not here are
# refused, and the test knows no third way.
SENT: dict[str, tuple[Any, dict[str, Any]]] = {
    "prompt": ({"id": "pmpt_1"}, {"prompt": {"id": "pmpt_1"}}),
    "model": ("m", {"model": "m"}),
    "instructions": ("Rhyme.", {"instructions": "Rhyme.\n\nBe brief."}),
    "previous_response_id": ("resp_0", {"previous_response_id": "resp_0"}),
    "conversation": ("conv_0", {"conversation": "conv_0"}),
    "include": (["a"], {"include": ["a"]}),
    "tool_choice": (NAMED, {"tool_choice": NAMED}),
    "parallel_tool_calls": (False, {"parallel_tool_calls": False}),
    "max_tool_calls": (3, {"max_tool_calls": 3}),
    "metadata": ({"a": "b"}, {"metadata": {"a": "b"}}),
    "text": ({"verbosity": "low"}, {"text": {"verbosity": "low"}}),
    "reasoning": ({"effort": "low"}, {"reasoning": {"effort": "low"}}),
    "temperature": (0.5, {"temperature": 0.5}),
    "top_p": (0.5, {"top_p": 0.5}),
    "presence_penalty": (0.5, {"presence_penalty": 0.5}),
    "frequency_penalty": (0.5, {"frequency_penalty": 0.5}),
    "top_logprobs": (2, {"top_logprobs": 2}),
    "max_output_tokens": (9, {"max_output_tokens": 9}),
    "truncation": ("auto", {"truncation": "auto"}),
    "service_tier": ("flex", {"service_tier": "flex"}),
    "store": (False, {"store": False}),
    "background": (True, {"background": True}),
    "safety_identifier": ("u", {"safety_identifier": "u"}),
    "prompt_cache_key": ("k", {"prompt_cache_key": "k"}),
    "prompt_cache_retention": ("24h", {"prompt_cache_retention": "24h"}),
    "prompt_cache_options": ({"a": 1}, {"prompt_cache_options": {"a": 1}}),
    "context_management": ([{"a": 1}], {"context_management": [{"a": 1}]}),
    "moderation": ({"a": 1}, {"moderation": {"a": 1}}),
    "image": ({"a": 1}, {"image": {"a": 1}}),
    "access_programs": (["a"], {"access_programs": ["a"]}),
    "stream_options": ({"a": 1}, {"stream_options": {"a": 1}}),
    "user": ("u", {"user": "u"}),
    "max_tokens": (9, {"max_output_tokens": 9}),
    "max_completion_tokens": (9, {"max_output_tokens": 9}),
    "response_format": ({"type": "json_object"}, {"text": {"format": {"type": "json_object"}}}),
    "reasoning_effort": ("low", {"reasoning": {"effort": "low"}}),
    "verbosity": ("low", {"text": {"verbosity": "low"}}),
    "logprobs": (True, {"include": ["message.output_text.logprobs"]}),
    "conversation_id": ("conv_0", {"conversation": "conv_0"}),
    "parent_id": ("resp_0", {"previous_response_id": "resp_0"}),
    "extra_body": ({"house": 1}, {"house": 1}),
}
# What the client itself acts on; the tests below show how.
OURS = {"tools", "session", "stateful"}
KNOWN = {
    *(parameter.name for parameter in PARAMETERS),
    *REFUSED,
    *(field for field in CreateResponse.__struct_fields__ if field not in ("extra", "items")),
    "wire_api",
}


async def sent_with(options: RespondOptions, *more: list[Message]) -> list[dict[str, Any]]:
    """Return the requests of a turn with these options, and of further turns."""
    async with native(ANSWER) as server, provider(server.base_url) as host:
        for messages in (HELLO, *more):
            await host.respond("m", messages, options)
    return [server.body(number) for number in range(len(server.requests))]


@pytest.mark.parametrize("name", sorted(KNOWN - OURS))
async def test_every_known_option_is_in_the_request_or_refused_by_name(name: str) -> None:
    """Beside tools and a system message, which must be in the request as well."""
    value, fields = SENT.get(name, ("other", {}))
    options = RespondOptions(tools=[WEATHER], model_options={name: value})
    try:
        (body,) = await sent_with(options)
    except errors.BadCall as error:
        assert name not in SENT
        assert name in str(error)
        return
    assert fields, f"{name} was neither refused nor is it known where it goes"
    assert {key: body[key] for key in fields} == fields
    assert "Be brief." in body["instructions"]
    assert [tool["name"] for tool in body["tools"]] == ["weather"]
    assert body["input"][-1]["content"][0]["text"] == "Hello there"


# What a chat server never sees: the response says it back, and nothing else is asked for.
ECHOED = {"model", "metadata", "max_tool_calls", "store"}


@pytest.mark.parametrize("name", sorted(KNOWN - OURS))
async def test_on_a_chat_server_every_option_is_sent_named_as_degraded_or_refused(
    name: str,
) -> None:
    value, _ = SENT.get(name, ("other", {}))
    script = Script(calls=[Call("weather", "{}")])
    plain = RespondOptions(tools=[WEATHER])
    options = RespondOptions(tools=[WEATHER], model_options={name: value})
    async with (
        ScriptedUpstream(script) as upstream,
        provider(upstream.base_url, gate=GateConfig()) as host,
    ):
        before = (await host.respond("m", HELLO, plain)).response
        try:
            after = (await host.respond("m", HELLO, options)).response
        except errors.BadCall as error:
            field = {"parent_id": "previous_response_id", "conversation_id": "conversation"}
            assert field.get(name, name) in str(error)
            return
    if name in ECHOED:
        assert msgspec.to_builtins(after)[name] == value
        return
    is_sent = upstream.requests[0].json != upstream.requests[1].json
    assert is_sent or _degraded(after) - _degraded(before)


def _degraded(response: Response) -> set[str]:
    return set() if response.antiphon is UNSET else set(response.antiphon.degraded)


CHAT_ONLY: dict[str, Any] = {"stop": ["END"], "seed": 7, "logit_bias": {"50256": -100}}


@pytest.mark.parametrize("name", CHAT_ONLY)
async def test_the_refusal_of_a_chat_option_names_a_setting_that_sends_it(name: str) -> None:
    options = RespondOptions(model_options={name: CHAT_ONLY[name]})
    with pytest.raises(errors.UnsupportedParameter) as refusal:
        await sent_with(options)
    named = re.search(r"ProviderSettings\(gate=(.+?)\)\.", refusal.value.message)
    assert named is not None
    gate = eval(named[1], {"GateConfig": GateConfig})  # as a user would copy it
    async with ScriptedUpstream() as upstream, provider(upstream.base_url, gate=gate) as host:
        await host.respond("m", HELLO, options)
    assert upstream.requests[0].json[name] == CHAT_ONLY[name]


@pytest.mark.parametrize("name", CHAT_ONLY)
async def test_a_chat_option_reaches_the_model_by_way_of_a_gateway_in_extra_body(
    name: str,
) -> None:
    options = RespondOptions(model_options={"extra_body": {name: CHAT_ONLY[name]}})
    async with (
        ScriptedUpstream() as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
        provider(gateway.base_url) as host,
    ):
        await host.respond("echo", HELLO, options)
    assert upstream.requests[0].json[name] == CHAT_ONLY[name]


@pytest.mark.parametrize("name", ["input", "messages", "prompt"])
async def test_a_second_input_is_refused_by_name(name: str) -> None:
    with pytest.raises(errors.BadCall, match=name) as caught:
        await sent_with(RespondOptions(model_options={name: "another question"}))
    assert caught.value.param == name


async def test_another_model_is_refused_instead_of_being_dropped() -> None:
    with pytest.raises(errors.BadCall, match="'other'"):
        await sent_with(RespondOptions(model_options={"model": "other"}))


async def test_hosted_tools_go_beside_those_of_the_application() -> None:
    options = RespondOptions(tools=[WEATHER], model_options={"tools": [SEARCH]})
    (body,) = await sent_with(options)
    assert [tool["type"] for tool in body["tools"]] == ["function", "web_search"]
    assert body["tool_choice"] == "auto"
    (alone,) = await sent_with(RespondOptions(model_options={"tools": [SEARCH]}))
    assert alone["tools"] == [SEARCH]


@function_tool
def look_up(city: str) -> str:
    """Tells the weather.

    Args:
        city: Where.
    """
    return f"18 degrees in {city}"


@pytest.mark.parametrize(
    "options",
    [RespondOptions(tools=[look_up]), RespondOptions(model_options={"tools": [look_up]})],
    ids=["tools", "model_options"],
)
async def test_a_function_may_be_a_tool_wherever_tools_are_given(options: RespondOptions) -> None:
    (body,) = await sent_with(options)
    assert body["tools"] == [look_up.definition]


async def test_what_is_no_tool_is_refused_with_what_to_give() -> None:
    wrong: Any = [WEATHER, look_up.function]
    with pytest.raises(errors.BadTool, match=r"tools\[1\].*of type function.*function_tool"):
        await sent_with(RespondOptions(tools=wrong))


@pytest.mark.parametrize("choice", [NAMED, "none", "required"])
async def test_a_tool_choice_of_the_options_decides(choice: object) -> None:
    (body,) = await sent_with(
        RespondOptions(tools=[WEATHER], model_options={"tool_choice": choice})
    )
    assert body["tool_choice"] == choice


async def test_a_tool_mode_that_contradicts_the_tool_choice_is_refused() -> None:
    options = RespondOptions(
        tools=[WEATHER], tool_mode="required", model_options={"tool_choice": "none"}
    )
    with pytest.raises(errors.BadCall, match="tool_choice"):
        await sent_with(options)
    agreed = RespondOptions(
        tools=[WEATHER], tool_mode="none", model_options={"tool_choice": "none"}
    )
    assert (await sent_with(agreed))[0]["tool_choice"] == "none"


async def test_a_required_tool_needs_tools() -> None:
    with pytest.raises(errors.BadCall, match="tool_mode"):
        await sent_with(RespondOptions(tool_mode="required"))
    hosted = RespondOptions(tool_mode="required", model_options={"tools": [SEARCH]})
    assert (await sent_with(hosted))[0]["tool_choice"] == "required"
    stored = RespondOptions(tool_mode="required", model_options={"prompt": {"id": "pmpt_1"}})
    assert (await sent_with(stored))[0]["tool_choice"] == "required"
    assert "tool_choice" not in (await sent_with(RespondOptions(tool_mode="none")))[0]


async def test_an_unknown_tool_mode_is_refused_even_without_tools() -> None:
    with pytest.raises(ValueError, match="tool mode"):
        await sent_with(RespondOptions(tool_mode="any"))  # type: ignore[arg-type]  # the mistake


@pytest.mark.parametrize(
    "options", [RespondOptions(session="c"), RespondOptions(model_options={"session": "c"})]
)
async def test_a_session_sends_each_message_once_wherever_it_is_named(
    options: RespondOptions,
) -> None:
    later = [*HELLO, Message.assistant([TextPart("one")]), Message.user("And now?")]
    first, second = await sent_with(options, later)
    assert len(first["input"]) == 1
    assert second["previous_response_id"] == "resp_1"
    assert [item["content"][0]["text"] for item in second["input"]] == ["And now?"]
    assert "session" not in first


async def test_two_different_sessions_are_refused() -> None:
    options = RespondOptions(session="a", model_options={"session": "b"})
    with pytest.raises(errors.BadCall, match="session"):
        await sent_with(options)


async def test_a_session_that_is_not_stateful_sends_everything() -> None:
    options = RespondOptions(session="c", model_options={"stateful": False})
    later = [*HELLO, Message.assistant([TextPart("one")]), Message.user("And now?")]
    _, second = await sent_with(options, later)
    assert "previous_response_id" not in second
    assert len(second["input"]) == 3


@pytest.mark.parametrize("name", ["previous_response_id", "conversation"])
async def test_a_named_thread_is_sent_only_what_it_lacks(name: str) -> None:
    """The whole history on top of the thread that holds it would double the context."""
    messages = [Message.user("first"), Message.assistant("one"), Message.user("And now?")]
    async with native(ANSWER) as server, provider(server.base_url) as host:
        await host.respond("m", messages, RespondOptions(model_options={name: "id_1"}))
    assert server.body(0)[name] == "id_1"
    assert [item["content"][0]["text"] for item in server.body(0)["input"]] == ["And now?"]


async def test_instructions_stand_between_the_system_prompt_and_the_system_messages() -> None:
    options = RespondOptions(
        system_prompt="You are a poet.", model_options={"instructions": "Rhyme."}
    )
    (body,) = await sent_with(options)
    assert body["instructions"] == "You are a poet.\n\nRhyme.\n\nBe brief."


@pytest.mark.parametrize(("name", "value"), [("instructions", ["Rhyme."]), ("tools", "search")])
async def test_an_option_of_the_wrong_type_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(errors.BadCall, match=name):
        await sent_with(RespondOptions(model_options={name: value}))


def test_an_option_of_none_is_not_given() -> None:
    options = RespondOptions(model_options={"model": None, "session": None, "tools": None})
    params = make_params("m", Translation([], None), options, "responses")
    assert params == {"model": "m", "messages": []}
    assert session_of(options) is None
    assert system_text(options) == ""
