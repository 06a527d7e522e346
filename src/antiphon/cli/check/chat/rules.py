"""The rules for an answer of a chat completions server, streamed or whole.

`stream` judges the chunks themselves. The rules here are about the completion that they make,
or that came whole, and about the HTTP answer. No rule is about the quality of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from antiphon.cli.check.case import Answer, Finding, Json, brief, json_of
from antiphon.cli.check.judges import (
    Called,
    Ending,
    compare_stream,
    judge_calls,
    judge_ending,
    judge_error,
    judge_schema,
    require_calls,
    require_two_calls,
)

__all__ = [
    "PREVIOUS",
    "RESULTS",
    "calls_are_sound",
    "calls_listed_tool",
    "calls_twice",
    "equals_the_whole",
    "fits_schema",
    "has_error_shape",
    "has_output",
    "has_text",
    "has_usage",
    "is_cut_at_limit",
    "is_finished",
    "judge_whole",
    "lists_models",
    "stand_ins",
]

PREVIOUS: Final = "$previous"
RESULTS: Final = "$results"
_REASONS: Final = ("stop", "length", "tool_calls", "content_filter", "function_call")


# Whole answers.


def judge_whole(answer: Answer) -> tuple[Json | None, list[Finding]]:
    """Return a completion that came whole, and what is wrong with its shape."""
    body = answer.body
    findings = list(_shape_of(body))
    return (None if findings else body), findings


def _shape_of(body: object) -> Iterator[Finding]:
    if not isinstance(body, dict):
        yield Finding("completion_shape", "the completion is not an object")
        return
    if body.get("object") != "chat.completion":
        yield Finding("completion_shape", f"object is {brief(body.get('object'))}")
    for name, kind in (("id", str), ("created", int), ("model", str)):
        if not isinstance(body.get(name), kind):
            yield Finding("completion_shape", f"{name} is {brief(body.get(name))}")
    choices = body.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        yield Finding("completion_shape", "choices is not a list of one object")
        return
    yield from _choice_shape(choices[0])


def _choice_shape(choice: Json) -> Iterator[Finding]:
    if choice.get("index") != 0:
        yield Finding("choice_index", f"the index is {brief(choice.get('index'))}, not 0")
    if not isinstance(choice.get("finish_reason"), str):
        yield Finding("finish_missing", "the choice has no finish_reason")
    message = choice.get("message")
    if not isinstance(message, dict):
        yield Finding("completion_shape", "the choice has no message")
        return
    if message.get("role") != "assistant":
        yield Finding("role", f"the message has the role {brief(message.get('role'))}")
    if not isinstance(message.get("content", ...), str | None):
        yield Finding("completion_shape", "the message has no content, which may be null")
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(map(_is_call, calls))):
        yield Finding("completion_shape", f"tool_calls is {brief(calls)}")


def _is_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(call, dict) and call.get("type") == "function" and isinstance(function, dict)


def stand_ins(answer: Answer) -> dict[str, Any]:  # Any: what JSON holds
    """Return the message as a client sends it back, and a result for each of its calls."""
    message = _message(answer)
    sent = {name: message[name] for name in ("role", "content", "tool_calls") if name in message}
    results = [
        {"role": "tool", "tool_call_id": call.get("id"), "content": "Rain."}
        for call in _calls(answer)
    ]
    return {PREVIOUS: sent, RESULTS: results}


# What the answer is.


def is_finished(answer: Answer) -> Iterator[Finding]:
    """The model came to its own end, and the finish_reason fits what it produced."""
    reason, expected = _reason(answer), "tool_calls" if _calls(answer) else "stop"
    if reason not in _REASONS:
        yield Finding("finish_reason", f"finish_reason is {reason!r}, which is not documented")
    elif reason != expected:
        yield Finding("finish_reason", f"finish_reason is {reason!r}, not {expected!r}")


def has_output(answer: Answer) -> Iterator[Finding]:
    """There is text, or a call."""
    if not _text(answer) and not _calls(answer):
        yield Finding("output", "the message has neither text nor calls")


def has_text(answer: Answer) -> Iterator[Finding]:
    """The message has text."""
    if not _text(answer):
        yield Finding("text", "the message has no text")


def has_usage(answer: Answer) -> Iterator[Finding]:
    """The tokens are counted, and the sum is right."""
    usage = answer.result.get("usage")
    if not isinstance(usage, dict):
        yield Finding("usage", "the answer has no usage")
        return
    found = [usage.get(f"{name}_tokens") for name in ("prompt", "completion", "total")]
    counts = [count for count in found if isinstance(count, int)]
    if len(counts) != len(found):
        yield Finding("usage", f"usage lacks a count: {brief(usage)}")
    elif counts[0] + counts[1] != counts[2]:
        yield Finding("usage", "total_tokens is not the sum of prompt and completion tokens")


def equals_the_whole(answer: Answer) -> Iterator[Finding]:
    """The stream makes the completion that was sent whole for the same question.

    Ids and times differ. A model need not answer twice with the same text.
    """
    assert answer.previous is not None  # the step before was judged
    whole, streamed = answer.previous, answer
    same_text = _text(whole) == _text(streamed)
    pairs = {
        "model": (whole.result["model"], streamed.result["model"]),
        "prompt_tokens": (_count(whole, "prompt"), _count(streamed, "prompt")),
    }
    if same_text:
        pairs["finish_reason"] = (_reason(whole), _reason(streamed))
        pairs["completion_tokens"] = (_count(whole, "completion"), _count(streamed, "completion"))
    yield from compare_stream(pairs, is_same_text=same_text)


def is_cut_at_limit(answer: Answer) -> Iterator[Finding]:
    """An answer that reached max_tokens ends with `length`."""
    ending = Ending(_reason(answer), _count(answer, "completion"), answer.asked["max_tokens"])
    yield from judge_ending(ending, "finish_reason", own="stop", cut="length")


# Tools and formats.


def calls_are_sound(answer: Answer) -> Iterator[Finding]:
    """Every call is to a tool that was offered, has its own id, and its arguments are JSON."""
    offered = [tool["function"]["name"] for tool in answer.asked.get("tools", ())]
    yield from judge_calls(map(_called, _calls(answer)), offered, "arguments")


def _called(call: Json) -> Called:
    arguments = call["function"].get("arguments")
    return Called(call["function"].get("name"), call.get("id"), json_of(arguments), arguments)


def calls_listed_tool(answer: Answer) -> Iterator[Finding]:
    """With tool_choice required there is at least one call."""
    yield from require_calls(_calls(answer), "required")
    yield from calls_are_sound(answer)


def calls_twice(answer: Answer) -> Iterator[Finding]:
    """Calls that are made at once are told apart."""
    yield from calls_listed_tool(answer)
    require_two_calls(_calls(answer))


def fits_schema(answer: Answer) -> Iterator[Finding]:
    """With a strict json_schema, the text is JSON that fits it."""
    schema = answer.asked["response_format"]["json_schema"]["schema"]
    yield from judge_schema(_text(answer), schema)


# Errors and lists.


def has_error_shape(answer: Answer) -> Iterator[Finding]:
    """An error is `{"error": {message, type, param, code}}`."""
    yield from judge_error(answer.body)


def lists_models(answer: Answer) -> Iterator[Finding]:
    """The list names at least one model."""
    body = answer.body if isinstance(answer.body, dict) else {}
    models = body.get("data")
    if body.get("object") != "list" or not isinstance(models, list) or not models:
        yield Finding("models_shape", f"this is not a list of models: {brief(answer.body)}")
        return
    for model in models:
        if not isinstance(model, dict) or not isinstance(model.get("id"), str):
            yield Finding("models_shape", f"a model has no id: {brief(model)}")
        elif model.get("object") != "model":
            yield Finding("models_shape", f"object is not 'model': {brief(model)}")


def _choice(answer: Answer) -> Json:
    choice: Json = answer.result["choices"][0]
    return choice


def _message(answer: Answer) -> Json:
    message: Json = _choice(answer)["message"]
    return message


def _reason(answer: Answer) -> str:
    return str(_choice(answer)["finish_reason"])


def _text(answer: Answer) -> str:
    return _message(answer).get("content") or ""


def _calls(answer: Answer) -> list[Json]:
    return _message(answer).get("tool_calls") or []


def _count(answer: Answer, name: str) -> object:
    usage = answer.result.get("usage")
    return usage.get(f"{name}_tokens") if isinstance(usage, dict) else None
