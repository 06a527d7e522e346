"""Which text has a Word document? Its paragraphs and tables, then its notes and comments.

Text that was deleted with changes tracked is left out, and so are the second copies of text boxes
that the format keeps for old programs. A page break is a form feed; a row of a table is a line,
with bars between the cells.
"""

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

__all__ = ["read_docx"]

_WORD: Final = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_FALLBACK: Final = "http://schemas.openxmlformats.org/markup-compatibility/2006 Fallback"
# What text looks like. Nothing in these elements is text.
_PROPERTIES: Final = ("pPr", "rPr", "tblPr", "tblGrid", "trPr", "tcPr", "sectPr")
_AFTER: Final = (("footnotes", "Footnotes"), ("endnotes", "Endnotes"), ("comments", "Comments"))


def read_docx(package: Package, main: str) -> Iterator[str]:
    """Yield the text of the document whose main part this is."""
    yield from _read_part(package, main)
    for kind, title in _AFTER:
        part = package.related(main, kind)
        if part is not None:
            text = "".join(_read_part(package, part)).strip()
            if text:
                yield f"\n{title}:\n{text}\n"


def _read_part(package: Package, name: str) -> Iterator[str]:
    return _Story().read(package.pieces(name))


class _Story(XmlEvents):
    """Reads the paragraphs of one part."""

    def __init__(self) -> None:
        super().__init__()
        self._cells = 0  # how many cells of tables are open around this place
        self._skipped = 0  # how many fallbacks are
        write = self.out.append
        begins = {
            "t": self.keep_text,
            "tab": lambda _: write("\t"),
            "cr": lambda _: write("\n"),
            "noBreakHyphen": lambda _: write("-"),
            "br": self._break,
            "tc": self._begin_cell,
        }
        ends = {
            "t": self.drop_text,
            "p": self._end_paragraph,
            "tc": self._end_cell,
            "tr": lambda: write("\n" if not self._cells else " "),
        }
        for name, begin in begins.items():
            self.starts.update(dict.fromkeys(both(_WORD, name), begin))
        for name, end in ends.items():
            self.ends.update(dict.fromkeys(both(_WORD, name), end))
        for name in _PROPERTIES:
            self.pass_over(both(_WORD, name))
        self.starts[_FALLBACK] = self._begin_fallback
        self.ends[_FALLBACK] = self._end_fallback

    def _break(self, attributes: Attributes) -> None:
        is_page = "page" in attributes and read_attributes(attributes).get("type") == "page"
        self.out.append("\f" if is_page else "\n")

    def _begin_cell(self, _: Attributes) -> None:
        self._cells += 1

    def _end_paragraph(self) -> None:
        self.out.append(" " if self._cells else "\n")

    def _end_cell(self) -> None:
        self._cells -= 1
        self.out.append("| ")

    def _begin_fallback(self, _: Attributes) -> None:
        self._skipped += 1
        self.starts.update(dict.fromkeys(both(_WORD, "t"), _skip))

    def _end_fallback(self) -> None:
        self._skipped -= 1
        if not self._skipped:
            self.starts.update(dict.fromkeys(both(_WORD, "t"), self.keep_text))


def _skip(_: Attributes) -> None:
    """Leave the text of an element out."""
