"""Which text has a workbook? Its sheets, each a heading and rows with tabs between the cells.

Numbers are written as they are stored, but days and times as such: a cell with the number 45000
and the format of a date is `2023-03-15`. Formulas are left out, their last results are kept.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from antiphon.tools.documents.parsing.package import Package
from antiphon.tools.documents.parsing.xml_events import (
    Attributes,
    XmlEvents,
    both,
    read_attributes,
)

__all__ = ["read_xlsx"]

_SHEETS: Final = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_MOST_EMPTY: Final = 50  # empty cells in a row that are written between two others
_DAYS: Final = frozenset({*range(14, 18), 22, *range(27, 32), 34, 35, 36, *range(50, 59)})
_TIMES: Final = frozenset({18, 19, 20, 21, 32, 33, 45, 46, 47})
_NOT_FORMAT: Final = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]')
_LAST_DAY: Final = 2958465  # 9999-12-31


class _Book(NamedTuple):
    strings: list[str]
    kinds: list[str]
    """By style: `day`, `time` or an empty string."""
    first_day: datetime.datetime


def read_xlsx(package: Package, main: str) -> Iterator[str]:
    """Yield the text of the workbook whose main part this is."""
    sheets, is_1904 = _sheets(package, main)
    first_day = datetime.datetime(1904, 1, 1) if is_1904 else datetime.datetime(1899, 12, 30)
    book = _Book(_strings(package, main), _kinds(package, main), first_day)
    for number, (name, part) in enumerate(sheets):
        yield f"\f# {name}\n" if number else f"# {name}\n"
        yield from _Rows(book).read(package.pieces(part))


def _sheets(package: Package, main: str) -> tuple[list[tuple[str, str]], bool]:
    """Return the names and parts of the sheets, and whether days are counted from 1904."""
    relations = package.relations(main)
    found: list[tuple[str, str]] = []
    is_1904: list[str] = []

    def note(attributes: Attributes) -> None:
        seen = read_attributes(attributes)
        relation = relations.get(seen.get("id", ""))
        if relation is not None and relation.kind == "worksheet":
            found.append((seen.get("name", ""), relation.target))

    def note_days(attributes: Attributes) -> None:
        is_1904.append(read_attributes(attributes).get("date1904", "0"))

    events = XmlEvents()
    events.starts.update(dict.fromkeys(both(_SHEETS, "sheet"), note))
    events.starts.update(dict.fromkeys(both(_SHEETS, "workbookPr"), note_days))
    for _ in events.read(package.pieces(main)):
        pass
    return found, any(value in ("1", "true") for value in is_1904)


def _strings(package: Package, main: str) -> list[str]:
    """Return the texts that cells refer to by their numbers."""
    part = package.related(main, "sharedStrings")
    found: list[str] = []
    if part is None:
        return found
    events = _Texts()

    def end() -> None:
        found.append("".join(events.out))
        events.out.clear()

    events.ends.update(dict.fromkeys(both(_SHEETS, "si"), end))
    for _ in events.read(_by_end(package.pieces(part))):
        pass
    return found


def _by_end(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield pieces that end with a tag of `si`, so that no text is cut in two."""
    rest = b""
    for piece in pieces:
        data = rest + piece
        cut = data.rfind(b"si>") + 3
        if cut < 3:
            rest = data
            continue
        yield data[:cut]
        rest = data[cut:]
    yield rest


class _Texts(XmlEvents):
    """Reads texts with their parts of different looks; how they are pronounced is left out."""

    def __init__(self) -> None:
        super().__init__()
        self._spoken = False
        self.starts.update(dict.fromkeys(both(_SHEETS, "t"), self._begin))
        self.ends.update(dict.fromkeys(both(_SHEETS, "t"), lambda: self.take_text(None)))
        self.starts.update(dict.fromkeys(both(_SHEETS, "rPh"), self._begin_spoken))
        self.ends.update(dict.fromkeys(both(_SHEETS, "rPh"), self._end_spoken))

    def _begin(self, _: Attributes) -> None:
        if not self._spoken:
            self.take_text(self.out.append)

    def _begin_spoken(self, _: Attributes) -> None:
        self._spoken = True

    def _end_spoken(self) -> None:
        self._spoken = False


def _kinds(package: Package, main: str) -> list[str]:
    """Return for each style of a cell whether it shows a number as a day or a time."""
    part = package.related(main, "styles")
    if part is None:
        return []
    formats: dict[str, str] = {}
    found: list[str] = []
    inside: list[bool] = []

    def note_format(attributes: Attributes) -> None:
        seen = read_attributes(attributes)
        formats[seen.get("numFmtId", "")] = _kind_of(seen.get("formatCode", ""))

    def note_style(attributes: Attributes) -> None:
        if inside:
            found.append(_kind_by_number(read_attributes(attributes).get("numFmtId", ""), formats))

    events = XmlEvents()
    events.starts.update(dict.fromkeys(both(_SHEETS, "numFmt"), note_format))
    events.starts.update(dict.fromkeys(both(_SHEETS, "xf"), note_style))
    events.starts.update(dict.fromkeys(both(_SHEETS, "cellXfs"), lambda _: inside.append(True)))
    events.ends.update(dict.fromkeys(both(_SHEETS, "cellXfs"), inside.clear))
    for _ in events.read(package.pieces(part)):
        pass
    return found


def _kind_by_number(number: str, formats: dict[str, str]) -> str:
    if number in formats:
        return formats[number]
    if not number.isdigit() or len(number) > 4:
        return ""
    return "day" if int(number) in _DAYS else "time" if int(number) in _TIMES else ""


def _kind_of(code: str) -> str:
    """Return what a format shows: years and days, hours, or anything else."""
    plain = _NOT_FORMAT.sub("", code).lower()
    if "y" in plain or "d" in plain:
        return "day"
    return "time" if "h" in plain or "ss" in plain else ""


class _Rows(XmlEvents):
    """Reads the cells of one sheet."""

    def __init__(self, book: _Book) -> None:
        super().__init__()
        self._book = book
        self._row: list[str] = []
        self._column = 0
        self._type = ""
        self._style = ""
        self._value: list[str] = []
        begins = {"c": self._begin_cell, "v": self._begin_value, "t": self._begin_value}
        ends = {
            "v": lambda: self.take_text(None),
            "t": lambda: self.take_text(None),
            "c": self._end_cell,
            "row": self._end_row,
        }
        for name, begin in begins.items():
            self.starts.update(dict.fromkeys(both(_SHEETS, name), begin))
        for name, end in ends.items():
            self.ends.update(dict.fromkeys(both(_SHEETS, name), end))

    def _begin_cell(self, attributes: Attributes) -> None:
        self._type = self._style = ""
        for at in range(0, len(attributes), 2):
            name = attributes[at]
            if name == "r":
                self._column = _column_of(attributes[at + 1])
            elif name == "t":
                self._type = attributes[at + 1]
            elif name == "s":
                self._style = attributes[at + 1]

    def _begin_value(self, _: Attributes) -> None:
        self.take_text(self._value.append)

    def _end_cell(self) -> None:
        if self._value:
            text = self._shown("".join(self._value))
            self._value.clear()
            missing = self._column - len(self._row) - 1
            if 0 < missing <= _MOST_EMPTY:
                self._row.extend([""] * missing)
            self._row.append(text)

    def _shown(self, value: str) -> str:
        if self._type == "s":
            at = int(value) if value.isdigit() and len(value) < 10 else -1
            return self._book.strings[at] if 0 <= at < len(self._book.strings) else ""
        if self._type == "b":
            return "TRUE" if value == "1" else "FALSE"
        if self._style and self._type in ("", "n"):
            at = int(self._style) if self._style.isdigit() and len(self._style) < 6 else -1
            kind = self._book.kinds[at] if 0 <= at < len(self._book.kinds) else ""
            return _moment(value, kind, self._book.first_day) if kind else value
        return value

    def _end_row(self) -> None:
        if self._row:
            self.out.append("\t".join(self._row) + "\n")
            self._row.clear()
        self._column = 0


def _column_of(place: str) -> int:
    """Return the number of the column in a place such as `AB12`, from 1 on."""
    number = 0
    for letter in place[:3]:
        if not "A" <= letter <= "Z":
            break
        number = number * 26 + ord(letter) - 64
    return number


def _moment(value: str, kind: str, first_day: datetime.datetime) -> str:
    try:
        days = float(value)
    except ValueError:
        return value
    if not 0 <= days <= _LAST_DAY - 1462:
        return value
    seconds = round(days * 86400)
    moment = first_day + datetime.timedelta(seconds=seconds)
    if kind == "time" and seconds < 86400:
        return moment.strftime("%H:%M:%S")
    if seconds % 86400 == 0:
        return moment.date().isoformat()
    return moment.isoformat(" ")
