"""Gemini answers as they come over the wire: bytes in, deltas out, no I/O.

Invariants, whatever the bytes:

- nothing is raised: what was read before a fault is returned, and `fault` holds the fault;
- `Stopped` comes once and last, at the end of the stream, because a signature, the sources and
  the usage may come with the finishReason or after it;
- an end without a finishReason is a fault (`upstream_closed`).

    | part                               | becomes                                             |
    |------------------------------------|-----------------------------------------------------|
    | text, thought text                 | TextGrew, SummaryGrew                               |
    | functionCall                       | CallMade; one in pieces when it is whole            |
    | a signature of a call or an image  | NativeState in front of it                          |
    | a signature of a text or a thought | NativeState after all of the text (`signatures`)    |
    | inlineData with an image           | ItemPassed, `image_generation_call`                 |
    | any other                          | ItemPassed, `google:part`, as it came               |

Only the first candidate is read; that there were more is reported.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from antiphon.protocol.deltas import (
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    ItemPassed,
    RefusalGrew,
    Reported,
    Stopped,
    SummaryGrew,
    TextGrew,
    TierUsed,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError, BrokenStream
from antiphon.protocol.halves import GrowingText
from antiphon.protocol.sse import MAX_LINE, SseDecoder
from antiphon.wires.gemini.chunks import (
    Candidate,
    Chunk,
    FunctionCall,
    Part,
    chunks_of,
    invalid_answer,
    other_parts,
    read_arguments,
    read_chunk,
    read_plain,
    read_tokens,
    read_usage,
)
from antiphon.wires.gemini.contents import PART_ITEM
from antiphon.wires.gemini.ends import blocked_prompt, read_end
from antiphon.wires.gemini.grounding import AnswerText, annotate
from antiphon.wires.gemini.partial_args import PartialCall
from antiphon.wires.gemini.signatures import Signed, SignedState, write_state
from antiphon.wires.media import MediaReader

__all__ = ["MAX_OUTPUT", "GeminiStream"]

MAX_OUTPUT: Final = 8 * 1024 * 1024
"""How many characters one answer may have, in text, thoughts and arguments together."""

_Run = Literal["text", "thought"]
_CUT_CALL: Final = 0
_NO_COUNTS: Final = (b"", b"{}", b"null")
_THOUGHT_PART: Final = "content: a part of the thoughts that is no text is left out"
_LATE_TOKENS: Final = "logprobs: tokens that came without a text are left out"


class GeminiStream:
    """The reader of one answer, streamed or whole. `account` is whose signatures they are."""

    def __init__(
        self, *, account: str = "", max_line: int = MAX_LINE, max_output: int = MAX_OUTPUT
    ) -> None:
        self.fault: BackendError | None = None
        self.is_done = False
        self.has_begun = False
        """Whether anything was reported."""
        self.has_stopped = False
        """Whether the model has stopped; a signature or usage may follow."""
        self._account = account
        self._sse = SseDecoder(max_line)
        self._room = max_output
        self._out: list[Delta] = []
        self._has_spoken = False
        self._has_chunks = False
        self._stop: Stopped | None = None
        # The text or the thought that grows, and its signed parts: length, end and signature.
        self._run: _Run | None = None
        self._size = 0
        self._signed: list[tuple[int, int, str]] = []
        self._text = AnswerText()
        self._grown = GrowingText()
        self._partial: tuple[PartialCall, str | None] | None = None
        self._media = MediaReader()
        self._reported: set[str] = set()
        self._others: set[int] = set()
        self._usage = msgspec.Raw()
        self._grounding: Any = None
        self._citations: Any = None
        self._tokens: tuple[dict[str, Any], ...] = ()

    def feed(self, data: bytes) -> list[Delta]:
        """Return the deltas of these bytes of a streamed answer."""
        if self.fault is None:
            try:
                for event in self._sse.feed_data(data):
                    self._take_data(event)
            except (BackendError, BrokenStream) as error:
                self._break(error)
        return self._give()

    def end(self, error: BackendError | None = None) -> list[Delta]:
        """Return the deltas of the end of the stream; `error` is how it broke, if it did."""
        if self.fault is None:
            try:
                self._take_rest()
                if not self.has_stopped:
                    raise error or (
                        _closed() if self._has_chunks else invalid_answer("it has no events")
                    )
                self._finish()
            except BackendError as fault:
                self._break(fault)
        return self._give()

    def whole(self, body: bytes) -> list[Delta]:
        """Return the deltas of an answer that was not streamed; it may be a list of chunks."""
        try:
            for data in chunks_of(body):
                self._take_data(data)
            if not self.has_stopped:
                raise invalid_answer("it has no finished candidate")
            self._finish()
        except BackendError as error:
            self._break(error)
        return self._give()

    # One funnel: data, chunk, candidate, part.

    def _take_rest(self) -> None:
        """Take the last frame. It may be torn: that is how a cut connection looks."""
        try:
            for frame in self._sse.end():
                if frame.data:
                    self._take_data(frame.data)
        except BrokenStream:
            pass
        except BackendError as fault:
            if fault.code != "upstream_invalid_response":
                raise

    def _take_data(self, data: bytes) -> None:
        is_plain = self._run == "text" and not self._tokens and not self._grown.half
        if is_plain and (plain := read_plain(data)) is not None:
            self._go_on(*plain)  # as most do
            return
        chunk = read_chunk(data)
        self._has_chunks = True
        self._keep_usage(chunk.usage_metadata)
        for place, candidate in enumerate(chunk.candidates or ()):
            index = place if candidate.index is None else candidate.index
            if index == 0:
                self._take_candidate(candidate, data, place)
            else:
                self._others.add(index)
        if not chunk.candidates:
            self._take_feedback(chunk)

    def _take_candidate(self, candidate: Candidate, data: bytes, place: int) -> None:
        if candidate.logprobs_result is not None:
            self._tokens += read_tokens(candidate.logprobs_result)
        if candidate.grounding_metadata:
            self._grounding = candidate.grounding_metadata
        if candidate.citation_metadata:
            self._citations = candidate.citation_metadata
        if candidate.content is not None and candidate.content.parts:
            self._take_parts(candidate.content.parts, data, place)
        if candidate.finish_reason:
            self._stop, notes = read_end(candidate, self._account)
            self.has_stopped = True
            self._report(notes)

    def _take_parts(self, parts: list[Part], data: bytes, candidate: int) -> None:
        for place, part in enumerate(parts):
            if part.function_call is not None:
                self._take_call(part.function_call, part.thought_signature)
            elif part.text is not None:
                self._take_text(part, part.text)
            else:
                self._take_other(part, other_parts(data, candidate)[place])

    def _take_feedback(self, chunk: Chunk) -> None:
        """Take the refusal of a prompt: an error while nothing else was said."""
        error = blocked_prompt(chunk.prompt_feedback or {})
        if error is None:
            return
        if not self._has_spoken:
            raise error
        self._out.append(RefusalGrew(error.message))
        self._stop = Stopped("content_filter")
        self.has_stopped = True

    # Texts and thoughts.

    def _take_text(self, part: Part, text: str) -> None:
        signature = part.thought_signature
        if not text and not signature:
            return
        run: _Run = "thought" if part.thought else "text"
        if run != self._run:
            self._begin_run(run)
        text = self._grown.take(text)
        self._size += len(text)
        if signature:
            self._signed.append((len(text), self._size, signature))
        self._say(run, text)

    def _say(self, run: _Run, text: str) -> None:
        if not text:
            return
        self._spend(len(text))
        if run == "thought":
            self._out.append(SummaryGrew(text))
            return
        self._text.pieces.append(text)
        tokens, self._tokens = self._tokens, ()
        self._out.append(TextGrew(text, tokens))

    def _keep_usage(self, usage: msgspec.Raw) -> None:
        """Keep the last counts; a chunk without any does not take them away."""
        if bytes(usage) not in _NO_COUNTS:
            self._usage = usage

    def _go_on(self, text: str, usage: msgspec.Raw) -> None:
        """Take a text that goes on; it may have begun with a signature alone."""
        self._keep_usage(usage)
        if not text:
            return
        self._has_spoken = True
        size = len(text)
        self._size += size
        self._room -= size
        if self._room < 0:
            raise invalid_answer("it does not end")
        self._text.pieces.append(text)
        self._out.append(TextGrew(text))

    def _begin_run(self, run: _Run) -> None:
        self._end_run()
        self._run = run
        if run == "text":
            self._text.begin_message()

    def _end_run(self) -> None:
        """End a text or a thought; its signatures follow it.

        Those of an empty text belong to no message, and stand alone.
        """
        self._end_text()
        if self._signed and self._run is not None:
            whole = self._size
            signed = (Signed(size, whole - end, name) for size, end, name in self._signed)
            state = SignedState(self._run, tuple(signed))
            is_message = self._run == "text" and self._size
            self._out.append(write_state(state, self._account, "previous" if is_message else None))
        self._run, self._size, self._signed = None, 0, []

    def _end_text(self) -> None:
        """Report what stands for half a character whose other half did not come."""
        rest = self._grown.rest()
        if rest and self._run is not None:
            self._size += len(rest)
            self._say(self._run, rest)

    # Calls.

    def _take_call(self, call: FunctionCall, signature: str | None) -> None:
        self._end_run()
        if self._partial is not None and call.name:
            self._make_partial()
        if self._partial is None and not (call.will_continue or call.partial_args):
            arguments = read_arguments(call)
            self._spend(len(arguments))
            self._make_call(call.name, arguments, call.id, signature)
            return
        if self._partial is None:
            self._partial = PartialCall(call.name, call.id), signature
        partial = self._partial[0]
        try:
            self._spend(partial.add(call.partial_args or []))
        except ValueError as error:
            raise invalid_answer(str(error)) from None
        if not call.will_continue:
            self._make_partial()

    def _make_partial(self) -> None:
        if self._partial is not None:
            (call, signature), self._partial = self._partial, None
            self._make_call(call.name, call.arguments(), call.call_id, signature)

    def _make_call(
        self, name: str | None, arguments: str, call_id: str | None, signature: str | None
    ) -> None:
        if not name:
            raise invalid_answer("it has a tool call without a name")
        self._has_spoken = True
        if signature:
            state = SignedState("part", (Signed(0, 0, signature),), call_id)
            self._out.append(write_state(state, self._account, "next"))
        self._out.append(CallMade(name, arguments, call_id))

    def _cut_call(self) -> None:
        """Report a call of which only a beginning came, so that no client runs it."""
        if self._partial is not None:
            (call, _), self._partial = self._partial, None
            if call.name:
                self._out += [
                    CallOpened(_CUT_CALL, call.name, call.call_id),
                    CallGrew(_CUT_CALL, call.arguments()[:-1]),
                ]

    # Other parts.

    def _take_other(self, part: Part, raw: dict[str, Any]) -> None:
        if raw.keys() <= {"thoughtSignature", "thought"}:
            if part.thought_signature:
                self._take_text(part, "")
            return
        self._end_run()
        if part.thought:
            self._report([_THOUGHT_PART])
            return
        self._has_spoken = True
        inner = raw.get("inlineData")
        blob: dict[str, Any] = inner if isinstance(inner, dict) else {}
        media = str(blob.get("mimeType"))
        if media.startswith("image/"):
            self._take_image(f"data:{media};base64,{blob.get('data')}", part.thought_signature)
        else:
            self._spend(len(msgspec.json.encode(raw)))
            self._out.append(ItemPassed({"type": PART_ITEM, "status": "completed", "part": raw}))

    def _take_image(self, url: str, signature: str | None) -> None:
        for delta in self._media.images([url]):
            if signature and isinstance(delta, ItemPassed):
                state = SignedState("part", (Signed(0, 0, signature),))
                self._out.append(write_state(state, self._account, "next"))
            self._out.append(delta)

    # What is noted.

    def _spend(self, size: int) -> None:
        self._has_spoken = True
        self._room -= size
        if self._room < 0:
            raise invalid_answer("it does not end")

    def _report(self, notes: list[str]) -> None:
        for note in notes:
            if note not in self._reported:
                self._reported.add(note)
                self._out.append(Reported(note))

    # The end.

    def _finish(self) -> None:
        stop = self._stop
        if stop is None or self.is_done:
            return
        if stop.reason == "stop":
            self._make_partial()
        self._close()
        self._out.append(stop)
        self.is_done = True

    def _close(self) -> None:
        """Report what belongs to the answer as a whole."""
        self._cut_call()
        self._end_text()
        if self._run == "text" or not self._text.pieces:
            self._out += annotate(self._text, self._grounding, self._citations)
        elif self._grounding or self._citations:
            self._out += annotate(AnswerText(), self._grounding, self._citations)
        self._end_run()
        if self._tokens:
            self._report([_LATE_TOKENS])
        if self._others:
            count = len(self._others)
            self._report([f"n: candidates beyond the first are not returned; there were {count}"])
        self._note_usage()

    def _note_usage(self) -> None:
        counted = read_usage(self._usage)
        if counted is None or not counted.usage.total_tokens:
            return
        if counted.tier is not None:
            self._out.append(TierUsed(counted.tier))
        self._out.append(UsageKnown(counted.usage))
        self._report([counted.note] if counted.note else [])

    def _break(self, error: BackendError | BrokenStream) -> None:
        """Keep the fault; of an answer that has begun, report also what it cost so far."""
        fault = invalid_answer(error.message) if isinstance(error, BrokenStream) else error
        fault.is_torn = bool(self._grown.half)
        if self._has_spoken:
            self._close()
        self.fault = fault

    def _give(self) -> list[Delta]:
        out, self._out = self._out, []
        if out:
            self.has_begun = True
        return out


def _closed() -> BackendError:
    return BackendError(
        "the upstream ended its answer without saying that it is complete",
        code="upstream_closed",
        ended_in_order=True,
    )
