"""Chat messages as items: every message keeps its place, and a history survives the round trip."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.plans.plan import NO_TOOLS
from antiphon.protocol.deltas import CallMade, Delta, ReasoningGrew, Stopped, TextGrew
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Item
from antiphon.protocol.request import read_request
from antiphon.wires.chat.ask_messages import ItemReader
from antiphon.wires.chat.completion import completion_of
from antiphon.wires.chat.messages import write_messages
from antiphon.wires.chat.profiles import PROFILES, Profile
from tests.building import build
from tests.properties.test_machines import terminal

PLAIN = Profile(name="plain", merges_system=False, files=True, reasoning_replay="reasoning_content")


def items_of(*messages: dict[str, Any]) -> list[Item]:
    reader = ItemReader()
    reader.read(messages)
    read_request({"input": reader.items})  # they are of the shape that the protocol knows
    return reader.items


def refused(*messages: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        items_of(*messages)
    return caught.value


def call(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_system_message_in_the_middle_stays_there() -> None:
    items = items_of(
        {"role": "user", "content": "a"},
        {"role": "system", "content": "b"},
        {"role": "developer", "content": [{"type": "text", "text": "c"}]},
    )

    assert [item["role"] for item in items] == ["user", "system", "developer"]
    assert items[1]["content"] == [{"type": "input_text", "text": "b"}]


def test_an_assistant_message_is_reasoning_then_text_then_calls() -> None:
    items = items_of(
        {
            "role": "assistant",
            "content": "ok",
            "reasoning_content": "hm",
            "tool_calls": [call("c1"), call("c2")],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    )

    assert [item["type"] for item in items] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert [item["call_id"] for item in items[2:]] == ["c1", "c2", "c2", "c1"]


def test_results_are_paired_by_id_and_custom_calls_have_custom_results() -> None:
    custom = {"id": "c1", "type": "custom", "custom": {"name": "run", "input": "ls"}}
    items = items_of(
        {"role": "assistant", "content": None, "tool_calls": [custom, call("c2")]},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
    )

    assert items[0] == {
        "type": "custom_tool_call",
        "call_id": "c1",
        "name": "run",
        "input": "ls",
    }
    assert [item["type"] for item in items[2:]] == [
        "function_call_output",
        "custom_tool_call_output",
    ]


def test_an_old_call_is_answered_by_the_next_result_of_its_name() -> None:
    items = items_of(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "first"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "second"},
    )

    assert items[0]["call_id"] == items[1]["call_id"]
    assert items[2]["call_id"] == items[3]["call_id"]
    assert items[0]["call_id"] != items[2]["call_id"]


def test_parts_of_every_kind_are_carried() -> None:
    items = items_of(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}},
                {"type": "file", "file": {"filename": "a.txt", "file_data": "data:y"}},
                {"type": "video_url", "video_url": {"url": "http://v"}},
                {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
            ],
        }
    )

    assert items[0]["content"] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:x", "detail": "low"},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:y"},
        {"type": "input_video", "video_url": "http://v"},
        {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
    ]


def test_images_in_the_result_of_a_tool_are_kept() -> None:
    items = items_of(
        {"role": "assistant", "content": None, "tool_calls": [call("c")]},
        {
            "role": "tool",
            "tool_call_id": "c",
            "content": [
                {"type": "text", "text": "seen"},
                {"type": "image_url", "image_url": {"url": "data:x"}},
            ],
        },
    )

    assert items[1]["output"] == [
        {"type": "input_text", "text": "seen"},
        {"type": "input_image", "image_url": "data:x"},
    ]


@pytest.mark.parametrize("content", [None, "", []])
def test_a_result_without_content_is_a_result(content: Any) -> None:
    items = items_of(
        {"role": "assistant", "content": None, "tool_calls": [call("c")]},
        {"role": "tool", "tool_call_id": "c", "content": content},
    )

    assert items[1]["output"] == ([] if content == [] else "")


def test_our_sealed_reasoning_comes_back_and_stands_for_its_text() -> None:
    detail = {"type": "reasoning.encrypted", "format": "antiphon-1", "data": "sealed", "index": 0}
    items = items_of(
        {
            "role": "assistant",
            "content": "ok",
            "reasoning_content": "hm",
            "reasoning_details": [detail],
        }
    )

    assert items[0] == {"type": "reasoning", "summary": [], "encrypted_content": "sealed"}
    assert [item["type"] for item in items] == ["reasoning", "message"]


def test_sealed_reasoning_of_others_is_kept_to_be_reported() -> None:
    foreign = {"type": "reasoning.encrypted", "format": "other-v1", "data": "theirs"}
    items = items_of(
        {"role": "assistant", "content": "ok", "reasoning": "hm", "reasoning_details": [foreign]}
    )

    assert items[0]["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert items[0]["reasoning_details"] == [foreign]
    assert "encrypted_content" not in items[0]
    _, report = write_messages(items, NO_TOOLS, PLAIN, ())
    assert "input[0].reasoning_details" in report


def test_the_text_of_details_is_read_where_there_is_no_other() -> None:
    details = [{"type": "reasoning.text", "text": "h"}, {"type": "reasoning.text", "text": "m"}]
    items = items_of({"role": "assistant", "content": "ok", "reasoning_details": details})

    assert items[0]["content"] == [{"type": "reasoning_text", "text": "hm"}]


def test_fields_that_are_not_known_stay_on_their_item() -> None:
    items = items_of(
        {"role": "user", "name": "ann", "content": "a"},
        {"role": "assistant", "content": "b", "audio": {"id": "x"}},
    )

    assert items[0]["name"] == "ann"
    assert items[1]["audio"] == {"id": "x"}


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (["x"], "messages[0]"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
        ([{"role": "tool", "tool_call_id": "c", "content": "x"}], "messages[0].tool_call_id"),
        ([{"role": "function", "name": "f", "content": "x"}], "messages[0].name"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].id"),
        ([{"role": "assistant", "tool_calls": {}}, "x"], "messages[1]"),
    ],
)
def test_a_message_that_cannot_be_used_is_named(messages: list[Any], param: str) -> None:
    assert refused(*messages).param == param


# Round trips.

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
JSON = st.dictionaries(st.text("ab", min_size=1, max_size=3), st.integers(), max_size=2)


def _message(role: str, text: str) -> Item:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


@st.composite
def histories(draw: st.DrawFn) -> list[Item]:
    """Return a conversation that chat can express, in the one form that items have."""
    items = [_message("system", draw(TEXT))] if draw(st.booleans()) else []
    count = 0
    for _ in range(draw(st.integers(1, 4))):
        items.append(_message("user", draw(TEXT)))
        if draw(st.booleans()):
            image = {"type": "input_image", "image_url": "data:x"}
            items[-1]["content"].append(image)
        for _ in range(draw(st.integers(0, 2))):
            calls = draw(st.lists(JSON, min_size=1, max_size=3))
            ids = [f"call_{count + n}" for n in range(len(calls))]
            count += len(calls)
            items += draw(_prose(may_be_empty=True))
            items += [
                {
                    "type": "function_call",
                    "call_id": call_id,
                    "name": "f",
                    "arguments": str(arguments).replace("'", '"'),
                }
                for call_id, arguments in zip(ids, calls, strict=True)
            ]
            items += [
                {"type": "function_call_output", "call_id": call_id, "output": draw(TEXT)}
                for call_id in ids
            ]
        items += draw(_prose(may_be_empty=False))
    return items


@st.composite
def _prose(draw: st.DrawFn, *, may_be_empty: bool) -> list[Item]:
    items: list[Item] = []
    if draw(st.booleans()):
        part = {"type": "reasoning_text", "text": draw(TEXT)}
        items.append({"type": "reasoning", "summary": [], "content": [part]})
    if not may_be_empty or draw(st.booleans()):
        text = {"type": "output_text", "text": draw(TEXT), "annotations": []}
        items.append({"type": "message", "role": "assistant", "content": [text]})
    return items


@given(histories())
def test_a_history_written_as_chat_is_read_as_the_same_items(items: list[Item]) -> None:
    messages, report = write_messages(items, NO_TOOLS, PLAIN, ())

    assert report == []
    assert items_of(*messages) == items


@given(histories(), st.booleans())
def test_what_an_earlier_request_sent_upstream_begins_the_next(
    items: list[Item], has_late_system: bool
) -> None:
    messages, _ = write_messages(items, NO_TOOLS, PLAIN, ())
    if has_late_system:
        last = max(place for place, one in enumerate(messages) if one["role"] == "user")
        messages.insert(last, {"role": "system", "content": "be brief"})
    ends = [place for place, one in enumerate(messages) if one["role"] in ("user", "tool")]
    sent = []
    for end in ends:
        if end + 1 < len(messages) and messages[end + 1]["role"] == "tool":
            continue  # a client asks again when it has all results
        sent.append(_sent_upstream(messages[: end + 1]))

    for earlier, later in pairwise(sent):
        assert later[: len(earlier)] == earlier


def _sent_upstream(messages: list[Any]) -> list[Any]:
    """Return what is sent for these messages, of which the last asks for the prompt cache."""
    *before, last = messages
    content = last["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    marked = [*parts[:-1], {**parts[-1], "cache_control": {"type": "ephemeral"}}]
    items = items_of(*before, {**last, "content": marked})
    written, report = write_messages(items, NO_TOOLS, PROFILES["vllm"], ())
    assert report == []
    return written


def test_an_answer_of_the_door_is_read_as_the_items_of_the_model() -> None:
    turn: list[Delta] = [
        ReasoningGrew("hm"),
        TextGrew("I look."),
        CallMade("look", '{"a":1}', call_id="functions.Bash:0"),
        CallMade("run", "ls", call_id="c2", kind="custom"),
        Stopped("stop"),
    ]
    response = terminal(build(turn, seal=lambda item, state: "sealed"))
    message = completion_of(response)["choices"][0]["message"]

    items = items_of(message)
    assert items == [
        {"type": "reasoning", "summary": [], "encrypted_content": "sealed"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {
            "type": "function_call",
            "call_id": "functions.Bash:0",
            "name": "look",
            "arguments": '{"a":1}',
        },
        {"type": "custom_tool_call", "call_id": "c2", "name": "run", "input": "ls"},
    ]


def test_notes_on_the_text_come_back_as_they_went() -> None:
    note = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    nested = {"type": "url_citation", "url_citation": {k: note[k] for k in note if k != "type"}}
    items = items_of({"role": "assistant", "content": "a", "annotations": [nested]})

    assert items[0]["content"][0]["annotations"] == [note]
