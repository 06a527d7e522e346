"""Which sources does an answer cite, and where? Marks in the text become annotations.

Every source that a model is shown has a mark, `【3】`. Where the model writes the mark of a source,
the text gets a link to it, or nothing, and an annotation for exactly that place. Rules:

- No mark, no annotation. A mark of a source that was not shown stays text, and so does everything
  else that only looks like a mark.
- What may become a mark is held back until it is decided, at most `MAX_MARK` characters. However
  the text is cut into pieces, the text and the annotations that come out are the same.
- Positions are not known here: an annotation covers the text that stands directly before it, and
  the builder, which knows where a part begins, writes the numbers.

Models also write `【3†L1-L9】` and `【1, 2】`: these cite the sources 3, and 1 and 2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from antiphon.protocol.deltas import AnnotationAdded, TextGrew

__all__ = [
    "MAX_MARK",
    "Citable",
    "CitationFilter",
    "CiteAs",
    "FileSource",
    "ShownSources",
    "WebSource",
    "unmarked",
]

MAX_MARK: Final = 96
"""A longer text between the brackets is no mark."""

CiteAs = Literal["link", "point"]
"""What stands in the text for a mark: a link to the source, or nothing."""

_OPEN: Final = "【"
_CLOSE: Final = "】"
_MARK: Final = re.compile(r"【\s*(\d{1,6}(?:\s*[,;]\s*\d{1,6})*)\s*(?:†[^【】]*)?】")
# What a mark may still become when more text comes.
_BEGINNING: Final = re.compile(r"【[\s\d,;]*(?:†[^【】]*)?")
_NUMBER: Final = re.compile(r"\d+")
_IN_LINK: Final = {ord(char): f"%{ord(char):02X}" for char in '()<>[]"\\` \t\r\n'}


class Citable(Protocol):
    """A source that an answer can cite."""

    @property
    def identity(self) -> str:
        """What is the same for the same source, such as its address."""
        ...

    @property
    def annotation(self) -> dict[str, Any]:
        """The annotation without its place in the text."""
        ...

    @property
    def link(self) -> str:
        """What stands in the text for it; empty if it has no address."""
        ...


class WebSource(msgspec.Struct, frozen=True):
    """A page on the web."""

    url: str
    title: str = ""

    @property
    def identity(self) -> str:
        """The address."""
        return self.url

    @property
    def annotation(self) -> dict[str, Any]:
        """The page as a `url_citation`."""
        return {"type": "url_citation", "url": self.url, "title": self.title or self.url}

    @property
    def link(self) -> str:
        """A link in Markdown, with the host as its words."""
        host = urlsplit(self.url).hostname or "source"
        return f"([{host.removeprefix('www.')}]({self.url.translate(_IN_LINK)}))"


class FileSource(msgspec.Struct, frozen=True):
    """A file of the caller's. Nothing stands in the text for it: its annotation is a place."""

    file_id: str
    filename: str

    @property
    def identity(self) -> str:
        """The id of the file."""
        return f"file:{self.file_id}"

    @property
    def annotation(self) -> dict[str, Any]:
        """The file as a `file_citation`."""
        return {"type": "file_citation", "file_id": self.file_id, "filename": self.filename}

    @property
    def link(self) -> str:
        """Nothing: a file has no address."""
        return ""


class ShownSources:
    """The sources that the model was shown in this turn, each with the number of its mark."""

    def __init__(self) -> None:
        self._by_number: dict[int, Citable] = {}
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def show(self, source: Citable) -> str:
        """Return the mark of a source to be shown; the same source keeps its mark."""
        number = self._numbers.get(source.identity)
        if number is None:
            number = self._numbers[source.identity] = len(self._by_number) + 1
            self._by_number[number] = source
        return f"{_OPEN}{number}{_CLOSE}"

    def find(self, number: int) -> Citable | None:
        """Return the source with this number, if one was shown."""
        return self._by_number.get(number)


class CitationFilter:
    """Replaces the marks in a text that comes in pieces."""

    def __init__(self, sources: ShownSources, cite_as: CiteAs = "link") -> None:
        self._sources = sources
        self._as = cite_as
        self._held = ""
        self._ends_in_space = True  # or is at its beginning

    @property
    def mark(self) -> str:
        """How a mark begins; empty if there is nothing to cite."""
        return _OPEN if len(self._sources) else ""

    @property
    def is_holding(self) -> bool:
        """Whether a text is held back."""
        return bool(self._held)

    def note(self, text: str) -> None:
        """Note a text without marks that passed unseen."""
        if text:
            self._ends_in_space = text[-1].isspace()

    def feed(self, text: str) -> Sequence[TextGrew | AnnotationAdded]:
        """Return what can be forwarded after this piece."""
        if not self._held and _OPEN not in text:
            found: list[TextGrew | AnnotationAdded] = []
            self._say(found, text)
            return found
        return self._read(self._held + text, is_whole=False)

    def finish(self) -> Sequence[TextGrew | AnnotationAdded]:
        """Return what was held back, at the end of the text. Another one may follow."""
        found = self._read(self._held, is_whole=True) if self._held else []
        self._ends_in_space = True
        return found

    def _read(self, text: str, *, is_whole: bool) -> list[TextGrew | AnnotationAdded]:
        """Return the text up to what may still become a mark, which is held back."""
        found: list[TextGrew | AnnotationAdded] = []
        begin = 0  # of what is not forwarded yet
        at = text.find(_OPEN)
        while at >= 0:
            mark = _MARK.match(text, at, at + MAX_MARK)
            if mark is not None and (cited := self._cited(mark[1])):
                self._say(found, text[begin:at])
                self._cite(found, cited)
                begin = mark.end()
            elif mark is None and not is_whole and _may_become_mark(text, at):
                break
            at = text.find(_OPEN, at + 1)
        end = at if at >= 0 else len(text)
        self._say(found, text[begin:end])
        self._held = text[end:]
        return found

    def _cited(self, numbers: str) -> list[Citable]:
        """Return the sources with these numbers; none if one of them was not shown."""
        found = [self._sources.find(int(number)) for number in _NUMBER.findall(numbers)]
        sources = [source for source in found if source is not None]
        return sources if len(sources) == len(found) else []

    def _cite(self, found: list[TextGrew | AnnotationAdded], cited: Sequence[Citable]) -> None:
        for source in cited:
            link = source.link if self._as == "link" else ""
            if link and not self._ends_in_space:
                self._say(found, " ")
            self._say(found, link)
            found.append(AnnotationAdded(source.annotation, covers=len(link)))

    def _say(self, found: list[TextGrew | AnnotationAdded], text: str) -> None:
        if text:
            found.append(TextGrew(text))
            self._ends_in_space = text[-1].isspace()


def unmarked(text: str) -> str:
    """Return a text of others, to be shown to the model, without anything like a mark in it."""
    return text.replace(_OPEN, "[").replace(_CLOSE, "]")


def _may_become_mark(text: str, at: int) -> bool:
    if len(text) - at >= MAX_MARK:
        return False
    return _BEGINNING.fullmatch(text, at) is not None
