"""Our lines at the end of a user's file of lines: environment variables, or a list in YAML.

Neither is parsed: variables are known by the beginning of a line, and of YAML only the plain
list that begins at the first column is taken, to which another entry can be added as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from antiphon.cli.connect.block import drop_block, marked, put_block, switch_off
from antiphon.cli.connect.piece import CannotMerge, lines_of

__all__ = ["EnvPiece", "YamlPiece"]


class EnvPiece(msgspec.Struct, frozen=True):
    """Variables of a `.env` file. A line that sets one of `names` already becomes a comment."""

    client: str
    lines: tuple[str, ...]
    names: tuple[str, ...]

    def paste(self) -> str:
        """Return the lines, with the marks by which they are found again."""
        return "\n".join(marked(self.lines, self.client)) + "\n"

    def merge(self, text: str) -> str:
        """Return the text with our lines at its end."""
        clean = self.take_out(text)
        lines = lines_of(clean)
        theirs = {at for at, line in enumerate(lines) if _sets(line, self._set_here())}
        for at in theirs:
            if len(re.findall(r"(?<!\\)[\"']", lines[at])) % 2:
                raise CannotMerge(f"line {at + 1} sets a value of several lines")
        return put_block(switch_off(clean, theirs), len(lines), marked(self.lines, self.client))

    def take_out(self, text: str, befores: Sequence[str] = ()) -> str:
        """Return the text without them."""
        return drop_block(text, self._foreign)

    def has_made(self, text: str, before: str) -> bool:
        """Return whether the text is the one before, but for what is between our marks."""
        return self.take_out(text) == before

    def is_blank(self, text: str) -> bool:
        """Return whether there is nothing in it."""
        return not text.strip()

    def _set_here(self) -> tuple[str, ...]:
        return tuple(
            name for name in self.names if any(_sets(line, (name,)) for line in self.lines)
        )

    def _foreign(self, lines: list[str]) -> list[str]:
        return [line for line in lines if not (_sets(line, self.names) or line.startswith("#"))]


def _sets(line: str, names: Sequence[str]) -> bool:
    match = re.match(r"[ \t]*(?:export[ \t]+)?(\w+)[ \t]*=", line)
    return match is not None and match.group(1) in names


class YamlPiece(msgspec.Struct, frozen=True):
    """An entry of a list. It is known by what its first line begins with."""

    client: str
    lines: tuple[str, ...]
    begins: str

    def paste(self) -> str:
        """Return the entry, with the marks by which it is found again."""
        return "\n".join(marked(self.lines, self.client)) + "\n"

    def merge(self, text: str) -> str:
        """Return the text with the entry at its end."""
        clean = self.take_out(text)
        for at, line in enumerate(lines_of(clean)):
            if not re.match(r"- |-?\s*$|\s+\S|#|---\s*$", line) or _is_indented_entry(clean, at):
                raise CannotMerge(f"line {at + 1} is not part of a plain list")
        return put_block(clean, len(lines_of(clean)), marked(self.lines, self.client))

    def take_out(self, text: str, befores: Sequence[str] = ()) -> str:
        """Return the text without it."""
        return drop_block(text, self._foreign)

    def has_made(self, text: str, before: str) -> bool:
        """Return whether the text is the one before, but for what is between our marks."""
        return self.take_out(text) == before

    def is_blank(self, text: str) -> bool:
        """Return whether there is nothing in it."""
        return not text.strip()

    def _foreign(self, lines: list[str]) -> list[str]:
        kept, is_ours = [], True
        for line in lines:
            if line.startswith("- "):
                is_ours = line.startswith(self.begins)
            kept += [] if is_ours else [line]
        return kept


def _is_indented_entry(text: str, at: int) -> bool:
    """Return whether a line with an indent is the first of all, so that no entry holds it."""
    lines = lines_of(text)
    entries = [line for line in lines[:at] if re.match(r"- |-\s*$", line)]
    return bool(re.match(r"[ \t]+[^\s#]", lines[at])) and not entries
