"""The test cases of `antiphon check`, as data.

A case is a few steps, and a step is a request with what its answer must be. `PREVIOUS` and
`CALL` stand for the id of the response before and of its first call. A case that is `optional`
needs something a server may lack: a clear 4xx is then a reason to skip it, not a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from antiphon.cli.check import rules
from antiphon.cli.check.rules import Expectation

__all__ = ["CALL", "CASES", "PREVIOUS", "Case", "Step"]

Json = dict[str, Any]  # Any: what JSON holds

PREVIOUS: Final = "$previous"
CALL: Final = "$call"
_UNKNOWN: Final = "resp_0000000000000000000000000000000000000000000000aa"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One request and what is expected of its answer. `raw` is a body that is not JSON."""

    body: Json = {}
    raw: bytes | None = None
    method: Literal["POST", "GET", "DELETE"] = "POST"
    path: str = "/responses"
    status: int = 200
    expect: Sequence[Expectation] = ()


class Case(msgspec.Struct, frozen=True):
    """What is to be shown, under a name to choose it by."""

    name: str
    about: str
    steps: Sequence[Step]
    optional: bool = False


def _says(role: str, text: str) -> Json:
    return {"type": "message", "role": role, "content": text}


_HELLO: Final = "Say hello."
_STREAMED: Final = {"stream": True}
_TOOL: Final = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
_SCHEMA: Final = {
    "type": "object",
    "properties": {"bird": {"type": "string"}, "legs": {"type": "integer"}},
    "required": ["bird", "legs"],
    "additionalProperties": False,
}
_FORMAT: Final = {
    "format": {"type": "json_schema", "name": "bird", "schema": _SCHEMA, "strict": True}
}
# A red square of 8 by 8 pixels.
_IMAGE: Final = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEU"
    "lEQVR42mP4z8CAFTEMLQkAKP8/wc53yE8AAAAASUVORK5CYII="
)
_NUMBERS: Final = (
    "Repeat these words: one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen twenty twenty-one twenty-two"
)

CASES: Final = (
    Case(
        "text",
        "a question answered as JSON",
        [Step(body={"input": _HELLO}, expect=[rules.is_completed, rules.has_text])],
    ),
    Case(
        "stream",
        "a question answered as a stream",
        [Step(body=_STREAMED | {"input": _HELLO}, expect=[rules.is_completed, rules.has_text])],
    ),
    Case(
        "stream-frames",
        "event names on the frames, [DONE] at the end",
        [
            Step(
                body=_STREAMED | {"input": _HELLO},
                expect=[rules.names_its_events, rules.ends_with_done],
            )
        ],
    ),
    Case(
        "instructions",
        "instructions beside the input",
        [
            Step(
                body=_STREAMED | {"input": _HELLO, "instructions": "Answer in English."},
                expect=[rules.is_completed, rules.has_text],
            )
        ],
    ),
    Case(
        "system-message",
        "a system message in the input",
        [
            Step(
                body={"input": [_says("system", "Answer in English."), _says("user", _HELLO)]},
                expect=[rules.is_completed, rules.has_text],
            )
        ],
    ),
    Case(
        "multi-turn",
        "a conversation sent whole",
        [
            Step(
                body=_STREAMED
                | {
                    "input": [
                        _says("user", "My bird is a heron."),
                        _says("assistant", "Noted."),
                        _says("user", "Which bird is mine?"),
                    ]
                },
                expect=[rules.is_completed, rules.has_text],
            )
        ],
    ),
    Case(
        "continue",
        "a streamed response continued by its id",
        [
            Step(body=_STREAMED | {"input": "My bird is a heron."}, expect=[rules.is_completed]),
            Step(
                body={"input": "Which bird is mine?", "previous_response_id": PREVIOUS},
                expect=[rules.is_completed, rules.has_text, rules.continues],
            ),
        ],
    ),
    Case(
        "tool-auto",
        "a tool that may be called",
        [
            Step(
                body=_STREAMED | {"input": "How is the weather in Paris?", "tools": [_TOOL]},
                expect=[rules.is_completed, rules.has_output, rules.calls_are_sound],
            )
        ],
        optional=True,
    ),
    Case(
        "tool-required",
        "a tool that must be called, and its result",
        [
            Step(
                body=_STREAMED
                | {"input": '{"city": "Paris"}', "tools": [_TOOL], "tool_choice": "required"},
                expect=[rules.is_completed, rules.calls_listed_tool],
            ),
            Step(
                body={
                    "previous_response_id": PREVIOUS,
                    "input": [
                        {"type": "function_call_output", "call_id": CALL, "output": "Rain."},
                        _says("user", "What did it say?"),
                    ],
                    "tools": [_TOOL],
                },
                expect=[rules.is_completed, rules.has_output, rules.continues],
            ),
        ],
        optional=True,
    ),
    Case(
        "json-schema",
        "text that must fit a schema",
        [
            Step(
                body=_STREAMED
                | {
                    "input": '{"bird": "heron", "legs": 2}',
                    "instructions": "Repeat the JSON of the user.",
                    "text": _FORMAT,
                },
                expect=[rules.is_completed, rules.fits_schema],
            )
        ],
        optional=True,
    ),
    Case(
        "image",
        "an image in the input",
        [
            Step(
                body={
                    "input": [
                        {
                            "type": "message",
                            "role": "user",
                            "content": [
                                {"type": "input_text", "text": "Which colour is this?"},
                                {"type": "input_image", "image_url": _IMAGE, "detail": "auto"},
                            ],
                        }
                    ]
                },
                expect=[rules.is_completed, rules.has_text, rules.took_the_image],
            )
        ],
        optional=True,
    ),
    Case(
        "max-output-tokens",
        "an answer cut off at its limit",
        [
            Step(
                body=_STREAMED | {"input": _NUMBERS, "max_output_tokens": 16},
                expect=[rules.is_cut_at_limit],
            )
        ],
    ),
    Case(
        "retrieve",
        "a streamed response, retrieved",
        [
            Step(body=_STREAMED | {"input": _HELLO}, expect=[rules.is_completed]),
            Step(method="GET", path=f"/responses/{PREVIOUS}", expect=[rules.equals_the_stream]),
        ],
    ),
    Case(
        "delete",
        "a response that is deleted is gone",
        [
            Step(body={"input": _HELLO}, expect=[rules.is_completed]),
            Step(method="DELETE", path=f"/responses/{PREVIOUS}", expect=[rules.is_deleted]),
            Step(
                method="GET",
                path=f"/responses/{PREVIOUS}",
                status=404,
                expect=[rules.has_error_shape],
            ),
        ],
    ),
    Case(
        "unknown-previous",
        "an unknown previous_response_id",
        [
            Step(
                body={"input": _HELLO, "previous_response_id": _UNKNOWN},
                status=400,
                expect=[rules.says_previous_is_unknown],
            )
        ],
    ),
    Case(
        "bad-body",
        "a field of the wrong type",
        [Step(body={"input": 42}, status=400, expect=[rules.has_error_shape])],
    ),
    Case(
        "not-json",
        "a body that is not JSON",
        [Step(raw=b'{"input": ', status=400, expect=[rules.has_error_shape])],
    ),
)
