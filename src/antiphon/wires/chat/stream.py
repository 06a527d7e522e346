"""Chat completions as they come over the wire: bytes in, deltas out, no I/O.

Invariants, whatever the bytes:

- what was read before a fault is returned before the fault is raised: `feed`, `end` and
  `whole` return it and keep the fault in `fault`; they raise only with empty hands;
- `Stopped` comes once and last, at `[DONE]` or at the end, because usage may follow the
  finish_reason;
- an end without a finish_reason and without `[DONE]` is a fault (`upstream_closed`). A
  finish_reason without `[DONE]` is an end, and so is `[DONE]` without a finish_reason if
  something was said and no call is cut short. That one is reported, and so is a finish_reason
  that nobody knows.

Only the first choice is read; that there were more is reported, as are parts of the content
that we do not know. Fields that we do not know are skipped.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Literal

import msgspec

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallGrew,
    Delta,
    ReasoningGrew,
    RefusalGrew,
    Reported,
    Stopped,
    StopReason,
    SummaryGrew,
    TextGrew,
    TierUsed,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError, BrokenStream
from antiphon.protocol.halves import join_halves, split_half
from antiphon.protocol.response import Usage
from antiphon.protocol.sse import MAX_LINE, Frame, SseDecoder, read_frames
from antiphon.wires.chat.calls import CallReader
from antiphon.wires.chat.chunks import (
    Choice,
    Chunk,
    Function,
    Message,
    SlowChunk,
    has_output,
    invalid_answer,
    is_known_reason,
    read_annotation,
    read_any,
    read_arguments,
    read_chunk,
    read_reason,
    read_token,
    read_usage,
)
from antiphon.wires.chat.details import DetailReader
from antiphon.wires.chat.runs import ChunkRun
from antiphon.wires.chat.text import AnswerText
from antiphon.wires.faults import fault_from_json
from antiphon.wires.media import MediaReader

__all__ = ["MAX_OUTPUT", "ChatStream"]

MAX_OUTPUT: Final = 8 * 1024 * 1024
"""How many characters one answer may have, in text, reasoning and arguments together."""

_Channel = Literal["text", "reasoning", "summary", "refusal"]

_DONE: Final = b"[DONE]"
_BRACKET: Final = ord("[")
_MAX_ANNOTATIONS: Final = 10_000
_MAX_CHOICES: Final = 1024
_IMAGES: Final = frozenset({"image_url", "image", "output_image"})
_GREW: Final[dict[str, type[ReasoningGrew | SummaryGrew | RefusalGrew]]] = {
    "reasoning": ReasoningGrew,
    "summary": SummaryGrew,
    "refusal": RefusalGrew,
}
_SOURCES: Final = (
    "citations: the upstream's list of sources is left out, because it does not say which words "
    "of the answer each belongs to"
)
_PART_TEXTS: Final = ("text", "thinking", "refusal")


class ChatStream:
    """The reader of one answer, streamed or whole.

    `names` are the tools whose calls are looked for in the text; without any, nothing is.
    """

    def __init__(
        self,
        *,
        names: Collection[str] = (),
        think_tags: bool = True,
        max_line: int = MAX_LINE,
        max_output: int = MAX_OUTPUT,
    ) -> None:
        self.fault: BackendError | None = None
        self.is_done = False
        self._max_line = max_line
        self._sse = SseDecoder(max_line)
        self._text = AnswerText(names, think_tags=think_tags)
        self._run = ChunkRun()
        self._calls = CallReader()
        self._media = MediaReader()
        self._details = DetailReader()
        self._room = max_output
        self._reason: StopReason | None = None
        self.has_reason = False
        """Whether the model has stopped, so that only usage and `[DONE]` can follow."""
        self.has_frames = False
        """Whether a streamed answer had any event."""
        self._has_spoken = False
        self._has_content = False
        self._has_sources = False
        self._out: list[Delta] = []
        self._annotations: set[bytes] = set()
        self._other_choices: set[int] = set()
        self._usage: Usage | None = None
        self._tier: str | None = None
        # First halves of surrogate pairs that a server cut between two chunks, per text.
        self._halves: dict[_Channel | int, str] = {}
        self._is_mending = False
        self._is_whole = False

    @property
    def skipped_choices(self) -> int:
        """How many choices beyond the first the answer has had, as far as it was read."""
        return len(self._other_choices)

    def feed(self, data: bytes) -> list[Delta]:
        """Return what these bytes of a streamed answer tell."""
        if self.fault is not None:
            raise self.fault
        run, text = self._run, None
        if self._sse.is_between and len(data) <= self._max_line and not self.is_done:
            text = run.read_one(data)
        # Most events are the next words, and nothing looks at what they say.
        if (
            text
            and run.channel == "text"
            and len(text) <= self._room
            and not self._is_mending
            and self._text.is_text(text)
        ):
            self._room -= len(text)
            return [TextGrew(text)]
        try:
            if text is None:
                self._take_lines(self._sse.feed_lines(data))
            else:
                self._grow(run.channel, text)
        except (BackendError, BrokenStream) as error:
            self._break(error)
        return self._give()

    def end(self, error: BackendError | None = None) -> list[Delta]:
        """Return what the end of the stream tells; `error` says how it broke, if it did."""
        self._raise_fault()
        try:
            self._take_rest()
            if not self.is_done and not self.has_reason:
                raise error or (
                    _closed() if self.has_frames else invalid_answer("it has no events")
                )
            self._finish()
        except BackendError as fault:
            self._break(fault)
        return self._give()

    def whole(self, body: bytes) -> list[Delta]:
        """Return what an answer that was not streamed tells."""
        self._raise_fault()
        self._is_whole = True
        try:
            chunk = read_chunk(body)
            self._take_chunk(chunk)
            if not chunk.choices:
                raise invalid_answer("it has no choices")
            self._finish()
        except BackendError as error:
            self._break(error)
        return self._give()

    # One funnel: frame, chunk, choice, message.

    def _take_lines(self, lines: bytes) -> None:
        """Take whole events; those that only say the next words, all in one go."""
        texts = self._run.read(lines)
        if texts is None:
            for frame in read_frames(lines):
                self._take_frame(frame)
        elif not self.is_done:
            self._grow_run(texts)

    def _take_rest(self) -> None:
        """Take the last frame. It may be torn: that is how a cut connection looks."""
        try:
            for frame in self._sse.end():
                self._take_frame(frame)
        except BrokenStream:
            pass
        except BackendError as fault:
            if fault.code != "upstream_invalid_response":
                raise

    def _take_frame(self, frame: Frame) -> None:
        data = frame.data
        self.has_frames = True
        if self.is_done or not data:
            return
        if frame.event == "error":
            raise fault_from_json(read_any(data))
        if data[0] == _BRACKET and data.strip() == _DONE:
            self._finish()
        else:
            chunk = read_chunk(data)
            self._take_chunk(chunk)
            self._run.follow(data, chunk)

    def _take_chunk(self, chunk: Chunk) -> None:
        self._is_mending = type(chunk) is SlowChunk or bool(self._halves)
        if chunk.error or chunk.object == "error":
            self._note_usage(chunk.usage)
            raise fault_from_json({"error": chunk.error or {"message": chunk.message}})
        for place, choice in enumerate(chunk.choices or ()):
            # Without an index, the place tells the choices apart.
            is_first = choice.index == 0 and not (place and self._is_whole)
            if is_first or (choice.index is None and not place):
                self._take_choice(choice)
            else:
                self._skip_choice(choice.index or place)
        if chunk.usage is not None:
            self._note_usage(chunk.usage)
        if chunk.x_groq is not None and isinstance(chunk.x_groq, dict):
            self._note_usage(chunk.x_groq.get("usage"))
        if chunk.service_tier is not None and chunk.service_tier != self._tier:
            self._note_tier(chunk.service_tier)
        if (chunk.citations or chunk.search_results) and not self._has_sources:
            self._has_sources = True  # Perplexity sends them with every chunk
            self._report(_SOURCES)

    def _take_choice(self, choice: Choice) -> None:
        message = choice.delta if choice.delta is not None else choice.message
        if message is not None:
            if choice.logprobs is not None and message.content:
                self._note_logprobs(choice.logprobs)
            self._take_message(message)
        if choice.usage is not None:
            self._note_usage(choice.usage)
        if choice.finish_reason:
            self._reason = read_reason(choice.finish_reason, choice.error)
            self.has_reason = True
            if not is_known_reason(choice.finish_reason):
                reason = choice.finish_reason[:100]
                self._report(f"finish_reason: '{reason}' is not known; taken for 'stop'")

    def _skip_choice(self, index: object) -> None:
        if len(self._other_choices) < _MAX_CHOICES:
            # Whatever is no number is one other choice.
            self._other_choices.add(index if type(index) is int else -1)

    def _take_message(self, message: Message) -> None:
        # Some servers say the same under both names.
        thought = message.reasoning_content or message.reasoning
        if thought:
            self._details.note_plain()
            self._grow("reasoning", thought)
        if message.reasoning_details:
            self._take_details(message.reasoning_details, is_said=bool(thought))
        content = message.content
        if content:
            self._has_content = True
            if type(content) is str:
                self._grow("text", content)
            else:
                self._grow_parts(content)
        if message.refusal:
            self._grow("refusal", message.refusal)
        if message.tool_calls or message.function_call is not None:
            self._grow_calls(message)
        if message.annotations:
            self._annotate(message.annotations)
        if message.images:
            self._take_images(message.images)
        if message.audio:
            self._take_audio(message.audio)

    def _take_details(self, details: object, *, is_said: bool) -> None:
        pieces, report = self._details.read(details, is_said=is_said)
        for channel, text in pieces:
            self._grow(channel, text)
        self._out += report

    def _take_images(self, images: object) -> None:
        self._release_text()
        self._has_spoken = True
        self._out += self._media.images(images)

    def _take_audio(self, audio: object) -> None:
        self._out += self._media.audio()
        if isinstance(audio, dict) and not self._has_content:
            self._grow("text", audio.get("transcript"))

    # What grows.

    def _grow(self, channel: _Channel, text: object) -> None:
        if not isinstance(text, str):
            return
        if self._is_mending:
            text = self._mend(channel, text)
        self._room -= len(text)
        if self._room < 0:
            raise invalid_answer("it does not end")
        if text:
            self._say(channel, text)

    def _grow_run(self, texts: list[str]) -> None:
        """Take several texts of a channel; as one, where nothing looks at what they say."""
        size = len(texts[0]) if len(texts) == 1 else sum(map(len, texts))
        if self._run.channel == "text" and size <= self._room and not self._is_mending:
            passed = self._text.pass_on(texts)
            if passed is not None:
                self._room -= size
                self._out += passed
                return
        for text in texts:
            self._grow(self._run.channel, text)

    def _grow_parts(self, parts: object) -> None:
        """Take content in parts, as Mistral sends it."""
        for part in parts if isinstance(parts, list) else [parts]:
            if isinstance(part, str):
                self._grow("text", part)
            elif isinstance(part, dict):
                self._grow("text", part.get("text"))
                thought = part.get("thinking")
                for piece in thought if isinstance(thought, list) else [thought]:
                    self._grow("reasoning", piece.get("text") if isinstance(piece, dict) else piece)
                self._grow("refusal", part.get("refusal"))
                self._take_other(part)

    def _take_other(self, part: dict[str, Any]) -> None:
        """Take a part that is not text."""
        if part.get("type") in _IMAGES:
            self._take_images([part])
        elif not any(name in part for name in _PART_TEXTS):
            self._out += self._media.part(part.get("type"))

    def _grow_calls(self, message: Message) -> None:
        self._out += self._text.stop_finding()
        self._calls.begin_chunk()
        for call in message.tool_calls or ():
            self._grow_call(call.index, call.id, call.function)
        if message.function_call is not None:
            self._grow_call(0, None, message.function_call)

    def _grow_call(self, index: object, call_id: object, function: Function | None) -> None:
        name = function.name if function is not None else None
        arguments = read_arguments(function.arguments) if function is not None else ""
        self._room -= len(arguments)
        if self._room < 0:
            raise invalid_answer("it does not end")
        name = name if isinstance(name, str) and name else None
        own_id = str(call_id) if call_id else None
        if self._is_whole:
            deltas = self._calls.take_whole(own_id, name, arguments)
        else:
            place = index if type(index) is int else None
            deltas = self._calls.take(place, own_id, name, arguments)
        for delta in deltas:
            if self._is_mending and isinstance(delta, CallGrew):
                delta = CallGrew(delta.key, self._mend(delta.key, delta.arguments))
            self._out.append(delta)
            self._has_spoken = True

    def _annotate(self, annotations: object) -> None:
        for annotation in annotations if isinstance(annotations, list) else ():
            if isinstance(annotation, dict):
                flat = read_annotation(annotation)
                # Some servers repeat all of them in every chunk.
                mark = msgspec.json.encode(flat, order="sorted")
                if mark not in self._annotations:
                    self._annotations.add(mark)
                    self._out.append(AnnotationAdded(flat))
        if len(self._annotations) > _MAX_ANNOTATIONS:
            raise invalid_answer("its annotations do not end")

    # What is noted.

    def _note_usage(self, raw: object) -> None:
        if not isinstance(raw, dict):
            return
        usage = read_usage(raw)
        if usage is not None and usage != self._usage:
            self._usage = usage
            self._out.append(UsageKnown(usage, has_output(raw)))

    def _note_tier(self, tier: object) -> None:
        if isinstance(tier, str):
            self._tier = tier
            self._out.append(TierUsed(tier))

    def _report(self, what: str) -> None:
        self._out.append(Reported(what))

    def _note_choices(self) -> None:
        if self._other_choices:
            count = len(self._other_choices)
            self._report(f"n: choices beyond the first are not returned; there were {count}")

    def _note_logprobs(self, logprobs: object) -> None:
        tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
        if isinstance(tokens, list):
            self._text.note_tokens(read_token(token) for token in tokens if isinstance(token, dict))

    # What is said.

    def _say(self, channel: _Channel, text: str) -> None:
        self._has_spoken = True
        if channel == "text":
            self._out += self._text.feed(text)
        else:
            self._release_text()
            self._out.append(_GREW[channel](text))

    def _release_text(self) -> None:
        self._out += self._text.release(is_cut=self._reason != "stop")

    def _mend(self, channel: _Channel | int, text: str) -> str:
        """Return the text with the halves of characters joined; the last half waits."""
        text, half = split_half(self._halves.pop(channel, "") + text)
        if half:
            self._halves[channel] = half
        return join_halves(text)

    # The end.

    def _finish(self) -> None:
        if self.is_done:
            return
        self._flush()
        self._calls.check_named()
        if self._reason is None and (not self._has_spoken or self._calls.is_cut):
            raise _closed()
        if self._reason is None:
            self._report("finish_reason: the upstream gave none; taken for 'stop'")
        self._note_choices()
        self._out.append(Stopped(self._reason or "stop"))
        self.is_done = True

    def _flush(self) -> None:
        """Tell what was held back for what might have followed it."""
        for channel in self._halves:
            if isinstance(channel, int):
                self._out.append(CallGrew(channel, "\ufffd"))
            else:
                self._say(channel, "\ufffd")
        self._halves = {}
        self._release_text()

    def _break(self, error: BackendError | BrokenStream) -> None:
        is_torn = bool(self._halves) or self._text.is_deciding
        self._flush()
        if self._has_spoken:
            self._note_choices()
        if isinstance(error, BrokenStream):
            error = invalid_answer(error.message)
        error.is_torn = is_torn
        self.fault = error

    def _raise_fault(self) -> None:
        if self.fault is not None:
            raise self.fault

    def _give(self) -> list[Delta]:
        out, self._out = self._out, []
        if not out:
            self._raise_fault()
        return out


def _closed() -> BackendError:
    return BackendError(
        "the upstream ended its answer without saying that it is complete",
        code="upstream_closed",
        ended_in_order=True,
    )
