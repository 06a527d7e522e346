"""Messages: chat-shaped histories become items, and what has no form is refused by its place."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.client.errors import BadCall
from antiphon.client.messages import items_from_input, items_from_messages
from antiphon.protocol.items import check_item

CALL = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}
CALL_ITEM = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "find",
    "arguments": '{"q": 1}',
}


def said(role: str, *parts: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": list(parts)}


def text(value: str, kind: str = "input_text") -> dict[str, Any]:
    return {"type": kind, "text": value}


MATRIX: list[Any] = [
    ({"role": "user", "content": "hi"}, [said("user", text("hi"))]),
    ({"role": "system", "content": "be brief"}, [said("system", text("be brief"))]),
    ({"role": "developer", "content": "be brief"}, [said("developer", text("be brief"))]),
    (
        {"role": "assistant", "content": "hello"},
        [said("assistant", text("hello", "output_text"))],
    ),
    (
        {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "phase": "commentary"},
        [said("assistant", text("hi", "output_text")) | {"phase": "commentary"}],
    ),
    (
        {"role": "assistant", "content": None, "refusal": "no", "annotations": []},
        [said("assistant", {"type": "refusal", "refusal": "no"})],
    ),
    ({"role": "assistant", "content": "", "tool_calls": None, "audio": None}, []),
    ({"role": "assistant", "content": None, "tool_calls": [CALL]}, [CALL_ITEM]),
    (
        {"role": "assistant", "content": "looking", "tool_calls": [CALL]},
        [said("assistant", text("looking", "output_text")), CALL_ITEM],
    ),
    (
        {"role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls": [CALL]},
        [
            {"type": "reasoning", "summary": [text("hm", "summary_text")]},
            said("assistant", text("so", "output_text")),
            CALL_ITEM,
        ],
    ),
    (
        {"role": "assistant", "content": "", "reasoning": "hm"},
        [{"type": "reasoning", "summary": [text("hm", "summary_text")]}],
    ),
    (
        {"role": "tool", "tool_call_id": "call_1", "name": "find", "content": "found"},
        [{"type": "function_call_output", "call_id": "call_1", "output": "found"}],
    ),
    (
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        },
        [{"type": "function_call_output", "call_id": "call_1", "output": "ab"}],
    ),
    (
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": "https://x.example/a.png"},
            ],
        },
        [
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [
                    text("a"),
                    {"type": "input_image", "image_url": "https://x.example/a.png"},
                ],
            }
        ],
    ),
    (
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "data:a", "detail": "low"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:b"}},
                {"type": "video_url", "video_url": {"url": "data:c"}},
                {"type": "input_text", "text": "already ours"},
                {"type": "acme:part", "x": 1},
            ],
        },
        [
            said(
                "user",
                text("see"),
                {"type": "input_image", "image_url": "data:a", "detail": "low"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:b"},
                {"type": "input_video", "video_url": "data:c"},
                text("already ours"),
                {"type": "acme:part", "x": 1},
            )
        ],
    ),
    (
        {
            "role": "assistant",
            "tool_calls": [{"id": "c9", "type": "custom", "custom": {"name": "sh", "input": "ls"}}],
        },
        [{"type": "custom_tool_call", "call_id": "c9", "name": "sh", "input": "ls"}],
    ),
    (CALL_ITEM | {"id": "fc_1", "x": 1}, [CALL_ITEM | {"id": "fc_1", "x": 1}]),
    (said("user", text("x")), [said("user", text("x"))]),
]


@pytest.mark.requirement("22-B1", "22-A3", "003-input", "003-content")
@pytest.mark.parametrize(("message", "items"), MATRIX)
def test_a_message_becomes_items(message: dict[str, Any], items: list[Any]) -> None:
    assert items_from_messages([message]) == items
    for item in items:
        check_item(item, "input")


@pytest.mark.requirement("REQ-007.1", "22-B1")
def test_a_tool_round_trip_is_calls_and_outputs() -> None:
    second = {"id": "call_2", "function": {"name": "find", "arguments": ""}}
    items = items_from_messages(
        [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": None, "tool_calls": [CALL, second]},
            {"role": "tool", "tool_call_id": "call_1", "content": "1"},
            {"role": "tool", "tool_call_id": "call_2", "content": "2"},
            {"role": "assistant", "content": "done"},
        ]
    )
    assert [(item["type"], item.get("call_id")) for item in items] == [
        ("message", None),
        ("function_call", "call_1"),
        ("function_call", "call_2"),
        ("function_call_output", "call_1"),
        ("function_call_output", "call_2"),
        ("message", None),
    ]


def test_the_output_of_a_custom_tool_is_one() -> None:
    call = {"id": "c9", "type": "custom", "custom": {"name": "sh", "input": ""}}
    items = items_from_messages(
        [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c9", "content": "a.txt"},
        ]
    )
    assert items[1] == {"type": "custom_tool_call_output", "call_id": "c9", "output": "a.txt"}


def test_calls_from_before_tools_get_an_id_by_their_place() -> None:
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "[]"}},
        {"role": "function", "name": "f", "content": "2"},
    ]
    items = items_from_messages(history)
    assert [item.get("call_id") for item in items] == [None, "call_1", "call_1", "call_3", "call_3"]
    assert items_from_messages(history[:3]) == items[:3]
    with pytest.raises(BadCall, match="answers no function_call"):
        items_from_messages([*history, history[-1]])


@pytest.mark.parametrize(
    ("message", "where"),
    [
        ("hi", "messages[1] must be a dict"),
        ({"role": "robot", "content": "x"}, "messages[1].role must be one of"),
        ({"content": "x"}, "messages[1].role must be one of"),
        ({"role": "user", "content": None}, "messages[1].content must be"),
        ({"role": "user", "content": 5}, "messages[1].content must be"),
        ({"role": "user", "content": ["x"]}, "messages[1].content[0] must be a dict"),
        ({"role": "user", "content": "x", "name": "bob"}, "messages[1].name has no place"),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
            "messages[1].content[0] (input_audio): the Responses API takes no audio",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
            "messages[1].content[0].image_url must hold url",
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": "a"}]},
            "messages[1].content[0].file must hold a dict",
        ),
        ({"role": "tool", "content": "x"}, "messages[1].tool_call_id must be a string"),
        ({"role": "tool", "tool_call_id": "", "content": "x"}, "messages[1].tool_call_id"),
        ({"role": "function", "name": "f", "content": "x"}, "messages[1] answers no function_call"),
        ({"role": "assistant", "reasoning_content": ["x"]}, "messages[1].reasoning_content"),
        ({"role": "assistant", "function_call": "f"}, "messages[1].function_call must be a dict"),
        ({"role": "assistant", "audio": {"id": "a"}}, "messages[1].audio has no place"),
        ({"role": "assistant", "tool_calls": ["x"]}, "messages[1].tool_calls[0] must be a call"),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "web", "web": {}}]},
            "messages[1].tool_calls[0] must be a call",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            "messages[1].tool_calls[0].id must be a string",
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {}}}],
            },
            "messages[1].tool_calls[0].function.arguments must be a string",
        ),
    ],
)
def test_what_has_no_form_is_refused_by_its_place(message: Any, where: str) -> None:
    messages: Any = [{"role": "user", "content": "q"}, message]
    with pytest.raises(BadCall) as refusal:
        items_from_messages(messages)
    assert refusal.value.message.startswith(where)


@pytest.mark.parametrize(
    ("messages", "kind"),
    [("hi", "str"), ({"role": "user"}, "dict"), (7, "int"), (iter([]), "list_")],
)
def test_messages_must_be_a_list(messages: Any, kind: str) -> None:
    with pytest.raises(BadCall, match=f"messages must be a list, not a {kind}"):
        items_from_messages(messages)


def test_a_string_is_what_the_user_said() -> None:
    assert items_from_input("hi") == [said("user", text("hi"))]
    assert items_from_input("") == []


def test_an_item_of_the_input_passes_with_its_type_named() -> None:
    given = [{"role": "user", "content": "x"}, CALL_ITEM, {"id": "msg_1"}, {"type": "acme:x"}]
    assert items_from_input(given) == [{"type": "message", **given[0]}, *given[1:]]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("x", "must be a dict"),
        ({"role": "tool", "tool_call_id": "a", "content": "x"}, "give messages instead of input"),
        ({"role": "assistant", "tool_calls": [CALL]}, "give messages instead of input"),
    ],
)
def test_a_chat_message_in_the_input_is_refused(entry: Any, message: str) -> None:
    with pytest.raises(BadCall, match=message):
        items_from_input([entry])


def test_a_call_without_an_id_does_not_get_one_that_the_caller_uses() -> None:
    named = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    legacy = {"role": "assistant", "function_call": {"name": "g", "arguments": "{}"}}
    items = items_from_messages([{"role": "assistant", "tool_calls": [named]}, legacy])
    assert [item["call_id"] for item in items] == ["call_1", "call_1_2"]
