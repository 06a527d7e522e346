"""What in the text of an answer is thinking, what is a call, and what is text?

Thinking is split off first (`think`), then calls are looked for in what remains (`recover`).
Once the server has sent a call itself it has a parser, and its text is text. The tokens of
what becomes text are told with it, as far as the pieces of the wire let us tell: those of a
piece that is split go with its first half, and the closing tag of thinking may go with the
text behind it. Those of thinking and of calls are dropped: there is no place to tell them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from antiphon.protocol.deltas import Delta, TextGrew
from antiphon.wires.chat.recover.finder import CallFinder
from antiphon.wires.chat.recover.forms import BEGINNINGS, LOOK_BACK
from antiphon.wires.chat.think import ThinkSplitter

__all__ = ["AnswerText"]


class AnswerText:
    """The text of one answer, in pieces, to deltas."""

    def __init__(self, names: Collection[str], *, think_tags: bool) -> None:
        self._think = ThinkSplitter() if think_tags else None
        self._finder = CallFinder(names) if names else None
        self._tokens: list[dict[str, Any]] = []

    @property
    def is_deciding(self) -> bool:
        """Return whether what was read last may be the beginning of a tag or a call."""
        is_tag = self._think is not None and self._think.is_deciding
        return is_tag or (self._finder is not None and self._finder.is_deciding)

    def pass_on(self, texts: list[str]) -> list[Delta] | None:
        """Return pieces in which nothing but text can be, or None if they are to be fed."""
        if not self.is_text(texts[0] if len(texts) == 1 else "".join(texts)):
            return None
        return [TextGrew(text) for text in texts if text]

    def is_text(self, piece: str) -> bool:
        """Return whether nothing but text can be in this piece. It must not be fed then."""
        if self._think is not None or self._tokens:
            return False
        finder = self._finder
        if finder is not None:
            # White space may stand before a call.
            if not finder.is_idle or piece[-1:].isspace() or BEGINNINGS.search(piece) is not None:
                return False
            finder.before = (finder.before + piece[-LOOK_BACK:])[-LOOK_BACK:]
        return True

    def note_tokens(self, tokens: Iterable[dict[str, Any]]) -> None:
        """Take the tokens of the piece that comes next, with their logprobs."""
        self._tokens += tokens

    def feed(self, text: str) -> list[Delta]:
        """Return what is certain after this piece."""
        if self._think is None:
            return self._find(text)
        said = self._go_on(self._think.feed(text))
        if self._think.is_over:
            self._think = None
        return said

    def release(self, *, is_cut: bool) -> list[Delta]:
        """Return what is held back: something else comes next, or nothing."""
        said = self._go_on(self._think.release()) if self._think is not None else []
        # A server that separates reasoning itself leaves no tags for us to find.
        self._think = None
        if self._finder is not None:
            said += self._tell(self._finder.release(is_cut=is_cut))
        return said

    def stop_finding(self) -> list[Delta]:
        """Return what is held back, for good: the server sends a call itself."""
        said: list[Delta] = []
        if self._think is not None:
            said = self._go_on(self._think.release())
            if self._think.is_over:
                self._think = None
        if self._finder is not None:
            said += self._tell(self._finder.give_up())
            self._finder = None
        return said

    def _go_on(self, deltas: Iterable[Delta]) -> list[Delta]:
        if self._finder is None and not self._tokens:
            return [*deltas]  # nothing to look for in the text, nothing to tell with it
        said: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, TextGrew):
                said += self._find(delta.text)
            else:
                self._tokens = []
                said.append(delta)
        return said

    def _find(self, text: str) -> list[Delta]:
        if self._finder is None:
            return self._tell((TextGrew(text),))
        if (passed := self.pass_on([text])) is not None:
            return passed
        said = self._tell(self._finder.feed(text))
        if not self._finder.is_holding:
            # What was not told as text was the end of a call.
            self._tokens = []
        return said

    def _tell(self, deltas: Iterable[Delta]) -> list[Delta]:
        said: list[Delta] = []
        for delta in deltas:
            if self._tokens:
                if isinstance(delta, TextGrew):
                    delta = TextGrew(delta.text, tuple(self._tokens))
                self._tokens = []
            said.append(delta)
        return said
