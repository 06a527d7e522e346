"""The test cases for a chat completions server, as data.

`PREVIOUS` stands for the message of the answer before, and `RESULTS` for a result of each of
its calls.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.cli.check.case import Api, Case, Expectation, Json, Step
from antiphon.cli.check.chat import rules
from antiphon.cli.check.chat.rules import PREVIOUS, RESULTS
from antiphon.cli.check.chat.stream import judge_frames
from antiphon.cli.check.degraded import took_the_image
from antiphon.cli.check.samples import (
    BIRD_JSON,
    BIRD_SCHEMA,
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

__all__ = ["CHAT"]


def _says(role: str, content: str | list[Json]) -> Json:
    return {"role": role, "content": content}


def _post(*expect: Expectation, **body: Any) -> Step:  # Any: what JSON holds
    return Step(body=body, expect=expect)


def _stream(*expect: Expectation, **body: Any) -> Step:  # Any: what JSON holds
    options = {"include_usage": True}
    return _post(*expect, rules.has_usage, stream=True, stream_options=options, **body)


_USER: Final = [_says("user", HELLO)]
_ANSWERED: Final = (rules.is_finished, rules.has_text)
_TOOL: Final = {
    "type": "function",
    "function": {"name": TOOL_NAME, "description": TOOL_ABOUT, "parameters": CITY_SCHEMA},
}
_FORMAT: Final = {
    "type": "json_schema",
    "json_schema": {"name": "bird", "schema": BIRD_SCHEMA, "strict": True},
}
_SEEN: Final[list[Json]] = [
    {"type": "text", "text": "Which colour is this?"},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{RED_SQUARE}"}},
]
_CALLS: Final = (rules.is_finished, rules.calls_listed_tool)
_RESULT: Final = (rules.is_finished, rules.has_output, rules.calls_are_sound)


def _asked(question: str) -> Json:
    return {"messages": [_says("user", question)], "tools": [_TOOL], "tool_choice": "required"}


def _answered(question: str) -> Json:
    return {"messages": [_says("user", question), PREVIOUS, RESULTS], "tools": [_TOOL]}


CHAT: Final = Api(
    path="/chat/completions",
    judge_frames=judge_frames,
    judge_whole=rules.judge_whole,
    stand_ins=rules.stand_ins,
    cases=(
        Case(
            "text",
            "a question answered as JSON",
            [_post(*_ANSWERED, rules.has_usage, messages=_USER)],
        ),
        Case("stream", "a question answered as a stream", [_stream(*_ANSWERED, messages=_USER)]),
        Case(
            "stream-plain",
            "a stream without asking for usage",
            [_post(*_ANSWERED, messages=_USER, stream=True)],
        ),
        Case(
            "stream-equal",
            "a question answered as JSON and as a stream alike",
            [
                _post(*_ANSWERED, rules.has_usage, messages=_USER),
                _stream(*_ANSWERED, rules.equals_the_whole, messages=_USER),
            ],
        ),
        Case(
            "system-message",
            "a system message in front",
            [_post(*_ANSWERED, messages=[_says("system", "Answer in English."), *_USER])],
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
                        _says("user", "Which bird is mine?"),
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
            "json-schema",
            "text that must fit a schema",
            [
                _stream(
                    rules.is_finished,
                    rules.fits_schema,
                    messages=[
                        _says("system", "Repeat the JSON of the user."),
                        _says("user", BIRD_JSON),
                    ],
                    response_format=_FORMAT,
                )
            ],
            optional=True,
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
            optional=True,
        ),
        Case(
            "models",
            "the list of models",
            [Step(method="GET", path="/models", has_result=False, expect=[rules.lists_models])],
        ),
        Case(
            "unknown-model",
            "a model that does not exist",
            [
                Step(
                    body={"model": NO_MODEL, "messages": _USER},
                    status=404,
                    expect=[rules.has_error_shape],
                )
            ],
        ),
        Case(
            "bad-body",
            "a field of the wrong type",
            [Step(body={"messages": 42}, status=400, expect=[rules.has_error_shape])],
        ),
        Case(
            "not-json",
            "a body that is not JSON",
            [Step(raw=b'{"messages": ', status=400, expect=[rules.has_error_shape])],
        ),
    ),
)
