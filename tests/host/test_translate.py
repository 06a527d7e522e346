"""Messages to items: the order kept, nothing lost, each call and each result once."""

from __future__ import annotations

import base64
import itertools
import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from antiphon.client.history import new_items
from antiphon.host.adapter import AdapterSettings, StreamAdapter
from antiphon.host.data import ITEM_MIME, show_annotation
from antiphon.host.errors import HostError, UnsupportedContent
from antiphon.host.options import RespondOptions, ToolSpec, make_params, translate_tools
from antiphon.host.translate import TranslateSettings, translate_messages
from antiphon.protocol.codec import encode_item
from antiphon.protocol.deltas import Delta, TextGrew
from antiphon.protocol.items import Item, check_item, item_type, text_of
from antiphon.wires.host.parts import (
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UrlPart,
)
from tests.building import STOP, build
from tests.host.test_images import png
from tests.strategies import broken_turns, texts

PNG = png(2, 2)
PDF = b"%PDF-1.7"
IMAGE = DataPart(PNG, "image/png")


def url(data: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


PNG_PART = {"type": "input_image", "image_url": url(PNG, "image/png"), "detail": "auto"}


def said(role: str, *content: str | dict[str, Any]) -> Item:
    """Return the message item that these texts and parts should make."""
    kind = {"assistant": "output_text"}.get(role, "input_text")
    notes: dict[str, Any] = {"annotations": []} if role == "assistant" else {}
    parts = [{"type": kind, "text": c} | notes if isinstance(c, str) else c for c in content]
    return {"type": "message", "role": role, "content": parts}


def call(call_id: str, name: str = "find", arguments: str = "{}") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def result(call_id: str, output: str | list[dict[str, Any]]) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def thought(text: str, **fields: str) -> Item:
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"type": "reasoning", "summary": summary, **fields}


def shown_item(item: Item) -> DataPart:
    return DataPart(encode_item(item), ITEM_MIME)


def items_of(*messages: Message, **settings: Any) -> list[Item]:
    return translate_messages(messages, TranslateSettings(**settings)).items


def output_of(*content: TextPart | DataPart, is_error: bool = False, **settings: Any) -> Any:
    part = ToolResultPart("c1", content, is_error)
    return items_of(Message.user([part]), **settings)[0]["output"]


@pytest.mark.requirement("RFC016-translator")
def test_each_role_speaks_in_its_own_kind_of_text() -> None:
    assert items_of(Message.user("Hi"), Message.assistant("Hello")) == [
        said("user", "Hi"),
        said("assistant", "Hello"),
    ]


@pytest.mark.requirement("RFC016-translator")
def test_a_message_is_split_at_calls_and_results_and_keeps_its_order() -> None:
    turn: list[Part] = [
        TextPart("Let me look."),
        ToolCallPart("c1", "find", {"name": "Ödön", "limit": 2}),
        ToolCallPart("c2", "find", {}),
        TextPart("One moment."),
    ]
    answers: list[Part] = [
        ToolResultPart("c1", [TextPart("yes")]),
        ToolResultPart("c2", [TextPart("no")]),
        TextPart("And now?"),
    ]
    assert items_of(Message.assistant(turn), Message.user(answers)) == [
        said("assistant", "Let me look."),
        call("c1", arguments='{"name":"Ödön","limit":2}'),
        call("c2"),
        said("assistant", "One moment."),
        result("c1", "yes"),
        result("c2", "no"),
        said("user", "And now?"),
    ]


@pytest.mark.requirement("RFC016-translator")
def test_the_pieces_of_an_answer_are_joined_and_those_of_a_question_are_not() -> None:
    pieces = [TextPart("Hel"), TextPart("lo")]
    assert items_of(Message.assistant(pieces)) == [said("assistant", "Hello")]
    assert items_of(Message.user(pieces)) == [said("user", "Hel", "lo")]


@pytest.mark.requirement("RFC016-translator")
def test_what_is_empty_is_dropped() -> None:
    empty: list[Part] = [TextPart(""), DataPart(b"", "image/png"), DataPart(b"", "text/plain")]
    messages = [Message.user(""), Message.assistant([]), Message.user(empty), Message.system("")]
    assert translate_messages([*messages, Message.user(" ")]).items == [said("user", " ")]
    assert translate_messages(messages).instructions is None


@pytest.mark.requirement("RFC016-translator")
def test_system_messages_at_the_head_are_instructions() -> None:
    two_parts = Message(Role.SYSTEM, [TextPart("Be "), TextPart("brief.")])
    messages = [two_parts, Message.system("Be kind."), Message.user("Hi")]
    translation = translate_messages(messages)
    assert translation.instructions == "Be brief.\n\nBe kind."
    assert translation.items == [said("user", "Hi")]


@pytest.mark.requirement("RFC016-translator")
def test_a_later_system_message_stays_in_its_place() -> None:
    messages = [Message.user("Hi"), Message.system("Be brief."), Message.user("Go on")]
    translation = translate_messages(messages)
    assert translation.instructions is None
    assert translation.items == [
        said("user", "Hi"),
        said("system", "Be brief."),
        said("user", "Go on"),
    ]


@pytest.mark.requirement("RFC016-translator")
def test_a_system_prompt_comes_before_the_system_messages() -> None:
    settings = TranslateSettings(system_prompt="You are an editor.")
    translation = translate_messages([Message.system("Be brief.")], settings)
    assert translation.instructions == "You are an editor.\n\nBe brief."
    assert translate_messages([], settings).instructions == "You are an editor."


@pytest.mark.requirement("RFC016-translator")
def test_data_that_is_text_is_text_wherever_it_stands() -> None:
    part = DataPart(b"a,b", "text/csv")
    assert items_of(Message.user([part])) == [said("user", "a,b")]
    assert items_of(Message.assistant([part])) == [said("assistant", "a,b")]
    assert translate_messages([Message(Role.SYSTEM, [part])]).instructions == "a,b"
    assert output_of(TextPart("See:"), part) == "See:\na,b"


@pytest.mark.requirement("RFC016-translator")
def test_notes_of_the_host_are_not_sent() -> None:
    marker = DataPart(b"ephemeral", "cache_control")
    assert items_of(Message.user([TextPart("Hi"), marker])) == [said("user", "Hi")]
    assert output_of(marker, TextPart("done")) == "done"
    with pytest.raises(UnsupportedContent):
        items_of(Message.user([DataPart(b"note", "acme_note"), TextPart("Hi")]))


@pytest.mark.requirement("RFC016-translator")
def test_an_item_that_was_shown_as_data_is_that_item_again() -> None:
    item = {"type": "acme:lookup", "id": "acme_1", "status": "completed"}
    turn: list[Part] = [TextPart("Let me see."), shown_item(item), TextPart("Found.")]
    assert items_of(Message.assistant(turn)) == [
        said("assistant", "Let me see."),
        item,
        said("assistant", "Found."),
    ]


SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
RUN = {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1"}


@pytest.mark.requirement("RFC016-translator")
def test_what_the_server_ran_goes_back_with_the_thought_before_it() -> None:
    turn: list[Part] = [
        ThinkingPart("Hm", "rs_1"),
        shown_item(SEARCH),
        ThinkingPart("", "rs_2", {"encrypted_content": "sealed"}),
        shown_item(RUN),
        TextPart("Found."),
    ]
    assert items_of(Message.assistant(turn)) == [
        thought("Hm", id="rs_1"),
        SEARCH,
        thought("", id="rs_2", encrypted_content="sealed"),
        RUN,
        said("assistant", "Found."),
    ]


@pytest.mark.requirement("RFC016-translator")
@pytest.mark.parametrize(
    "before",
    [
        [],
        [ThinkingPart("Hm")],
        [ThinkingPart("Hm", "rs_1"), TextPart("So.")],
        [ThinkingPart("Hm", "rs_1"), ToolCallPart("c1", "find", {})],
        [ThinkingPart("Hm", "rs_1"), IMAGE],
    ],
)
def test_without_its_thought_a_search_has_no_id_and_the_rest_stays_at_home(
    before: list[Part], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = items_of(Message.assistant(before))
    items = items_of(Message.assistant([*before, shown_item(RUN), shown_item(SEARCH)]))
    search = {"type": "web_search_call", "status": "completed"}
    assert sorted(map(repr, items)) == sorted(map(repr, [*told, search]))
    assert caplog.messages == ["a code_interpreter_call is not sent without the thought before it"]


def test_a_model_that_does_not_reason_has_no_thought_to_miss() -> None:
    turn = Message.assistant([shown_item(SEARCH), shown_item(RUN)])
    assert items_of(turn, may_reason=False) == [SEARCH, RUN]


NOTE = {"type": "url_citation", "url": "https://a.example/x_(y)?q=1", "title": "A [B] \\ C"}


@pytest.mark.requirement("RFC016-translator", "RFC016-open-question")
@given(
    st.builds(
        lambda title, path: NOTE | {"title": title, "url": "https://a.example/" + path},
        texts() | st.sampled_from(["", "[", "]](", "\\", "\\]", "a\\[b\\]", NOTE["title"]]),
        texts() | st.sampled_from(["", "(", ")", "[x](y)", " "]),
    )
)
def test_a_link_that_the_adapter_added_is_no_part_of_the_answer(note: dict[str, Any]) -> None:
    turn = [TextPart("So"), *show_annotation(note, "inline"), TextPart(" it is.")]
    assert items_of(Message.assistant(turn)) == [said("assistant", "So it is.")]


@pytest.mark.parametrize(
    "text",
    [
        "[a](https://a.example)",
        " [a](https://a.example).",
        " [a](ftp://a.example)",
        " [a]b](https://a.example)",
        " [a  b](https://a.example)",
        " [a](https://a.example/(x))",
        " [](https://a.example)",
        " [a](https://a.example) [b](https://b.example)",
    ],
)
def test_a_text_that_is_not_quite_such_a_link_is_text(text: str) -> None:
    turn = [TextPart("So"), TextPart(text)]
    assert items_of(Message.assistant(turn)) == [said("assistant", "So" + text)]


def test_a_link_is_text_where_the_adapter_adds_none() -> None:
    link = TextPart(" [a](https://a.example)")
    assert items_of(Message.assistant([link])) == [said("assistant", link.value)]
    assert items_of(Message.user([TextPart("So"), link])) == [said("user", "So", link.value)]
    spoken = Message.assistant([TextPart("So"), link])
    assert items_of(spoken, inline_links=False) == [said("assistant", "So" + link.value)]
    assert items_of(Message.assistant("Hi"), Message.assistant([link]))[1] == said(
        "assistant", link.value
    )


@pytest.mark.requirement("RFC016-translator", "003-tools")
def test_a_call_of_a_custom_tool_and_its_result_stay_so() -> None:
    turn = [ToolCallPart("gw-c1", "sh", {"input": "ls"}, "custom"), ToolCallPart("c2", "find", {})]
    results = [ToolResultPart(part.call_id, [TextPart("ok")]) for part in turn]
    messages = [Message.assistant(turn), Message.user(results)]
    assert items_of(*messages, call_prefix="gw-") == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls"},
        call("c2"),
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
        result("c2", "ok"),
    ]
    assert items_of(*messages, call_prefix="gw-", custom_calls=False) == [
        call("c1", "sh", '{"input":"ls"}'),
        call("c2"),
        result("c1", "ok"),
        result("c2", "ok"),
    ]


def test_a_custom_call_without_a_text_is_sent_as_it_is() -> None:
    (item,) = items_of(Message.assistant([ToolCallPart("c1", "sh", {"x": 1}, "custom")]))
    assert item["input"] == '{"x":1}'


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"type":1}', b"\xff"])
def test_what_is_no_item_is_data_like_any_other(data: bytes) -> None:
    (item,) = items_of(Message.user([DataPart(data, ITEM_MIME)]))
    assert item["type"] == "message"


@pytest.mark.requirement("RFC016-translator")
def test_an_image_of_the_assistant_follows_in_a_message_of_the_user() -> None:
    drawn = Message.assistant([TextPart("Here:"), IMAGE, IMAGE, TextPart("Good?")])
    assert items_of(drawn) == [
        said("assistant", "Here:"),
        said("user", PNG_PART, PNG_PART),
        said("assistant", "Good?"),
    ]
    assert items_of(Message.assistant([IMAGE])) == [said("user", PNG_PART)]


def test_an_image_of_a_system_message_follows_in_a_message_of_the_user() -> None:
    shown = Message(Role.SYSTEM, [TextPart("Our logo:"), IMAGE, TextPart("Use it.")])
    translation = translate_messages([shown, Message.system("Be brief."), Message.user("Hi")])
    assert translation.instructions == "Our logo:Use it."
    assert translation.items == [
        said("user", PNG_PART),
        said("system", "Be brief."),
        said("user", "Hi"),
    ]


def test_data_at_an_address_stands_where_data_does() -> None:
    url = "http://127.0.0.1/a.png"
    part, sent = UrlPart(url, "image/png"), {"image_url": url, "detail": "auto"}
    shown = {"type": "input_image", **sent}
    assert items_of(Message.user([TextPart("Look:"), part])) == [said("user", "Look:", shown)]
    result = ToolResultPart("c1", [part])
    assert items_of(Message.user([result]))[0]["output"] == [shown]


@pytest.mark.requirement("RFC016-translator")
def test_an_image_never_parts_calls_from_their_results() -> None:
    drawn = Message.assistant([IMAGE, ToolCallPart("c1", "find", {}), IMAGE])
    answer = Message.user([ToolResultPart("c1", [TextPart("yes")])])
    again = Message.assistant([ToolCallPart("c2", "find", {})])
    assert items_of(drawn, answer, again) == [
        said("user", PNG_PART),
        call("c1"),
        result("c1", "yes"),
        said("user", PNG_PART),
        call("c2"),
    ]


@pytest.mark.requirement("RFC016-translator")
def test_an_image_between_two_calls_follows_their_results() -> None:
    calls = [ToolCallPart(name, "find", {}) for name in ("c1", "c2")]
    results = [ToolResultPart(name, [TextPart("yes")]) for name in ("c1", "c2")]
    drawn = Message.assistant([calls[0], IMAGE, calls[1]])
    assert items_of(drawn, Message.user(results)) == [
        call("c1"),
        call("c2"),
        result("c1", "yes"),
        result("c2", "yes"),
        said("user", PNG_PART),
    ]


@pytest.mark.requirement("RFC016-translator")
def test_a_result_of_texts_is_one_string() -> None:
    assert output_of(TextPart("one"), TextPart(""), TextPart("two")) == "one\ntwo"


@pytest.mark.requirement("RFC016-translator")
def test_a_result_with_images_is_a_list_of_parts() -> None:
    assert output_of(TextPart("A chart:"), IMAGE) == [
        {"type": "input_text", "text": "A chart:"},
        PNG_PART,
    ]


@pytest.mark.requirement("RFC016-translator")
def test_where_only_strings_are_taken_the_images_follow_all_results() -> None:
    calls = Message.assistant([ToolCallPart("c1", "draw", {}), ToolCallPart("c2", "draw", {})])
    first = Message.user([ToolResultPart("c1", [TextPart("A chart:"), IMAGE])])
    second = Message.user([ToolResultPart("c2", [IMAGE])])
    comment = Message.assistant([ThinkingPart("Hm", "rs_1"), TextPart("Nice.")])
    assert items_of(calls, first, second, comment, tool_images="message") == [
        call("c1", "draw"),
        call("c2", "draw"),
        result("c1", "A chart:"),
        result("c2", ""),
        said("user", PNG_PART, PNG_PART),
        thought("Hm", id="rs_1"),
        said("assistant", "Nice."),
    ]


@pytest.mark.requirement("RFC016-translator")
def test_a_result_without_content_is_empty_and_no_object() -> None:
    assert output_of() == ""
    assert output_of(TextPart("")) == ""


@pytest.mark.requirement("RFC016-translator")
def test_a_failed_tool_speaks_for_itself_unless_it_is_silent() -> None:
    assert output_of(TextPart("no such file"), is_error=True) == "no such file"
    assert output_of(is_error=True) == "Error"


@pytest.mark.requirement("RFC22-namespacing")
def test_the_prefix_of_call_ids_is_taken_off_where_it_is() -> None:
    calls = [ToolCallPart(name, "find", {}) for name in ("gw-c1", "c2", "gw-gw-c3")]
    results = [ToolResultPart(part.call_id, [TextPart("ok")]) for part in calls]
    messages = [Message.assistant(calls), Message.user(results)]
    prefixed = items_of(*messages, call_prefix="gw-")
    assert [item["call_id"] for item in prefixed] == ["c1", "c2", "gw-c3"] * 2
    assert [item["call_id"] for item in items_of(*messages)] == ["gw-c1", "c2", "gw-gw-c3"] * 2


def test_a_call_takes_mappings_of_any_kind() -> None:
    frozen = MappingProxyType({"where": MappingProxyType({"city": "Wien"})})
    part = ToolCallPart("c1", "find", frozen)
    assert items_of(Message.assistant([part])) == [
        call("c1", arguments='{"where":{"city":"Wien"}}')
    ]


def test_a_call_with_a_number_that_json_has_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        items_of(Message.assistant([ToolCallPart("c1", "find", {"x": float("nan")})]))


@pytest.mark.requirement("RFC22-thinking")
def test_thoughts_of_one_id_are_one_item_where_the_first_stood() -> None:
    sealed = ThinkingPart("", "rs_1", {"encrypted_content": "sealed"})
    turn: list[Part] = [
        ThinkingPart("Let me ", "rs_1"),
        ThinkingPart("see.", "rs_1"),
        TextPart("Hello"),
        sealed,
        ThinkingPart("", "rs_2"),
        ToolCallPart("c1", "find", {}),
    ]
    assert items_of(Message.assistant(turn)) == [
        thought("Let me see.", id="rs_1", encrypted_content="sealed"),
        said("assistant", "Hello"),
        thought("", id="rs_2"),
        call("c1"),
    ]


@pytest.mark.requirement("RFC22-thinking")
def test_a_thought_without_an_id_goes_back_if_it_is_encrypted() -> None:
    sealed = ThinkingPart("see.", None, {"encrypted_content": "sealed"})
    item = thought("Let me see.", encrypted_content="sealed")
    assert items_of(Message.assistant([ThinkingPart("Let me "), sealed])) == [item]
    apart = [Message.assistant([ThinkingPart("Let me ")]), Message.assistant([sealed])]
    assert items_of(*apart) == [thought("see.", encrypted_content="sealed")]
    between: list[Part] = [TextPart("Hm."), ThinkingPart("", "rs_1")]
    for other in between:
        sent = items_of(Message.assistant([ThinkingPart("Let me "), other, sealed]))
        assert sent[-1] == thought("see.", encrypted_content="sealed")


@pytest.mark.requirement("RFC22-thinking")
@pytest.mark.parametrize(
    "part",
    [ThinkingPart("Hm"), ThinkingPart("Hm", "", {"encrypted_content": None, "other": 1})],
)
def test_a_thought_that_no_server_can_know_again_is_left_out(part: ThinkingPart) -> None:
    turn: list[Part] = [TextPart("Hel"), part, TextPart("lo")]
    assert items_of(Message.assistant(turn)) == [said("assistant", "Hello")]


@pytest.mark.requirement("RFC22-thinking")
def test_thoughts_stay_at_home_for_a_model_that_did_not_think_them() -> None:
    turn: list[Part] = [
        ThinkingPart("Hm", "rs_1", {"encrypted_content": "sealed"}),
        TextPart("Hello"),
    ]
    assert items_of(Message.assistant(turn), keeps_reasoning=False) == [said("assistant", "Hello")]


@pytest.mark.requirement("RFC22-thinking")
def test_where_nothing_is_stored_only_encrypted_thoughts_go_back() -> None:
    turn: list[Part] = [
        ThinkingPart("Let me ", "rs_1"),
        ThinkingPart("Hm", "rs_2"),
        TextPart("Hel"),
        ThinkingPart("Hm", "rs_3"),
        TextPart("lo"),
        ThinkingPart("see.", "rs_1", {"encrypted_content": "sealed"}),
        shown_item(RUN),
    ]
    assert items_of(Message.assistant(turn), is_stored=False) == [
        thought("Let me see.", id="rs_1", encrypted_content="sealed"),
        said("assistant", "Hello"),
    ]


@pytest.mark.requirement("RFC016-translator")
def test_tools_become_function_tools() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    tools = [ToolSpec("find", "Finds it.", schema), ToolSpec("stop", "")]
    assert translate_tools(tools) == [
        {
            "type": "function",
            "name": "find",
            "description": "Finds it.",
            "parameters": schema,
            "strict": False,
        },
        {
            "type": "function",
            "name": "stop",
            "description": "",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
    ]


def test_a_schema_takes_mappings_of_any_kind() -> None:
    inner = MappingProxyType({"name": MappingProxyType({"type": "string"})})
    (tool,) = translate_tools([ToolSpec("find", "Finds it.", {"properties": inner})])
    assert msgspec.json.encode(tool["parameters"]) == b'{"properties":{"name":{"type":"string"}}}'


@pytest.mark.requirement("RFC016-translator", "003-tool-choice")
def test_a_tool_mode_is_a_tool_choice() -> None:
    def choice(mode: Any) -> object:
        options = RespondOptions(tools=[ToolSpec("find", "Finds.")], tool_mode=mode)
        return make_params("m", translate_messages([]), options, "responses")["tool_choice"]

    modes = ["auto", "required", "none"]
    assert [choice(mode) for mode in modes] == modes
    with pytest.raises(ValueError, match="auto, required, none"):
        choice("any")


# Properties


def datas() -> st.SearchStrategy[DataPart]:
    """Data of every kind; the text among it is text/plain."""
    shown = st.sampled_from([IMAGE, DataPart(PDF, "application/pdf"), DataPart(b"", "image/gif")])
    return shown | texts().map(lambda text: DataPart(text.encode(), "text/plain"))


def contents() -> st.SearchStrategy[list[TextPart | DataPart]]:
    return st.lists(texts().map(TextPart) | datas(), max_size=3)


def parts() -> st.SearchStrategy[Part]:
    return st.one_of(
        texts().map(TextPart),
        datas(),
        st.just(ToolCallPart("c", "find", {"x": 1})),
        contents().map(lambda content: ToolResultPart("c", content)),
        st.builds(ThinkingPart, texts(), st.sampled_from([None, "rs_1", "rs_2"])),
    )


def with_own_ids(messages: list[Message]) -> list[Message]:
    """Return the messages with another id for every call and every result."""
    numbers = itertools.count()

    def own(part: Part) -> Part:
        if isinstance(part, ToolCallPart | ToolResultPart):
            return msgspec.structs.replace(part, call_id=f"c{next(numbers)}")
        return part

    return [Message(message.role, [own(part) for part in message.content]) for message in messages]


def conversations() -> st.SearchStrategy[list[Message]]:
    """Messages of any role with any parts; every call and result has its own id."""
    message = st.builds(Message, st.sampled_from(Role), st.lists(parts(), max_size=5))
    return st.lists(message, max_size=5).map(with_own_ids)


def settings() -> st.SearchStrategy[TranslateSettings]:
    where = st.sampled_from(["content", "message"])
    return st.builds(TranslateSettings, tool_images=where, keeps_reasoning=st.booleans())


def text_in(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.value
    return part.data.decode() if isinstance(part, DataPart) and part.mime == "text/plain" else ""


def files_in(parts: Sequence[Part]) -> list[bytes]:
    """Return what is neither text nor empty, also inside of results."""
    found: list[bytes] = []
    for part in parts:
        if isinstance(part, ToolResultPart):
            found += files_in(part.content)
        elif isinstance(part, DataPart) and part.data and part.mime != "text/plain":
            found.append(part.data)
    return found


def files_sent(items: list[Item]) -> list[bytes]:
    contents = [item.get("content") or item.get("output") for item in items]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    urls = [part.get("image_url") or part.get("file_data") for part in parts]
    return [base64.b64decode(link.partition(",")[2]) for link in urls if link]


@pytest.mark.requirement("RFC016-translator")
@given(conversations(), settings())
def test_no_text_is_lost_or_moved_to_another_speaker(
    messages: list[Message], how: TranslateSettings
) -> None:
    translation = translate_messages(messages, how)
    for role in Role:
        told = "".join(
            text_in(part)
            for message in messages
            if message.role is role
            for part in message.content
        )
        sent = "".join(
            text_of(item["content"]) for item in translation.items if item.get("role") == role.value
        )
        if role is Role.SYSTEM:
            # Blank lines join the instructions; the texts themselves may hold some, too.
            sent = (translation.instructions or "") + sent
            told, sent = told.replace("\n", ""), sent.replace("\n", "")
        assert sent == told


@pytest.mark.requirement("RFC016-translator")
@given(conversations(), settings())
def test_every_call_and_result_is_sent_once_and_in_order(
    messages: list[Message], how: TranslateSettings
) -> None:
    items = translate_messages(messages, how).items
    parts = [part for message in messages for part in message.content]
    calls = [part for part in parts if isinstance(part, ToolCallPart | ToolResultPart)]
    sent = [item for item in items if item_type(item).startswith("function_call")]
    assert [item["call_id"] for item in sent] == [part.call_id for part in calls]
    for part, item in zip(calls, sent, strict=True):
        if isinstance(part, ToolCallPart):
            assert json.loads(item["arguments"]) == part.input
        else:
            told = [text for text in map(text_in, part.content) if text]
            output = item["output"]
            joined = "\n" if isinstance(output, str) else ""
            assert text_of(output) == joined.join(told)


def merged(tokens: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the tokens without empty ones, texts of one speaker in a row as one."""
    runs = itertools.groupby((token for token in tokens if token[1]), lambda token: token[0])
    result = []
    for kind, run in runs:
        values = [value for _, value in run]
        joined = [values] if kind in ("call", "result") else [["".join(values)]]
        result += [(kind, value) for group in joined for value in group]
    return result


@pytest.mark.requirement("RFC016-translator")
@given(conversations(), settings())
def test_texts_calls_and_results_keep_their_order(
    messages: list[Message], how: TranslateSettings
) -> None:
    messages = [message for message in messages if message.role is not Role.SYSTEM]
    told = []
    for message in messages:
        for part in message.content:
            match part:
                case ToolCallPart():
                    told.append(("call", part.call_id))
                case ToolResultPart():
                    told.append(("result", part.call_id))
                case _:
                    told.append((message.role.value, text_in(part)))
    sent = []
    for item in translate_messages(messages, how).items:
        match item_type(item):
            case "function_call":
                sent.append(("call", item["call_id"]))
            case "function_call_output":
                sent.append(("result", item["call_id"]))
            case "message":
                sent.append((item["role"], text_of(item["content"])))
    assert merged(sent) == merged(told)


@pytest.mark.requirement("RFC016-translator")
@given(conversations(), settings())
def test_every_image_and_file_is_sent_once(messages: list[Message], how: TranslateSettings) -> None:
    told = files_in([part for message in messages for part in message.content])
    assert Counter(files_sent(translate_messages(messages, how).items)) == Counter(told)


@pytest.mark.requirement("RFC016-translator")
@given(conversations(), settings())
def test_what_is_sent_is_what_the_protocol_allows(
    messages: list[Message], how: TranslateSettings
) -> None:
    items = translate_messages(messages, how).items
    allowed = {
        "user": {"input_text", "input_image", "input_file"},
        "system": {"input_text"},
        "assistant": {"output_text"},
    }
    for number, item in enumerate(items):
        check_item(item, f"input[{number}]")
        if item_type(item) == "message":
            assert item["content"]
            assert {part["type"] for part in item["content"]} <= allowed[item["role"]]
    thoughts = [item["id"] for item in items if item_type(item) == "reasoning"]
    assert len(thoughts) == len(set(thoughts))


@pytest.mark.requirement("RFC016-translator", "RFC016-open-question")
@given(broken_turns(), settings())
def test_an_answer_that_the_host_hands_back_is_known_again(
    deltas: list[Delta], how: TranslateSettings
) -> None:
    """What the adapter showed, put into the next request, is what the server said.

    Histories are compared by what was said and called, so the answer ends in something said.
    """
    adapter = StreamAdapter(AdapterSettings(shows_thinking=True, annotations="data"))
    events = build([*deltas, TextGrew("Done."), STOP])
    shown = [part for event in events for part in adapter.feed(event)]
    try:
        outcome = adapter.finish()
    except HostError:
        reject()
    assume(not outcome.meta.deviations)
    calls = [item["call_id"] for item in outcome.response.output if "call_id" in item]
    assume(len(calls) == len(set(calls)))
    question, more = Message.user("Hi"), Message.user("And?")
    known = [*translate_messages([question]).items, *outcome.response.output]
    items = translate_messages([question, Message.assistant(shown), more], how).items
    assert new_items(known, items) == [said("user", "And?")]
