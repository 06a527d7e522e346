"""What is wrong with the values of an answer, whatever API they come from?

The rules of each API take the values out of its answers and pass them here, so that every server
is held to the same standard, in the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jsonschema_rs

from antiphon.cli.check.case import Finding, Json, Skip, brief, json_of

__all__ = [
    "Called",
    "Ending",
    "compare_stream",
    "judge_calls",
    "judge_ending",
    "judge_error",
    "judge_schema",
    "require_calls",
    "require_two_calls",
]


class Called(NamedTuple):
    """A call of the model. `arguments` is what they are as JSON, `shown` what was sent."""

    name: object
    id: object
    arguments: object
    shown: object


class Ending(NamedTuple):
    """Why an answer with a limit ended, and how long it was."""

    reason: object
    used: object
    limit: int


def judge_calls(calls: Iterable[Called], offered: Sequence[str], what: str) -> Iterator[Finding]:
    """Every call is to a tool that was offered, has its own id, and its arguments are an object.

    `what` is the name of the arguments in this API.
    """
    seen: list[object] = []
    for call in calls:
        if call.name not in offered:
            yield Finding("tool_name", f"{call.name!r} was called, which is not among the tools")
        if not isinstance(call.id, str) or not call.id:
            yield Finding("call_id", f"the call of {call.name!r} has no id")
        elif call.id in seen:
            yield Finding("call_id", f"two calls have the id {call.id!r}")
        seen.append(call.id)
        if not isinstance(call.arguments, dict):
            detail = f"the {what} of {call.name!r} must be a JSON object: {brief(call.shown)}"
            yield Finding("arguments", detail)


def require_calls(calls: Sequence[object], choice: str) -> Iterator[Finding]:
    """With a tool_choice that requires a call there is at least one."""
    if not calls:
        yield Finding("tool_required", f"tool_choice was {choice}, and no tool was called")


def require_two_calls(calls: Sequence[object]) -> None:
    """Raise Skip if there are no two calls to compare."""
    if len(calls) == 1:
        raise Skip("the model made one call where two were asked for")


def judge_schema(text: str, schema: Json) -> Iterator[Finding]:
    """With a strict json_schema, the text is JSON that fits it."""
    value = json_of(text)
    if value is None:
        yield Finding("json_schema", f"the text is not JSON: {brief(text)}")
        return
    try:
        jsonschema_rs.validate(schema, value)
    except jsonschema_rs.ValidationError as error:
        yield Finding("json_schema", f"the text does not fit the schema: {error.message}")


def judge_error(body: object) -> Iterator[Finding]:
    """An error of OpenAI's APIs is `{"error": {message, type, param, code}}`."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        yield Finding("error_shape", "the body has no error object")
        return
    missing = [name for name in ("message", "type", "param", "code") if name not in error]
    if missing:
        yield Finding("error_shape", f"the error lacks {', '.join(missing)}")
    if not isinstance(error.get("message"), str) or not error["message"]:
        yield Finding("error_shape", "the error has no message")


def compare_stream(
    pairs: Mapping[str, tuple[object, object]], *, is_same_text: bool
) -> Iterator[Finding]:
    """The values of a whole answer, which come first, are those of the stream.

    Raise Skip if the model has not given the same text twice.
    """
    for name, (whole, streamed) in pairs.items():
        if whole != streamed:
            first, second = brief(whole), brief(streamed)
            detail = f"{name} is {first} in the whole answer and {second} in the stream"
            yield Finding("stream_equal", detail)
    if not is_same_text:
        raise Skip("the model gave two different answers to one question")


def judge_ending(ending: Ending, field: str, *, own: str, cut: str) -> Iterator[Finding]:
    """An answer that reached its limit has the reason `cut`, under the name `field`.

    Raise Skip if the model came to its own end before.
    """
    reason, used, limit = ending
    if reason == own and isinstance(used, int) and used <= limit:
        raise Skip(f"the model stopped by itself within {limit} tokens")
    if reason != cut:
        spent = f"{used} tokens were spent, {limit} allowed"
        yield Finding("limit", f"{field} is {reason!r}, not {cut!r}; {spent}")
