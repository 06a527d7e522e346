"""Runs the cases against a server, one after the other, and collects the findings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, Literal

import msgspec

from antiphon.cli.check.cases import CALL, PREVIOUS, Case, Step
from antiphon.cli.check.rules import Answer, Finding, Skip, judge_frames, shape_of
from antiphon.cli.errors import CliError
from antiphon.cli.remote import Remote, ServerFault, refusal
from antiphon.protocol.codec import decode_response_strictly
from antiphon.protocol.errors import AntiphonError, BrokenStream
from antiphon.protocol.response import Response
from antiphon.protocol.sse import Frame

__all__ = ["Result", "Verdict", "run_case"]

_MAX_FRAMES: Final = 100_000
_MAX_BODY: Final = 32 * 1024 * 1024
_MAX_FINDINGS: Final = 100

Verdict = Literal["pass", "fail", "skip"]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How a case ended. `reason`: why it was skipped."""

    name: str
    about: str
    verdict: Verdict
    seconds: float
    findings: list[Finding] = []
    reason: str = ""


async def run_case(case: Case, remote: Remote, model: str | None, timeout: float) -> Result:
    """Run the steps of a case until one finds something wrong; each may take `timeout` seconds."""
    started = time.monotonic()
    findings: list[Finding] = []
    reason = ""
    try:
        findings = await _run_steps(case, remote, model, timeout)
    except Skip as skip:
        reason = str(skip)
    except TimeoutError:
        findings = [Finding("timeout", f"there was no complete answer within {timeout:g} s")]
    except (CliError, AntiphonError) as error:
        findings = [Finding("connection", error.message)]
    verdict: Verdict = "skip" if reason else "fail" if findings else "pass"
    return Result(
        name=case.name,
        about=case.about,
        verdict=verdict,
        seconds=round(time.monotonic() - started, 3),
        findings=findings[:_MAX_FINDINGS],
        reason=reason,
    )


async def _run_steps(
    case: Case, remote: Remote, model: str | None, timeout: float
) -> list[Finding]:
    previous: Response | None = None
    for step in case.steps:
        _check_stored(step, previous)
        async with asyncio.timeout(timeout):
            answer = await _send(step, remote, model, previous)
        findings = list(_judge(case, step, answer))
        if findings:
            return findings
        previous = answer.response or previous
    return []


def _check_stored(step: Step, previous: Response | None) -> None:
    needs_store = PREVIOUS in step.path or "previous_response_id" in step.body
    if needs_store and previous is not None and previous.store is False:
        raise Skip("the server reports store: false, so nothing can be retrieved")


async def _send(step: Step, remote: Remote, model: str | None, previous: Response | None) -> Answer:
    path = _filled(step.path, previous)
    if step.method != "POST":
        reply = await remote.fetch(step.method, path)
        return _read(Answer(status=reply.head.status, previous=previous), reply.body)
    body = _filled(step.body, previous)
    if model and step.raw is None:
        body = {"model": model} | body
    data = msgspec.json.encode(body) if step.raw is None else step.raw
    if not body.get("stream"):
        reply = await remote.fetch("POST", path, data)
        return _read(Answer(status=reply.head.status, asked=body, previous=previous), reply.body)
    async with await remote.stream(data) as stream:
        answer = Answer(status=stream.head.status, asked=body, previous=previous)
        if stream.head.status == 200 and stream.head.content_type == "text/event-stream":
            return await _follow(answer, remote.frames_of(stream))
        return _read(answer, await stream.read_all(_MAX_BODY))


def _filled(value: Any, previous: Response | None) -> Any:  # Any: what JSON holds
    """Return the value with the stand-ins replaced by values of the last response."""
    match value:
        case dict():
            return {key: _filled(inner, previous) for key, inner in value.items()}
        case list():
            return [_filled(inner, previous) for inner in value]
        case str() if previous is not None:
            calls = (item for item in previous.output if item.get("type") == "function_call")
            call_id = str(next(calls, {}).get("call_id", ""))
            return value.replace(PREVIOUS, previous.id).replace(CALL, call_id)
    return value


def _read(answer: Answer, body: bytes) -> Answer:
    try:
        answer.body = msgspec.json.decode(body)
    except msgspec.DecodeError:
        answer.body = body.decode("utf-8", "replace")
    return answer


async def _follow(answer: Answer, arriving: AsyncIterator[Frame]) -> Answer:
    frames: list[Frame] = []
    async for frame in arriving:
        frames.append(frame)
        if len(frames) > _MAX_FRAMES:
            raise ServerFault(f"the stream has more than {_MAX_FRAMES} events")
    answer.frames = frames
    answer.response, answer.findings = judge_frames(frames)
    return answer


def _judge(case: Case, step: Step, answer: Answer) -> Iterator[Finding]:
    """Yield what is wrong with an answer; what it was expected to be counts only if it is one."""
    if answer.status != step.status:
        yield _wrong_status(case, step, answer)
        return
    if answer.frames:
        yield from answer.findings
    elif step.status == 200 and answer.asked.get("stream"):
        yield Finding("content_type", "the answer is not a stream (text/event-stream)")
        return
    elif step.status == 200 and step.method != "DELETE":
        yield from _decode(answer)
    if step.status == 200 and step.method != "DELETE" and answer.response is None:
        return
    for expectation in step.expect:
        yield from expectation(answer)


def _wrong_status(case: Case, step: Step, answer: Answer) -> Finding:
    """Return the finding, or raise Skip where the server reports that it does not support this."""
    said = refusal(answer.status, _bytes(answer.body))
    if answer.status == 501:
        raise Skip(said)
    if answer.status == 405 and step.method != "POST":
        raise Skip(said)
    if case.optional and 400 <= answer.status < 500 and _has_error(answer.body):
        raise Skip(said)
    return Finding("status", f"{said}; expected HTTP {step.status}")


def _decode(answer: Answer) -> Iterator[Finding]:
    yield from shape_of(answer.body)
    try:
        answer.response = decode_response_strictly(_bytes(answer.body))
    except BrokenStream as error:
        yield Finding("response_shape", error.message)


def _bytes(body: object) -> bytes:
    return body.encode() if isinstance(body, str) else msgspec.json.encode(body)


def _has_error(body: object) -> bool:
    return isinstance(body, dict) and isinstance(body.get("error"), dict)
