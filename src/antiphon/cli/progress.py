"""How far something is: a bar on a terminal, plain lines elsewhere.

All of it goes to stderr, so stdout has only results.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any, Final

import click

from antiphon.cli.terminal import harmless, shorten

__all__ = ["Bar", "is_shown", "size_words"]

_LABEL: Final = 28
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def is_shown() -> bool:
    """Return whether a person watches stderr."""
    return sys.stderr.isatty()


def size_words(size: int) -> str:
    """Return a size as people write it: 812 B, 1.4 MB."""
    number, unit = float(size), 0
    while number >= 1000 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{size} B" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"


class Bar(ExitStack):
    """One bar after the other, each with a label. Without a terminal there are none."""

    def __init__(self) -> None:
        super().__init__()
        self._label: str | None = None
        self._bar: Any = None  # click's bar, whose class is not public
        self._done = 0

    def show(self, label: str, done: int, total: int) -> None:
        """Show how far the work with this label is; another label begins another bar."""
        if not is_shown():
            return
        if label != self._label:
            self.close()
            self._label, self._done = label, 0
            text = f"{shorten(harmless(label, sys.stderr), _LABEL):{_LABEL}}"
            bar = click.progressbar(length=max(total, 1), label=text, file=sys.stderr)
            self._bar = self.enter_context(bar)
        if total == 0:
            done = 1  # what is empty is done
        self._bar.update(max(done - self._done, 0))
        self._done = max(done, self._done)
