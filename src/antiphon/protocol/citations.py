"""Which sources does an answer cite, and where? Marks in the text become annotations.

Every source that a model is shown has a mark, `【3】`. Where the model writes the mark of a source,
the text gets a link to it, or nothing, and an annotation for exactly that place. Rules:

- No mark, no annotation. A mark of a source that was not shown stays text, and so does everything
  else that only looks like a mark.
- What may become a mark is held back until it is decided, at most `MAX_MARK` characters. However
  the text is cut into pieces, the text and the annotations that come out are the same.
- Nothing in code is found, neither in blocks nor in inline code: it stays as the model wrote it.
- Positions are not known here: an annotation covers the text that stands directly before it, and
  the builder, which knows where a part begins, writes the numbers.

Models also write `【3†L1-L9】` and `【1, 2】`: these cite the sources 3, and 1 and 2. Marks are one
`Pattern`; a tool may add others, for texts that stay and are annotated as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from antiphon.protocol.code_spans import CodeSpans
from antiphon.protocol.deltas import AnnotationAdded, TextGrew

__all__ = [
    "MAX_BEFORE",
    "MAX_MARK",
    "Citable",
    "CitationFilter",
    "CiteAs",
    "Cited",
    "FileSource",
    "Found",
    "Marks",
    "Pattern",
    "ShownSources",
    "WebSource",
    "unmarked",
]

MAX_MARK: Final = 96
"""A longer text between the brackets is no mark."""
MAX_BEFORE: Final = 32
"""How much a pattern sees of the text before a place."""

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
    cite_as: CiteAs = "link"

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
        """A link in Markdown, with the host as its words; nothing for a point."""
        if self.cite_as == "point":
            return ""
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


class Cited(msgspec.Struct, frozen=True):
    """A piece of text with the annotation that covers the end of it, `covers` characters."""

    text: str
    annotation: dict[str, Any]
    covers: int
    is_word: bool = True
    """Whether a space has to stand before it."""


class Found(msgspec.Struct, frozen=True):
    """What a pattern has found: where it ends, and what stands in its place."""

    end: int
    cited: Sequence[Cited]


class Pattern(Protocol):
    """A kind of place in a text that is annotated."""

    @property
    def begin(self) -> str:
        """The one character that it begins with; empty if there can be none now.

        It changes between rounds only. Two patterns of one answer begin with different characters.
        """
        ...

    @property
    def longest(self) -> int:
        """How many characters it can have: what is held back is given up after that."""
        ...

    def find(self, text: str, at: int, before: str, *, is_whole: bool) -> Found | None:
        """Return what is at this place, where `begin` stands, if it is there in whole.

        `before` is the end of what was forwarded before this place, `MAX_BEFORE` characters at
        most: an annotation may cover some of it too. `is_whole` if no more text comes. Otherwise
        the text that comes next must not change what was found.
        """
        ...

    def may_grow(self, text: str, at: int, before: str) -> bool:
        """Return whether something may be found here when more text comes."""
        ...


class Marks:
    """The marks of the sources that were shown."""

    longest: Final = MAX_MARK

    def __init__(self, sources: ShownSources) -> None:
        self._sources = sources

    @property
    def begin(self) -> str:
        """The bracket; nothing while there is nothing to cite."""
        return _OPEN if len(self._sources) else ""

    def find(self, text: str, at: int, before: str, *, is_whole: bool) -> Found | None:
        """Return the sources that are cited here; none if one of them was not shown."""
        mark = _MARK.match(text, at, at + MAX_MARK)
        if mark is None:
            return None
        found = [self._sources.find(int(number)) for number in _NUMBER.findall(mark[1])]
        sources = [source for source in found if source is not None]
        if len(sources) < len(found):
            return None
        return Found(mark.end(), [_cite(source) for source in sources])

    def may_grow(self, text: str, at: int, before: str) -> bool:
        """Return whether this is the beginning of a mark."""
        return _BEGINNING.fullmatch(text, at) is not None


def _cite(source: Citable) -> Cited:
    link = source.link
    return Cited(link, source.annotation, covers=len(link), is_word=bool(link))


class CitationFilter:
    """Finds what is cited in a text that comes in pieces. One for all tools of a turn."""

    def __init__(self, *patterns: Pattern) -> None:
        self._patterns = patterns
        self._held = ""
        self._before = ""  # the end of what was forwarded
        self._code = CodeSpans()
        self.begin_round()

    def begin_round(self) -> None:
        """Find out what there is to find from here on."""
        self._by_begin = {one.begin: one for one in self._patterns if one.begin}
        begins = re.escape("".join(self._by_begin))
        self.looks_for = re.compile(f"[{begins}]") if begins else None
        """A text without this passes unseen as long as nothing is held back."""

    @property
    def is_holding(self) -> bool:
        """Whether a text is held back."""
        return bool(self._held)

    def note(self, text: str) -> None:
        """Note a text that passed unseen."""
        if text:
            self._before = (self._before + text)[-MAX_BEFORE:]
            self._code.note(text)

    def feed(self, text: str) -> Sequence[TextGrew | AnnotationAdded]:
        """Return what can be forwarded after this piece."""
        return self._read(self._held + text, is_whole=False)

    def finish(self) -> Sequence[TextGrew | AnnotationAdded]:
        """Return what was held back, at the end of the text. Another one may follow."""
        found = self._read(self._held, is_whole=True) if self._held else []
        self._before = ""
        self._code.reset()
        return found

    def _read(self, text: str, *, is_whole: bool) -> list[TextGrew | AnnotationAdded]:
        """Return the text up to what may still be found, which is held back."""
        found: list[TextGrew | AnnotationAdded] = []
        begin = 0  # of what is not forwarded yet
        at = self._next(text, 0)
        while at < len(text):
            self._say(found, text[begin:at])
            begin, pattern = at, self._by_begin[text[at]]
            if self._code.is_inside:
                at = self._next(text, at + 1)
            elif place := pattern.find(text, at, self._before, is_whole=is_whole):
                self._cite(found, place.cited)
                begin, at = place.end, self._next(text, place.end)
            elif not is_whole and self._may_grow(pattern, text, at):
                break
            else:
                at = self._next(text, at + 1)
        self._say(found, text[begin:at])
        self._held = text[at:]
        return found

    def _may_grow(self, pattern: Pattern, text: str, at: int) -> bool:
        return len(text) - at < pattern.longest and pattern.may_grow(text, at, self._before)

    def _next(self, text: str, at: int) -> int:
        """Return where something may begin, or the end of the text."""
        place = self.looks_for.search(text, at) if self.looks_for is not None else None
        return len(text) if place is None else place.start()

    def _cite(self, found: list[TextGrew | AnnotationAdded], cited: Sequence[Cited]) -> None:
        for one in cited:
            if one.is_word and self._before and not self._before[-1].isspace():
                self._say(found, " ")
            self._say(found, one.text)
            found.append(AnnotationAdded(one.annotation, covers=one.covers))

    def _say(self, found: list[TextGrew | AnnotationAdded], text: str) -> None:
        if text:
            found.append(TextGrew(text))
            self.note(text)


def unmarked(text: str) -> str:
    """Return a text of others, to be shown to the model, without anything like a mark in it."""
    return text.replace(_OPEN, "[").replace(_CLOSE, "]")
