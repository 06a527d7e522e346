"""Which text has a presentation? That of its slides in their order, each with its notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from antiphon.tools.documents.parsing.package import Package
from antiphon.tools.documents.parsing.xml_events import (
    Attributes,
    XmlEvents,
    both,
    read_attributes,
)

__all__ = ["read_pptx"]

_SLIDES: Final = "http://schemas.openxmlformats.org/presentationml/2006/main"
_DRAWING: Final = "http://schemas.openxmlformats.org/drawingml/2006/main"
_OFFICE: Final = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def read_pptx(package: Package, main: str) -> Iterator[str]:
    """Yield the text of the presentation whose main part this is."""
    for number, slide in enumerate(_slides(package, main)):
        if number:
            yield "\f"
        yield from _Shapes().read(package.pieces(slide))
        notes = package.related(slide, "notesSlide")
        if notes is not None:
            text = "".join(_Shapes().read(package.pieces(notes))).strip()
            if text:
                yield f"Notes:\n{text}\n"


def _slides(package: Package, main: str) -> list[str]:
    """Return the parts of the slides, in the order of the presentation."""
    relations = package.relations(main)
    found: list[str] = []
    ids = both(_OFFICE, "id")

    def note(attributes: Attributes) -> None:
        pairs = dict(zip(attributes[::2], attributes[1::2], strict=True))
        relation = relations.get(pairs.get(ids[0]) or pairs.get(ids[1], ""))
        if relation is not None and relation.kind == "slide":
            found.append(relation.target)

    events = XmlEvents()
    events.starts = dict.fromkeys(both(_SLIDES, "sldId"), note)
    for _ in events.read(package.pieces(main)):
        pass
    return list(dict.fromkeys(found))


class _Shapes(XmlEvents):
    """Reads the texts of one slide. Numbers of slides and dates, which are fields, are left out."""

    def __init__(self) -> None:
        super().__init__()
        self._fields = 0
        self._cells = 0
        begins = {
            "t": self._begin_text,
            "br": lambda _: self.out.append("\n"),
            "fld": self._begin_field,
            "tc": self._begin_cell,
        }
        ends = {
            "t": lambda: self.take_text(None),
            "fld": self._end_field,
            "p": lambda: self.out.append(" " if self._cells else "\n"),
            "tc": self._end_cell,
            "tr": lambda: self.out.append("\n"),
        }
        for name, begin in begins.items():
            self.starts.update(dict.fromkeys(both(_DRAWING, name), begin))
        for name, end in ends.items():
            self.ends.update(dict.fromkeys(both(_DRAWING, name), end))

    def _begin_text(self, _: Attributes) -> None:
        if not self._fields:
            self.take_text(self.out.append)

    def _begin_field(self, attributes: Attributes) -> None:
        kind = read_attributes(attributes).get("type", "")
        self._fields += kind == "slidenum" or kind.startswith("datetime")

    def _end_field(self) -> None:
        self._fields = 0

    def _begin_cell(self, _: Attributes) -> None:
        self._cells += 1

    def _end_cell(self) -> None:
        self._cells -= 1
        self.out.append("| ")
