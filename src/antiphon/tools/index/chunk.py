"""How is a text cut into chunks? By tokens, at the best border near the limit, as it comes.

A chunk has at most `tokens` estimated tokens (`plans.estimate`) and begins with the last `overlap`
tokens of the one before. It ends at the best border in the last quarter of that length:

    page (form feed)  >  paragraph  >  sentence  >  line  >  word  >  anywhere

The text comes in pieces of any size. The same text gives the same chunks however it is cut into
pieces, and no more than a few chunks of it are kept. Every cut looks at one window only, so the
work grows with the length of the text, also if it is one line of 300 MB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from antiphon.plans.estimate import BYTES_PER_TOKEN, text_bytes

__all__ = ["MAX_TOKENS", "MIN_TOKENS", "Chunker"]

MIN_TOKENS: Final = 100
MAX_TOKENS: Final = 4096

_PAGE: Final = "\f"
_PARAGRAPHS: Final = ("\n\n", "\n\r\n")
_SENTENCES: Final = (". ", ".\n", "! ", "? ", "!\n", "?\n", "。", "！", "？")
_LINES: Final = ("\n",)
_WORDS: Final = (" ", "\t")
_BORDERS: Final = ((_PAGE,), _PARAGRAPHS, _SENTENCES, _LINES, _WORDS)
_SPACE: Final = re.compile(r"\s")
# PostgreSQL stores no NUL, and nothing that encodes a text stores half of a surrogate pair.
_NOT_STORED: Final = re.compile("[\x00\ud800-\udfff]")


class Chunker:
    """Cuts one text. Chunks are stripped; one of white space alone is left out."""

    def __init__(self, tokens: int = 800, overlap: int = 400) -> None:
        if not MIN_TOKENS <= tokens <= MAX_TOKENS or not 0 <= overlap <= tokens // 2:
            raise ValueError(f"chunks of {tokens} tokens cannot overlap by {overlap}")
        self._size = tokens * BYTES_PER_TOKEN
        self._overlap = overlap * BYTES_PER_TOKEN
        self._waiting: list[str] = []
        self._length = 0
        self._shown = 0  # how much of the text that waits was in the last chunk

    def feed(self, text: str) -> list[str]:
        """Return the chunks that are complete after this piece."""
        self._waiting.append(_NOT_STORED.sub("\ufffd", text))
        self._length += len(text)
        # Several windows at once, so that small pieces are rarely put together.
        return list(self._cut()) if self._length > 4 * self._size else []

    def finish(self) -> list[str]:
        """Return the last chunks. Nothing may follow."""
        found = list(self._cut())
        text = "".join(self._waiting)
        # Less is left than a window has characters, but perhaps more than it has bytes.
        start = 0
        while text_bytes(text[start:]) > self._size:
            end = _cut_at(text, start, self._size)
            found += _chunk(text, start, end)
            self._shown, start = end, _start_after(text, start, end, self._overlap)
        if self._shown < len(text) and text[self._shown :].strip():
            found += _chunk(text, start, len(text))
        self._waiting, self._length, self._shown = [], 0, 0
        return found

    def _cut(self) -> Iterator[str]:
        """Yield chunks while a whole window and one more character is there."""
        text = "".join(self._waiting)
        start = 0
        while len(text) - start > self._size:
            end = _cut_at(text, start, self._size)
            yield from _chunk(text, start, end)
            self._shown, start = end, _start_after(text, start, end, self._overlap)
        text = text[start:]
        self._waiting, self._length = [text], len(text)
        self._shown = max(self._shown - start, 0)


def _chunk(text: str, start: int, end: int) -> list[str]:
    found = text[start:end].replace(_PAGE, "\n").strip()
    return [found] if found else []


def _cut_at(text: str, start: int, size: int) -> int:
    """Return where the chunk ends that begins at `start`: after the best border, if any.

    It has at least three quarters of the bytes, more than the overlap: every chunk goes on.
    """
    end = start + _characters(text, start, size)
    earliest = start + _characters(text, start, size * 3 // 4)
    for borders in _BORDERS:
        found = [at + len(one) for one in borders if (at := text.rfind(one, earliest, end)) >= 0]
        if found:
            return max(found)
    return end


def _characters(text: str, start: int, size: int) -> int:
    """Return how many characters from `start` on have at most `size` bytes, at least one."""
    window = text[start : start + size]
    if window.isascii():
        return len(window)
    return max(len(window.encode()[:size].decode(errors="ignore")), 1)


def _start_after(text: str, start: int, end: int, overlap: int) -> int:
    """Return where the chunk after this one begins: at a word in what both have."""
    if not overlap:
        return end
    window = text[max(end - overlap, start + 1) : end]
    # From the end, so many characters as have `overlap` bytes.
    if not window.isascii():
        window = window.encode()[-overlap:].decode(errors="ignore")
    begin = end - len(window)
    space = _SPACE.search(text, begin, end)
    return space.end() if space is not None and space.end() < end else begin
