"""Continuation: what is sent, what stands by, and what is remembered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.client.continuation import (
    Continuation,
    continue_from,
    full_history,
    kept_id,
    next_thread,
)
from antiphon.client.conversation import Thread
from antiphon.client.errors import BadCall, MissingInput
from antiphon.client.history import NO_OUTPUT
from antiphon.client.request import build_request
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response, Usage


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def answer(text: str, **fields: Any) -> Item:
    part = {"type": "output_text", "text": text}
    return {"type": "message", "role": "assistant", "content": [part], **fields}


ASK, MORE, SAID = user("q"), user("more"), answer("a")
CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
NEXT = {"role": "user", "content": "more"}
KNOWN = Thread(response_id="resp_1", items=(ASK, {**SAID, "id": "msg_1"}))
UNKEPT = Thread(response_id=None, items=KNOWN.items)
PARTIAL = Thread(response_id="resp_1", items=(SAID,), is_whole=False)
LOST = Thread(response_id=None, items=(SAID,), is_whole=False)
TALK = Thread(response_id="resp_1", conversation="conv_1", items=(ASK, SAID), is_whole=False)


def ask(thread: Thread | None = None, *, keeps: bool = True, **params: Any) -> Continuation:
    return continue_from(build_request(params), thread, server_keeps_threads=keeps)


@pytest.mark.requirement("22-A3")
def test_without_a_thread_a_call_goes_as_it_is() -> None:
    sent = ask(input="q", model="m")
    assert (sent.body, sent.fallback) == ({"input": "q", "model": "m"}, None)
    assert (sent.items, sent.is_whole, sent.is_kept) == ([ASK], True, True)
    assert ask(messages=[*CHAT, NEXT]).body == {"input": [ASK, SAID, MORE]}


@pytest.mark.requirement("22-B2", "REQ-004.1", "REQ-004.2")
def test_messages_with_a_response_to_continue_are_trimmed_to_what_is_new() -> None:
    sent = ask(messages=[*CHAT, NEXT], previous_response_id="resp_9", model="m")
    assert sent.body == {"model": "m", "previous_response_id": "resp_9", "input": [MORE]}
    assert sent.fallback == {"model": "m", "input": [ASK, SAID, MORE]}
    assert (sent.items, sent.is_whole) == ([ASK, SAID, MORE], True)


@pytest.mark.requirement("22-B2", "REQ-004.1", "REQ-004.3")
def test_messages_with_a_conversation_are_trimmed_without_a_way_back() -> None:
    sent = ask(messages=[*CHAT * 3, NEXT], conversation_id="conv_9")
    assert (sent.body, sent.fallback) == ({"conversation": "conv_9", "input": [MORE]}, None)


@pytest.mark.requirement("22-B2", "REQ-010.1")
def test_trimming_is_noted_in_figures() -> None:
    asked = [
        ask(messages=[*CHAT * 3, NEXT], conversation="conv_9"),
        ask(KNOWN, session="s", messages=[*CHAT, NEXT]),
        ask(KNOWN, session="s", messages=[NEXT]),
        ask(messages=[NEXT], parent_id="resp_9"),
    ]
    assert [continuation.note for continuation in asked] == [
        "trimmed 6 of 7 items that the server has",
        "trimmed 2 of 3 items that the server has",
        "history differs from the thread: all 1 items are sent",
        "",
    ]


@pytest.mark.requirement("REQ-004.2")
def test_new_messages_alone_are_no_history_to_fall_back_on() -> None:
    sent = ask(messages=[NEXT], parent_id="resp_9")
    assert (sent.body, sent.fallback) == (
        {"previous_response_id": "resp_9", "input": [MORE]},
        None,
    )
    assert sent.is_whole is False


@pytest.mark.requirement("REQ-004.2")
def test_half_a_tool_pair_is_never_sent_to_a_thread() -> None:
    calls = [
        {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"} for name in "ab"
    ]
    output = {"type": "function_call_output", "call_id": "a", "output": "1"}
    with pytest.raises(BadCall, match="the calls b have no output"):
        ask(messages=[ASK, *calls, output], previous_response_id="resp_1")
    thread = Thread(response_id="resp_1", items=(ASK, *calls))
    sent = ask(thread, session="s", messages=[ASK, *calls, output, MORE])
    assert sent.body == {"input": [ASK, *calls, output, MORE]}
    missing = {"type": "function_call_output", "call_id": "b", "output": NO_OUTPUT}
    assert sent.fallback == {"input": [ASK, *calls, output, missing, MORE]}


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
NOTHING = {"type": "function_call_output", "call_id": "c", "output": NO_OUTPUT}
OPEN = Thread(response_id="resp_1", items=(ASK, CALL))
IN_CONVERSATION = Thread(response_id="resp_1", conversation="conv_1", items=(ASK, CALL))


@pytest.mark.parametrize(
    ("thread", "given"),
    [
        (OPEN, {"session": "s", "messages": [ASK, CALL, MORE]}),
        (OPEN, {"session": "s", "input": [MORE]}),
        (OPEN, {"session": "s", "input": [MORE], "previous_response_id": "resp_1"}),
        (None, {"messages": [ASK, CALL, MORE], "previous_response_id": "resp_1"}),
        (IN_CONVERSATION, {"session": "s", "input": [MORE]}),
        (IN_CONVERSATION, {"session": "s", "messages": [ASK, CALL, MORE]}),
    ],
)
def test_a_thread_is_not_continued_without_the_output_of_its_last_call(
    thread: Thread | None, given: dict[str, Any]
) -> None:
    sent = ask(thread, **given)
    assert sent.body["input"] == [NOTHING, MORE]
    assert "previous_response_id" in sent.body or "conversation" in sent.body
    assert sent.items == [ASK, CALL, MORE] or not sent.is_whole
    if sent.fallback is not None:
        assert sent.fallback["input"] == [ASK, CALL, NOTHING, MORE]


def test_a_call_that_no_text_can_answer_makes_a_session_send_everything() -> None:
    click = {"type": "computer_call", "call_id": "c", "action": {"type": "click"}}
    thread = Thread(response_id="resp_1", items=(ASK, click))
    sent = ask(thread, session="s", messages=[ASK, click, MORE])
    assert sent.body == {"input": [ASK, click, MORE]}
    assert ask(thread, session="s", input=[MORE]).body == {"input": [ASK, click, MORE]}


def test_an_input_with_some_outputs_of_a_turn_is_not_sent_to_the_thread() -> None:
    other = {**CALL, "call_id": "d"}
    output = {"type": "function_call_output", "call_id": "d", "output": "1"}
    thread = Thread(response_id="resp_1", items=(ASK, CALL, other))
    sent = ask(thread, session="s", input=[output, MORE])
    assert sent.body == {"input": [ASK, CALL, other, output, NOTHING, MORE]}
    assert sent.items == [ASK, CALL, other, output, MORE]
    assert sent.note == "a call of the thread has no output: all 6 items are sent"


def test_what_is_sent_whole_goes_as_it_is_and_completed_only_as_a_fallback() -> None:
    sent = ask(messages=[ASK, CALL, MORE])
    assert sent.body == {"input": [ASK, CALL, MORE]}
    assert sent.fallback == {"input": [ASK, CALL, NOTHING, MORE]}
    assert ask(messages=[ASK, CALL, MORE], keeps=False).fallback is None
    assert ask(input=[ASK, CALL, MORE]).fallback is None


def test_input_for_another_thread_is_not_completed() -> None:
    sent = ask(OPEN, session="s", input=[MORE], previous_response_id="resp_0")
    assert sent.body["input"] == [MORE]


def test_messages_that_end_with_the_model_ask_nothing() -> None:
    with pytest.raises(MissingInput):
        ask(messages=CHAT, previous_response_id="resp_1")


@pytest.mark.requirement("REQ-004.1")
@pytest.mark.parametrize("name", ["previous_response_id", "conversation"])
def test_input_that_names_what_it_continues_goes_as_it_is(name: str) -> None:
    named: dict[str, Any] = {name: "other"}
    sent = ask(KNOWN, session="s", input="more", **named)
    assert (sent.body, sent.fallback) == ({"input": "more", name: "other"}, None)
    assert (sent.items, sent.is_whole) == ([MORE], False)


def test_input_that_names_the_sessions_own_response_is_remembered_whole() -> None:
    sent = ask(KNOWN, session="s", input="more", previous_response_id="resp_1")
    assert (sent.items, sent.is_whole) == ([*KNOWN.items, MORE], True)
    sent = ask(PARTIAL, session="s", input="more", previous_response_id="resp_1")
    assert (sent.items, sent.is_whole) == ([SAID, MORE], False)


@pytest.mark.requirement("22-C4", "REQ-004.1")
def test_a_session_with_messages_sends_what_is_new() -> None:
    sent = ask(KNOWN, session="s", messages=[*CHAT, NEXT], model="m")
    assert sent.body == {"model": "m", "previous_response_id": "resp_1", "input": [MORE]}
    assert sent.fallback == {"model": "m", "input": [ASK, SAID, MORE]}
    assert sent.items == [*KNOWN.items, MORE]


@pytest.mark.requirement("22-C4", "REQ-004.2")
@pytest.mark.parametrize(
    "messages",
    [[NEXT], [NEXT, *CHAT], CHAT, [{"role": "user", "content": "edited"}, CHAT[1], NEXT]],
)
def test_a_session_with_other_messages_starts_anew(messages: list[Any]) -> None:
    sent = ask(KNOWN, session="s", messages=messages)
    assert sent.body == {"input": sent.items}
    assert sent.fallback is None
    assert len(sent.items) == len(messages)


@pytest.mark.requirement("22-C4")
@pytest.mark.parametrize("given", [{"input": "more"}, {"prompt": "more"}, {"input": [MORE]}])
def test_a_session_with_input_continues_the_thread(given: dict[str, Any]) -> None:
    sent = ask(KNOWN, session="s", **given)
    alone = build_request(given).body
    assert sent.body == {**alone, "previous_response_id": "resp_1"}
    assert sent.fallback == {"input": [*KNOWN.items, MORE]}
    assert sent.items == [*KNOWN.items, MORE]


@pytest.mark.requirement("22-C4")
def test_a_stateless_call_uses_no_thread() -> None:
    sent = ask(KNOWN, session="s", stateful=False, input="more")
    assert (sent.body, sent.items) == ({"input": "more"}, [MORE])


@pytest.mark.parametrize("thread", [KNOWN, UNKEPT])
def test_what_the_server_must_not_keep_is_sent_whole(thread: Thread) -> None:
    sent = ask(thread, session="s", store=False, input="more")
    assert sent.body == {"store": False, "input": [*KNOWN.items, MORE]}
    assert (sent.fallback, sent.is_kept, sent.is_whole) == (None, False, True)
    sent = ask(thread, session="s", store=False, messages=[*CHAT, NEXT])
    assert sent.body == {"store": False, "input": [ASK, SAID, MORE]}


def test_what_the_server_did_not_keep_is_sent_whole() -> None:
    sent = ask(UNKEPT, session="s", input="more")
    assert (sent.body, sent.is_kept) == ({"input": [*KNOWN.items, MORE]}, True)
    assert ask(UNKEPT, session="s", messages=[*CHAT, NEXT]).body == {"input": [ASK, SAID, MORE]}


@pytest.mark.parametrize("store", [None, True, False])
def test_a_thread_of_which_we_hold_a_part_has_no_fallback(store: bool | None) -> None:
    sent = ask(PARTIAL, session="s", input="more", store=store)
    assert sent.body["previous_response_id"] == "resp_1"
    assert (sent.fallback, sent.is_whole) == (None, False)
    assert sent.is_kept is (store is not False)
    assert ask(PARTIAL, session="s", messages=[*CHAT, NEXT]).body == {"input": [ASK, SAID, MORE]}


def test_a_thread_that_nobody_holds_cannot_be_continued() -> None:
    with pytest.raises(BadCall, match="the session cannot go on") as refusal:
        ask(LOST, session="s", input="more")
    assert refusal.value.param == "session"
    assert ask(LOST, session="s", messages=[*CHAT, NEXT]).body == {"input": [ASK, SAID, MORE]}


@pytest.mark.requirement("22-C4", "REQ-004.3")
def test_a_session_in_a_conversation_stays_in_it() -> None:
    sent = ask(TALK, session="s", input="more")
    assert (sent.body, sent.fallback) == ({"input": "more", "conversation": "conv_1"}, None)
    sent = ask(TALK, session="s", messages=[*CHAT, NEXT])
    assert (sent.body, sent.fallback) == ({"input": [MORE], "conversation": "conv_1"}, None)
    sent = ask(TALK, session="s", input="more", previous_response_id="resp_7")
    assert sent.body == {"input": "more", "previous_response_id": "resp_7"}


@pytest.mark.requirement("REQ-009.1")
def test_a_server_without_threads_is_sent_everything() -> None:
    sent = ask(KNOWN, keeps=False, session="s", input="more")
    assert (sent.body, sent.fallback) == ({"input": [*KNOWN.items, MORE]}, None)
    assert sent.is_kept is False
    sent = ask(KNOWN, keeps=False, session="s", messages=[*CHAT, NEXT])
    assert sent.body == {"input": [ASK, SAID, MORE]}
    assert ask(None, keeps=False, input="q").is_kept is False


@pytest.mark.requirement("REQ-004.3")
@pytest.mark.parametrize("name", ["previous_response_id", "conversation"])
def test_a_server_without_threads_cannot_continue_one_by_name(name: str) -> None:
    with pytest.raises(BadCall, match="keeps no threads") as refusal:
        ask(None, keeps=False, input="more", **{name: "x"})
    assert refusal.value.param == name


@pytest.mark.parametrize("thread", [PARTIAL, TALK])
def test_a_server_without_threads_cannot_go_on_with_a_part(thread: Thread) -> None:
    with pytest.raises(BadCall, match="the session cannot go on"):
        ask(thread, keeps=False, session="s", input="more")


def test_a_template_continues_a_thread_without_input() -> None:
    sent = ask(KNOWN, session="s", prompt={"id": "p"})
    assert sent.body == {"prompt": {"id": "p"}, "previous_response_id": "resp_1"}
    assert sent.fallback == {"prompt": {"id": "p"}, "input": list(KNOWN.items)}


@pytest.mark.parametrize(
    "reasoning",
    [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "h"}]},
    ],
)
def test_reasoning_that_holds_a_thought_goes_back_as_it_came(reasoning: Item) -> None:
    items = [ASK, reasoning, answer("a", id="msg_1")]
    assert full_history(items) == items


def test_reasoning_without_a_thought_is_left_out_with_the_ids_that_lead_to_it() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
    search = {"type": "web_search_call", "id": "ws_1"}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text"}]}
    items = [ASK, reasoning, search, answer("a", id="msg_1"), call]
    bare = {name: value for name, value in call.items() if name != "id"}
    assert full_history(items) == [ASK, search, answer("a"), bare]


def replied(**fields: Any) -> Response:
    return Response(**{"id": "resp_2", "status": "completed", "output": [answer("b")], **fields})


@pytest.mark.requirement("22-C4", "REQ-002.1")
def test_the_next_thread_goes_on_from_the_response() -> None:
    sent = ask(KNOWN, session="s", input="more")
    usage = Usage(input_tokens=10, output_tokens=5, total_tokens=15)
    assert next_thread(KNOWN, sent, replied(usage=usage)) == Thread(
        response_id="resp_2",
        items=(*KNOWN.items, MORE, answer("b")),
        tokens=15,
        context_tokens=15,
    )


@pytest.mark.requirement("REQ-002.1", "REQ-002.2")
def test_tokens_add_up_over_turns_and_an_estimate_never_wins() -> None:
    first = next_thread(None, ask(input="q"), replied(usage=Usage(total_tokens=100)))
    assert (first.tokens, first.is_estimate) == (100, False)
    second = next_thread(first, ask(first, session="s", input="x"), replied())
    assert (second.tokens, second.is_estimate) == (100 + second.context_tokens, True)
    assert second.context_tokens > 0


@pytest.mark.requirement("REQ-002.2")
def test_without_any_figure_the_size_of_the_turn_is_one() -> None:
    short = next_thread(None, ask(input="q"), replied())
    long = next_thread(None, ask(input="q" * 4000, instructions="i" * 4000), replied())
    assert short.is_estimate
    assert 1900 < long.tokens - short.tokens < 2100


@pytest.mark.parametrize(
    ("params", "fields"),
    [
        ({}, {"id": ""}),
        ({"store": False}, {}),
        ({}, {"store": False}),
        ({"store": False}, {"store": False}),
    ],
)
def test_what_was_not_stored_cannot_be_continued_by_id(
    params: dict[str, Any], fields: dict[str, Any]
) -> None:
    thread = next_thread(None, ask(input="q", **params), replied(**fields))
    assert (thread.response_id, thread.items) == (None, (ASK, answer("b")))


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_failed_turn_costs_but_leaves_the_thread_where_it_was(status: str) -> None:
    before = Thread("resp_1", items=KNOWN.items, tokens=10, context_tokens=7)
    failed = replied(status=status, usage=Usage(total_tokens=5))
    assert next_thread(before, ask(before, session="s", input="more"), failed) == Thread(
        "resp_1", items=KNOWN.items, tokens=15, context_tokens=7
    )
    assert next_thread(None, ask(input="q"), failed) == Thread(tokens=5)


def test_a_first_turn_that_failed_is_simply_asked_again() -> None:
    thread = next_thread(None, ask(input="q"), replied(status="failed"))
    assert ask(thread, session="s", input="q").body == {"input": [ASK]}


def test_an_incomplete_turn_is_a_turn() -> None:
    thread = next_thread(None, ask(input="q"), replied(status="incomplete"))
    assert (thread.response_id, thread.is_whole) == ("resp_2", True)


def test_a_turn_that_still_runs_is_known_to_the_server_alone() -> None:
    thread = next_thread(None, ask(input="q", background=True), replied(status="queued", output=[]))
    assert (thread.response_id, thread.is_whole) == ("resp_2", False)
    # Its answer would reach the server a second time, as if the caller had said it.
    sent = ask(thread, session="s", messages=[*CHAT, NEXT])
    assert sent.body == {"input": [ASK, SAID, MORE]}


@pytest.mark.parametrize(
    ("conversation", "kept"),
    [("conv_1", "conv_1"), ({"id": "conv_1"}, "conv_1"), ({"id": 7}, None)],
)
def test_a_conversation_is_remembered_by_its_id(conversation: Any, kept: str | None) -> None:
    sent = ask(input="q", conversation=conversation)
    thread = next_thread(None, sent, replied())
    assert (thread.conversation, thread.is_whole) == (kept, False)


def test_what_is_remembered_is_not_the_callers_to_change() -> None:
    items = [user("q")]
    response = replied()
    thread = next_thread(None, ask(input=items), response)
    items[0]["content"][0]["text"] = "changed"
    response.output[0]["content"][0]["text"] = "changed"
    assert thread.items == (ASK, answer("b"))


@pytest.mark.parametrize("empty", [{"previous_response_id": ""}, {"conversation": {"id": ""}}])
def test_a_thread_of_no_name_cuts_no_history(empty: dict[str, Any]) -> None:
    assert ask(messages=[*CHAT, NEXT], **empty).body == {"input": [ASK, SAID, MORE]}
    sent = ask(KNOWN, session="s", input="more", **empty)
    assert sent.body == {"input": "more", "previous_response_id": "resp_1"}


@pytest.mark.parametrize(
    ("fields", "was_asked", "kept"),
    [
        ({}, True, "resp_2"),
        ({"store": None}, True, "resp_2"),
        ({}, False, None),
        ({"store": False}, True, None),
        ({"id": ""}, True, None),
    ],
)
def test_a_response_is_kept_if_the_server_says_nothing_else(
    fields: dict[str, Any], was_asked: bool, kept: str | None
) -> None:
    assert kept_id(replied(**fields), was_asked=was_asked) == kept


@pytest.mark.parametrize("usage", [None, Usage(total_tokens=5)])
def test_half_a_character_in_an_answer_can_be_remembered_and_sent_again(
    usage: Usage | None,
) -> None:
    halves = replied(output=[answer("half \ud83d, two \ud83d\ude00")], usage=usage)
    thread = next_thread(None, ask(session="s", input="q"), halves)
    assert thread.items == (ASK, answer("half \ufffd, two \U0001f600"))
    assert thread.is_estimate is (usage is None)
    sent = ask(thread, session="s", store=False, input="more")
    assert msgspec.json.decode(msgspec.json.encode(sent.body))["input"][1] == thread.items[1]


@pytest.mark.requirement("REQ-002.2")
def test_nothing_is_measured_where_the_server_has_counted() -> None:
    # Whoever measured it would have to write it as JSON.
    sent = Continuation({}, None, [{"type": "x", "y": object()}])
    counted = replied(output=[], usage=Usage(total_tokens=5))
    assert next_thread(None, sent, counted).tokens == 5


@pytest.mark.requirement("REQ-002.1")
def test_turns_at_the_same_time_all_cost_and_the_last_to_end_is_gone_on_from() -> None:
    begun = Thread("resp_1", items=KNOWN.items, tokens=100)
    slow = ask(begun, session="s", input="slow")
    fast = ask(begun, session="s", input="fast")
    cost = Usage(total_tokens=10)
    after_fast = next_thread(begun, fast, replied(id="resp_fast"))
    after_slow = next_thread(after_fast, slow, replied(id="resp_slow", usage=cost))
    assert after_slow == Thread(
        "resp_slow",
        items=(*KNOWN.items, user("slow"), answer("b")),
        tokens=after_fast.tokens + 10,
        context_tokens=10,
        is_estimate=True,
    )


def test_a_turn_that_fails_leaves_what_another_turn_has_reached() -> None:
    begun = Thread("resp_1", items=KNOWN.items, tokens=100)
    failing = ask(begun, session="s", input="x")
    other = next_thread(begun, ask(begun, session="s", input="y"), replied())
    failed = replied(status="failed", usage=Usage(total_tokens=10))
    after = next_thread(other, failing, failed)
    assert after == msgspec.structs.replace(other, tokens=other.tokens + 10)


@pytest.mark.requirement("REQ-002.1")
def test_a_thread_forgotten_meanwhile_is_the_one_the_turn_began_with() -> None:
    begun = Thread("resp_1", items=KNOWN.items, tokens=100)
    sent = ask(begun, session="s", input="more")
    cost = Usage(total_tokens=10)
    assert next_thread(None, sent, replied(usage=cost)).tokens == 110
    failed = next_thread(None, sent, replied(status="failed", usage=cost))
    assert (failed.items, failed.tokens) == (KNOWN.items, 110)
    stateless = ask(begun, session="s", stateful=False, input="more")
    assert next_thread(None, stateless, replied(usage=cost)).tokens == 10


@pytest.mark.requirement("22-C4", "REQ-004.1", "REQ-004.2")
def test_a_session_of_three_turns_sends_each_thing_once() -> None:
    history: list[Any] = []
    thread: Thread | None = None
    sizes = []
    for number in range(3):
        history.append({"role": "user", "content": f"q{number}"})
        sent = ask(thread, session="s", messages=history)
        sizes.append(len(sent.body["input"]))
        response = replied(id=f"resp_{number}", output=[answer(f"a{number}", id=f"msg_{number}")])
        history.append({"role": "assistant", "content": f"a{number}"})
        thread = next_thread(thread, sent, response)
    assert sizes == [1, 1, 1]
    assert thread is not None
    assert (thread.response_id, len(thread.items)) == ("resp_2", 6)
