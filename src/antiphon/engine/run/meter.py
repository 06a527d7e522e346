"""How much has a model produced, when nothing reports it?

A server that streams sends about one token at a time, so pieces are counted; where it sends
longer ones, four bytes are a token. What is larger is the count. This is called for every piece
of text, so it does next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from antiphon.plans.estimate import BYTES_PER_TOKEN, text_bytes
from antiphon.protocol.deltas import (
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    ReasoningGrew,
    RefusalGrew,
    Stopped,
    SummaryGrew,
    TextGrew,
    UsageKnown,
    produced_length,
)
from antiphon.protocol.response import Usage
from antiphon.protocol.token_counts import TokenCounts

__all__ = ["Meter"]

_FAR: Final = 1 << 62


class Meter:
    """Counts the output of one call. `reach` is called when it has passed the mark."""

    pieces = 0
    size = 0
    """Bytes of all pieces."""
    usage: Usage | None = None
    """What the upstream has reported."""
    has_output = True
    """Whether it has reported the output, too."""
    reported_at = 0
    """How many pieces there were then."""
    has_stopped = False
    """Whether the upstream has ended the answer itself."""
    _thoughts = 0
    _thought_size = 0
    _mark = _mark_size = _FAR

    def __init__(self, reach: Callable[[], None] | None = None) -> None:
        self._reach = reach

    def mark(self, tokens: int, bytes_each: int = BYTES_PER_TOKEN) -> None:
        """Call `reach` when so many tokens have arrived: pieces, or bytes for as many."""
        self._mark, self._mark_size = tokens, tokens * bytes_each

    def note_text(self, text: str) -> None:
        """Count one piece of text."""
        self.pieces = pieces = self.pieces + 1
        self.size = size = self.size + (len(text) if text.isascii() else text_bytes(text))
        if pieces >= self._mark or size >= self._mark_size:
            self._pass_mark()

    def note_texts(self, texts: list[str]) -> None:
        """Count several pieces of text that came together."""
        whole = "".join(texts)
        self.pieces += len(texts)
        self.size += len(whole) if whole.isascii() else text_bytes(whole)
        if self.pieces >= self._mark or self.size >= self._mark_size:
            self._pass_mark()

    def note(self, batch: Sequence[Delta]) -> None:
        """Count pieces of any kind, and keep what is reported."""
        for delta in batch:
            if isinstance(delta, TextGrew):
                self._add(delta.text)
            elif isinstance(delta, UsageKnown):  # with every answer, so early in this list
                self.usage, self.reported_at = delta.usage, self.pieces
                self.has_output = delta.has_output
            elif isinstance(delta, Stopped):
                self.has_stopped = True
            else:
                self._note_other(delta)
        if self.pieces >= self._mark or self.size >= self._mark_size:
            self._pass_mark()

    def _note_other(self, delta: Delta) -> None:
        match delta:
            case ReasoningGrew() | SummaryGrew():
                self._thoughts += bool(delta.text)
                self._thought_size += text_bytes(delta.text)
                self._add(delta.text)
            case RefusalGrew():
                self._add(delta.text)
            case CallOpened():
                self._add(delta.name)
            case CallGrew():
                self._add(delta.arguments)
            case CallMade():
                self.pieces += 1
                self.size += produced_length((delta,))
            case _:
                size = produced_length((delta,))
                self.pieces += bool(size)
                self.size += size

    def _add(self, text: str) -> None:
        if text:
            self.pieces += 1
            self.size += text_bytes(text)

    def _pass_mark(self) -> None:
        self._mark = self._mark_size = _FAR
        if self._reach is not None:
            self._reach()

    @property
    def is_reported(self) -> bool:
        """Whether the report is about all that has arrived."""
        is_last = self.has_stopped or self.reported_at == self.pieces
        return self.usage is not None and self.has_output and is_last

    @property
    def output(self) -> int:
        """Tokens of all output."""
        return max(self.pieces, -(-self.size // BYTES_PER_TOKEN))

    def counts(self, given: TokenCounts) -> TokenCounts:
        """Return the tokens of the input that is given and of the output that has arrived."""
        whole = self.output
        thought = max(self._thoughts, -(-self._thought_size // BYTES_PER_TOKEN))
        thought = min(thought, whole)
        return TokenCounts(given.fresh, given.cached, given.cache_write, whole - thought, thought)
