"""Annotate the text of an answer on its way through a policy.

`CitationFilter` knows texts alone. Here they are deltas: a text that begins a part or an item of
its own ends the one before, and so does everything that is no text. What came with the beginning
of a text, such as its phase, stays with its first delta even if that is held back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.protocol.citations import CitationFilter, Pattern
from antiphon.protocol.deltas import (
    AnnotationAdded,
    Degraded,
    Delta,
    Reported,
    TextGrew,
    TierUsed,
    UsageKnown,
)

__all__ = ["CitedText"]

# What may come in the middle of a text without ending it.
_NOT_TEXT: Final = (Reported, Degraded, UsageKnown, TierUsed, AnnotationAdded)


class CitedText:
    """The text of the answers of one turn, with its citations."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._filter = CitationFilter(*patterns)
        self._first: TextGrew | None = None  # a beginning whose text is held back
        self.begin_round = self._filter.begin_round
        self.note = self._filter.note
        """Notes a text that passed unseen."""

    @property
    def looks_for(self) -> re.Pattern[str] | None:
        """A text without this may pass unseen; None if any may."""
        return self._filter.looks_for

    @property
    def is_holding(self) -> bool:
        """Whether a text is held back."""
        return self._filter.is_holding

    def take(self, delta: Delta) -> list[Delta]:
        """Return what can be forwarded after this delta."""
        if not isinstance(delta, TextGrew):
            return [delta] if isinstance(delta, _NOT_TEXT) else [*self.finish(), delta]
        before = self.finish() if delta.begins else []
        if delta.begins or delta.phase or delta.logprobs:
            self._first = delta
        return [*before, *self._as_begun(self._filter.feed(delta.text))]

    def finish(self) -> list[Delta]:
        """Return what was held back, at the end of a text."""
        return self._as_begun(self._filter.finish())

    def _as_begun(self, found: Sequence[TextGrew | AnnotationAdded]) -> list[Delta]:
        """Return the deltas, the first text of them with what came with its beginning."""
        deltas: list[Delta] = []
        for delta in found:
            if isinstance(delta, TextGrew) and self._first is not None:
                deltas.append(msgspec.structs.replace(self._first, text=delta.text))
                self._first = None
            else:
                deltas.append(delta)
        return deltas
