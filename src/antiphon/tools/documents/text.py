"""In which encoding is a plain text, and is it one at all?

A byte order mark wins, then what the media type states, then UTF-16 if every other byte is empty,
then UTF-8, and windows-1252 for the rest. Bytes that are no text are refused by their first
kilobytes. Later a byte that does not fit is replaced: half of a file is not thrown away for it.
No NUL is passed on: databases refuse it in texts.
"""

from __future__ import annotations

import codecs
from typing import Final

from antiphon.tools.documents.charsets import MARKS, stated_encoding

__all__ = ["HEAD_BYTES", "TextDecoder", "find_encoding"]

HEAD_BYTES: Final = 16 * 1024
"""How much of a file is looked at."""
_UTF_32: Final = ((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"))
_LEGACY: Final = "windows-1252"
# Control characters that are in no text; backspace and escape are in logs of terminals.
_NOT_TEXT: Final = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1b"))
_MOST_CONTROLS: Final = 0.03


def find_encoding(head: bytes, media_type: str = "") -> str | None:
    """Return the encoding of a text that begins so; None if it is no text."""
    for mark, name in (*_UTF_32, *MARKS):
        if head.startswith(mark):
            return name
    if b"\0" in head:
        return _without_mark(head)
    controls = len(head) - len(head.translate(None, _NOT_TEXT))
    if controls > len(head) * _MOST_CONTROLS:
        return None
    return stated_encoding(media_type) or ("utf-8" if _is_utf_8(head) else _LEGACY)


def _without_mark(head: bytes) -> str | None:
    """Return which UTF-16 it is, if one half of its bytes is mostly NUL and the other is not."""
    even, odd = head[::2], head[1::2]
    for empty, full, name in ((odd, even, "utf-16-le"), (even, odd, "utf-16-be")):
        if empty.count(0) > len(empty) * 0.7 and full.count(0) < len(full) * 0.02:
            return name
    return None


def _is_utf_8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


class TextDecoder:
    """Decodes a text piece by piece."""

    def __init__(self, encoding: str) -> None:
        self._is_open = encoding == "utf-8"  # it may turn out to be another one
        self._decoder = _decoder(encoding, "strict" if self._is_open else "replace")
        self._is_first = True

    def feed(self, data: bytes, *, is_last: bool = False) -> str:
        """Return the text of the next piece."""
        text = self._decode(data, is_last)
        if self._is_first and text:
            self._is_first = False
            text = text.removeprefix("\ufeff")
        if self._is_open and not text.isascii():
            self._is_open = False
            self._loosen()
        return text.replace("\0", "\ufffd") if "\0" in text else text

    def _decode(self, data: bytes, is_last: bool) -> str:
        if not self._is_open:
            return self._decoder.decode(data, is_last)
        before = self._decoder.getstate()
        try:
            return self._decoder.decode(data, is_last)
        except UnicodeDecodeError as error:
            # All was ASCII so far. A file in UTF-8 has other good characters before a bad one.
            data = before[0] + data
            is_utf_8 = not data[: error.start].isascii()
            self._decoder = _decoder("utf-8" if is_utf_8 else _LEGACY, "replace")
            self._is_open = False
            return self._decoder.decode(data, is_last)

    def _loosen(self) -> None:
        pending = self._decoder.getstate()
        self._decoder = _decoder("utf-8", "replace")
        self._decoder.setstate(pending)


def _decoder(encoding: str, errors: str) -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder(encoding)(errors)
