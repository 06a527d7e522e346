"""What a docstring describes: the function, and each of its parameters.

The three usual forms are read: Google's (`Args:`), NumPy's (`Parameters` over a rule) and Sphinx's
(`:param name:`). The description is the text before the first section. Pure; what is in no such
form stays in the description.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Final

import msgspec

__all__ = ["Description", "read_docstring"]

_PARAMETERS: Final = (
    "Args|Arguments|Parameters|Params|Other Parameters|Keyword Args|Keyword Arguments"
)
_SECTIONS: Final = (
    rf"{_PARAMETERS}|Attributes|Returns?|Yields?|Raises|Examples?|Notes?|See Also|Warnings?|Warns"
    "|References|Todo"
)
_GOOGLE: Final = re.compile(rf"({_SECTIONS}):\s*")
_NUMPY: Final = re.compile(_SECTIONS)
_RULE: Final = re.compile(r"-{3,}")
_ABOUT_PARAMETERS: Final = frozenset(_PARAMETERS.split("|"))
# `name (int, optional): what it is`, and `*names: what they are`.
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)")
_NUMPY_ENTRY: Final = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?")
# `:param name: what it is`, `:param int name: what it is`, and the other fields.
_FIELD: Final = re.compile(r":(\w+)(?:\s+([^:]+))?:\s*(.*)")
_PARAMETER_FIELDS: Final = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})

_Entry = tuple[list[str], str]
"""The parameters that are described, and the first line of the text."""


class Description(msgspec.Struct, frozen=True):
    """What a docstring has about a function and its parameters."""

    text: str
    parameters: dict[str, str]


def read_docstring(docstring: str | None) -> Description:
    """Return what a docstring describes. None, or a form we do not know, describes little."""
    text: list[str] = []
    parameters: dict[str, str] = {}
    for section, titled in groupby(_titled(_lines(docstring or "")), itemgetter(0)):
        body = [line for _, line in titled]
        if section:
            _read_section(section, body, parameters)
        else:
            text += body
    return Description(_paragraphs(text), parameters)


def _lines(docstring: str) -> list[str]:
    """Return the lines without their margin.

    The first line has no margin, so if it is a title, its section must not lose its indent.
    """
    lines = inspect.cleandoc(docstring).splitlines()
    if not lines or _GOOGLE.fullmatch(lines[0]) is None:
        return lines
    body = list(takewhile(lambda line: _GOOGLE.fullmatch(line) is None, lines[1:]))
    filled = [line for line in body if line]
    if filled and not filled[0][0].isspace():
        body = [f" {line}" for line in body]
    return [lines[0], *body, *lines[1 + len(body) :]]


def _titled(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each line with the title of its section; titles and rules are left out."""
    section = ""
    is_rule = False
    for number, line in enumerate(lines):
        below = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if is_rule:
            is_rule = False
        elif (found := _GOOGLE.fullmatch(line)) is not None:
            section = found[1]
        elif _NUMPY.fullmatch(line.strip()) and _RULE.fullmatch(below):
            section, is_rule = f"{line.strip()}\n", True
        elif _FIELD.match(line):
            section = ":"
            yield section, line
        elif section and section[-1].isalpha() and line and not line[0].isspace():
            section = ""  # Google's sections end where the indent does
            yield section, line
        else:
            yield section, line


def _read_section(section: str, body: list[str], parameters: dict[str, str]) -> None:
    if section == ":":
        _read_entries(body, _field, parameters)
    elif section.endswith("\n") and section.strip() in _ABOUT_PARAMETERS:
        _read_entries(body, _numpy_entry, parameters)
    elif section in _ABOUT_PARAMETERS:
        block = inspect.cleandoc("\n" + "\n".join(body)).splitlines()
        _read_entries(block, _google_entry, parameters)


def _read_entries(
    lines: list[str], read: Callable[[str], _Entry | None], parameters: dict[str, str]
) -> None:
    """Add what the entries describe; a line that begins none belongs to the one before it."""
    names: list[str] = []
    for line in lines:
        entry = read(line)
        if entry is not None:
            names, text = entry
            parameters.update(dict.fromkeys(names, text.strip()))
            continue
        for name in names:
            parameters[name] = f"{parameters[name]} {line.strip()}".strip()


def _google_entry(line: str) -> _Entry | None:
    entry = None if line[:1].isspace() else _ENTRY.fullmatch(line)
    return ([entry[1]], entry[2]) if entry else None


def _numpy_entry(line: str) -> _Entry | None:
    entry = None if line[:1].isspace() else _NUMPY_ENTRY.fullmatch(line)
    return ([name.strip() for name in entry[1].split(",")], "") if entry else None


def _field(line: str) -> _Entry | None:
    """Return what a field describes: no parameter, if it is about something else."""
    field = _FIELD.match(line)
    if field is None:
        return None
    is_parameter = field[1] in _PARAMETER_FIELDS and field[2]
    return ([field[2].split()[-1].lstrip("*")], field[3]) if is_parameter else ([], "")


def _paragraphs(lines: list[str]) -> str:
    """Return text with one line for each paragraph."""
    blocks = re.split(r"\n\s*\n", "\n".join(lines).strip())
    return "\n\n".join(" ".join(block.split()) for block in blocks if block.strip())
