"""The test cases for a Messages server, as data.

`PREVIOUS` stands for the message of the answer before, and `RESULTS` for a result of each of
its calls.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.cli.check.case import Api, Case, Expectation, Json, Step
from antiphon.cli.check.degraded import took_the_image
from antiphon.cli.check.messages import rules
from antiphon.cli.check.messages.rules import PREVIOUS, RESULTS
from antiphon.cli.check.messages.stream import judge_frames
from antiphon.cli.check.samples import (
    CITY_SCHEMA,
    HELLO,
    NO_MODEL,
    NUMBERS,
    RED_SQUARE,
    TOOL_ABOUT,
    TOOL_NAME,
    WEATHER,
)
from antiphon.cli.check.tool_cases import ToolSteps, tool_cases

__all__ = ["MESSAGES"]

_ROOM: Final = 1024
"""The max_tokens of a step that is not about it: the API requires one."""


def _says(role: str, content: str | list[Json]) -> Json:
    return {"role": role, "content": content}


def _post(*expect: Expectation, **body: Any) -> Step:  # Any: what JSON holds
    return Step(body={"max_tokens": _ROOM, **body}, expect=expect)


def _stream(*expect: Expectation, **body: Any) -> Step:  # Any: what JSON holds
    return _post(*expect, stream=True, **body)


_USER: Final = [_says("user", HELLO)]
_ANSWERED: Final = (rules.is_finished, rules.has_text)
_TOOL: Final = {"name": TOOL_NAME, "description": TOOL_ABOUT, "input_schema": CITY_SCHEMA}
_SEEN: Final[list[Json]] = [
    {"type": "text", "text": "Which colour is this?"},
    {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": RED_SQUARE},
    },
]
_CALLS: Final = (rules.is_finished, rules.calls_listed_tool)
_RESULT: Final = (rules.is_finished, rules.has_output, rules.calls_are_sound)


def _asked(question: str) -> Json:
    choice = {"type": "any"}
    return {"messages": [_says("user", question)], "tools": [_TOOL], "tool_choice": choice}


def _answered(question: str) -> Json:
    results = {"role": "user", "content": RESULTS}
    return {"messages": [_says("user", question), PREVIOUS, results], "tools": [_TOOL]}


MESSAGES: Final = Api(
    path="/messages",
    judge_frames=judge_frames,
    judge_whole=rules.judge_whole,
    stand_ins=rules.stand_ins,
    key_header="x-api-key",
    headers={"anthropic-version": "2023-06-01"},
    cases=(
        Case("text", "a question answered as JSON", [_post(*_ANSWERED, messages=_USER)]),
        Case("stream", "a question answered as a stream", [_stream(*_ANSWERED, messages=_USER)]),
        Case(
            "stream-equal",
            "a question answered as JSON and as a stream alike",
            [
                _post(*_ANSWERED, messages=_USER),
                _stream(*_ANSWERED, rules.equals_the_whole, messages=_USER),
            ],
        ),
        Case(
            "system",
            "a system prompt beside the messages",
            [_post(*_ANSWERED, messages=_USER, system="Answer in English.")],
        ),
        Case(
            "multi-turn",
            "a conversation sent whole",
            [
                _stream(
                    *_ANSWERED,
                    messages=[
                        _says("user", "My bird is a heron."),
                        _says("assistant", "Noted."),
                        _says("user", [{"type": "text", "text": "Which bird is mine?"}]),
                    ],
                )
            ],
        ),
        *tool_cases(
            ToolSteps(
                post=_post,
                stream=_stream,
                offered={"messages": [_says("user", WEATHER)], "tools": [_TOOL]},
                asked=_asked,
                answered=_answered,
                calls=_CALLS,
                two_calls=(rules.is_finished, rules.calls_twice),
                result=_RESULT,
            )
        ),
        Case(
            "image",
            "an image in a message",
            [_post(*_ANSWERED, took_the_image, messages=[_says("user", _SEEN)])],
            optional=True,
        ),
        Case(
            "max-tokens",
            "an answer cut off at its limit",
            [_stream(rules.is_cut_at_limit, messages=[_says("user", NUMBERS)], max_tokens=16)],
        ),
        Case(
            "count-tokens",
            "the tokens of a request, counted",
            [
                Step(
                    body={"messages": _USER},
                    path="/messages/count_tokens",
                    has_result=False,
                    expect=[rules.counts_tokens],
                )
            ],
            optional=True,
        ),
        Case(
            "models",
            "the list of models",
            [Step(method="GET", path="/models", has_result=False, expect=[rules.lists_models])],
            optional=True,
        ),
        Case(
            "unknown-model",
            "a model that does not exist",
            [
                Step(
                    body={"model": NO_MODEL, "max_tokens": _ROOM, "messages": _USER},
                    status=404,
                    expect=[rules.is_not_found],
                )
            ],
        ),
        Case(
            "bad-body",
            "a field of the wrong type",
            [
                Step(
                    body={"max_tokens": _ROOM, "messages": 42},
                    status=400,
                    expect=[rules.is_invalid_request],
                )
            ],
        ),
        Case(
            "not-json",
            "a body that is not JSON",
            [Step(raw=b'{"messages": ', status=400, expect=[rules.is_invalid_request])],
        ),
    ),
)
