"""The cases about tool calls, which are the same for the APIs that have messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from antiphon.cli.check.case import Case, Expectation, Json, Step
from antiphon.cli.check.samples import CITY_JSON, TWO_CITIES

__all__ = ["ToolSteps", "tool_cases"]


class ToolSteps(msgspec.Struct, frozen=True, kw_only=True):
    """How an API asks for calls, and what their answers must be.

    `post` and `stream` make a step of expectations and a body. `asked` is the body of a question
    that must be answered by calls, `answered` that of the next one, with their results.
    """

    post: Callable[..., Step]
    stream: Callable[..., Step]
    offered: Json
    asked: Callable[[str], Json]
    answered: Callable[[str], Json]
    calls: Sequence[Expectation]
    two_calls: Sequence[Expectation]
    result: Sequence[Expectation]


def tool_cases(steps: ToolSteps) -> list[Case]:
    """Return the cases: a tool that may be called, must be called, and two calls at once."""
    post, stream, asked, answered = steps.post, steps.stream, steps.asked, steps.answered
    return [
        Case(
            "tool-auto",
            "a tool that may be called",
            [stream(*steps.result, **steps.offered)],
            optional=True,
        ),
        Case(
            "tool-required",
            "a tool that must be called, as a stream, and its result",
            [
                stream(*steps.calls, **asked(CITY_JSON)),
                post(*steps.result, **answered(CITY_JSON)),
            ],
            optional=True,
        ),
        Case(
            "tool-whole",
            "a tool that must be called, as JSON, and its result",
            [
                post(*steps.calls, **asked(CITY_JSON)),
                stream(*steps.result, **answered(CITY_JSON)),
            ],
            optional=True,
        ),
        Case(
            "parallel-calls",
            "two calls at once, and their results",
            [
                stream(*steps.two_calls, **asked(TWO_CITIES)),
                post(*steps.result, **answered(TWO_CITIES)),
            ],
            optional=True,
        ),
    ]
