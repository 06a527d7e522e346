"""Items as a conversation of the Messages API."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.plans.plan import NO_TOOLS
from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import NATIVE, paused_item
from antiphon.wires.messages.conversation import (
    Conversation,
    lacks_thinking,
    write_conversation,
)

SIGNED = b'{"type":"thinking","thinking":"Hm \\u2014 yes.","signature":"c2ln"}'


def write(*items: Item, mid_system: bool = False, account: str = "me") -> Conversation:
    return write_conversation(items, NO_TOOLS, account=account, mid_system=mid_system)


def content(written: Conversation) -> list[tuple[str, Any]]:
    """Return the messages as they are on the wire."""
    encoded = msgspec.json.decode(msgspec.json.encode(written.messages))
    return [(one["role"], one["content"]) for one in encoded]


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}


def assistant(text: str) -> Item:
    parts = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": parts}


def call(call_id: str, arguments: str = "{}", name: str = "look") -> Item:
    fields = {"call_id": call_id, "name": name, "arguments": arguments}
    return {"type": "function_call", **fields}


def output(call_id: str, said: Any = "done", **more: Any) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": said, **more}


def thought(data: bytes = SIGNED, account: str = "me", wire: str = "messages") -> Item:
    state = NativeState(wire, data, account=account)
    summary = [{"type": "summary_text", "text": "Hm — yes."}]
    return {"type": "reasoning", "summary": summary, NATIVE: state}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def test_neighbours_of_one_role_are_one_message() -> None:
    written = write(user("a"), user("b"), assistant("c"), assistant("d"), user("e"))

    assert content(written) == [
        ("user", [text("a"), text("b")]),
        ("assistant", [text("c"), text("d")]),
        ("user", [text("e")]),
    ]


def test_leading_system_items_are_system_blocks_one_for_each() -> None:
    first = {"type": "message", "role": "system", "content": "Be brief."}
    second = {"type": "message", "role": "developer", "content": "Be kind."}

    written = write(first, second, user("a"))

    assert written.system == [text("Be brief."), text("Be kind.")]
    assert written.report == []


def test_a_late_system_message_stays_in_its_place() -> None:
    late = {"type": "message", "role": "system", "content": "Now rhyme."}

    written = write(user("a"), late, user("b"), mid_system=True)

    roles = [role for role, _ in content(written)]
    assert roles == ["user", "system", "user"]
    assert (written.system, written.report) == ([], [])


def test_a_late_system_message_is_a_text_of_the_user_where_the_model_takes_no_other() -> None:
    late = {"type": "message", "role": "system", "content": "Now rhyme."}

    written = write(user("a"), late)

    reminder = text("<system-reminder>\nNow rhyme.\n</system-reminder>")
    assert content(written) == [("user", [text("a"), reminder])]
    assert written.system == []
    assert "sent as a text of the user" in written.report[0]


def test_arguments_are_the_bytes_of_the_model() -> None:
    written = write(user("a"), call("c1", '{"z": 1,  "a": "\\u00e9"}'), output("c1"))

    assert b'"input":{"z": 1,  "a": "\\u00e9"}' in msgspec.json.encode(written.messages)


@pytest.mark.parametrize("arguments", ['"text"', "[1]", '{"cut', "nonsense"])
def test_arguments_that_are_no_object_are_quoted_and_reported(arguments: str) -> None:
    written = write(user("a"), call("c1", arguments), output("c1"))

    assert content(written)[1][1][0]["input"] == {"arguments": arguments}
    assert "no JSON object" in written.report[0]


def test_ids_have_only_the_characters_that_the_api_takes() -> None:
    written = write(user("a"), call("functions.Bash:0"), output("functions.Bash:0"))

    used, result = content(written)[1][1][0], content(written)[2][1][0]
    assert used["id"] == result["tool_use_id"] == "toolu_functions-2eBash-3a0"


def test_the_provider_gets_its_own_ids_back() -> None:
    written = write(user("a"), call("01AbC"), output("01AbC"))

    assert content(written)[1][1][0]["id"] == "toolu_01AbC"


def test_calls_of_two_turns_never_share_an_id() -> None:
    turn = (call("0"), output("0"))
    written = write(user("a"), *turn, user("b"), *turn)

    ids = [block["id"] for _, blocks in content(written) for block in blocks if "id" in block]
    assert len(set(ids)) == 2


def test_results_come_first_in_one_message_in_the_order_of_their_calls() -> None:
    written = write(user("a"), call("1"), call("2"), output("2", "b"), output("1", "a"), user("c"))

    role, blocks = content(written)[2]
    assert role == "user"
    assert [block.get("content") or block["text"] for block in blocks] == ["a", "b", "c"]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    written = write(user("a"), call("1"), user("go on"))

    result, after = content(written)[2][1]
    assert "no output was provided" in result["content"]
    assert after == text("go on")
    assert "no output was provided for 1" in written.report[0]


def test_a_failed_call_is_marked_and_its_prefix_taken_off() -> None:
    item = output("1", "Error: no such file", status="incomplete")

    result = content(write(user("a"), call("1"), item))[2][1][0]

    assert (result["is_error"], result["content"]) == (True, "no such file")


def test_results_keep_images_and_parts_that_are_not_known() -> None:
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
        {"type": "tool_reference", "tool_name": "later"},
    ]

    result = content(write(user("a"), call("1"), output("1", parts)))[2][1][0]

    kinds = [block["type"] for block in result["content"]]
    assert kinds == ["text", "image", "text"]
    assert "tool_reference" in result["content"][2]["text"]


def test_thinking_goes_back_byte_for_byte_before_its_call() -> None:
    written = write(user("a"), thought(), assistant("I look."), call("1"), output("1"))

    encoded = msgspec.json.encode(written.messages)
    assert b'"content":[' + SIGNED + b',{"type":"text","text":"I look."}' in encoded
    assert written.report == []


def test_interleaved_thinking_keeps_its_places() -> None:
    other = b'{"type":"redacted_thinking","data":"x"}'
    written = write(user("a"), thought(), call("1"), thought(other), call("2"), output("1"))

    kinds = [block["type"] for block in content(written)[1][1]]
    assert kinds == ["thinking", "tool_use", "redacted_thinking", "tool_use"]


@pytest.mark.parametrize("item", [thought(account="other"), thought(wire="gemini")])
def test_state_of_another_provider_or_account_is_left_out_and_reported(item: Item) -> None:
    written = write(user("a"), item, call("1"), output("1"))

    assert [block["type"] for block in content(written)[1][1]] == ["tool_use"]
    assert "state of another provider" in written.report[0]


def test_thinking_without_a_signature_is_left_out_and_reported() -> None:
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}

    written = write(user("a"), item, assistant("b"), user("c"))

    assert content(written)[1] == ("assistant", [text("b")])
    assert "only with the signature" in written.report[0]


def test_blocks_of_the_provider_go_back_as_they_came() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    items: list[Item] = [
        {**search, "type": "anthropic:server_tool_use"},
        {**found, "type": "anthropic:web_search_tool_result", "id": "item_7"},
    ]

    written = write(user("a"), *items, assistant("b"), user("c"))

    assert content(written)[1] == ("assistant", [search, found, text("b")])
    assert written.report == []


def test_a_paused_answer_is_the_last_message_as_it_came() -> None:
    blocks = [{"type": "text", "text": "So  "}, {"type": "server_tool_use", "id": "s"}]
    state = NativeState("messages", msgspec.json.encode(blocks), account="me")

    written = write(user("a"), paused_item(state), paused_item(state))

    assert content(written)[1] == ("assistant", [*blocks, *blocks])


def test_empty_texts_are_left_out_and_the_last_answer_ends_without_a_space() -> None:
    written = write(user("a"), user(""), user("  "), assistant(""), assistant("so then \n"))

    assert content(written) == [("user", [text("a")]), ("assistant", [text("so then")])]


def test_a_conversation_begins_with_the_user() -> None:
    written = write(assistant("Hello."), user("Hi."))

    assert [role for role, _ in content(written)] == ["user", "assistant", "user"]
    assert "user message is put before it" in written.report[0]


def test_an_orphaned_result_is_a_text_of_the_user() -> None:
    written = write(user("a"), output("nowhere", "lost"))

    assert content(written)[0][1][1:] == [text("Output of a tool call (nowhere):"), text("lost")]


def test_a_search_that_another_server_ran_is_a_call_with_its_result() -> None:
    action = {"type": "search", "query": "rain", "sources": [{"url": "https://a.example"}]}
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}

    written = write(user("a"), item, assistant("b"))

    used, result = content(written)[1][1][0], content(written)[2][1][0]
    assert (used["type"], result["type"]) == ("tool_use", "tool_result")
    assert "https://a.example" in result["content"]


@pytest.mark.parametrize(
    ("items", "lacks"),
    [
        ([user("a")], False),
        ([user("a"), assistant("b"), user("c")], False),
        ([user("a"), call("1"), output("1")], True),
        ([user("a"), thought(), call("1"), output("1")], False),
        ([user("a"), thought(), call("1"), output("1"), call("2"), output("2")], False),
        ([user("a"), call("1"), output("1"), user("b")], True),
    ],
)
def test_a_loop_of_calls_lacks_thinking_if_it_does_not_begin_with_it(
    items: list[Item], lacks: bool
) -> None:
    assert lacks_thinking(write(*items).messages) is lacks
