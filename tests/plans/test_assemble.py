"""From deltas to events: what the plan allows, and how an answer ends."""

from __future__ import annotations

import pytest

from antiphon.plans.assemble import Assembly
from antiphon.protocol.deltas import CallGrew, CallMade, CallOpened, Delta, Stopped, TextGrew
from antiphon.protocol.errors import BackendError
from antiphon.protocol.events import Event, is_terminal
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Failure, Response
from antiphon.protocol.tools import ToolPolicy
from tests.building import COUNTED, counting_mint, plan_with

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
REQUIRED = ToolPolicy("required")


def begin(policy: ToolPolicy | None = None) -> tuple[Assembly, list[Event]]:
    plan = plan_with([TOOL], policy=policy or ToolPolicy())
    builder = ResponseBuilder(Response(id="resp_1", model="m"), counting_mint())
    return Assembly(plan, builder), builder.start()


def ended(events: list[Event]) -> Response:
    judge_stream(events)
    accumulator = ResponseAccumulator()
    accumulator.feed_all(events)
    return accumulator.finish()


@pytest.mark.parametrize("batch", [[TextGrew("a b")], [TextGrew("a "), TextGrew("b")]])
def test_an_answer_ends_as_the_model_stopped(batch: list[Delta]) -> None:
    assembly, events = begin()
    events += assembly.feed(batch)
    events += assembly.feed([COUNTED, Stopped("stop")])
    last, problem = assembly.close()
    response = ended(events + last + assembly.finish(7))
    assert (problem, response.status, response.output_text) == (None, "completed", "a b")
    assert response.usage == COUNTED.usage


def test_usage_that_the_model_did_not_report_is_estimated() -> None:
    assembly, events = begin()
    events += assembly.feed([TextGrew("four score"), Stopped("stop")])
    last, _ = assembly.close()
    response = ended(events + last + assembly.finish(7))
    assert response.usage is not None and response.usage.output_tokens == 3
    assert response.antiphon and response.antiphon.usage == "estimated"


def test_a_call_that_the_plan_does_not_offer_is_suppressed() -> None:
    assembly, events = begin()
    events += assembly.feed([CallMade("g", "{}", "call_1"), Stopped("stop")])
    last, _ = assembly.close()
    assert ended(events + last + assembly.finish(7)).output == []


def test_a_required_call_that_is_missing_is_a_problem_of_the_whole_answer() -> None:
    assembly, events = begin(REQUIRED)
    events += assembly.feed([TextGrew("no"), Stopped("stop")])
    last, problem = assembly.close()
    assert problem is not None and problem.code == "tool_choice_violated"
    failure = Failure(problem.code, problem.message)
    response = ended(events + last + assembly.fail(failure, "server_error"))
    assert (response.status, response.output_text, response.error) == ("failed", "no", failure)


def test_a_model_that_broke_off_is_a_problem_and_keeps_its_output() -> None:
    assembly, events = begin()
    events += assembly.feed([TextGrew("half")])
    last, problem = assembly.close()
    assert problem is not None and problem.code == "upstream_closed"
    response = ended(events + last + assembly.fail(Failure("c", "m"), "server_error"))
    assert (response.status, response.output[0]["status"]) == ("failed", "incomplete")


def test_the_events_before_a_delta_that_breaks_a_rule_are_not_lost() -> None:
    assembly, events = begin()
    opened = CallOpened(0, "f", "call_1")
    events += assembly.feed([opened, CallGrew(0, "{}")])
    with pytest.raises(BackendError):
        assembly.feed([TextGrew("said"), CallGrew(0, "more")])
    response = ended(events + assembly.fail(Failure("c", "m"), "server_error"))
    assert [item["type"] for item in response.output] == ["function_call", "message"]
    assert response.output_text == "said"


def test_an_interrupted_answer_shows_its_output_and_no_end() -> None:
    assembly, events = begin()
    calls: list[Delta] = [
        CallOpened(0, "f", "a"),
        CallGrew(0, "{"),
        CallOpened(1, "f", "b"),
        CallGrew(1, "["),
    ]
    events += assembly.feed(calls) + assembly.interrupt()
    accumulator = ResponseAccumulator()
    accumulator.feed_all(events)
    assert not any(map(is_terminal, events))
    assert accumulator.response is not None
    assert [item["arguments"] for item in accumulator.response.output] == ["{", "["]
