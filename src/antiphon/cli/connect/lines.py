"""Our lines at the end of a user's file of lines: settings of one line each, or a list in YAML.

Neither is parsed: settings are known by the beginning of a line, and of YAML only a plain list is
taken, to which another entry can be added as it is: one that begins at the first column, or one
under a key at the first column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from antiphon.cli.connect.block import (
    END_MARK,
    MarkedPiece,
    drop_block,
    marked,
    put_block,
    switch_off,
)
from antiphon.cli.connect.piece import CannotMerge, lines_of

__all__ = ["NestedYamlPiece", "SettingsPiece", "YamlPiece"]


class SettingsPiece(MarkedPiece, frozen=True):
    """Variables of a `.env` file, or keys at the top of a YAML file.

    A line that sets one of `names` already becomes a comment. `sign` follows a name.
    """

    lines: tuple[str, ...]
    names: tuple[str, ...]
    sign: str = "="

    def own_lines(self) -> Sequence[str]:
        return self.lines

    def foreign(self, lines: list[str]) -> list[str]:
        return [line for line in lines if not (self._sets(line) or line.startswith("#"))]

    def merge(self, text: str) -> str:
        """Return the text with our lines at its end."""
        clean = self.take_out(text)
        lines = lines_of(clean)
        ours = {self._name(line) for line in self.lines} & {*self.names}
        theirs = {at for at, line in enumerate(lines) if self._name(line) in ours}
        if self.sign == ":":
            _refuse_other_than_keys(lines)
        for at in theirs:
            if self._continues(lines[at], lines[at + 1 : at + 2]):
                raise CannotMerge(f"line {at + 1} sets a value of several lines")
        return put_block(switch_off(clean, theirs), len(lines), self.block())

    def _continues(self, line: str, after: Sequence[str]) -> bool:
        """Return whether a quote is left open, or in YAML the value is in the next line."""
        has_open_quote = len(re.findall(r"(?<!\\)[\"']", line)) % 2 == 1
        return has_open_quote or (
            self.sign == ":" and any(re.match(r"\s+\S|- ", it) for it in after)
        )

    def _sets(self, line: str) -> bool:
        return self._name(line) in self.names

    def _name(self, line: str) -> str | None:
        """Return what a line sets. In YAML, a line with an indent belongs to another key."""
        before = r"[ \t]*(?:export[ \t]+)?" if self.sign == "=" else ""
        match = re.match(rf"{before}([\w-]+)[ \t]*{self.sign}", line)
        return match.group(1) if match else None


class YamlPiece(MarkedPiece, frozen=True):
    """Entries of a list. They are known by what their first lines begin with."""

    lines: tuple[str, ...]
    begins: str

    def own_lines(self) -> Sequence[str]:
        return self.lines

    def foreign(self, lines: list[str]) -> list[str]:
        kept, is_ours = [], True
        for line in lines:
            if (entry := line.lstrip(" ")).startswith("- "):
                is_ours = entry.startswith(self.begins)
            kept += [] if is_ours else [line]
        return kept

    def merge(self, text: str) -> str:
        """Return the text with the entry at its end."""
        clean = self.take_out(text)
        for at, line in enumerate(lines_of(clean)):
            if not re.match(r"- |-?\s*$|\s+\S|#|---\s*$", line) or _is_indented_entry(clean, at):
                raise CannotMerge(f"line {at + 1} is not part of a plain list")
        return put_block(clean, len(lines_of(clean)), self.block())


class NestedYamlPiece(YamlPiece, frozen=True):
    """Entries of the list under a key. `head` is what a file without anything in it begins with."""

    under: str
    head: tuple[str, ...] = ()

    def own_lines(self) -> Sequence[str]:
        return [*self.head, *self._with_key()]

    def merge(self, text: str) -> str:
        """Return the text with the entries at the beginning of the list."""
        clean = self.take_out(text)
        if not clean.strip():
            return put_block(clean, len(lines_of(clean)), self.block())
        lines = lines_of(clean)
        _refuse_other_than_keys(lines)
        at = next((at for at, line in enumerate(lines) if line.startswith(f"{self.under}:")), None)
        if at is None:
            return put_block(clean, len(lines), marked(self._with_key(), self.client))
        entries = (re.match(r"( *)- ", line) for line in lines[at + 1 :] if _has_content(line))
        first = next(entries, None)
        if first is None or lines[at].partition("#")[0].strip() != f"{self.under}:":
            raise CannotMerge(f"line {at + 1} does not begin a plain list")
        ours = [first[1] + line for line in self.lines]
        return put_block(clean, at + 1, marked(ours, self.client))

    def take_out(self, text: str, befores: Sequence[str] = ()) -> str:
        """Return the text without the entries; the key stays where the user's entries follow."""

        def kept(lines: list[str]) -> list[str]:
            key = [line for line in lines if line.startswith(f"{self.under}:") and has_followers]
            return key + self.foreign(lines)

        after = lines_of(text.rpartition(END_MARK)[2])[1:]
        has_followers = any(re.match(" *- ", line) for line in filter(_has_content, after[:1]))
        return drop_block(text, kept)

    def _with_key(self) -> list[str]:
        return [f"{self.under}:", *(f"  {line}" for line in self.lines)]


def _has_content(line: str) -> bool:
    return bool(line.partition("#")[0].strip())


def _refuse_other_than_keys(lines: Sequence[str]) -> None:
    """Raise CannotMerge for a line that is neither a key nor part of the value of one."""
    for at, line in enumerate(lines, 1):
        if not re.match(r"[\w-]+[ \t]*:|- |\s|#|---\s*$", line):
            raise CannotMerge(f"line {at} is not a setting")


def _is_indented_entry(text: str, at: int) -> bool:
    """Return whether a line with an indent is the first of all, so that no entry holds it."""
    lines = lines_of(text)
    entries = [line for line in lines[:at] if re.match(r"- |-\s*$", line)]
    return bool(re.match(r"[ \t]+[^\s#]", lines[at])) and not entries
