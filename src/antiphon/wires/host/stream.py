"""The answer of an editor's model: messages of the bridge in, deltas out, no I/O.

Invariants, for any input:

- nothing is raised: what was read before a fault is returned, and `fault` holds the fault;
- `Stopped` comes once and last, with `done`; an end without `done` is a fault.

    | part or message           | becomes                                                    |
    |---------------------------|------------------------------------------------------------|
    | text                      | TextGrew                                                   |
    | thinking                  | ReasoningGrew; its id and metadata a NativeState after it  |
    | tool_call                 | CallMade                                                   |
    | data with an image        | ItemPassed, `image_generation_call`                        |
    | data with a text          | TextGrew                                                   |
    | data `usage`              | UsageKnown at the end, if `done` has none                  |
    | data of the editor itself | nothing: marks of its own conversation and its caches      |
    | any other                 | Reported                                                   |
    | done                      | RefusalGrew, UsageKnown, Reported, Stopped                 |
    | error                     | the fault; `blocked` in mid-answer stops by content_filter |
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from antiphon.protocol.deltas import (
    CallMade,
    Delta,
    ReasoningGrew,
    RefusalGrew,
    Reported,
    Stopped,
    StopReason,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError
from antiphon.protocol.response import InputDetails, OutputDetails, Usage
from antiphon.wires.host.answers import (
    AnswerParts,
    CallPart,
    LooseParts,
    ReadPart,
    Received,
    Unreadable,
)
from antiphon.wires.host.faults import fault_of, invalid_answer
from antiphon.wires.host.messages import Done, Failed, Fault, UsageFigures
from antiphon.wires.host.parts import DataPart, TextPart, ThinkingPart
from antiphon.wires.host.thoughts import write_state
from antiphon.wires.media import MediaReader

__all__ = ["MAX_OUTPUT", "HostStream"]

MAX_OUTPUT: Final = 8 * 1024 * 1024
"""How many characters one answer may have, in text, thoughts and arguments together."""

_MAX_TOKENS: Final = 2**53
_MAX_SHOWN: Final = 200
_REASONS: Final[dict[str, StopReason]] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
# How editors note for themselves where a conversation is, and what to cache of it.
_OWN_MARKS: Final = frozenset(
    {"stateful_marker", "cache_control", "context_management", "phase_data"}
)


class _Thought(msgspec.Struct):
    """The thought that grows: what must come back with it."""

    id: str | None
    metadata: dict[str, Any]


class _UsagePart(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: dict[str, Any] | None = None


class HostStream:
    """The reader of one answer of `model`. `account` is whose thoughts they are."""

    def __init__(self, *, model: str = "", account: str = "", max_output: int = MAX_OUTPUT) -> None:
        self.fault: BackendError | None = None
        self.is_done = False
        self._model = model
        self._account = account
        self._room = max_output
        self._out: list[Delta] = []
        self._has_spoken = False
        self._thought: _Thought | None = None
        self._usage: Usage | None = None
        self._media = MediaReader()
        self._reported: set[str] = set()

    def feed(self, answer: Received) -> list[Delta]:
        """Return the deltas of a message of this request; none after the end."""
        if self.fault is None and not self.is_done:
            try:
                self._take(answer)
            except BackendError as error:
                self._break(error)
        return self._give()

    def end(self, error: BackendError) -> list[Delta]:
        """Return the deltas of an answer that broke off like this."""
        if self.fault is None and not self.is_done:
            self._break(error)
        return self._give()

    def _take(self, answer: Received) -> None:
        match answer:
            case AnswerParts() | LooseParts():
                for part in answer.parts:
                    self._take_part(part)
            case Done():
                self._finish(answer)
            case Failed():
                self._fail(answer.error)
            case Unreadable():
                raise invalid_answer(answer.why)
            case _:
                raise invalid_answer(f"it is {type(answer).__name__}, which was not asked for")

    # Parts.

    def _take_part(self, part: ReadPart | str) -> None:
        if isinstance(part, ThinkingPart):
            self._think(part)
            return
        self._end_thought()
        match part:
            case TextPart():
                self._say(part.value)
            case CallPart():
                self._call(part)
            case DataPart():
                self._take_data(part)
            case str():
                self._out += self._media.part(part)

    def _say(self, text: str) -> None:
        if text:
            self._spend(len(text))
            self._out.append(TextGrew(text))

    def _think(self, part: ThinkingPart) -> None:
        """Take a piece of a thought; another id is another thought."""
        old = self._thought
        is_other = old is not None and bool(part.id) and bool(old.id) and part.id != old.id
        if is_other:
            self._end_thought()
        if self._thought is None:
            self._thought = _Thought(None, {})
        self._thought.id = part.id or self._thought.id
        self._thought.metadata.update(part.metadata)
        if part.value:
            self._spend(len(part.value))
            self._out.append(ReasoningGrew(part.value, "item" if is_other else None))

    def _end_thought(self) -> None:
        thought, self._thought = self._thought, None
        if thought is not None and (thought.id or thought.metadata):
            self._out.append(write_state(self._model, thought.id, thought.metadata, self._account))

    def _call(self, part: CallPart) -> None:
        if not part.name:
            raise invalid_answer("it has a tool call without a name")
        arguments = msgspec.json.format(bytes(part.input), indent=-1).decode(errors="replace")
        if not arguments.startswith("{"):
            raise invalid_answer("it has a tool call whose input is no object")
        self._spend(len(arguments))
        self._out.append(CallMade(part.name, arguments, part.call_id or None))

    def _take_data(self, part: DataPart) -> None:
        mime = part.mime.partition(";")[0].strip().lower()
        if mime.startswith("image/"):
            self._has_spoken = True
            data = base64.b64encode(part.data).decode()
            self._out += self._media.images([f"data:{mime};base64,{data}"])
        elif mime.startswith("text/"):
            self._say(part.data.decode(errors="replace"))
        elif mime == "usage":
            self._usage = _read_usage_part(part.data) or self._usage
        elif mime not in _OWN_MARKS:
            self._out += self._media.part(f"data, {mime}"[:_MAX_SHOWN])

    def _spend(self, size: int) -> None:
        self._has_spoken = True
        self._room -= size
        if self._room < 0:
            raise invalid_answer("it does not end")

    # The end.

    def _finish(self, done: Done) -> None:
        self._end_thought()
        if done.refusal:
            self._spend(len(done.refusal))
            self._out.append(RefusalGrew(done.refusal))
        for note in done.degraded:
            self._report(note)
        usage = _read_usage(done.usage) or self._usage
        if usage is not None:
            self._out.append(UsageKnown(usage))
        self._stop(self._reason(done))

    def _reason(self, done: Done) -> StopReason:
        """Return why the model stopped; a reason that is not known is taken for the length."""
        if done.status == "completed":
            return "stop"
        reason = _REASONS.get(done.incomplete_reason or "")
        if reason is None:
            why = (done.incomplete_reason or "not stated")[:_MAX_SHOWN]
            self._report(f"incomplete: the reason is {why}; taken for 'max_output_tokens'")
        return reason or "length"

    def _stop(self, reason: StopReason) -> None:
        self._out.append(Stopped(reason))
        self.is_done = True

    def _fail(self, fault: Fault) -> None:
        error = fault_of(fault)
        if fault.code != "blocked" or not self._has_spoken:
            raise error
        self._end_thought()
        self._out.append(RefusalGrew(error.message))
        self._stop("content_filter")

    def _break(self, error: BackendError) -> None:
        self._end_thought()
        self.fault = error

    def _report(self, note: str) -> None:
        if note not in self._reported:
            self._reported.add(note)
            self._out.append(Reported(note[:_MAX_SHOWN]))

    def _give(self) -> list[Delta]:
        out, self._out = self._out, []
        return out


def _read_usage(figures: UsageFigures | None) -> Usage | None:
    """Return what was counted. An estimate of the editor is not used: ours is marked as one."""
    if figures is None or figures.is_estimate:
        return None
    return _usage(
        figures.input_tokens, figures.output_tokens, figures.cached_tokens, figures.reasoning_tokens
    )


def _read_usage_part(data: bytes) -> Usage | None:
    try:
        counted = msgspec.json.decode(data, type=_UsagePart)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    cached = (counted.prompt_tokens_details or {}).get("cached_tokens")
    count = cached if isinstance(cached, int) else 0
    return _usage(counted.prompt_tokens, counted.completion_tokens, count, 0)


def _usage(given: int, made: int, cached: int, thought: int) -> Usage | None:
    """Return the counts as usage, or None if they cannot be counts."""
    if not all(0 <= count <= _MAX_TOKENS for count in (given, made, cached, thought)):
        return None
    if not given + made:
        return None
    return Usage(
        input_tokens=given,
        input_tokens_details=InputDetails(min(cached, given)),
        output_tokens=made,
        output_tokens_details=OutputDetails(min(thought, made)),
        total_tokens=given + made,
    )
