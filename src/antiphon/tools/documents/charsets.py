"""In which encoding is this page or text? As browsers decide it, for encodings of the web.

A byte order mark wins, then the header, then what the page states in its first kilobyte, then
UTF-8 if the bytes are that, and windows-1252 for the rest. Names come from others, and Python
has codecs that are slow or no encodings at all: only those listed here are used.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MARKS", "decode_page", "stated_encoding"]

MARKS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_NAMED: Final = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE
)
_IN_HEADER: Final = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_KNOWN: Final = re.compile(
    r"utf-?8|utf-?16(?:le|be|-le|-be)?|iso-8859-(?:[2-8]|1[03456])|windows-(?:125[0-8]|874)"
    r"|koi8-[ru]|gbk|gb2312|gb18030|big5|euc-jp|euc-kr|shift_jis|iso-2022-jp|macintosh"
)
# Old names for windows-1252, and others that Python knows under another name.
_OTHER_NAMES: Final = {
    "ascii": "windows-1252",
    "us-ascii": "windows-1252",
    "latin1": "windows-1252",
    "iso-8859-1": "windows-1252",
    "iso8859-1": "windows-1252",
    "cp1252": "windows-1252",
    "x-sjis": "shift_jis",
    "sjis": "shift_jis",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "windows-874": "cp874",
    "macintosh": "mac-roman",
    "utf-16": "utf-16-le",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
}


def decode_page(body: bytes, content_type: str, *, is_cut: bool = False) -> str:
    """Return the text of a page; bytes that do not fit are replaced.

    `is_cut` if the page is longer than this: then its last character may be incomplete.
    """
    for mark, name in MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    named = _NAMED.search(body, 0, 1024)
    in_page = _encoding(named[1].decode("ascii", "ignore")) if named else None
    encoding = stated_encoding(content_type) or in_page
    if encoding:
        return body.decode(encoding, "replace")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        is_utf_8 = is_cut and error.start >= len(body) - 3
        return body.decode("utf-8" if is_utf_8 else "windows-1252", "replace")


def stated_encoding(content_type: str) -> str | None:
    """Return the encoding that a media type states, if it is one that is used here."""
    header = _IN_HEADER.search(content_type)
    return _encoding(header[1]) if header else None


def _encoding(name: str) -> str | None:
    name = name.lower()
    name = _OTHER_NAMES.get(name, name)
    return name if _KNOWN.fullmatch(name) or name in _OTHER_NAMES.values() else None
