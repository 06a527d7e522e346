"""Our keys and our table in a user's TOML file.

The keys must come before the first table, so the block goes there: keys first, then our table,
then the user's tables. Existing keys of the same name become comments. What the user adds to our
table stays when it is written again, and is removed with it. The TOML is parsed before and after;
unless exactly our keys and our table have changed, nothing is written.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from antiphon.cli.connect.block import MarkedPiece, drop_block, put_block, switch_off
from antiphon.cli.connect.piece import CannotMerge, lines_of

__all__ = ["TomlPiece", "toml_string"]

_VALUE: Final = re.compile(
    r"""\#[^\n]*                              # a comment
    | \"{3}(?:[^\\]|\\.)*?\"{3,5}(?!\")       # strings of several lines, and of one
    | '{3}.*?'{3,5}(?!')
    | \"(?:[^\"\\\n]|\\.)*\"
    | '[^'\n]*'
    | (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<end>\n)""",
    re.DOTALL | re.VERBOSE,
)
_KEY: Final = re.compile(r"""[ \t]*(["']?)([\w-]+)\1[ \t]*=""", re.ASCII)
_TABLE: Final = re.compile(r"[ \t]*\[")


class TomlPiece(MarkedPiece, frozen=True):
    """`keys` at the root, and `fields` in `[table]`."""

    keys: Mapping[str, str]
    table: tuple[str, ...]
    fields: Mapping[str, str]
    gone: tuple[str, ...] = ()
    """Fields that another piece may have had in the same place."""

    def own_lines(self) -> Sequence[str]:
        keys = [f"{key} = {toml_string(value)}" for key, value in self.keys.items()]
        fields = [f"{key} = {toml_string(value)}" for key, value in self.fields.items()]
        return [*keys, "", f"[{'.'.join(self.table)}]", *fields]

    def merge(self, text: str) -> str:
        """Return the text with keys and table before its first table."""
        clean, added = self._split(text)
        block = self.block([line.rstrip("\r\n") for line in added])
        wanted = _parse(clean)
        self._add_to(wanted, _parse("\n".join(block)))
        statements = list(_statements(clean))
        ours = [said for said in statements if said.key in self.keys]
        switched = switch_off(clean, {at for said in ours for at in range(said.first, said.end)})
        at = next((said.first for said in statements if said.is_table), len(lines_of(clean)))
        merged = put_block(switched, _above_comments(clean, at), block)
        if _is_other(merged, wanted):
            names = ", ".join([*self.keys, self.table[0]])
            raise CannotMerge(f"one of {names} has a form that cannot be extended")
        return merged

    def take_out(self, text: str, befores: Sequence[str] = ()) -> str:
        """Return the text without them."""
        return self._split(text)[0]

    def _add_to(self, settings: dict[str, Any], ours: dict[str, Any]) -> None:
        """Add what our block sets to the settings."""
        settings |= self.keys
        for name in self.table[:-1]:
            settings, ours = settings.setdefault(name, {}), ours[name]
            if not isinstance(settings, dict):
                raise CannotMerge(f"its {name} is not a table")
        if self.table[-1] in settings:
            raise CannotMerge(f"it has a table [{'.'.join(self.table)}] of its own")
        settings[self.table[-1]] = ours[self.table[-1]]

    def _split(self, text: str) -> tuple[str, list[str]]:
        """Return the text without our block, and the lines that were added to our table."""
        added: list[str] = []

        def sort(lines: list[str]) -> list[str]:
            theirs, more = self._sort(lines)
            added.extend(more)
            return theirs

        return drop_block(text, sort, may_lose_end=True), added

    def _sort(self, lines: list[str]) -> tuple[list[str], list[str]]:
        """Return those lines between our marks that are not about us, and those that were added.

        Comments before a table that is not ours, and at the end, are not about us.
        """
        name = ".".join(self.table)
        theirs: list[str] = []
        added: list[str] = []
        ours, kept = set(self.keys), theirs
        for line in lines:
            if _TABLE.match(line):
                header = line.split("#")[0].strip()
                is_ours = header == f"[{name}]"
                is_below = header.startswith((f"[{name}.", f"[[{name}."))
                ours = {*self.fields, *self.gone} if is_ours else set()
                kept = added if is_ours or is_below else theirs
                if is_ours and theirs and not theirs[-1].strip():
                    del theirs[-1]  # ours, too
                if kept is theirs:
                    theirs += _cut_comments(added)
                if is_ours:
                    continue
            if not ((key := _KEY.match(line)) and key.group(2) in ours):
                kept.append(line)
        theirs += _cut_comments(added)
        return theirs if any(line.strip() for line in theirs) else [], added


def _cut_comments(lines: list[str]) -> list[str]:
    """Take comments and empty lines off the end, and return them."""
    at = len(lines)
    while at > 0 and not lines[at - 1].partition("#")[0].strip():
        at -= 1
    end = lines[at:]
    del lines[at:]
    return end


class _Statement(NamedTuple):
    """A table or a key with its value, and the lines it takes: from `first` to before `end`."""

    first: int
    end: int
    key: str
    is_table: bool


def _statements(text: str) -> Iterator[_Statement]:
    """Yield the tables and the keys before them. The text is known to be TOML."""
    lines = lines_of(text)
    at, offset, is_root = 0, 0, True
    while at < len(lines):
        line = lines[at]
        first = at
        end = offset + len(line)
        is_table = _TABLE.match(line) is not None
        is_root = is_root and not is_table
        if not is_table and line.strip() and not line.lstrip().startswith("#"):
            end = _end_of_value(text, offset)
        while offset < end:
            offset += len(lines[at])
            at += 1
        key = None if is_table else _KEY.match(line)
        if is_table or (is_root and key):
            yield _Statement(first, at, key.group(2) if key else "", is_table)


def _end_of_value(text: str, start: int) -> int:
    depth = 0
    for match in _VALUE.finditer(text, start):
        depth += (match["open"] is not None) - (match["close"] is not None)
        if match["end"] and depth <= 0:
            return match.end()
    return len(text)


def _above_comments(text: str, at: int) -> int:
    """Return the line before the comments that stand directly above line `at`."""
    lines = lines_of(text)
    if at == len(lines):
        return at
    while at > 0 and lines[at - 1].lstrip().startswith("#"):
        at -= 1
    return at


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CannotMerge(f"it is not TOML: {error}") from None


def _is_other(text: str, wanted: dict[str, Any]) -> bool:
    """Return whether the text means anything but what is wanted."""
    try:
        return _canonical(tomllib.loads(text)) != _canonical(wanted)
    except tomllib.TOMLDecodeError:
        return True


def _canonical(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=repr)


def toml_string(value: str) -> str:
    """Return a text as TOML writes it."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
