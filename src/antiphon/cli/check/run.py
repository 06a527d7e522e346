"""Runs the cases against a server, one after the other, and collects the findings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from antiphon.cli.check.case import Answer, Api, Case, Finding, Json, Skip, Step
from antiphon.cli.check.degraded import DEGRADED
from antiphon.cli.errors import CliError
from antiphon.cli.remote import Remote, Server, ServerFault, refusal
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.sse import Frame
from antiphon.transport.http import Head

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


async def run_case(
    case: Case, api: Api, remote: Remote, model: str | None, timeout: float
) -> Result:
    """Run the steps of a case until one finds something wrong; each may take `timeout` seconds."""
    started = time.monotonic()
    findings: list[Finding] = []
    reason = ""
    try:
        findings = await _run_steps(case, api, remote, model, timeout)
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
        findings=[_redacted(finding, remote.server) for finding in findings[:_MAX_FINDINGS]],
        reason=remote.server.redact(reason),
    )


def _redacted(finding: Finding, server: Server) -> Finding:
    detail, event = server.redact(finding.detail), server.redact(finding.event)
    return Finding(finding.rule, detail, event)


async def _run_steps(
    case: Case, api: Api, remote: Remote, model: str | None, timeout: float
) -> list[Finding]:
    previous: Answer | None = None
    for step in case.steps:
        values = api.stand_ins(previous) if previous is not None else {}
        async with asyncio.timeout(timeout):
            answer = await _send(step, api, remote, model, values)
        answer.previous = previous
        findings = _findings(_judge(case, step, api, answer))
        if findings:
            return findings
        if answer.result is not None:
            previous = answer
    return []


def _findings(judged: Iterator[Finding]) -> list[Finding]:
    """Return what was found. Raise Skip only if nothing was wrong until then."""
    findings: list[Finding] = []
    try:
        for finding in judged:
            findings.append(finding)  # one by one: what came before a Skip counts
    except Skip:
        if not findings:
            raise
    return findings


async def _send(
    step: Step,
    api: Api,
    remote: Remote,
    model: str | None,
    values: Mapping[str, Any],  # Any: what JSON holds
) -> Answer:
    path = str(_filled(step.path or api.path, values))
    if step.method != "POST":
        reply = await remote.fetch(step.method, path)
        return _read(_answer(reply.head), reply.body)
    body = _filled(step.body, values)
    if model and step.raw is None:
        body = {"model": model} | body
    data = msgspec.json.encode(body) if step.raw is None else step.raw
    if not body.get("stream"):
        reply = await remote.fetch("POST", path, data)
        return _read(_answer(reply.head, body), reply.body)
    async with await remote.stream(data, path) as stream:
        answer = _answer(stream.head, body)
        if stream.head.status == 200 and stream.head.content_type == "text/event-stream":
            return await _follow(answer, api, remote.frames_of(stream))
        return _read(answer, await stream.read_all(_MAX_BODY))


def _answer(head: Head, asked: Json | None = None) -> Answer:
    degraded = head.headers.get(DEGRADED, "")
    return Answer(status=head.status, asked=asked or {}, degraded=degraded)


def _filled(value: Any, values: Mapping[str, Any]) -> Any:  # Any: what JSON holds
    """Return the value with the stand-ins replaced; a list in place of an element is spliced."""
    match value:
        case dict():
            return {key: _filled(inner, values) for key, inner in value.items()}
        case list():
            return [filled for inner in value for filled in _spliced(inner, values)]
        case str() if value in values:
            return values[value]
        case str():
            for name, known in values.items():
                if isinstance(known, str):
                    value = value.replace(name, known)
    return value


def _spliced(inner: Any, values: Mapping[str, Any]) -> list[Any]:  # Any: what JSON holds
    filled = _filled(inner, values)
    return filled if isinstance(inner, str) and isinstance(filled, list) else [filled]


def _read(answer: Answer, body: bytes) -> Answer:
    answer.raw = body
    try:
        answer.body = msgspec.json.decode(body)
    except msgspec.DecodeError:
        answer.body = body.decode("utf-8", "replace")
    return answer


async def _follow(answer: Answer, api: Api, arriving: AsyncIterator[Frame]) -> Answer:
    frames: list[Frame] = []
    async for frame in arriving:
        frames.append(frame)
        if len(frames) > _MAX_FRAMES:
            raise ServerFault(f"the stream has more than {_MAX_FRAMES} events")
    answer.frames = frames if api.forgive is None else api.forgive(frames)
    answer.result, answer.findings = api.judge_frames(answer.frames)
    return answer


def _judge(case: Case, step: Step, api: Api, answer: Answer) -> Iterator[Finding]:
    """Yield what is wrong with an answer; what it was expected to be counts only if it is one."""
    if answer.status != step.status:
        yield _wrong_status(case, step, answer)
        return
    if answer.frames:
        yield from answer.findings
    elif step.status == 200 and answer.asked.get("stream"):
        yield Finding("content_type", "the answer is not a stream (text/event-stream)")
        return
    elif step.status == 200 and step.has_result:
        answer.result, findings = api.judge_whole(answer)
        yield from findings
    if step.status == 200 and step.has_result and answer.result is None:
        return
    for expectation in step.expect:
        yield from expectation(answer)


def _wrong_status(case: Case, step: Step, answer: Answer) -> Finding:
    """Return the finding, or raise Skip where the server reports that it does not support this."""
    if answer.status == 200:
        return Finding("status", f"the server answered HTTP 200; expected HTTP {step.status}")
    said = refusal(answer.status, answer.raw)
    if answer.status == 501:
        raise Skip(said)
    if answer.status == 405 and step.method != "POST":
        raise Skip(said)
    if case.optional and 400 <= answer.status < 500 and _has_error(answer.body):
        raise Skip(said)
    return Finding("status", f"{said}; expected HTTP {step.status}")


def _has_error(body: object) -> bool:
    return isinstance(body, dict) and isinstance(body.get("error"), dict)
