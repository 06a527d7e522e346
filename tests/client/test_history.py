"""History: what is new to a server that knows the beginning, however the caller writes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.client.errors import BadCall, MissingInput
from antiphon.client.history import (
    NO_OUTPUT,
    answer_calls,
    complete_history,
    fingerprint,
    is_model_made,
    new_items,
    repair_text,
    trim_to_new,
    unanswered_calls,
)
from antiphon.client.messages import items_from_messages
from antiphon.protocol.items import Item, text_of
from tests.strategies import texts


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def answer(text: str, **fields: Any) -> Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part], **fields}


def thought(text: str = "hm") -> Item:
    return {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": text}]}


def call(call_id: str, arguments: str = "{}") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "find", "arguments": arguments}


def output(call_id: str, text: str = "found") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


ASK, MORE = user("q"), user("more")


@pytest.mark.requirement("22-C4", "REQ-004.1")
@pytest.mark.parametrize(
    ("known", "retold"),
    [
        ([ASK, answer("a")], [ASK, answer("a")]),
        ([ASK, answer("a", id="msg_1", status="completed")], [ASK, answer("a")]),
        ([ASK, thought(), answer("a")], [ASK, answer("a")]),
        ([ASK, answer("a")], [ASK, thought(), answer("a")]),
        ([ASK, answer("a"), thought()], [ASK, answer("a"), thought()]),
        ([ASK, answer("a"), answer("b")], [ASK, answer("ab")]),
        ([ASK, answer("ab")], [ASK, answer("a"), answer(""), answer("b")]),
        ([ASK, answer("a"), thought(), answer("b")], [ASK, answer("ab")]),
        ([ASK, answer("")], [ASK]),
        ([ASK, answer("")], [ASK, answer("")]),
        ([ASK, {"type": "web_search_call", "id": "ws_1"}, answer("a")], [ASK, answer("a")]),
        (
            [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
            [ASK, answer("a")],
        ),
        (
            [ASK, answer("a", phase="final_answer")],
            [ASK, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}],
        ),
        ([ASK, call("c", '{"a": 1, "b": 2}')], [ASK, call("c", '{"b":2,"a":1}')]),
        ([ASK, call("c", "not json")], [ASK, call("c", "not json")]),
        (
            [call("c"), output("c", "x"), answer("a")],
            [
                call("c"),
                {**output("c"), "id": "fco", "output": [{"type": "input_text", "text": "x"}]},
                answer("a"),
            ],
        ),
        ([{"type": "acme:x", "id": "1", "y": 2}], [{"type": "acme:x", "y": 2, "status": "done"}]),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}],
            [
                {
                    "role": "user",
                    "content": [{"type": "input_image", "image_url": "u", "detail": None}],
                }
            ],
        ),
        ([{"role": "user", "content": [{"type": "text", "text": "q"}]}], [ASK]),
        ([], []),
    ],
)
def test_a_history_is_known_by_what_it_says(known: list[Item], retold: list[Item]) -> None:
    assert new_items(known, [*retold, MORE]) == [MORE]
    assert fingerprint(known) == fingerprint(retold)


@pytest.mark.requirement("REQ-004.2")
@pytest.mark.parametrize(
    ("known", "retold"),
    [
        ([ASK, answer("a")], [ASK]),
        ([ASK, answer("a")], [user("other"), answer("a")]),
        ([ASK, answer("a")], [{**ASK, "role": "system"}, answer("a")]),
        ([ASK, answer("a")], [ASK, answer("b")]),
        ([ASK, answer("ab")], [ASK, answer("a")]),
        ([ASK, answer("a")], [ASK, answer("ab")]),
        ([ASK, answer("a")], [ASK, call("c")]),
        ([ASK, call("c")], [ASK, answer("a")]),
        ([ASK, call("c")], [ASK, call("d")]),
        ([ASK, call("c", '{"a": 1}')], [ASK, call("c", '{"a": 2}')]),
        ([ASK, call("c", '{"a": 1}')], [ASK, call("c", '{"a": true}')]),
        ([call("c"), output("c", "x")], [call("c"), output("c", "y")]),
        ([{"type": "item_reference", "id": "1"}], [{"type": "item_reference", "id": "2"}]),
        (
            [{"role": "assistant", "content": [{"type": "input_image", "image_url": "a"}]}],
            [{"role": "assistant", "content": [{"type": "input_image", "image_url": "b"}]}],
        ),
        ([{"role": "user", "content": ["odd"]}], [{"role": "user", "content": ["even"]}]),
        ([{"role": "user", "content": None}], [{"role": "user", "content": 5}]),
    ],
)
def test_a_history_that_differs_is_never_cut(known: list[Item], retold: list[Item]) -> None:
    assert new_items(known, [*retold, MORE]) is None
    assert fingerprint(known) != fingerprint(retold)


def test_a_history_shorter_than_the_known_one_is_another() -> None:
    assert new_items([ASK, answer("a"), MORE], [ASK, answer("a")]) is None
    assert new_items([ASK, answer("a")], [ASK]) is None


@pytest.mark.parametrize("rest", [[], [thought()], [answer("")]])
def test_nothing_new_is_no_continuation(rest: list[Item]) -> None:
    assert new_items([ASK, answer("a")], [ASK, answer("a"), *rest]) is None


def test_what_the_caller_lets_the_model_say_is_new() -> None:
    assert new_items([ASK, answer("a")], [ASK, answer("a"), answer("b"), MORE]) == [
        answer("b"),
        MORE,
    ]


@pytest.mark.requirement("REQ-004.2")
def test_a_cut_falls_between_calls_and_all_their_outputs() -> None:
    known = [ASK, answer("see"), call("c1"), call("c2")]
    rest = [output("c1"), output("c2"), MORE]
    assert new_items(known, [*known, *rest]) == rest


@st.composite
def turns(draw: st.DrawFn) -> list[tuple[list[Item], list[Item]]]:
    """A conversation: what went in and what came out, turn by turn.

    Calls come last in a turn, because a chat message can say it no other way; each of them is
    answered at the beginning of the next turn, so the last turn of all has none.
    """
    told: list[tuple[list[Item], list[Item]]] = []
    waiting: list[str] = []
    count = draw(st.integers(1, 4))
    for number in range(count):
        asked = [output(call_id, draw(texts())) for call_id in waiting]
        asked += [user(draw(texts())) for _ in range(draw(st.integers(0 if waiting else 1, 2)))]
        made: list[Item] = []
        for index in range(draw(st.integers(0, 3))):
            said = answer(draw(texts()), id=f"msg_{number}_{index}", status="completed")
            hosted = {"type": "web_search_call", "id": f"ws_{number}", "status": "completed"}
            made.append(draw(st.sampled_from([said, said, thought(), hosted])))
        waiting = [f"call_{number}_{n}" for n in range(draw(st.integers(0, 2)))]
        if number == count - 1:
            waiting = []
        arguments = st.dictionaries(texts(), st.integers(), max_size=2).map(json.dumps)
        made += [{**call(call_id, draw(arguments)), "id": f"fc_{call_id}"} for call_id in waiting]
        told.append((asked, made))
    return told


def joined(told: list[tuple[list[Item], list[Item]]]) -> list[Item]:
    return [item for asked, made in told for item in (*asked, *made)]


def as_chat(told: list[tuple[list[Item], list[Item]]]) -> list[dict[str, Any]]:
    """The conversation as a chat program keeps it: one assistant message for each turn."""
    messages: list[dict[str, Any]] = []
    for asked, made in told:
        for item in asked:
            if item["type"] == "message":
                messages.append({"role": "user", "content": text_of(item["content"])})
            else:
                messages.append(
                    {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
                )
        calls = [
            {
                "id": item["call_id"],
                "type": "function",
                "function": {
                    "name": item["name"],
                    "arguments": json.dumps(json.loads(item["arguments"]), indent=1),
                },
            }
            for item in made
            if item["type"] == "function_call"
        ]
        said = "".join(text_of(item.get("content")) for item in made)
        messages.append({"role": "assistant", "content": said, "tool_calls": calls})
    return messages


@pytest.mark.requirement("REQ-004.1", "REQ-004.2", "22-B2")
@given(turns(), st.data())
def test_what_follows_any_turn_is_what_is_new(
    told: list[tuple[list[Item], list[Item]]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(told) - 1))
    known, rest = joined(told[:cut]), joined(told[cut:])
    assert new_items(known, [*known, *rest]) == rest
    assert _orphans(known, rest) == set()


@pytest.mark.requirement("REQ-004.1", "REQ-004.2", "22-B2")
@given(turns(), st.data())
def test_a_chat_programs_own_rendering_is_recognised(
    told: list[tuple[list[Item], list[Item]]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(told) - 1))
    known = joined(told[:cut])
    rest = items_from_messages(as_chat(told[cut:]))
    assert new_items(known, items_from_messages(as_chat(told))) == rest
    assert _orphans(known, rest) == set()


@pytest.mark.requirement("REQ-004.2")
@given(turns(), st.data())
def test_an_edited_history_is_never_taken_for_the_known_one(
    told: list[tuple[list[Item], list[Item]]], data: st.DataObject
) -> None:
    known = joined(told)
    place = data.draw(st.integers(0, len(known) - 1))
    edited = [*known, MORE]
    match edited[place]["type"]:
        case "message":
            part = edited[place]["content"][0]
            changed = {**part, "text": part["text"] + "!"}
            edited[place] = {**edited[place], "content": [changed]}
        case "function_call":
            edited[place] = {**edited[place], "arguments": '{"edited": []}'}
        case "function_call_output":
            edited[place] = {**edited[place], "output": edited[place]["output"] + "!"}
        case _:
            return
    rest = new_items(known, edited)
    # Text where there was none reads as a message that was added; the meaning is the same.
    assert rest is None or new_items(edited, [*known, *rest, user("end")]) == [user("end")]


@pytest.mark.requirement("REQ-004.1", "REQ-004.2", "22-B2")
@given(turns())
def test_trimming_leaves_the_next_turns_input(told: list[tuple[list[Item], list[Item]]]) -> None:
    history = [*joined(told), MORE]
    rest = trim_to_new(history)
    assert history[-len(rest) :] == rest
    assert not any(is_model_made(item) for item in rest)
    assert _orphans(history[: -len(rest)], rest) == set()


def _orphans(known: list[Item], rest: list[Item]) -> set[str]:
    called = {item["call_id"] for item in (*known, *rest) if item["type"] == "function_call"}
    return {item["call_id"] for item in rest if item["type"] == "function_call_output"} - called


@pytest.mark.requirement("22-B2", "REQ-004.1", "REQ-004.2")
@pytest.mark.parametrize(
    ("items", "rest"),
    [
        ([ASK], [ASK]),
        ([ASK, answer("a"), MORE], [MORE]),
        ([ASK, answer("a"), MORE, answer("b"), user("1"), user("2")], [user("1"), user("2")]),
        ([ASK, call("c"), output("c")], [output("c")]),
        ([ASK, call("c"), call("d"), output("d"), output("c"), MORE], None),
        ([ASK, call("c"), output("c"), thought(), answer("a"), MORE], [MORE]),
        ([ASK, {"type": "mcp_approval_request", "id": "1"}, MORE], [MORE]),
        ([ASK, call("c"), MORE], [output("c", NO_OUTPUT), MORE]),
        ([output("from_before"), MORE], [output("from_before"), MORE]),
    ],
)
def test_trimming_keeps_what_follows_the_models_last_item(
    items: list[Item], rest: list[Item] | None
) -> None:
    assert trim_to_new(items) == (rest or items[3:])


@pytest.mark.parametrize("last", [answer("a"), call("c"), thought()])
def test_a_history_that_ends_with_the_model_asks_nothing(last: Item) -> None:
    with pytest.raises(MissingInput, match="the model's own"):
        trim_to_new([ASK, last])


@pytest.mark.requirement("REQ-004.2")
def test_half_a_tool_pair_is_refused_with_the_calls_that_lack_an_output() -> None:
    with pytest.raises(BadCall, match="the calls c1, c3 have no output"):
        trim_to_new([ASK, call("c1"), call("c2"), call("c3"), output("c2"), MORE])


def test_only_the_last_turn_is_looked_at_for_missing_outputs() -> None:
    before = [call("old"), call("older"), output("old"), answer("a"), call("c")]
    assert unanswered_calls(before, [output("c")]) == []
    assert unanswered_calls(before, [MORE]) == ["c"]
    assert unanswered_calls([], [MORE]) == []


SHELL: list[Item] = [
    {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}},
    {"type": "shell_call_output", "call_id": "s", "output": []},
]
SEARCH: list[Item] = [
    {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}},
    {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": []},
]
PROGRAM: list[Item] = [
    {"type": "program", "call_id": "p", "code": "1"},
    {"type": "program_output", "call_id": "p", "result": "1", "status": "completed"},
]


@pytest.mark.parametrize("ran", [SHELL, SEARCH, PROGRAM])
def test_an_output_of_a_tool_that_the_server_ran_hides_no_unanswered_call(
    ran: list[Item],
) -> None:
    for before in ([ASK, call("c"), *ran], [ASK, *ran, call("c")]):
        assert unanswered_calls(before, [MORE]) == ["c"]
        assert unanswered_calls(before, [output("c")]) == []
        assert answer_calls(before, [MORE]) == [output("c", NO_OUTPUT), MORE]
    assert unanswered_calls([ASK, *ran], [MORE]) == []


@pytest.mark.parametrize("ran", [SEARCH, PROGRAM])
def test_an_output_of_the_server_is_not_sent_back_to_its_thread(ran: list[Item]) -> None:
    assert trim_to_new([ASK, call("c"), *ran, MORE]) == [output("c", NO_OUTPUT), MORE]
    assert trim_to_new([ASK, answer("a"), *ran, MORE]) == [MORE]


def test_calls_that_the_user_goes_on_without_get_an_output_that_says_so() -> None:
    custom = {"type": "custom_tool_call", "call_id": "d", "name": "sh", "input": "ls"}
    said = {"type": "custom_tool_call_output", "call_id": "d", "output": NO_OUTPUT}
    before = [ASK, thought(), call("c"), custom]
    assert answer_calls(before, [MORE]) == [output("c", NO_OUTPUT), said, MORE]
    assert answer_calls(before, [MORE, ASK]) == [output("c", NO_OUTPUT), said, MORE, ASK]


@pytest.mark.parametrize("after", [[], [output("c")], [output("c"), MORE], [answer("a")]])
def test_nothing_is_added_where_outputs_come_or_nobody_goes_on(after: list[Item]) -> None:
    assert answer_calls([ASK, call("b"), call("c")], after) == after


def test_a_call_that_no_text_can_answer_is_left_as_it_is() -> None:
    click = {"type": "computer_call", "call_id": "c", "action": {"type": "click"}}
    assert answer_calls([ASK, click], [MORE]) == [MORE]
    assert unanswered_calls([ASK, click], [MORE]) == ["c"]


def test_a_whole_history_is_completed_wherever_a_call_was_gone_on_from() -> None:
    items = [ASK, call("a"), call("b"), output("a"), MORE, answer("x"), call("c"), ASK, call("d")]
    assert complete_history(items) == [
        *(ASK, call("a"), call("b"), output("a"), output("b", NO_OUTPUT), MORE, answer("x")),
        *(call("c"), output("c", NO_OUTPUT), ASK, call("d")),
    ]
    assert complete_history([]) == []


def test_a_thought_at_the_end_is_known_by_its_id_however_it_is_rendered() -> None:
    asked = {"type": "message", "role": "user", "content": "x"}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"text": "hm"}]}
    shown = {"type": "reasoning", "id": "rs_1", "summary": [{"text": "hm"}]}
    more = {"type": "message", "role": "user", "content": "y"}

    assert new_items([asked, thought], [asked, shown, more]) == [more]


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("plain", "plain"),
        ("w\u00e4\U0001f600", "w\u00e4\U0001f600"),
        ("\ud83d", "\ufffd"),
        ("a\ude00b", "a\ufffdb"),
        ("\ud83dx", "\ufffdx"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
    ],
)
def test_half_a_character_is_mended(text: str, mended: str) -> None:
    assert repair_text([answer(text), {text: None}]) == [answer(mended), {mended: None}]


@given(st.text(st.characters(codec=None)))
def test_whatever_is_mended_can_be_written(text: str) -> None:
    assert repair_text(repair_text(text)) == repair_text(text)
    repair_text(text).encode()


def test_mending_gives_a_copy() -> None:
    item = answer("a")
    assert repair_text(item) == item
    assert repair_text(item)["content"] is not item["content"]
