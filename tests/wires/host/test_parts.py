"""Messages and parts: what is not one is refused where it is made."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.host import DataPart, Message, Role, TextPart, ToolResultPart
from antiphon.host.translate import translate_messages


@pytest.mark.parametrize("text", ["x", b"x", "", None, 7])
def test_a_message_of_a_bare_text_is_refused_with_what_to_write(text: Any) -> None:
    with pytest.raises(TypeError, match=r"list of parts.*Message\.user"):
        Message(Role.USER, text)


def test_a_message_of_a_part_that_is_none_names_its_place() -> None:
    wrong: Any = [TextPart("x"), "y"]
    with pytest.raises(TypeError, match=r"content\[1\] is str.*TextPart"):
        Message.user(wrong)


def test_a_role_is_not_a_word() -> None:
    wrong: Any = "user"
    with pytest.raises(TypeError, match=r"Role.*Message\.user"):
        Message(wrong, [TextPart("x")])


def test_the_result_of_a_tool_is_parts_as_well() -> None:
    wrong: Any = "18 degrees"
    with pytest.raises(TypeError, match="ToolResultPart"):
        ToolResultPart("c1", wrong)
    assert ToolResultPart("c1", [TextPart("x"), DataPart(b"x", "image/png")]).content


def test_parts_in_any_sequence_are_a_message() -> None:
    assert Message(Role.USER, (TextPart("x"),)) == Message.user("x")
    assert Message(Role.ASSISTANT, []).content == []


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ("hello", r"messages is a list of Message, not str; write \[Message\.user"),
        (Message.user("hello"), "messages is a list of Message, not Message"),
        ([{"role": "user", "content": "x"}], r"messages\[0\] is dict, not a Message"),
        ([Message.user("a"), "b"], r"messages\[1\] is str.*Message\.assistant"),
    ],
)
def test_what_is_no_list_of_messages_is_refused_with_what_to_write(messages: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        translate_messages(messages)
