"""How is an XML part of an office document read? As a stream of events, with no tree in memory.

The format forbids document type declarations, so one is refused: without it there are no
entities to expand and no other files to name. Names are `namespace local`, with the namespaces of
the strict variant of the format replaced by the usual ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final
from xml.parsers import expat

from antiphon.tools.documents.parsing.frames import Unreadable

__all__ = ["Attributes", "XmlEvents", "both", "read_attributes"]

Attributes = list[str]
"""Names and values by turns."""

_STRICT: Final = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": (
        "http://purl.oclc.org/ooxml/wordprocessingml/main"
    ),
    "http://schemas.openxmlformats.org/spreadsheetml/2006/main": (
        "http://purl.oclc.org/ooxml/spreadsheetml/main"
    ),
    "http://schemas.openxmlformats.org/presentationml/2006/main": (
        "http://purl.oclc.org/ooxml/presentationml/main"
    ),
    "http://schemas.openxmlformats.org/drawingml/2006/main": (
        "http://purl.oclc.org/ooxml/drawingml/main"
    ),
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships": (
        "http://purl.oclc.org/ooxml/officeDocument/relationships"
    ),
}


class XmlEvents:
    """Reads one part. What is appended to `out` is yielded in pieces.

    `starts` and `ends` say what to do with the elements of a name. Text is passed to the function
    that `take_text` was given last; before that, and after None, it is left out. `keep_text` and
    `drop_text` are handlers for the beginning and the end of an element whose text goes to `out`.
    """

    def __init__(self) -> None:
        self.out: list[str] = []
        self.starts: dict[str, Callable[[Attributes], None]] = {}
        self.ends: dict[str, Callable[[], None]] = {}
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.buffer_text = True
        self._parser.buffer_size = 65536
        self._parser.ordered_attributes = True
        self._parser.StartDoctypeDeclHandler = _refuse_doctype
        self._start: Callable[[str, Attributes], None] | None = None
        self.keep_text, self.drop_text = _switches(self._parser, self.out)

    def take_text(self, take: Callable[[str], None] | None) -> None:
        """Pass the text from here on to this function."""
        self._parser.CharacterDataHandler = take

    def pass_over(self, names: Iterable[str]) -> None:
        """Ignore the beginnings of all elements inside those of these names: it saves time."""
        for name in names:
            self.starts[name] = self._pause
            self.ends[name] = self._resume

    def _pause(self, _: Attributes) -> None:
        self._parser.StartElementHandler = None

    def _resume(self) -> None:
        self._parser.StartElementHandler = self._start

    def read(self, pieces: Iterable[bytes]) -> Iterator[str]:
        """Yield what the handlers have appended to `out`. Raise Unreadable for bad XML."""
        find_start, find_end = self.starts.get, self.ends.get

        def start(name: str, attributes: Attributes) -> None:
            act = find_start(name)
            if act is not None:
                act(attributes)

        def end(name: str) -> None:
            act = find_end(name)
            if act is not None:
                act()

        self._start = start
        self._parser.StartElementHandler = start
        self._parser.EndElementHandler = end
        try:
            for piece in pieces:
                self._parser.Parse(piece, False)
                yield from self._flush()
            self._parser.Parse(b"", True)
        except expat.ExpatError:
            raise Unreadable("The file is damaged: a part of it is not valid XML.") from None
        yield from self._flush()

    def _flush(self) -> Iterator[str]:
        if self.out:
            yield "".join(self.out)
            self.out.clear()


def _switches(
    parser: expat.XMLParserType, out: list[str]
) -> tuple[Callable[[Attributes], None], Callable[[], None]]:
    """Return two handlers, as quick as can be: they are called for every word of a document."""
    append = out.append

    def keep_text(_: Attributes) -> None:
        parser.CharacterDataHandler = append

    def drop_text() -> None:
        parser.CharacterDataHandler = None

    return keep_text, drop_text


def _refuse_doctype(*_: object) -> None:
    raise Unreadable("The file has a document type declaration, which this format forbids.")


def both(namespace: str, name: str) -> tuple[str, str]:
    """Return the name of an element in the usual and in the strict variant of its format."""
    return f"{namespace} {name}", f"{_STRICT[namespace]} {name}"


def read_attributes(attributes: Attributes) -> dict[str, str]:
    """Return attributes by name, without the namespaces of the names."""
    names = (name.rpartition(" ")[2] for name in attributes[::2])
    return dict(zip(names, attributes[1::2], strict=True))
