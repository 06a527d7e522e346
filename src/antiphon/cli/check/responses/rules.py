"""The rules that `antiphon check` applies to an answer.

The stream itself is judged by the referee, which knows the grammar of events. The rules here
are about what the referee cannot see: the frames around the events, the HTTP answer, and
whether the response is what was asked for. No rule is about the quality of the answer. Each
returns what it found wrong, or raises Skip when this answer cannot show it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from antiphon.cli.check.case import Answer, Finding, Json, Skip, brief, json_of, shown
from antiphon.cli.check.judges import (
    Called,
    judge_calls,
    judge_error,
    judge_schema,
    require_calls,
)
from antiphon.protocol.codec import decode_event_strictly, decode_response_strictly
from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.referee import Referee, Violation
from antiphon.protocol.response import Response
from antiphon.protocol.sse import Frame

__all__ = [
    "CALL",
    "PREVIOUS",
    "calls_are_sound",
    "calls_listed_tool",
    "continues",
    "ends_with_done",
    "equals_the_stream",
    "fits_schema",
    "has_error_shape",
    "has_output",
    "has_text",
    "is_completed",
    "is_cut_at_limit",
    "is_deleted",
    "judge_frames",
    "judge_whole",
    "names_its_events",
    "says_previous_is_unknown",
    "stand_ins",
    "took_the_image",
]

PREVIOUS: Final = "$previous"
CALL: Final = "$call"

_DONE: Final = b"[DONE]"
_REQUIRED: Final = (
    "id",
    "object",
    "created_at",
    "status",
    "model",
    "output",
    "error",
    "incomplete_details",
    "instructions",
    "previous_response_id",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "temperature",
    "top_p",
    "truncation",
    "usage",
    "metadata",
)

# Streams.


def judge_frames(frames: Sequence[Frame]) -> tuple[Response | None, list[Finding]]:
    """Return the response of a stream and every rule that the stream breaks."""
    referee, accumulator = Referee(), ResponseAccumulator()
    findings: list[Finding] = []
    for number, frame in enumerate(frames):
        if frame.data == _DONE:
            break
        where = f"#{number} {shown(frame.data)}"
        try:
            event = decode_event_strictly(frame.data)
        except BrokenStream as error:
            findings.append(Finding("event_shape", error.message, where))
            continue
        findings += [_of_violation(found, where) for found in referee.judge(event)]
        accumulator.feed(event)
    findings += [_of_violation(found, "") for found in referee.end()]
    if not findings:
        # The referee found nothing: then the streamed and the final response agree.
        findings += [Finding("stream_equal", text) for text in accumulator.deviations]
    return accumulator.response, findings


def _of_violation(violation: Violation, where: str) -> Finding:
    return Finding(violation.rule, violation.message, where)


def ends_with_done(answer: Answer) -> Iterator[Finding]:
    """`data: [DONE]` is the last thing on the stream, once."""
    marks = [number for number, frame in enumerate(answer.frames) if frame.data == _DONE]
    if not marks:
        yield Finding("done_marker", "the stream does not end with data: [DONE]")
    elif marks != [len(answer.frames) - 1]:
        yield Finding("done_marker", "something follows data: [DONE]")


def names_its_events(answer: Answer) -> Iterator[Finding]:
    """The `event:` field of a frame is the type of its event."""
    for number, frame in enumerate(answer.frames):
        if frame.data == _DONE:
            return
        kind = _field(frame.data, "type")
        if frame.event != kind:
            detail = f"the frame is named {frame.event!r}, its event {kind!r}"
            yield Finding("event_name", detail, f"#{number} {shown(frame.data)}")
            return


# Responses.


def judge_whole(answer: Answer) -> tuple[Response | None, list[Finding]]:
    """Return the response of an answer that was not streamed, and what is wrong with its shape."""
    findings = list(_shape_of(answer.body))
    try:
        return decode_response_strictly(answer.raw), findings
    except BrokenStream as error:
        return None, [*findings, Finding("response_shape", error.message)]


def stand_ins(answer: Answer) -> dict[str, str]:
    """Return the id of a response and of its first call. Raise Skip if it is not stored."""
    response = _response(answer)
    if response.store is False:
        raise Skip("the server reports store: false, so nothing can be retrieved")
    call_id = next((str(item.get("call_id", "")) for item in _calls(response)), "")
    return {PREVIOUS: response.id, CALL: call_id}


def _shape_of(body: object) -> Iterator[Finding]:
    """A response is an object that has every field clients rely on."""
    if not isinstance(body, dict):
        yield Finding("response_shape", "the response is not an object")
        return
    missing = [name for name in _REQUIRED if name not in body]
    if missing:
        yield Finding("response_shape", f"the response lacks {', '.join(missing)}")
    if body.get("object") != "response":
        yield Finding("response_shape", f"object is {body.get('object')!r}, not 'response'")


def is_completed(answer: Answer) -> Iterator[Finding]:
    """The turn completed, with its time and usage."""
    response = _response(answer)
    if response.status != "completed":
        reason = f": {response.error.message}" if response.error else ""
        yield Finding("completed", f"status is {response.status}{reason}")
        return
    if response.error is not None or response.incomplete_details is not None:
        yield Finding("completed", "a completed response has an error or incomplete_details")
    usage = response.usage
    if usage is None:
        yield Finding("usage", "a finished response has no usage")
    elif usage.total_tokens != usage.input_tokens + usage.output_tokens:
        yield Finding("usage", "total_tokens is not the sum of input and output tokens")


def has_output(answer: Answer) -> Iterator[Finding]:
    """There is at least one item, and each has an id and a type."""
    output = _response(answer).output
    if not output:
        yield Finding("output", "the output is empty")
    for index, item in enumerate(output):
        if not item.get("id") or not item.get("type"):
            yield Finding("output", f"output[{index}] lacks its id or type")


def has_text(answer: Answer) -> Iterator[Finding]:
    """The answer has a message with text in it."""
    yield from has_output(answer)
    if not _response(answer).output_text:
        yield Finding("text", "no message with text is in the output")


def continues(answer: Answer) -> Iterator[Finding]:
    """The response names the one it goes on from."""
    told, expected = _response(answer).previous_response_id, answer.asked["previous_response_id"]
    if told != expected:
        yield Finding("previous", f"previous_response_id is {told!r}, not {expected!r}")


def is_cut_at_limit(answer: Answer) -> Iterator[Finding]:
    """A response that reached max_output_tokens is marked as incomplete."""
    response, limit = _response(answer), answer.asked["max_output_tokens"]
    if response.status == "completed":
        used = response.usage.output_tokens if response.usage else None
        if used is not None and used > limit:
            yield Finding(
                "limit", f"{used} tokens were spent, {limit} allowed, and it is completed"
            )
            return
        raise Skip(f"the model stopped by itself within {limit} tokens")
    if response.status != "incomplete":
        yield Finding("limit", f"status is {response.status}, not incomplete")
        return
    reason = response.incomplete_details.reason if response.incomplete_details else None
    if reason != "max_output_tokens":
        yield Finding("limit", f"incomplete_details.reason is {reason!r}, not 'max_output_tokens'")
    if response.usage is None:
        yield Finding("usage", "an incomplete response has no usage")


# Tools and formats.


def calls_are_sound(answer: Answer) -> Iterator[Finding]:
    """Every call is to a tool that was offered, has its own call_id, and its arguments are JSON."""
    offered = [tool["name"] for tool in answer.asked.get("tools", ())]
    yield from judge_calls(map(_called, _calls(_response(answer))), offered, "arguments")


def _called(item: Json) -> Called:
    arguments = item.get("arguments")
    return Called(item.get("name"), item.get("call_id"), json_of(arguments), arguments)


def calls_listed_tool(answer: Answer) -> Iterator[Finding]:
    """With tool_choice required there is at least one call."""
    yield from require_calls(_calls(_response(answer)), "required")
    yield from calls_are_sound(answer)


def fits_schema(answer: Answer) -> Iterator[Finding]:
    """With a strict json_schema, the text is JSON that fits it."""
    schema = answer.asked["text"]["format"]["schema"]
    yield from judge_schema(_response(answer).output_text, schema)


def took_the_image(answer: Answer) -> Iterator[Finding]:
    """The image was not left out; a gateway that reports it is believed."""
    notes = _response(answer).antiphon
    for what in notes.degraded if notes else ():
        if "image" in what:
            raise Skip(f"the server reports that it left the image out: {what}")
    return iter(())


# Errors and storage.


def has_error_shape(answer: Answer) -> Iterator[Finding]:
    """An error is `{"error": {message, type, param, code}}`."""
    yield from judge_error(answer.body)


def says_previous_is_unknown(answer: Answer) -> Iterator[Finding]:
    """The code makes a client send the whole history."""
    yield from has_error_shape(answer)
    code = _error_field(answer.body, "code")
    if code != "previous_response_not_found":
        yield Finding("error_code", f"code is {code!r}, not 'previous_response_not_found'")


def equals_the_stream(answer: Answer) -> Iterator[Finding]:
    """What is retrieved is what the stream ended with."""
    assert answer.previous is not None  # the step before was judged
    told, kept = _response(answer.previous), _response(answer)
    for name in ("id", "status", "model", "output", "usage", "created_at", "instructions"):
        streamed, stored = getattr(told, name), getattr(kept, name)
        if streamed != stored:
            detail = f"{name} was {brief(streamed)} in the stream and is {brief(stored)} now"
            yield Finding("stored_equal", detail)


def is_deleted(answer: Answer) -> Iterator[Finding]:
    """The answer to DELETE names what was deleted."""
    body = answer.body if isinstance(answer.body, Mapping) else {}
    if body.get("deleted") is not True:
        yield Finding("deleted", f"the body lacks deleted: true: {brief(answer.body)}")


def _response(answer: Answer) -> Response:
    response = answer.result
    assert isinstance(response, Response)  # the runner ends a case whose answer holds none
    return response


def _calls(response: Response) -> list[Json]:
    return [item for item in response.output if item.get("type") == "function_call"]


def _field(data: bytes, name: str) -> object:
    value = json_of(data)
    return value.get(name) if isinstance(value, dict) else None


def _error_field(body: object, name: str) -> object:
    error = body.get("error") if isinstance(body, dict) else None
    return error.get(name) if isinstance(error, dict) else None
