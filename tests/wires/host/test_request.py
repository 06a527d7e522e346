"""A plan as a request to an editor: the conversation, the tools, the options, what is lost."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from antiphon.protocol.items import Item
from antiphon.protocol.native_state import NATIVE
from antiphon.protocol.tools import ToolPolicy
from antiphon.wires.host.messages import Respond
from antiphon.wires.host.request import countable, encode_request, respond_line
from antiphon.wires.host.thoughts import write_state
from tests.building import plan_with

Json = dict[str, Any]
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}
PNG = base64.b64encode(b"png").decode()
IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}


def user(content: Any) -> Item:
    return {"type": "message", "role": "user", "content": content}


def said(text: str) -> Item:
    part = {"type": "output_text", "text": text}
    return {"type": "message", "role": "assistant", "content": [part]}


def call(call_id: str, arguments: str = "{}", name: str = "look") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, what: Any = "seen", **more: Any) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": what, **more}


def thought(text: str, model: str = "m", account: str = "me") -> Item:
    content = [{"type": "reasoning_text", "text": text}]
    state = write_state(model, "t1", {"sig": "x"}, account)
    return {"type": "reasoning", "summary": [], "content": content, NATIVE: state}


def sent(items: list[Item], **fields: Any) -> tuple[Json, list[str]]:
    """Return the request as it goes over the wire, which must be one of the protocol."""
    body, report = encode_request(plan_with(items=items, **fields), "me")
    line = respond_line(7, body)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    request = msgspec.json.decode(line, type=Respond)
    assert (request.id, request.model) == (7, "m")
    plain: Json = json.loads(line)
    return plain, report


def conversation(items: list[Item], **fields: Any) -> tuple[list[tuple[str, list[Json]]], str]:
    request, report = sent(items, **fields)
    messages = [(message["role"], message["content"]) for message in request["messages"]]
    return messages, "\n".join(report)


def text(value: str) -> Json:
    return {"type": "text", "value": value}


# The conversation.


def test_instructions_and_system_messages_have_their_own_role() -> None:
    late: Item = {"type": "message", "role": "developer", "content": "Be kind."}
    early: Item = {"type": "message", "role": "system", "content": "Be quick."}
    items = [early, user("Hi."), said("Yes?"), late, user("So?")]
    messages, report = conversation(items, instructions="Be brief.")
    roles = [role for role, _ in messages]
    assert roles == ["system", "system", "user", "assistant", "system", "user"]
    assert messages[0][1] == [text("Be brief.")] and messages[4][1] == [text("Be kind.")]
    assert report == ""


def test_an_answer_is_one_message_in_its_order_and_results_follow() -> None:
    items = [user("Look."), thought("Hm."), said("I look."), call("a"), call("b")]
    messages, report = conversation([*items, output("b", "B"), output("a", "A")], tools=[LOOK])
    assert [part["type"] for part in messages[1][1]] == [
        "thinking",
        "text",
        "tool_call",
        "tool_call",
    ]
    assert messages[2][0] == "user"
    results = [(part["call_id"], part["content"]) for part in messages[2][1]]
    assert results == [("a", [text("A")]), ("b", [text("B")])]
    assert report == ""


def test_a_thought_goes_back_as_it_came_to_its_own_model_only() -> None:
    messages, report = conversation([user("Hi."), thought("Hm."), said("Yes.")])
    came = {"type": "thinking", "value": "Hm.", "id": "t1", "metadata": {"sig": "x"}}
    assert messages[1][1][0] == came and report == ""
    for other in (thought("Hm.", model="n"), thought("Hm.", account="you")):
        messages, report = conversation([user("Hi."), other, said("Yes.")])
        assert messages[1][1] == [text("Yes.")]
        assert "input[1] (reasoning)" in report


def test_reasoning_of_other_servers_is_reported() -> None:
    plain: Item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    sealed: Item = {"type": "reasoning", "summary": [], "encrypted_content": "zzz"}
    _, report = conversation([user("Hi."), plain, sealed, said("Yes.")])
    assert "input[1] (reasoning): this model does not take it back" in report
    assert "input[2] (reasoning): encrypted_content of another server" in report


def test_arguments_keep_their_values_and_broken_ones_are_quoted() -> None:
    number = '{"n":1.00,"big":123456789012345678901234567890}'
    body, _ = encode_request(plan_with(items=[user("x"), call("a", number), output("a")]), "me")
    assert b'"input":{"n":1.00,"big":123456789012345678901234567890}' in body
    messages, report = conversation([user("x"), call("a", '{"n": '), output("a")])
    assert messages[1][1][0]["input"] == {"arguments": '{"n": '}
    assert "input[1].arguments: no JSON object" in report


def test_results_may_hold_images_and_failures() -> None:
    shown = [{"type": "input_text", "text": "Here:"}, IMAGE]
    items = [
        user("x"),
        call("a"),
        call("b"),
        output("a", shown),
        output("b", "no", status="incomplete"),
    ]
    messages, _ = conversation(items)
    first, second = messages[2][1]
    assert first["content"] == [text("Here:"), {"type": "data", "mime": "image/png", "data": PNG}]
    assert (first["is_error"], second["is_error"]) == (False, True)


def test_a_call_without_a_result_gets_one_and_is_reported() -> None:
    messages, report = conversation([user("x"), call("a"), user("Never mind.")])
    assert "no output" in messages[2][1][0]["content"][0]["value"]
    assert "no output was provided for a" in report


def test_every_family_of_calls_is_a_function() -> None:
    items: list[Item] = [
        user("x"),
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "a\nb"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
        {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "s", "output": []},
        {"type": "web_search_call", "id": "w", "status": "completed"},
    ]
    tools = [{"type": "custom", "name": "patch"}, {"type": "shell"}]
    messages, _ = conversation(items, tools=tools)
    calls = [part for _, parts in messages for part in parts if part["type"] == "tool_call"]
    assert calls[0]["input"] == {"input": "a\nb"}
    assert calls[1]["input"]["commands"] == ["ls"]
    results = [part for _, parts in messages for part in parts if part["type"] == "tool_result"]
    assert [one["call_id"] for one in calls] == [one["call_id"] for one in results]


def test_messages_without_content_are_left_out() -> None:
    messages, _ = conversation([user(""), user([]), said(""), user("x")])
    assert messages == [("user", [text("x")])]


# Parts.


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"type": "input_image", "image_url": "https://a.example/b.png"}, "data URLs"),
        ({"type": "input_image", "file_id": "file_1"}, "data URLs"),
        ({"type": "input_image", "image_url": "data:image/svg+xml;base64,AAAA"}, "it is no PNG"),
        ({"type": "input_image", "image_url": "data:image/png;base64,!!"}, "it is no PNG"),
        ({"type": "input_file", "filename": "a.pdf", "file_data": "JVBERi0="}, "but text"),
        ({"type": "input_file", "file_id": "file_1"}, "only files with file_data"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA"}}, "cannot send it"),
    ],
)
def test_what_cannot_be_sent_is_a_note_to_the_model_and_reported(part: Json, why: str) -> None:
    messages, report = conversation([user([part])])
    note = messages[0][1][0]
    assert note["type"] == "text" and "left out" in note["value"] and why in note["value"]
    assert report.startswith(f"input[0].content[0] ({part['type']}): ")


def test_a_text_file_is_text_and_details_of_images_are_reported() -> None:
    file = {"type": "input_file", "filename": "a.md", "file_data": "data:text/plain,hello"}
    messages, report = conversation([user([file, IMAGE | {"detail": "high"}])])
    assert messages[0][1][0] == text("File a.md:\nhello")
    assert messages[0][1][1]["type"] == "data"
    assert report == "input[0].content[1] (input_image).detail: an editor has no such setting"


# Tools and options.


@pytest.mark.parametrize(
    ("policy", "mode", "name"),
    [
        (ToolPolicy(), "auto", None),
        (ToolPolicy("none"), "none", None),
        (ToolPolicy("required"), "required", None),
        (ToolPolicy("required", frozenset({"look"})), "required", "look"),
    ],
)
def test_tool_policies(policy: ToolPolicy, mode: str, name: str | None) -> None:
    request, _ = sent([user("x")], tools=[LOOK], policy=policy)
    options = request["options"]
    assert (options["tool_mode"], options["tool_name"]) == (mode, name)
    tool = {"name": "look", "description": "", "input_schema": {"type": "object"}}
    assert options["tools"] == [tool]


def test_sampling_is_passed_by_the_names_of_chat_completions() -> None:
    request, report = sent(
        [user("x")],
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=100,
        reasoning_effort="low",
        extra={"seed": 1, "n": 1, "stream_options.include_usage": True},
    )
    assert request["options"]["model_options"] == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 100,
        "reasoning_effort": "low",
        "seed": 1,
    }
    assert report == []


def test_what_an_editor_has_no_setting_for_is_reported() -> None:
    _, report = sent(
        [user("x")],
        tools=[LOOK],
        parallel_tool_calls=False,
        top_logprobs=1,
        verbosity="low",
        service_tier="flex",
        format={"type": "grammar"},
        extra={"wobble": 1},
    )
    names = [note.partition(":")[0].partition(" ")[0] for note in report]
    assert names == [
        "text.format",
        "parallel_tool_calls",
        "top_logprobs",
        "text.verbosity",
        "service_tier",
        "wobble",
    ]


@pytest.mark.parametrize("kind", ["json_schema", "json_object"])
def test_a_format_is_an_instruction(kind: str) -> None:
    form = {"type": kind, "schema": {"type": "object"}}
    messages, report = conversation([user("x")], format=form)
    assert messages[0][0] == "system" and "Answer only with" in messages[0][1][0]["value"]
    assert report == ""


def test_only_texts_are_counted() -> None:
    assert countable(plan_with(items=[user("x")]), "me") is not None
    assert countable(plan_with([LOOK], items=[user("x")]), "me") is None
    assert countable(plan_with(items=[user([IMAGE])]), "me") is None
    shown = plan_with(items=[user("x"), call("a"), output("a", [IMAGE])])
    assert countable(shown, "me") is None
