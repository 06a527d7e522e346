"""How much is repeated in a pattern?

Asked before a pattern from outside is compiled. Only as much of the syntax is read as separates
quantifiers from literals, so it works on any pattern, valid or not.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["Nest", "Repetitions", "repetitions"]


class Nest(NamedTuple):
    """Counts around counts, where they stand deepest: how many, and what they multiply to."""

    levels: int = 0
    product: int = 1

    def times(self, most: int) -> Nest:
        """Return this with a count around it; a count of one changes nothing."""
        return Nest(self.levels + 1, self.product * most) if most > 1 else self


class Repetitions(NamedTuple):
    """What stands repeated in a pattern: the number of its quantifiers, and its counts.

    `is_verbose`: a flag allows comments, so the figures may be wrong.
    """

    total: int
    is_lazy: bool
    is_verbose: bool
    nest: Nest


# A group may have a name, in which brackets may stand, or flags.
_PARTS: Final = re.compile(
    r"""
      (?P<escape>\\(?:[pPxuU]\{[^}]*\}|.)?)
    | (?P<group>\((?:\?P?<[^>]*>|\?[a-zA-Z-]*)?)
    | (?P<count>(?:\{[\d,\s]*\}?|[*+?])\??)
    | .
    """,
    re.DOTALL | re.VERBOSE,
)
_NUMBER: Final = re.compile(r"\d+")


def repetitions(pattern: str) -> Repetitions:
    """Return what is repeated in the pattern."""
    total, is_lazy, is_verbose, brackets = 0, False, False, 0
    groups, last = [Nest()], Nest()
    for part in _PARTS.finditer(pattern):
        kind, text = part.lastgroup, part[0]
        if brackets or text == "[":
            brackets += (text == "[") - (text == "]")
            last = Nest()
        elif kind == "group":
            is_verbose = is_verbose or ("x" in text and "<" not in text)
            groups.append(Nest())
            last = Nest()
        elif kind == "count":
            total += 1
            is_lazy = is_lazy or (len(text) > 1 and text[-1] == "?")
            last = last.times(_most(text))
        else:
            last = groups.pop() if text == ")" and len(groups) > 1 else Nest()
        groups[-1] = max(groups[-1], last)
    return Repetitions(total, is_lazy, is_verbose, max(groups))


def _most(text: str) -> int:
    return max((int(number[:9]) for number in _NUMBER.findall(text)), default=1)
