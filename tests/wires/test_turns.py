"""Items in any order become turns in which every call has its result."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.items import Item
from antiphon.wires.turns import Arranger, Turn, arrange


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}


def assistant(text: str) -> Item:
    return {"type": "message", "role": "assistant", "content": text}


def call(call_id: str, arguments: str = "{}") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": arguments}


def output(call_id: str, text: str = "ok") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def outline(*items: Item) -> tuple[list[Any], list[str]]:
    """Return a conversation in short: what was said, and each turn's texts, calls, results."""
    turns, report = arrange(items)
    short: list[Any] = []
    for turn in turns:
        if isinstance(turn, Turn):
            calls = [(c.id, c.result[1]["output"] if c.result else None) for c in turn.calls]
            short.append(([item["content"] for _, item in turn.messages], calls))
        else:
            short.append(turn.item.get("content") or turn.item.get("output"))
    return short, report


def test_a_plain_conversation_stays_as_it_is() -> None:
    assert outline(user("a"), assistant("b"), user("c")) == (["a", (["b"], []), "c"], [])


def test_text_and_parallel_calls_are_one_turn() -> None:
    items = [user("a"), assistant("b"), call("1"), call("2"), output("1", "x"), output("2", "y")]
    assert outline(*items) == (["a", (["b"], [("1", "x"), ("2", "y")])], [])


def test_results_in_another_order_go_to_their_calls() -> None:
    items = [call("1"), call("2"), output("2", "y"), output("1", "x")]
    assert outline(*items) == ([([], [("1", "x"), ("2", "y")])], [])


def test_calls_after_a_result_are_another_turn() -> None:
    items = [call("1"), output("1"), call("2"), output("2"), assistant("done")]
    assert outline(*items) == (
        [([], [("1", "ok")]), ([], [("2", "ok")]), (["done"], [])],
        [],
    )


def test_a_call_moves_to_its_result_when_a_message_stands_between_them() -> None:
    assert outline(user("a"), call("1"), user("wait"), output("1", "x")) == (
        ["a", "wait", ([], [("1", "x")])],
        [],
    )


def test_the_text_and_reasoning_of_a_call_move_with_it() -> None:
    thought: Item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    turns, report = arrange([thought, assistant("b"), call("1"), user("wait"), output("1")])
    assert report == []
    assert isinstance(turns[1], Turn)
    turn = turns[1]
    assert (len(turns), len(turn.reasoning), len(turn.messages), len(turn.calls)) == (2, 1, 1, 1)


def test_a_call_that_moves_behind_assistant_text_is_one_turn_with_it() -> None:
    # Many chat templates refuse two assistant messages in a row.
    assert outline(call("1"), user("wait"), assistant("b"), output("1", "x")) == (
        ["wait", (["b"], [("1", "x")])],
        [],
    )


def test_assistant_text_before_a_result_stays_before_it() -> None:
    items = [call("1"), call("2"), output("1", "x"), assistant("b"), output("2", "y")]
    assert outline(*items) == ([([], [("1", "x")]), (["b"], [("2", "y")])], [])


def test_parallel_calls_whose_results_stand_apart_become_separate_turns() -> None:
    items = [assistant("b"), call("1"), call("2"), user("c"), output("2", "y"), user("d")]
    assert outline(*items, output("1", "x")) == (
        ["c", (["b"], [("2", "y")]), "d", ([], [("1", "x")])],
        [],
    )


def test_parallel_calls_whose_results_stand_together_stay_together() -> None:
    calls = [call("1"), call("2"), call("3")]
    late = [output("3", "z"), output("2", "y")]
    assert outline(*calls, user("c"), *late, output("1", "x")) == (
        ["c", ([], [("1", "x"), ("2", "y"), ("3", "z")])],
        [],
    )
    assert outline(*calls, output("1", "x"), user("c"), *late) == (
        [([], [("1", "x")]), "c", ([], [("2", "y"), ("3", "z")])],
        [],
    )


def test_a_call_without_result_moves_with_the_others_of_its_turn() -> None:
    short, report = outline(call("1"), call("2"), user("c"), output("2", "y"))
    assert short == ["c", ([], [("1", None), ("2", "y")])]
    assert report == ["input[0] (function_call): no output was provided for 1"]


def test_calls_and_results_of_several_turns_in_any_order_stay_where_they_are() -> None:
    items = [call("1"), call("2"), output("1", "x"), call("3"), output("2", "y"), output("3", "z")]
    assert outline(*items) == ([([], [("1", "x"), ("2", "y")]), ([], [("3", "z")])], [])


def test_an_open_call_of_a_later_turn_does_not_hold_up_a_late_result() -> None:
    items = [call("1"), user("c"), call("2"), output("1", "x"), output("2", "y")]
    assert outline(*items) == (["c", ([], [("2", "y")]), ([], [("1", "x")])], [])


def test_a_call_without_result_is_reported() -> None:
    short, report = outline(user("a"), call("1"), user("b"))
    assert short == ["a", ([], [("1", None)]), "b"]
    assert report == ["input[1] (function_call): no output was provided for 1"]


def test_a_second_result_replaces_the_first_and_is_reported() -> None:
    short, report = outline(call("1"), output("1", "x"), output("1", "y"))
    assert short == [([], [("1", "y")])]
    assert report == ["input[1] (function_call_output): replaced by input[2]"]


def test_a_second_result_after_a_message_becomes_a_user_message() -> None:
    short, report = outline(call("1"), output("1", "started"), user("a"), output("1", "done"))
    assert short == [([], [("1", "started")]), "a", "done"]
    assert report == [
        "input[3] (function_call_output): 1 has its result in input[1]; sent as a user message"
    ]


def test_a_call_sent_again_before_its_result_is_one_call() -> None:
    # A client that continues a stored response and sends its calls once more.
    items = [call("1"), call("2"), call("1"), output("1", "x"), call("2"), output("2", "y")]
    short, report = outline(*items)
    assert short == [([], [("1", "x"), ("2", "y")])]
    assert report == [
        "input[2] (function_call): repeats 1",
        "input[4] (function_call): repeats 2",
    ]


def test_two_calls_of_one_turn_under_one_id_stay_two() -> None:
    calls = [call("1", '{"a":1}'), call("1", '{"a":2}'), call("1", '{"a":1}')]
    short, report = outline(*calls, output("1", "x"), output("1", "y"))
    assert short == [([], [("1", "x"), ("1_2", "y")])]
    assert report == [
        "input[1] (function_call): another call has the id 1; sent as 1_2",
        "input[2] (function_call): repeats 1",
    ]


def test_an_id_used_again_in_a_later_turn_is_another_call() -> None:
    items = [call("f:0"), output("f:0", "x"), user("more"), call("f:0"), output("f:0", "y")]
    assert outline(*items) == ([([], [("f:0", "x")]), "more", ([], [("f:0", "y")])], [])


def test_an_id_used_again_while_the_old_call_has_no_result_is_another_call() -> None:
    short, report = outline(call("f:0", "1"), user("no"), call("f:0", "2"), output("f:0", "y"))
    assert short == [([], [("f:0", None)]), "no", ([], [("f:0", "y")])]
    assert report == ["input[0] (function_call): no output was provided for f:0"]


def test_a_result_without_a_call_is_kept_as_something_said() -> None:
    short, report = outline(user("a"), output("9", "lost"))
    assert short == ["a", "lost"]
    assert report == ["input[1] (function_call_output): there is no call 9"]


def test_items_that_chat_does_not_know_are_reported() -> None:
    short, report = outline(
        user("a"),
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "compaction", "encrypted_content": "x"},
        {"id": "msg_1"},
    )
    assert short == ["a"]
    assert [line.partition(":")[0] for line in report] == [
        "input[1] (web_search_call)",
        "input[2] (compaction)",
        "input[3] (item_reference)",
    ]


def test_reasoning_belongs_to_the_turn_it_begins() -> None:
    turns, _ = arrange([user("a"), {"type": "reasoning", "summary": []}, call("1"), output("1")])
    assert isinstance(turns[1], Turn)
    assert (len(turns[1].reasoning), len(turns[1].calls)) == (1, 1)


def test_fields_of_items_that_nobody_reads_are_reported() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x", "odd": None}
    _, report = arrange([{**call, "namespace": "files"}, output])

    assert report == ["input[0].namespace"]


def test_tools_among_the_items_are_no_loss() -> None:
    tools: Item = {"type": "additional_tools", "tools": [{"type": "function", "name": "f"}]}
    assert arrange([tools, user("hi")])[1] == []


PATIENCE = 32


@pytest.mark.parametrize(
    ("items", "end", "count"),
    [
        pytest.param([], 0, 0, id="nothing"),
        pytest.param([user("a"), assistant("b"), user("c")], 3, 3, id="all is over"),
        pytest.param([user("a"), assistant("b")], 2, 1, id="the last turn is open"),
        pytest.param([user("a"), call("1"), user("b")], 3, 1, id="a call waits"),
        pytest.param([user("a"), call("1"), output("1"), user("b")], 4, 3, id="it is answered"),
        pytest.param(
            [user("a"), call("1"), user("b"), call("2"), output("1"), user("c"), call("3")],
            7,
            1,
            id="a result ties turns together",
        ),
        pytest.param(
            [call("1"), output("1"), user("a"), output("1"), call("2")],
            3,
            0,
            id="a second result ties them together",
        ),
        pytest.param([user("a"), assistant("b"), user("c")], 2, 1, id="the end is before it"),
        pytest.param([user("a"), assistant("b")], 0, 0, id="nothing lasts"),
    ],
)
def test_turns_are_settled_that_later_items_cannot_change(
    items: list[Item], end: int, count: int
) -> None:
    assert Arranger(items).settled(PATIENCE, end) == count


def test_a_call_that_waits_for_long_does_not_hold_up_the_turns_after_it() -> None:
    items = [call("1"), *[user("a")] * PATIENCE]

    assert Arranger(items[:-1]).settled(PATIENCE, len(items) - 1) == 0
    assert Arranger(items).settled(PATIENCE, len(items)) == len(items)
