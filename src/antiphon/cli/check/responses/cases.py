"""The test cases for a Responses server, as data.

`PREVIOUS` and `CALL` stand for the id of the response before and of its first call.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.cli.check.case import Api, Case, Expectation, Json, Step
from antiphon.cli.check.responses import rules
from antiphon.cli.check.responses.rules import CALL, PREVIOUS
from antiphon.cli.check.samples import (
    BIRD_JSON,
    BIRD_SCHEMA,
    CITY_JSON,
    CITY_SCHEMA,
    HELLO,
    NUMBERS,
    RED_SQUARE,
    TOOL_ABOUT,
    TOOL_NAME,
)

__all__ = ["CASES", "RESPONSES"]

_STORED: Final = f"/responses/{PREVIOUS}"
_UNKNOWN: Final = "resp_0000000000000000000000000000000000000000000000aa"


def _says(role: str, content: str | list[Json]) -> Json:
    return {"type": "message", "role": role, "content": content}


def _post(*expect: Expectation, **body: Any) -> Step:  # Any: what JSON holds
    return Step(body=body, expect=expect)


def _stream(*expect: Expectation, **body: Any) -> Step:  # Any: what JSON holds
    return _post(*expect, stream=True, **body)


def _refused(expect: Expectation, **body: Any) -> Step:  # Any: what JSON holds
    return Step(body=body, status=400, expect=[expect])


_ANSWERED: Final = (rules.is_completed, rules.has_text)
_TOOL: Final = {
    "type": "function",
    "name": TOOL_NAME,
    "description": TOOL_ABOUT,
    "parameters": CITY_SCHEMA,
    "strict": True,
}
_FORMAT: Final = {
    "format": {"type": "json_schema", "name": "bird", "schema": BIRD_SCHEMA, "strict": True}
}
_SEEN: Final[list[Json]] = [
    {"type": "input_text", "text": "Which colour is this?"},
    {
        "type": "input_image",
        "image_url": f"data:image/png;base64,{RED_SQUARE}",
        "detail": "auto",
    },
]

CASES: Final = (
    Case("text", "a question answered as JSON", [_post(*_ANSWERED, input=HELLO)]),
    Case("stream", "a question answered as a stream", [_stream(*_ANSWERED, input=HELLO)]),
    Case(
        "stream-frames",
        "event names on the frames, [DONE] at the end",
        [_stream(rules.names_its_events, rules.ends_with_done, input=HELLO)],
    ),
    Case(
        "instructions",
        "instructions beside the input",
        [_stream(*_ANSWERED, input=HELLO, instructions="Answer in English.")],
    ),
    Case(
        "system-message",
        "a system message in the input",
        [_post(*_ANSWERED, input=[_says("system", "Answer in English."), _says("user", HELLO)])],
    ),
    Case(
        "multi-turn",
        "a conversation sent whole",
        [
            _stream(
                *_ANSWERED,
                input=[
                    _says("user", "My bird is a heron."),
                    _says("assistant", "Noted."),
                    _says("user", "Which bird is mine?"),
                ],
            )
        ],
    ),
    Case(
        "continue",
        "a streamed response continued by its id",
        [
            _stream(rules.is_completed, input="My bird is a heron."),
            _post(
                *_ANSWERED,
                rules.continues,
                input="Which bird is mine?",
                previous_response_id=PREVIOUS,
            ),
        ],
    ),
    Case(
        "tool-auto",
        "a tool that may be called",
        [
            _stream(
                rules.is_completed,
                rules.has_output,
                rules.calls_are_sound,
                input="How is the weather in Paris?",
                tools=[_TOOL],
            )
        ],
        optional=True,
    ),
    Case(
        "tool-required",
        "a tool that must be called, and its result",
        [
            _stream(
                rules.is_completed,
                rules.calls_listed_tool,
                input=CITY_JSON,
                tools=[_TOOL],
                tool_choice="required",
            ),
            _post(
                rules.is_completed,
                rules.has_output,
                rules.continues,
                previous_response_id=PREVIOUS,
                input=[
                    {"type": "function_call_output", "call_id": CALL, "output": "Rain."},
                    _says("user", "What did it say?"),
                ],
                tools=[_TOOL],
            ),
        ],
        optional=True,
    ),
    Case(
        "json-schema",
        "text that must fit a schema",
        [
            _stream(
                rules.is_completed,
                rules.fits_schema,
                input=BIRD_JSON,
                instructions="Repeat the JSON of the user.",
                text=_FORMAT,
            )
        ],
        optional=True,
    ),
    Case(
        "image",
        "an image in the input",
        [_post(*_ANSWERED, rules.took_the_image, input=[_says("user", _SEEN)])],
        optional=True,
    ),
    Case(
        "max-output-tokens",
        "an answer cut off at its limit",
        [_stream(rules.is_cut_at_limit, input=NUMBERS, max_output_tokens=16)],
    ),
    Case(
        "retrieve",
        "a streamed response, retrieved",
        [
            _stream(rules.is_completed, input=HELLO),
            Step(method="GET", path=_STORED, expect=[rules.equals_the_stream]),
        ],
    ),
    Case(
        "delete",
        "a response that is deleted is gone",
        [
            _post(rules.is_completed, input=HELLO),
            Step(method="DELETE", path=_STORED, has_result=False, expect=[rules.is_deleted]),
            Step(method="GET", path=_STORED, status=404, expect=[rules.has_error_shape]),
        ],
    ),
    Case(
        "unknown-previous",
        "an unknown previous_response_id",
        [_refused(rules.says_previous_is_unknown, input=HELLO, previous_response_id=_UNKNOWN)],
    ),
    Case("bad-body", "a field of the wrong type", [_refused(rules.has_error_shape, input=42)]),
    Case(
        "not-json",
        "a body that is not JSON",
        [Step(raw=b'{"input": ', status=400, expect=[rules.has_error_shape])],
    ),
)

RESPONSES: Final = Api(
    path="/responses",
    cases=CASES,
    judge_frames=rules.judge_frames,
    judge_whole=rules.judge_whole,
    stand_ins=rules.stand_ins,
)
