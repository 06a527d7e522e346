"""How does a form arrive? The bytes of `multipart/form-data`, read in pieces of any size.

`FormReader` turns bytes into the beginnings of parts, their contents and their ends. It keeps at
most the headers of one part in memory, however large the form is, and does no I/O. RFC 7578 and
RFC 2046 section 5.1 describe the format; what breaks it is refused and never repaired, because
a form that two programs read differently is a way around checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.message import Message
from typing import Final
from urllib.parse import unquote

import msgspec

from antiphon.protocol.errors import InvalidRequest

__all__ = [
    "MAX_PARTS",
    "MAX_PART_HEADERS",
    "FormEvent",
    "FormReader",
    "PartBegins",
    "PartEnds",
    "boundary_of",
]

_CODE: Final = "invalid_multipart"
_CHARSETS: Final = ("utf-8", "iso-8859-1")
MAX_PART_HEADERS: Final = 8 * 1024
_MAX_PREAMBLE: Final = 4 * 1024
MAX_PARTS: Final = 1000
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]")
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_DISPOSITION: Final = re.compile(r"form-data[ \t]*((?:;.*)?)", re.IGNORECASE)
_PARAMETER: Final = re.compile(
    r""";[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))[ \t]*"""
)
_ESCAPED: Final = re.compile(r"""\\(["\\])""")
_PLAIN_ENCODINGS: Final = ("", "7bit", "8bit", "binary")


class PartBegins(msgspec.Struct, frozen=True):
    """A part begins. One without a `filename` is a field."""

    name: str
    filename: str | None = None
    content_type: str = ""


class PartEnds(msgspec.Struct, frozen=True):
    """The content of a part is complete."""


FormEvent = PartBegins | bytes | PartEnds


def boundary_of(content_type: str) -> bytes:
    """Return what separates the parts of a form. Raise InvalidRequest if this is no form."""
    head = Message()
    head["Content-Type"] = content_type
    if head.get_content_type() != "multipart/form-data":
        raise InvalidRequest("send a form, with Content-Type: multipart/form-data", code=_CODE)
    boundary = head.get_boundary()
    if boundary is None or not _BOUNDARY.fullmatch(boundary):
        raise _broken("its Content-Type has no valid boundary")
    return boundary.encode("ascii")


class FormReader:
    """Reads one form. `feed` takes what has arrived; `end` raises if something is missing."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        # The first delimiter need not follow a line, so one is put before it.
        self._buffer = bytearray(b"\r\n")
        self._read = self._read_preamble
        self._parts = 0

    def feed(self, data: bytes) -> Iterator[FormEvent]:
        """Yield what the bytes complete. Raise InvalidRequest if they break the format."""
        self._buffer += data
        while (event := self._read()) is not None:
            if event != b"":
                yield event

    def end(self) -> None:
        """Raise InvalidRequest unless the last delimiter has arrived."""
        if self._read != self._read_epilogue:
            raise _broken("it ends before its last boundary")

    # Each of these returns what it has read, b"" if that is nothing to report, or None if more
    # bytes are needed.

    def _read_preamble(self) -> FormEvent | None:
        place = self._buffer.find(self._delimiter)
        if place > _MAX_PREAMBLE or (place < 0 and len(self._buffer) > _MAX_PREAMBLE):
            raise _broken("it does not begin with its boundary")
        if place < 0:
            return None
        del self._buffer[: place + len(self._delimiter)]
        self._read = self._read_delimiter
        return b""

    def _read_delimiter(self) -> FormEvent | None:
        """Read what follows a boundary: a line break, or two hyphens after the last part."""
        if len(self._buffer) < 2:
            return None
        if self._buffer.startswith(b"--"):
            self._read = self._read_epilogue
        elif self._buffer.startswith(b"\r\n"):
            self._read = self._read_headers
        else:
            raise _broken("a boundary is not followed by a line break")
        return b""

    def _read_headers(self) -> FormEvent | None:
        place = self._buffer.find(b"\r\n\r\n")
        if place > MAX_PART_HEADERS or (place < 0 and len(self._buffer) > MAX_PART_HEADERS):
            raise _broken(f"the headers of a part are larger than {MAX_PART_HEADERS} bytes")
        if place < 0:
            return None
        lines = bytes(self._buffer[2:place])
        del self._buffer[: place + 2]  # an empty content ends with the line break of its headers
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise _broken(f"it has more than {MAX_PARTS} parts")
        self._read = self._begin_content
        return _read_head(lines)

    def _begin_content(self) -> FormEvent | None:
        """Take the line break after the headers, unless it belongs to the next boundary."""
        if len(self._buffer) < len(self._delimiter):
            return None
        if not self._buffer.startswith(self._delimiter):
            del self._buffer[:2]
        self._read = self._read_content
        return b""

    def _read_content(self) -> FormEvent | None:
        place = self._buffer.find(self._delimiter)
        if place == 0:
            del self._buffer[: len(self._delimiter)]
            self._read = self._read_delimiter
            return PartEnds()
        # Without a delimiter, the last bytes may be the first ones of it.
        ready = place if place > 0 else len(self._buffer) - len(self._delimiter) + 1
        if ready <= 0:
            return None
        data = bytes(memoryview(self._buffer)[:ready])
        del self._buffer[:ready]
        return data

    def _read_epilogue(self) -> FormEvent | None:
        self._buffer.clear()
        return None


def _read_head(lines: bytes) -> PartBegins:
    """Return what the headers of a part declare."""
    headers = _read_lines(lines)
    encoding = headers.get("content-transfer-encoding", "").strip().lower()
    if encoding not in _PLAIN_ENCODINGS:
        raise _broken("a part is encoded; send its bytes as they are")
    parameters = _read_disposition(headers.get("content-disposition", ""))
    name = parameters.get("name")
    if name is None:
        raise _broken("a part has no name")
    filename = parameters.get("filename")
    if "filename*" in parameters:  # RFC 5987; it wins over the other form
        filename = _read_extended(parameters["filename*"])
    return PartBegins(name, filename, headers.get("content-type", ""))


def _read_lines(lines: bytes) -> dict[str, str]:
    try:
        text = lines.decode()
    except UnicodeDecodeError:
        raise _broken("the headers of a part are not UTF-8") from None
    headers: dict[str, str] = {}
    for line in text.split("\r\n") if text else ():
        found = _HEADER.fullmatch(line)
        if found is None:
            raise _broken("a part has a header that cannot be read")
        name = found[1].lower()
        if name in headers:
            raise _broken(f"a part has the header {name} twice")
        headers[name] = found[2]
    return headers


def _read_disposition(header: str) -> dict[str, str]:
    """Return the parameters of `Content-Disposition: form-data`."""
    found = _DISPOSITION.fullmatch(header)
    if found is None:
        raise _broken("a part has no Content-Disposition: form-data")
    rest, place, parameters = found[1].rstrip("; \t"), 0, dict[str, str]()
    while place < len(rest):
        match = _PARAMETER.match(rest, place)
        if match is None or match[1].lower() in parameters:
            raise _broken("a part has a Content-Disposition that cannot be read")
        quoted = match[2]
        value = match[3] if quoted is None else _ESCAPED.sub(r"\1", quoted)
        parameters[match[1].lower()] = value
        place = match.end()
    return parameters


def _read_extended(value: str) -> str:
    """Return a value that RFC 5987 encodes: its charset, its language, and the text in %xx."""
    charset, _, rest = value.partition("'")
    if charset.lower() in _CHARSETS:
        try:
            return unquote(rest.partition("'")[2], charset, "strict")
        except UnicodeDecodeError:
            pass
    raise _broken("a part has a filename that cannot be read")


def _broken(why: str) -> InvalidRequest:
    return InvalidRequest(f"the form cannot be read: {why}", code=_CODE)
