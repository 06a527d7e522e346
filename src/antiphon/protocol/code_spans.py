"""Is a place in a Markdown text inside code? Fenced blocks and inline code, as they grow.

The text comes in pieces, and only what stands before a place decides about it, so the answer is
the same however the text is cut. Rules, close to CommonMark:

- A line that begins with three or more backticks or tildes, after spaces, quote marks or the mark
  of a list item, opens a block. It ends at a line with at least as many of them and nothing else.
- Elsewhere a run of backticks opens inline code that ends at a run of the same length, or with
  the paragraph. An unpaired run is taken as code up to there: what follows is not known yet.
- A backslash before a backtick takes its meaning away, outside of code.

Text is only noted as it comes; it is read when a question is asked, each character once. Ask before
a character that is neither a space nor part of a run.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["CodeSpans"]

_PIECE: Final = re.compile(r"\n|`+|~+|\\+|[^\n`~\\]+")
_PREFIX: Final = re.compile(r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*")
_NOTHING: Final = " \t\r>"
_FENCE: Final = 3
_KEPT: Final = 100  # of the beginning of a line: a longer one is not only a prefix


class CodeSpans:
    """Follows a text and knows whether its end is inside code."""

    def __init__(self) -> None:
        self._unread: list[str] = []
        self.reset()

    def reset(self) -> None:
        """Begin a new text."""
        self._unread.clear()
        self._run = ""  # which opened inline code
        self._fence = ""  # which opened the block
        self._begin_line()

    def _begin_line(self) -> None:
        self._line = ""  # its beginning
        self._opening = ""  # the run that makes it the first line of a block
        self._is_closing = False  # it is the last line of one, so far
        self._is_escaped = False

    def note(self, text: str) -> None:
        """Note the next piece of the text."""
        self._unread.append(text)

    @property
    def is_inside(self) -> bool:
        """Whether a word that came now would be in code."""
        for piece in _PIECE.findall("".join(self._unread)):
            self._read(piece)
        self._unread.clear()
        return bool(self._fence or self._opening or self._run)

    def _read(self, piece: str) -> None:
        if piece == "\n":
            self._end_line()
            return
        if self._fence:
            self._read_in_block(piece)
        elif piece[0] in "`~":
            self._read_run(piece)
        self._is_escaped = piece[0] == "\\" and len(piece) % 2 == 1
        self._line += piece[:_KEPT] if len(self._line) < _KEPT else ""

    def _end_line(self) -> None:
        if self._fence:
            self._fence = "" if self._is_closing else self._fence
        elif self._opening:
            self._fence, self._run = self._opening, ""
        elif not self._line.strip(_NOTHING):
            self._run = ""  # with the paragraph
        self._begin_line()

    def _read_in_block(self, piece: str) -> None:
        if piece.startswith(self._fence) and not self._line.strip(_NOTHING):
            self._is_closing = True
        elif piece.strip(_NOTHING):
            self._is_closing = False

    def _read_run(self, piece: str) -> None:
        run = piece[1:] if self._is_escaped and not self._run else piece
        if self._opening:
            if run and run[0] == self._opening[0] == "`":  # so it opens no block
                opening, self._opening = self._opening, ""
                self._pair(opening)
                self._pair(run)
        elif len(run) >= _FENCE and _PREFIX.fullmatch(self._line):
            self._opening = run
        elif run and run[0] == "`":
            self._pair(run)

    def _pair(self, run: str) -> None:
        if not self._run:
            self._run = run
        elif run == self._run:
            self._run = ""
