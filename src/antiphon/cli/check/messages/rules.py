"""The rules for an answer of a Messages server, streamed or whole.

`stream` judges the events themselves. The rules here are about the message that they make, or
that came whole, and about the HTTP answer. No rule is about the quality of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from antiphon.cli.check.case import Answer, Finding, Json, brief
from antiphon.cli.check.judges import (
    Called,
    Ending,
    compare_stream,
    judge_calls,
    judge_ending,
    require_calls,
    require_two_calls,
)

__all__ = [
    "PREVIOUS",
    "RESULTS",
    "calls_are_sound",
    "calls_listed_tool",
    "calls_twice",
    "counts_tokens",
    "equals_the_whole",
    "has_output",
    "has_text",
    "is_cut_at_limit",
    "is_finished",
    "is_invalid_request",
    "is_not_found",
    "is_sound",
    "judge_whole",
    "lists_models",
    "stand_ins",
]

PREVIOUS: Final = "$previous"
RESULTS: Final = "$results"
_REASONS: Final = (
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
)
_FIELDS: Final = {"text": "text", "thinking": "thinking", "tool_use": "input"}
_READ: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def judge_whole(answer: Answer) -> tuple[Json | None, list[Finding]]:
    """Return a message that came whole. `is_sound` judges its shape, as that of a stream."""
    if isinstance(answer.body, dict) and isinstance(answer.body.get("content"), list):
        return answer.body, []
    return None, [Finding("message_shape", "the message is not an object with content")]


def stand_ins(answer: Answer) -> dict[str, Any]:  # Any: what JSON holds
    """Return the message as a client sends it back, and a result for each of its calls."""
    sent = {"role": "assistant", "content": answer.result["content"]}
    results = [
        {"type": "tool_result", "tool_use_id": call.get("id"), "content": "Rain."}
        for call in _calls(answer)
    ]
    return {PREVIOUS: sent, RESULTS: results}


# What the answer is.


def is_sound(answer: Answer) -> Iterator[Finding]:
    """A message has every field clients rely on, and its blocks have theirs."""
    message = answer.result
    for name, expected in (("type", "message"), ("role", "assistant")):
        if message.get(name) != expected:
            yield Finding("message_shape", f"{name} is {brief(message.get(name))}")
    for name in ("id", "model"):
        if not isinstance(message.get(name), str) or not message[name]:
            yield Finding("message_shape", f"{name} is {brief(message.get(name))}")
    if "stop_sequence" not in message:
        yield Finding("message_shape", "the message lacks stop_sequence")
    if message.get("stop_reason") not in _REASONS:
        reason = brief(message.get("stop_reason"))
        yield Finding("stop_reason", f"stop_reason is {reason}, which is not documented")
    for index, block in enumerate(message["content"]):
        yield from _judge_block(index, block)
    usage = message.get("usage")
    for name in ("input_tokens", "output_tokens"):
        if not isinstance(usage, dict) or not isinstance(usage.get(name), int):
            yield Finding("usage", f"usage has no {name}")


def _judge_block(index: int, block: object) -> Iterator[Finding]:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        yield Finding("message_shape", f"content[{index}] is not an object with a type")
        return
    field = _FIELDS.get(block["type"])
    if field is not None and field not in block:
        yield Finding("message_shape", f"content[{index}] lacks {field}")
    if block["type"] == "text" and block.get("text") == "":
        yield Finding("message_shape", f"content[{index}] is an empty text")


def is_finished(answer: Answer) -> Iterator[Finding]:
    """The model came to its own end, and the stop_reason fits what it produced."""
    yield from is_sound(answer)
    reason, expected = (
        answer.result.get("stop_reason"),
        "tool_use" if _calls(answer) else "end_turn",
    )
    if reason in _REASONS and reason != expected:
        yield Finding("stop_reason", f"stop_reason is {reason!r}, not {expected!r}")


def has_output(answer: Answer) -> Iterator[Finding]:
    """There is text, or a call."""
    if not _text(answer) and not _calls(answer):
        yield Finding("output", "the message has neither text nor calls")


def has_text(answer: Answer) -> Iterator[Finding]:
    """The message has text."""
    if not _text(answer):
        yield Finding("text", "the message has no text")


def equals_the_whole(answer: Answer) -> Iterator[Finding]:
    """The stream makes the message that was sent whole for the same question.

    Ids differ. A model need not answer twice with the same text, and what it read from a cache
    may differ, but not the sum.
    """
    assert answer.previous is not None  # the step before was judged
    whole, streamed = answer.previous, answer
    same_text = _text(whole) == _text(streamed)
    pairs = {
        "model": (whole.result.get("model"), streamed.result.get("model")),
        "the number of input tokens": (_read(whole), _read(streamed)),
    }
    if same_text:
        for name in ("content", "stop_reason", "stop_sequence"):
            pairs[name] = (whole.result.get(name), streamed.result.get(name))
        pairs["output_tokens"] = (_written(whole), _written(streamed))
    yield from compare_stream(pairs, is_same_text=same_text)


def is_cut_at_limit(answer: Answer) -> Iterator[Finding]:
    """An answer that reached max_tokens ends with `max_tokens`."""
    yield from is_sound(answer)
    reason = answer.result.get("stop_reason")
    ending = Ending(reason, _written(answer), answer.asked["max_tokens"])
    yield from judge_ending(ending, "stop_reason", own="end_turn", cut="max_tokens")


# Tools.


def calls_are_sound(answer: Answer) -> Iterator[Finding]:
    """Every call is to a tool that was offered, has its own id, and its input is an object."""
    offered = [tool["name"] for tool in answer.asked.get("tools", ())]
    yield from judge_calls(map(_called, _calls(answer)), offered, "input")


def _called(call: Json) -> Called:
    return Called(call.get("name"), call.get("id"), call.get("input"), call.get("input"))


def calls_listed_tool(answer: Answer) -> Iterator[Finding]:
    """With tool_choice any there is at least one call."""
    yield from require_calls(_calls(answer), "any")
    yield from calls_are_sound(answer)


def calls_twice(answer: Answer) -> Iterator[Finding]:
    """Calls that are made at once are told apart."""
    yield from calls_listed_tool(answer)
    require_two_calls(_calls(answer))


# Counts, lists and errors.


def counts_tokens(answer: Answer) -> Iterator[Finding]:
    """The tokens of a request are counted without running it."""
    count = answer.body.get("input_tokens") if isinstance(answer.body, dict) else None
    if not isinstance(count, int) or count <= 0:
        yield Finding("token_count", f"input_tokens is not a count: {brief(answer.body)}")


def lists_models(answer: Answer) -> Iterator[Finding]:
    """The list names at least one model, and says whether there are more."""
    body = answer.body if isinstance(answer.body, dict) else {}
    models = body.get("data")
    if not isinstance(models, list) or not models:
        yield Finding("models_shape", f"this is not a list of models: {brief(answer.body)}")
        return
    missing = [name for name in ("has_more", "first_id", "last_id") if name not in body]
    if missing:
        yield Finding("models_shape", f"the list lacks {', '.join(missing)}")
    for model in models:
        known = model if isinstance(model, dict) else {}
        fields = ("id", "display_name", "created_at")
        if known.get("type") != "model" or not all(isinstance(known.get(f), str) for f in fields):
            yield Finding("models_shape", f"this is not a model: {brief(model)}")


def is_invalid_request(answer: Answer) -> Iterator[Finding]:
    """A mistake of the caller is called that."""
    yield from _judge_error(answer, "invalid_request_error")


def is_not_found(answer: Answer) -> Iterator[Finding]:
    """What does not exist is called that."""
    yield from _judge_error(answer, "not_found_error")


def _judge_error(answer: Answer, expected: str) -> Iterator[Finding]:
    """An error is `{"type": "error", "error": {type, message}}`."""
    body = answer.body if isinstance(answer.body, dict) else {}
    error = body.get("error")
    if body.get("type") != "error" or not isinstance(error, dict):
        yield Finding("error_shape", "the body is not an object of type error with an error")
        return
    if not isinstance(error.get("message"), str) or not error["message"]:
        yield Finding("error_shape", "the error has no message")
    if error.get("type") != expected:
        yield Finding("error_type", f"type is {brief(error.get('type'))}, not {expected!r}")


def _text(answer: Answer) -> str:
    blocks = answer.result["content"]
    return "".join(str(block.get("text")) for block in blocks if _is(block, "text"))


def _calls(answer: Answer) -> list[Json]:
    return [block for block in answer.result["content"] if _is(block, "tool_use")]


def _is(block: object, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _usage(answer: Answer) -> Json:
    usage = answer.result.get("usage")
    return usage if isinstance(usage, dict) else {}


def _read(answer: Answer) -> int:
    counts = map(_usage(answer).get, _READ)
    return sum(count for count in counts if isinstance(count, int))


def _written(answer: Answer) -> object:
    return _usage(answer).get("output_tokens")
