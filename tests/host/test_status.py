"""The status line: what a turn took, in one line, and no figure that nobody gave."""

from __future__ import annotations

import pytest

from antiphon.host.status import status_line
from antiphon.host.usage import TurnEnded, TurnStarted, UsageTracker
from antiphon.models.prices import Price
from antiphon.protocol.response import InputDetails, OutputDetails, Response, Usage

COUNTED = Usage(
    input_tokens=1234,
    input_tokens_details=InputDetails(cached_tokens=800),
    output_tokens=567,
    output_tokens_details=OutputDetails(reasoning_tokens=123),
    total_tokens=1801,
)
PRICE = Price(input=2.0, output=10.0, cached=0.5)


def ended_line(usage: Usage | None, *, status: str = "completed", price: Price | None) -> str:
    tracker = UsageTracker()
    turn = tracker.start("chat", "gpt-5", 1000, 10_000)
    ended = tracker.complete(turn, Response(id="resp_1", status=status, usage=usage))
    return status_line(TurnEnded(turn=ended, totals=tracker.totals("chat")), price)


@pytest.mark.requirement("RFC016-usage")
def test_the_status_line_says_what_is_known() -> None:
    assert ended_line(COUNTED, price=PRICE) == (
        "gpt-5 · in 1,234 (800 cached) · out 567 (123 reasoning) · context 12% · $0.0069"
    )


def test_the_status_line_says_how_a_turn_ended_badly_and_marks_estimates() -> None:
    line = ended_line(None, status="failed", price=PRICE)
    assert line == "gpt-5 · failed · in ~1,000 · out ~0 · context ~10% · ~$0.0020"


def test_the_status_line_leaves_out_what_is_not_known() -> None:
    started = TurnStarted(conversation="chat", model="gpt-5", estimated_input=1000)
    assert status_line(started) == "gpt-5 · in ~1,000"
    assert ended_line(COUNTED, price=None).endswith("context 12%")


def test_the_status_line_of_a_start_shows_how_full_the_context_will_be() -> None:
    started = TurnStarted(
        conversation="chat", model="gpt-5", estimated_input=5000, max_input=10_000
    )
    assert status_line(started, PRICE) == "gpt-5 · in ~5,000 · context ~50%"


@pytest.mark.parametrize(
    ("output", "cost"),
    [(0, "$0.0000"), (1, "<$0.0001"), (100, "$0.0010"), (12_345_600, "$123.46")],
)
def test_money_is_shown_with_as_many_digits_as_matter(output: int, cost: str) -> None:
    usage = Usage(output_tokens=output, total_tokens=max(output, 1))
    assert ended_line(usage, price=PRICE).endswith(cost)


def test_the_status_line_of_a_turn_that_never_ran_has_no_figures() -> None:
    tracker = UsageTracker()
    ended = tracker.discard(tracker.start("chat", "gpt-5", 1000))
    line = status_line(TurnEnded(turn=ended, totals=tracker.totals("chat")), PRICE)
    assert line == "gpt-5 · not_run"
