"""The usage tracker: server figures first, every turn counted once, listeners told."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.host.usage import (
    Totals,
    TurnEnded,
    TurnStarted,
    Update,
    UsageTracker,
)
from antiphon.protocol.response import InputDetails, Notes, OutputDetails, Response, Usage
from tests.strategies import usages

COUNTED = Usage(
    input_tokens=1234,
    input_tokens_details=InputDetails(cached_tokens=800),
    output_tokens=567,
    output_tokens_details=OutputDetails(reasoning_tokens=123),
    total_tokens=1801,
)


def answer(
    usage: Usage | None = COUNTED, *, id: str = "resp_1", status: str = "completed"
) -> Response:
    return Response(id=id, status=status, usage=usage)


def sums(usage: Usage, *, turns: int = 1, estimated_turns: int = 0) -> Totals:
    return Totals(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cached=usage.input_tokens_details.cached_tokens,
        reasoning=usage.output_tokens_details.reasoning_tokens,
        total=usage.total_tokens,
        turns=turns,
        estimated_turns=estimated_turns,
    )


def raising(message: str) -> Callable[[Update], None]:
    def listener(update: Update) -> None:
        raise RuntimeError(message)

    return listener


@pytest.mark.requirement("RFC016-usage", "RFC016-metric-1", "REQ-002.1")
@pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled"])
def test_every_terminal_status_ends_the_turn_with_the_servers_figures(status: str) -> None:
    tracker = UsageTracker()
    turn = tracker.start("chat", "gpt-5", 1000, 10_000)
    ended = tracker.complete(turn, answer(status=status), estimated_output=9)
    assert (ended.status, ended.usage, ended.is_estimate) == (status, COUNTED, False)
    assert ended.counted == COUNTED
    assert tracker.totals("chat") == sums(COUNTED)
    assert tracker.of("resp_1") == turn.usage == ended


@pytest.mark.requirement("REQ-002.2")
@pytest.mark.parametrize(
    "response",
    [
        pytest.param(answer(None), id="none"),
        pytest.param(answer(Usage()), id="nothing but zeros"),
        pytest.param(answer(Usage(), status="incomplete"), id="zeros, cut short"),
        pytest.param(answer(None, status="failed"), id="none, failed"),
    ],
)
def test_without_figures_of_the_server_the_estimate_counts_and_says_so(response: Response) -> None:
    tracker = UsageTracker()
    turn = tracker.start("chat", "gpt-5", 1000)
    ended = tracker.complete(turn, response, estimated_output=50)
    assert ended.is_estimate
    assert ended.usage is None
    assert tracker.totals("chat") == Totals(
        input=1000, output=50, total=1050, turns=1, estimated_turns=1
    )


def test_a_response_that_failed_before_it_began_may_take_nothing() -> None:
    tracker = UsageTracker()
    tracker.complete(tracker.start("chat", "gpt-5", 1000), answer(Usage(), status="failed"))
    assert tracker.totals("chat") == Totals(turns=1)


@pytest.mark.requirement("REQ-002.2")
def test_figures_that_the_server_estimated_are_used_and_marked() -> None:
    tracker = UsageTracker()
    turn = tracker.start("chat", "llama", 1000)
    response = answer()
    response.antiphon = Notes(usage="estimated")
    assert tracker.complete(turn, response).is_estimate
    assert tracker.totals("chat") == sums(COUNTED, estimated_turns=1)
    counted = tracker.complete(turn, answer())
    assert tracker.totals("chat") == sums(COUNTED)
    assert tracker.complete(turn, response) == counted


@pytest.mark.requirement("RFC016-usage")
def test_a_broken_stream_stays_in_the_books_as_an_estimate() -> None:
    tracker = UsageTracker()
    turn = tracker.start("chat", "gpt-5", 1000)
    ended = tracker.abandon(turn, estimated_output=7)
    assert (ended.status, ended.response_id, ended.is_estimate) == ("abandoned", None, True)
    assert tracker.totals("chat") == Totals(
        input=1000, output=7, total=1007, turns=1, estimated_turns=1
    )


@pytest.mark.requirement("REQ-002.2")
def test_what_the_server_counts_later_replaces_the_estimate_of_that_turn() -> None:
    tracker = UsageTracker()
    turn = tracker.start("chat", "gpt-5", 1000)
    tracker.abandon(turn, answer(None, status="in_progress"))
    told: list[Update] = []
    tracker.add_listener(told.append)
    ended = tracker.complete(turn, answer())
    assert tracker.totals("chat") == sums(COUNTED)
    assert tracker.of("resp_1") == ended
    assert told == [TurnEnded(turn=ended, totals=sums(COUNTED))]


@pytest.mark.requirement("REQ-002.2")
def test_an_estimate_never_replaces_a_figure_of_the_server() -> None:
    tracker = UsageTracker()
    turn = tracker.start("chat", "gpt-5", 1000)
    counted = tracker.complete(turn, answer())
    told: list[Update] = []
    tracker.add_listener(told.append)
    assert tracker.abandon(turn) == counted
    assert tracker.complete(turn, answer(None)) == counted
    assert tracker.totals("chat") == sums(COUNTED)
    assert told == []


def test_another_turn_with_the_same_response_does_not_make_its_figures_worse() -> None:
    tracker = UsageTracker()
    counted = tracker.complete(tracker.start("chat", "gpt-5", 1000), answer())
    tracker.abandon(tracker.start("chat", "gpt-5", 1000), answer(None))
    assert tracker.of("resp_1") == counted


def test_a_partial_response_without_an_id_is_not_remembered_by_id() -> None:
    tracker = UsageTracker()
    ended = tracker.abandon(tracker.start("chat", "gpt-5", 10), answer(None, id=""))
    assert ended.response_id is None
    assert tracker.of("") is None


@pytest.mark.requirement("RFC016-usage")
def test_two_conversations_with_one_model_stay_two() -> None:
    tracker = UsageTracker()
    first, second = (tracker.start(name, "gpt-5", 10) for name in ("a", "b"))
    tracker.complete(second, answer(Usage(input_tokens=2, total_tokens=2), id="resp_b"))
    tracker.complete(first, answer(Usage(input_tokens=1, total_tokens=1), id="resp_a"))
    assert tracker.totals("a").input == 1
    assert tracker.totals("b").input == 2
    known = [tracker.of(name) for name in ("resp_a", "resp_b")]
    assert [turn and turn.conversation for turn in known] == ["a", "b"]
    assert tracker.totals("gpt-5") == Totals()


def test_a_conversation_that_changes_models_is_one() -> None:
    tracker = UsageTracker()
    for number, model in enumerate(["gpt-5", "o3"]):
        tracker.complete(tracker.start("chat", model, 10), answer(id=f"resp_{number}"))
    assert tracker.totals("chat").total == 2 * COUNTED.total_tokens


def test_a_total_that_the_server_left_out_is_the_sum() -> None:
    tracker = UsageTracker()
    tracker.complete(tracker.start("chat", "m", 10), answer(Usage(input_tokens=3, output_tokens=4)))
    assert tracker.totals("chat").total == 7


@pytest.mark.requirement("RFC016-usage", "REQ-002.1", "REQ-002.2")
@given(
    st.lists(
        st.lists(st.none() | usages().filter(lambda usage: usage.total_tokens > 0), min_size=1),
        max_size=6,
    )
)
def test_totals_are_what_the_turns_say(turns: list[list[Usage | None]]) -> None:
    """Each turn ends once or more often; its last counted figure holds, else the estimate."""
    tracker = UsageTracker()
    for said in turns:
        turn = tracker.start("chat", "m", 100)
        for usage in said:
            tracker.complete(turn, answer(usage), estimated_output=10)
    known = [[usage for usage in said if usage] for said in turns]
    held = [said[-1] if said else None for said in known]
    totals = tracker.totals("chat")
    assert totals.turns == len(turns)
    assert totals.estimated_turns == held.count(None)
    assert totals.input == sum(usage.input_tokens if usage else 100 for usage in held)
    assert totals.output == sum(usage.output_tokens if usage else 10 for usage in held)
    assert totals.total == sum(usage.total_tokens if usage else 110 for usage in held)


@pytest.mark.requirement("RFC016-usage", "REQ-002.3")
def test_listeners_hear_of_the_start_and_of_the_end() -> None:
    tracker = UsageTracker()
    told: list[Update] = []
    tracker.add_listener(told.append)
    turn = tracker.start("chat", "gpt-5", 1000, 10_000)
    ended = tracker.complete(turn, answer())
    assert told == [
        TurnStarted(conversation="chat", model="gpt-5", estimated_input=1000, max_input=10_000),
        TurnEnded(turn=ended, totals=sums(COUNTED)),
    ]


def test_a_listener_that_was_removed_hears_nothing() -> None:
    tracker = UsageTracker()
    told: list[Update] = []
    remove_first = tracker.add_listener(told.append)
    tracker.add_listener(told.append)
    remove_first()
    remove_first()
    tracker.start("chat", "gpt-5", 1000)
    assert len(told) == 1


def test_a_listener_may_ask_the_tracker_and_remove_itself() -> None:
    tracker = UsageTracker()
    seen: list[int] = []

    def listener(update: Update) -> None:
        seen.append(tracker.totals("chat").turns)
        remove()

    remove = tracker.add_listener(listener)
    tracker.complete(tracker.start("chat", "gpt-5", 1000), answer())
    assert seen == [0]


@pytest.mark.requirement("RFC016-usage")
def test_a_listener_that_raises_stops_neither_the_books_nor_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tracker = UsageTracker()
    turn = tracker.start("chat", "gpt-5", 1000)
    told: list[str] = []
    tracker.add_listener(lambda update: told.append("first"))
    tracker.add_listener(raising("one"))
    tracker.add_listener(raising("two"))
    tracker.add_listener(lambda update: told.append("last"))
    reported: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: reported.append(error))
    ended = tracker.complete(turn, answer())
    assert [str(error) for error in reported] == ["one", "two"]
    assert "a listener, which must not raise" in reported[0].__notes__[0]
    assert ended.usage == COUNTED
    assert told == ["first", "last"]
    assert tracker.totals("chat") == sums(COUNTED)
    assert turn.usage is not None


def test_the_conversation_used_longest_ago_is_forgotten_first() -> None:
    tracker = UsageTracker(max_conversations=2)
    for name in ("a", "b"):
        tracker.complete(tracker.start(name, "m", 1), answer(id=f"resp_{name}"))
    assert tracker.totals("a").turns == 1
    tracker.complete(tracker.start("c", "m", 1), answer(id="resp_c"))
    assert [tracker.totals(name).turns for name in "abc"] == [1, 0, 1]


def test_the_response_used_longest_ago_is_forgotten_first() -> None:
    tracker = UsageTracker(max_responses=2)
    for name in ("a", "b", "c"):
        tracker.complete(tracker.start("chat", "m", 1), answer(id=name))
    assert tracker.of("a") is None
    assert tracker.of("c") is not None
    assert tracker.totals("chat").turns == 3


def test_a_turn_counted_again_after_its_conversation_was_forgotten_counts_once() -> None:
    tracker = UsageTracker(max_conversations=1)
    turn = tracker.start("a", "m", 1000)
    tracker.abandon(turn)
    tracker.abandon(tracker.start("b", "m", 1))
    tracker.complete(turn, answer())
    assert tracker.totals("a") == sums(COUNTED)


def test_turns_of_several_threads_are_all_counted() -> None:
    tracker = UsageTracker()

    def work(number: int) -> None:
        for step in range(200):
            turn = tracker.start("chat", "m", 1)
            tracker.complete(turn, answer(id=f"resp_{number}_{step}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tracker.totals("chat").turns == 800
    assert tracker.totals("chat").total == 800 * COUNTED.total_tokens


@pytest.mark.requirement("REQ-010.1")
def test_figures_are_logged_at_debug_and_names_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tracker = UsageTracker()
    tracker.complete(tracker.start("secret-chat", "m", 1), answer())
    tracker.abandon(tracker.start("secret-chat", "m", 5))
    assert [record.getMessage() for record in caplog.records] == [
        "turn completed: 1234 tokens in, 567 out",
        "turn abandoned: 5 tokens in, 0 out, estimated",
    ]
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


def test_a_listener_that_is_interrupted_interrupts() -> None:
    def interrupt(update: Update) -> None:
        raise KeyboardInterrupt

    tracker = UsageTracker()
    tracker.add_listener(interrupt)
    with pytest.raises(KeyboardInterrupt):
        tracker.start("chat", "gpt-5", 1000)


SAID = [{"type": "message", "role": "assistant", "content": [{"type": "output_text"}]}]


@pytest.mark.requirement("REQ-002.2", "RFC016-usage")
@pytest.mark.parametrize(
    ("status", "usage"),
    [
        ("failed", Usage()),
        ("cancelled", Usage()),
        ("failed", Usage(input_tokens_details=InputDetails(cached_tokens=3))),
        ("in_progress", Usage()),
        ("in_progress", Usage(input_tokens=1, output_tokens=1, total_tokens=2)),
        ("queued", COUNTED),
    ],
)
def test_zeros_for_output_and_figures_before_the_end_are_no_count(
    status: str, usage: Usage
) -> None:
    tracker = UsageTracker()
    response = Response(id="resp_1", status=status, usage=usage, output=SAID)
    for end in (tracker.complete, tracker.abandon):
        ended = end(tracker.start("chat", "gpt-5", 1000), response, estimated_output=50)
        assert (ended.usage, ended.is_estimate) == (None, True)
        assert ended.counted.output_tokens == 50


def test_a_response_that_ended_is_counted_even_if_nobody_waited_for_its_end() -> None:
    tracker = UsageTracker()
    ended = tracker.abandon(tracker.start("chat", "gpt-5", 1000), answer(), estimated_output=7)
    assert (ended.status, ended.usage, ended.is_estimate) == ("abandoned", COUNTED, False)


@pytest.mark.requirement("RFC016-usage")
def test_a_turn_that_never_ran_takes_nothing_and_is_not_booked() -> None:
    tracker = UsageTracker()
    tracker.complete(tracker.start("chat", "gpt-5", 1000), answer())
    told: list[Update] = []
    turn = tracker.start("chat", "gpt-5", 1000, 10_000)
    tracker.add_listener(told.append)
    ended = tracker.discard(turn)
    assert (ended.status, ended.counted, ended.is_estimate) == ("not_run", Usage(), False)
    assert told == [TurnEnded(turn=ended, totals=sums(COUNTED))]
    assert tracker.totals("chat") == sums(COUNTED)


def test_a_turn_that_ended_is_not_undone() -> None:
    tracker = UsageTracker()
    turn = tracker.start("chat", "gpt-5", 1000)
    counted = tracker.complete(turn, answer())
    assert tracker.discard(turn) == counted
    assert tracker.totals("chat") == sums(COUNTED)


def test_a_turn_that_was_called_off_and_ran_after_all_is_booked() -> None:
    tracker = UsageTracker()
    turn = tracker.start("chat", "gpt-5", 1000)
    tracker.discard(turn)
    tracker.complete(turn, answer())
    assert tracker.totals("chat") == sums(COUNTED)


@pytest.mark.requirement("RFC016-usage")
def test_turns_of_no_conversation_push_none_out() -> None:
    tracker = UsageTracker(max_conversations=1)
    tracker.complete(tracker.start("chat", "gpt-5", 1000), answer(id="resp_0"))
    told: list[Update] = []
    tracker.add_listener(told.append)
    for number in range(1, 4):
        turn = tracker.start(None, "gpt-5", 1000)
        tracker.abandon(turn)
        ended = tracker.complete(turn, answer(id=f"resp_{number}"))
        assert ended.conversation is None
        assert told[-1] == TurnEnded(turn=ended, totals=sums(COUNTED))
        assert tracker.of(f"resp_{number}") == ended
    tracker.discard(tracker.start(None, "gpt-5", 1000))
    assert tracker.totals("chat") == sums(COUNTED)


async def test_asynchronous_listeners_are_run_and_may_raise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: reported.append(error))
    heard: list[str] = []

    async def listen(update: Update) -> None:
        await asyncio.sleep(0)
        heard.append(type(update).__name__)
        raise RuntimeError("the status line is gone")

    class Listener:
        async def __call__(self, update: Update) -> None:
            heard.append(type(update).__name__)

    tracker = UsageTracker()
    for listener in (listen, Listener()):
        tracker.add_listener(listener)
    turn = tracker.start("chat", "gpt-5", 1000)
    await turn.told()
    assert sorted(heard) == ["TurnStarted"] * 2
    tracker.complete(turn, answer())
    await turn.told()
    assert sorted(heard) == ["TurnEnded"] * 2 + ["TurnStarted"] * 2
    assert [str(error) for error in reported] == ["the status line is gone"] * 2


def test_an_asynchronous_listener_without_an_event_loop_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: reported.append(error))

    async def listen(update: Update) -> None:
        raise AssertionError

    tracker = UsageTracker()
    tracker.add_listener(listen)
    ended = tracker.complete(tracker.start("chat", "gpt-5", 1000), answer())
    assert ended.usage == COUNTED
    assert [type(error) for error in reported] == [TypeError] * 2
    assert "needs a running event loop" in str(reported[0])
