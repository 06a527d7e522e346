"""What a docstring describes: the function, and each of its parameters.

The three usual forms are read: Google's (`Args:`), NumPy's (`Parameters` over a rule) and Sphinx's
(`:param name:`). The description is the text before the first section. Pure; what is in no such
form stays in the description.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

import msgspec

__all__ = ["Description", "read_docstring"]

_SECTIONS: Final = (
    "Args|Arguments|Parameters|Params|Other Parameters|Keyword Args|Keyword Arguments|Attributes"
    "|Returns?|Yields?|Raises|Examples?|Notes?|See Also|Warnings?|Warns|References|Todo"
)
_GOOGLE: Final = re.compile(rf"({_SECTIONS}):\s*")
_NUMPY: Final = re.compile(_SECTIONS)
_RULE: Final = re.compile(r"-{3,}")
_ABOUT_PARAMETERS: Final = frozenset(
    {
        "Args",
        "Arguments",
        "Parameters",
        "Params",
        "Other Parameters",
        "Keyword Args",
        "Keyword Arguments",
    }
)
# `name (int, optional): what it is`, and `*names: what they are`.
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)")
_NUMPY_ENTRY: Final = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?")
# `:param name: what it is`, `:param int name: what it is`, and the other fields.
_FIELD: Final = re.compile(r":(\w+)(?:\s+([^:]+))?:\s*(.*)")
_PARAMETER_FIELDS: Final = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})


class Description(msgspec.Struct, frozen=True):
    """What a docstring has about a function and its parameters."""

    text: str
    parameters: dict[str, str]


def read_docstring(docstring: str | None) -> Description:
    """Return what a docstring describes. None, or a form we do not know, describes little."""
    lines = _lines(docstring or "")
    text: list[str] = []
    parameters: dict[str, str] = {}
    section = ""
    body: list[str] = []
    for title, line in _titled(lines):
        if title != section:
            _read_section(section, body, parameters)
            section, body = title, []
        (body if section else text).append(line)
    _read_section(section, body, parameters)
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
        _read_fields(body, parameters)
    elif section.endswith("\n") and section.strip() in _ABOUT_PARAMETERS:
        _read_numpy(body, parameters)
    elif section in _ABOUT_PARAMETERS:
        _read_google(body, parameters)


def _read_google(body: list[str], parameters: dict[str, str]) -> None:
    block = inspect.cleandoc("\n" + "\n".join(body)).splitlines()
    names: list[str] = []
    for line in block:
        entry = None if line[:1].isspace() else _ENTRY.fullmatch(line)
        if entry is not None:
            names = [entry[1]]
            parameters[entry[1]] = entry[2].strip()
        else:
            _continue(parameters, names, line)


def _read_numpy(body: list[str], parameters: dict[str, str]) -> None:
    names: list[str] = []
    for line in body:
        entry = None if line[:1].isspace() else _NUMPY_ENTRY.fullmatch(line)
        if entry is not None:
            names = [name.strip() for name in entry[1].split(",")]
            parameters.update(dict.fromkeys(names, ""))
        else:
            _continue(parameters, names, line)


def _read_fields(body: list[str], parameters: dict[str, str]) -> None:
    names: list[str] = []
    for line in body:
        field = _FIELD.match(line)
        if field is None:
            _continue(parameters, names, line)
        elif field[1] in _PARAMETER_FIELDS and field[2]:
            name = field[2].split()[-1].lstrip("*")
            names = [name]
            parameters[name] = field[3].strip()
        else:
            names = []


def _continue(parameters: dict[str, str], names: list[str], line: str) -> None:
    """Add a further line to what is described."""
    for name in names:
        parameters[name] = f"{parameters[name]} {line.strip()}".strip()


def _paragraphs(lines: list[str]) -> str:
    """Return text with one line for each paragraph."""
    blocks = re.split(r"\n\s*\n", "\n".join(lines).strip())
    return "\n\n".join(" ".join(block.split()) for block in blocks if block.strip())
