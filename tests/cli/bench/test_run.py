"""What is counted is what went out, in every mode, and a mode fails alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from antiphon.cli.bench.run import MODES, BenchPlan, MeasuredMode, measure, prompt_of
from antiphon.cli.remote import Server
from antiphon.protocol.deltas import TextGrew
from antiphon.protocol.events import ResponseFailed
from antiphon.protocol.response import Failure
from antiphon.testing import Script, ScriptedUpstream
from tests.building import COUNTED, STOP, build
from tests.client.native import Answer, error, events, native, response, whole

_HELLO = response(TextGrew("Hello"), COUNTED, STOP)


async def _measure(base_url: str, modes: Sequence[str], turns: int = 3) -> list[MeasuredMode]:
    plan = BenchPlan(
        modes=[MODES[name] for name in modes],
        turns=turns,
        prompt_words=8,
        max_output_tokens=32,
        model="m",
    )
    measured: list[MeasuredMode] = []
    await measure(plan, lambda mode: Server(base_url), measured, lambda turn: None)
    return measured


@pytest.mark.requirement("22-E3")
@pytest.mark.parametrize("mode", ["stateless", "stateful"])
async def test_the_bytes_of_a_responses_mode_are_those_that_arrived(mode: str) -> None:
    async with native(_HELLO) as server:
        (measured,) = await _measure(server.base_url, [mode])
        arrived = [request.body for request in server.requests]
    assert [turn.bytes_sent for turn in measured.turns] == [len(body) for body in arrived]
    assert [turn.items_sent for turn in measured.turns] == (
        [1, 1, 1] if mode == "stateful" else [1, 3, 5]
    )


@pytest.mark.requirement("22-E3")
async def test_the_bytes_of_chat_are_those_that_arrived() -> None:
    async with ScriptedUpstream() as server:
        (measured,) = await _measure(server.base_url, ["chat"])
    arrived = [request.body for request in server.requests]
    assert [turn.bytes_sent for turn in measured.turns] == [len(body) for body in arrived]
    assert [turn.items_sent for turn in measured.turns] == [
        len(msgspec.json.decode(body)["messages"]) for body in arrived
    ]


async def test_a_lost_thread_is_counted_with_what_was_sent_again() -> None:
    gone = error(404, "previous_response_not_found", "no such response")
    async with native(_HELLO, gone, _HELLO) as server:
        (measured,) = await _measure(server.base_url, ["stateful"], turns=2)
        first, second, third = (len(request.body) for request in server.requests)
    assert [turn.requests for turn in measured.turns] == [1, 2]
    assert [turn.bytes_sent for turn in measured.turns] == [first, second + third]
    assert [turn.items_sent for turn in measured.turns] == [1, 1 + 3]


async def test_modes_differ_in_nothing_but_how_they_remember() -> None:
    async with native(_HELLO) as server:
        await _measure(server.base_url, ["stateless", "stateful"], turns=1)
        stateless, stateful = server.body(0), server.body(1)
    assert (stateless.pop("store"), stateful.pop("store")) == (False, True)
    # Not the same beginning, or a server's cache would let one profit from the other.
    assert stateless.pop("instructions") != stateful.pop("instructions")
    assert stateless == stateful


async def test_nothing_is_tried_again() -> None:
    async with native(error(503), _HELLO) as server:
        (measured,) = await _measure(server.base_url, ["stateful"])
        assert len(server.requests) == 1
    assert measured.failure is not None
    assert measured.failure.startswith("turn 1: ")


async def test_when_all_modes_have_failed_it_is_over() -> None:
    shown: list[int] = []
    plan = BenchPlan(
        modes=[MODES["stateful"]], turns=9, prompt_words=8, max_output_tokens=32, model="m"
    )
    async with native(_HELLO, error(503)) as server:
        await measure(plan, lambda mode: Server(server.base_url), [], shown.append)
    assert shown == [1, 2]


async def test_own_questions_are_asked_in_their_order() -> None:
    plan = BenchPlan(
        modes=[MODES["stateful"]],
        turns=2,
        prompt_words=None,
        max_output_tokens=32,
        model="m",
        prompts=["one?", "two?"],
    )
    async with native(_HELLO) as server:
        await measure(plan, lambda mode: Server(server.base_url), [], lambda turn: None)
        assert [server.body(turn)["input"] for turn in (0, 1)] == ["one?", "two?"]


async def test_a_mode_that_fails_keeps_its_turns_and_leaves_the_others_alone() -> None:
    async with native(_HELLO, _HELLO, error(400, message="no \x1b[2J\n more"), _HELLO) as server:
        stateless, stateful = await _measure(server.base_url, ["stateless", "stateful"])
    assert (len(stateless.turns), len(stateful.turns)) == (1, 3)
    assert stateless.failure is not None
    assert stateless.failure.endswith("(HTTP 400): no \x1b[2J more")


@pytest.mark.parametrize("failure", [Failure("server_error", "it melted"), None])
async def test_a_response_that_failed_fails_its_mode(failure: Failure | None) -> None:
    *begun, completed = build([TextGrew("Hello"), COUNTED, STOP])
    last = msgspec.structs.replace(completed.response, status="failed", error=failure)  # type: ignore[union-attr]  # a terminal event
    failed = ResponseFailed(sequence_number=len(begun), response=last)
    async with native(events([*begun, failed])) as server:
        (measured,) = await _measure(server.base_url, ["stateful"])
    reason = failure.message if failure else "no reason given"
    assert measured.failure == f"turn 1: the response failed: {reason}"


async def test_tokens_that_nobody_counted_are_marked() -> None:
    async with ScriptedUpstream(Script(text="Hello", usage=None)) as server:
        (measured,) = await _measure(server.base_url, ["chat"], turns=1)
    assert not measured.turns[0].is_counted
    assert measured.turns[0].input_tokens is not None


async def test_a_server_that_counts_nothing_and_streams_nothing_is_measured_all_the_same() -> None:
    *_, completed = build([TextGrew("Hello"), COUNTED, STOP])
    answer: Answer = whole(msgspec.structs.replace(completed.response, usage=None))  # type: ignore[union-attr]  # a terminal event
    async with native(answer) as server:
        (measured,) = await _measure(server.base_url, ["stateful"], turns=1)
    (turn,) = measured.turns
    assert (turn.input_tokens, turn.cached_tokens, turn.output_tokens) == (None, None, None)
    assert (turn.is_counted, turn.first_text_seconds) == (False, None)


@pytest.mark.parametrize("words", [3, 10, 200])
def test_a_question_has_as_many_words_as_asked_for_and_differs_from_turn_to_turn(
    words: int,
) -> None:
    questions = [prompt_of(turn, words) for turn in (1, 2, 3)]
    assert [len(question.split()) for question in questions] == [words] * 3
    assert len(set(questions)) == 3
    assert questions[0] == prompt_of(1, words)
