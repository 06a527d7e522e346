"""Where does thinking end and the answer begin, when a model writes both as text?

Many models put their reasoning between `<think>` and `</think>` at the very start of the
answer, and servers without a reasoning parser pass that on as it is. Only a tag that the
answer begins with counts (white space may stand before it): later ones are text about tags.
A tag may be split over any number of pieces. Thinking that is never closed stays thinking.
"""

from __future__ import annotations

from typing import Final, Literal

from antiphon.protocol.deltas import ReasoningGrew, TextGrew

__all__ = ["ThinkSplitter"]

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"
# How much white space before a tag is waited through.
_MAX_SPACE: Final = 256


class ThinkSplitter:
    """Text in any pieces to reasoning and text.

        undecided --"<think>"--> thinking --"</think>"--> answering
        undecided --anything else--------------------->

    White space right after a tag belongs to the tag, and is dropped.
    """

    def __init__(self) -> None:
        self._state: Literal["undecided", "thinking", "answering"] = "undecided"
        self._held = ""
        self._after_tag = False

    @property
    def is_over(self) -> bool:
        """Return whether all that follows is plain text, so that the caller need not ask again."""
        return self._state == "answering" and not self._after_tag

    @property
    def is_deciding(self) -> bool:
        """Return whether what was read so far may be the beginning of a tag."""
        return self._state == "undecided" and bool(self._held.strip())

    def feed(self, text: str) -> list[TextGrew | ReasoningGrew]:
        """Return what is certain after this piece; a piece of a tag is held back."""
        out: list[TextGrew | ReasoningGrew] = []
        text = self._held + text
        self._held = ""
        if self._state == "undecided":
            text = self._decide(text)
        if self._state == "thinking":
            text = self._think(text, out)
        if self._state == "answering" and (text := self._trim(text)):
            out.append(TextGrew(text))
        return out

    def release(self) -> list[TextGrew | ReasoningGrew]:
        """Return what is held back: something else comes next, or nothing."""
        held, self._held = self._held, ""
        if self._state == "thinking":
            return [ReasoningGrew(held)] if held else []
        self._state = "answering"
        return [TextGrew(held)] if held else []

    def _decide(self, text: str) -> str:
        bare = text.lstrip()
        if bare.startswith(_OPEN):
            self._state = "thinking"
            self._after_tag = True
            return bare[len(_OPEN) :]
        if _OPEN.startswith(bare) and len(text) - len(bare) <= _MAX_SPACE:
            self._held = text
            return ""
        self._state = "answering"
        return text

    def _think(self, text: str, out: list[TextGrew | ReasoningGrew]) -> str:
        """Move the reasoning to `out`; return the text behind the closing tag, if it is here."""
        thought, tag, rest = text.partition(_CLOSE)
        if not tag:
            keep = _tag_begun(thought)
            thought, self._held = thought[: len(thought) - keep], thought[len(thought) - keep :]
        if thought := self._trim(thought):
            out.append(ReasoningGrew(thought))
        if tag:
            self._state = "answering"
            self._after_tag = True
        return rest

    def _trim(self, text: str) -> str:
        if self._after_tag:
            text = text.lstrip()
            self._after_tag = not text
        return text


def _tag_begun(text: str) -> int:
    """Return how many characters at the end may be the beginning of the closing tag."""
    return next((n for n in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:n])), 0)
