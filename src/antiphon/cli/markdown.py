"""How does an answer in Markdown look on a terminal, while it still arrives?

Text goes out word by word, wrapped at the width of the terminal, and is never repainted: a span
(`**bold**`, `code`) is held back until it is closed, and a line whose kind is not known yet (a
heading, a list, a fence) until it is. Markers that are not closed in their line are text.
Blocks of code and tables are not wrapped: each line goes out as it is. Nothing but the markers
of headings and spans is left out.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Final

import click

__all__ = ["Markdown"]

_Style = Mapping[str, str | bool]
_PLAIN: Final[_Style] = {}
_BOLD: Final[_Style] = {"bold": True}
_CODE: Final[_Style] = {"fg": "cyan"}
_DIM: Final[_Style] = {"dim": True}
_MAX_HELD: Final = 1000
_TAB: Final = "    "

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
# A beginning that can still become a marker.
_UNDECIDED: Final = re.compile(r"[ \t]*(?:#{0,6}|[`~]{0,2}|[-*_+]+|\d{0,9}[.)]?|>[ >]*) *")
_FENCE: Final = re.compile(r" *(`{3,}|~{3,})([^`\n]*)\n?")
_VERBATIM: Final = re.compile(r" *\||[ \t]*([-*_])[ \t]*(?:\1[ \t]*){2,}\n?$")
_HEADING: Final = re.compile(r" {0,3}#{1,6} +")
_PREFIX: Final = re.compile(r"[ \t]*(?:>[ >]*|[-*+] +|\d{1,9}[.)] +)?")
_MARKER: Final = re.compile(r"\*\*|\*$|`+")
_TICKS: Final = re.compile(r"`+")
_BOLD_END: Final = re.compile(r"(?<=[^\s*])\*\*")
# Between characters of these scripts a line may be broken, as between words.
_WIDE: Final = (
    "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\U00020000-\U0003fffd"
)
_PIECE: Final = re.compile(rf"\s+|[{_WIDE}]|[^\s{_WIDE}]+")


class Markdown:
    """Turns text into what a terminal shows. `columns` returns the width of the terminal."""

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._held = ""
        self._fence = ""
        self._is_open = False
        self._style = _PLAIN
        self._lines = _Wrapper()

    def feed(self, text: str) -> str:
        """Return what can be shown now."""
        shown = []
        for piece in _LINE.findall(text):
            self._held += piece
            shown.append(self._go_on(is_whole=piece.endswith("\n")))
        return "".join(shown)

    def end(self) -> str:
        """Return the rest of a text that is over; the next one begins with a new line."""
        shown = self._go_on(is_whole=True) if self._held or self._is_open else ""
        self._fence = ""
        return shown

    def _go_on(self, *, is_whole: bool) -> str:
        """Return what can be shown of the line under way."""
        if not self._is_open:
            if self._must_wait() and not is_whole:
                return ""
            verbatim = self._verbatim()
            if verbatim is not None:
                self._held = ""
                return verbatim
            self._begin_line()
        self._read_spans(is_whole=is_whole)
        if not is_whole:
            return self._lines.take()
        self._is_open = False
        return self._lines.end_line()

    def _must_wait(self) -> bool:
        """Return whether only the whole line shows what it is."""
        if self._fence or len(self._held) > _MAX_HELD:
            return bool(self._fence)
        held = self._held
        return bool(_UNDECIDED.fullmatch(held) or _FENCE.match(held) or _VERBATIM.match(held))

    def _verbatim(self) -> str | None:
        """Return a line that is shown as it is, styled; None if it is text."""
        line, fence = self._held, _FENCE.fullmatch(self._held)
        if self._fence:
            if fence and fence[1].startswith(self._fence) and not fence[2].strip():
                self._fence = ""
                return _styled(line, _DIM)
            return _styled(line, _CODE)
        if fence:
            self._fence = fence[1]
            return _styled(line, _DIM)
        if _VERBATIM.match(line):
            return _styled(line, _PLAIN if "|" in line else _DIM)
        return None

    def _begin_line(self) -> None:
        self._is_open = True
        heading = _HEADING.match(self._held)
        self._style = _BOLD if heading else _PLAIN
        prefix = heading or _PREFIX.match(self._held)
        assert prefix is not None  # the pattern matches nothing, too
        self._held = self._held[prefix.end() :]
        mark = "" if heading else prefix[0].replace("\t", _TAB)
        is_quote = ">" in mark
        self._lines.begin(mark, self._columns() - 1, is_quote=is_quote)

    def _read_spans(self, *, is_whole: bool) -> None:
        """Pass on the text of the line, up to a span that is not closed yet."""
        position, held = 0, self._held
        while marker := _MARKER.search(held, position):
            self._lines.put(held[position : marker.start()], self._style)
            position = marker.start()
            can_wait = not is_whole and len(held) - position <= _MAX_HELD
            end = _end_of_span(held, marker)
            # At the end of what arrived, more of the same character may follow.
            if can_wait and (end is None or end.end() == len(held)):
                break
            if end is None:
                self._lines.put(marker[0], self._style)
            else:
                kind = _CODE if marker[0][0] == "`" else _BOLD
                self._lines.put(held[marker.end() : end.start()], {**self._style, **kind})
            position = marker.end() if end is None else end.end()
        else:
            self._lines.put(held[position:], self._style)
            position = len(held)
        self._held = held[position:]


def _end_of_span(text: str, marker: re.Match[str]) -> re.Match[str] | None:
    """Return the marker that closes the span which this one opens, if it is a span."""
    start, limit = marker.end(), marker.end() + _MAX_HELD
    if marker[0][0] == "`":
        ticks = _TICKS.finditer(text, start, limit)
        return next((found for found in ticks if len(found[0]) == len(marker[0])), None)
    if len(marker[0]) < 2 or text[start : start + 1].strip() in ("", "*"):
        return None
    return _BOLD_END.search(text, start, limit)


class _Wrapper:
    """Collects words and breaks lines between them. What follows a break is indented."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._word: list[tuple[str, _Style]] = []
        self._word_width = 0
        self._gap = ""
        self._column = 0
        self._columns = 0
        self._indent = ""
        self._is_quote = False

    def begin(self, prefix: str, columns: int, *, is_quote: bool) -> None:
        """Begin a line of text. In a quote, its mark is repeated in each line."""
        self._is_quote = is_quote
        self._out.append(_styled(prefix, _DIM if is_quote else _PLAIN))
        self._column, self._columns = _width(prefix), columns
        self._indent = prefix if is_quote else " " * self._column

    def put(self, text: str, style: _Style) -> None:
        """Add text; a word goes out when it is over."""
        for piece in _PIECE.findall(text):
            if piece.isspace():
                self._end_word()
                self._gap += "\n" if "\n" in piece else piece.replace("\t", _TAB)
                continue
            is_wide = len(piece) == 1 and _width(piece) == 2
            if is_wide:
                self._end_word()
            self._word.append((piece, style))
            self._word_width += _width(piece)
            if is_wide:
                self._end_word()

    def take(self) -> str:
        """Return what is ready to be shown."""
        shown = "".join(self._out)
        self._out.clear()
        return shown

    def end_line(self) -> str:
        """Return the rest of the line, with its end if that was in the text."""
        self._end_word()
        end = "\n" if "\n" in self._gap else self._gap
        self._gap, self._column = "", 0
        return self.take() + end

    def _end_word(self) -> None:
        if not self._word:
            return
        is_full = self._column + len(self._gap) + self._word_width > self._columns
        if is_full and self._column > len(self._indent):
            self._out += ["\n", _styled(self._indent, _DIM if self._is_quote else _PLAIN)]
            self._column, self._gap = len(self._indent), ""
        self._out.append(self._gap)
        for style, pieces in itertools.groupby(self._word, itemgetter(1)):
            self._out.append(_styled("".join(text for text, _ in pieces), style))
        self._column += len(self._gap) + self._word_width
        self._word, self._word_width, self._gap = [], 0, ""


def _styled(text: str, style: _Style) -> str:
    """Return the text in this style; its line end is not part of it."""
    line = text.removesuffix("\n")
    if not style or not line:
        return text
    shown = click.style(
        line,
        fg="cyan" if "fg" in style else None,
        bold=True if "bold" in style else None,
        dim=True if "dim" in style else None,
    )
    return shown + text[len(line) :]


def _width(text: str) -> int:
    """Return how many columns the text takes."""
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )
