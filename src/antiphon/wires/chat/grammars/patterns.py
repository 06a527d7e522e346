"""What does a regular expression match, as a tree of characters?

The syntax is that of Rust's `regex`, which grammar formats follow, and a pattern always means
the whole text. Only what can be expressed exactly is read: look-around, lazy repetition, classes
that depend on a Unicode table (`\\w`, `\\p{…}`) and set operations raise `Unsayable`. Case is
folded as Rust does it, which for ASCII letters adds the Kelvin sign and the long s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = [
    "ANY",
    "Alt",
    "Cat",
    "Chars",
    "Node",
    "Ranges",
    "Repeat",
    "Unsayable",
    "chars",
    "invert",
    "literal",
    "parse_pattern",
]

Ranges: TypeAlias = tuple[tuple[int, int], ...]

_LAST: Final = 0x10FFFF
_MAX_DEPTH: Final = 60
_MAX_COUNT: Final = 100_000


class Unsayable(Exception):
    """The pattern cannot be expressed exactly; the message names the part."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of these ranges, which are sorted and do not touch."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Cat:
    """One after the other; without parts, the empty text."""

    parts: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of them."""

    parts: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`node` from `low` to `high` times; None is any number."""

    node: object
    low: int
    high: int | None


Node: TypeAlias = Chars | Cat | Alt | Repeat


def chars(ranges: Iterable[tuple[int, int]]) -> Chars:
    """Return the characters of the ranges, sorted and merged."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return Chars(tuple(merged))


def invert(these: Chars) -> Chars:
    """Return all other characters."""
    out, at = [], 0
    for low, high in these.ranges:
        if low > at:
            out.append((at, low - 1))
        at = high + 1
    if at <= _LAST:
        out.append((at, _LAST))
    return Chars(tuple(out))


ANY: Final = Chars(((0, _LAST),))
_NOT_NEWLINE: Final = invert(chars([(10, 10)]))
# The White_Space property, which Unicode keeps stable.
_SPACE: Final = chars(
    (ord(a), ord(b))
    for a, b in [
        ("\t", "\r"),
        (" ", " "),
        ("\x85", "\x85"),
        ("\xa0", "\xa0"),
        ("\u1680", "\u1680"),
        ("\u2000", "\u200a"),
        ("\u2028", "\u2029"),
        ("\u202f", "\u202f"),
        ("\u205f", "\u205f"),
        ("\u3000", "\u3000"),
    ]
)
# The zeros of the decimal digits (Nd) of Unicode 16, as the library that checks patterns has them;
# a test compares, because new versions of Unicode add more.
_ZEROS: Final = """
30 660 6F0 7C0 966 9E6 A66 AE6 B66 BE6 C66 CE6 D66 DE6 E50 ED0 F20 1040 1090 17E0 1810 1946 19D0
1A80 1A90 1B50 1BB0 1C40 1C50 A620 A8D0 A900 A9D0 A9F0 AA50 ABF0 FF10 104A0 10D30 10D40 11066 110F0
11136 111D0 112F0 11450 114D0 11650 116C0 116D0 116DA 11730 118E0 11950 11BF0 11C50 11D50 11DA0
11F50 16130 16A60 16AC0 16B50 16D70 1CCF0 1D7CE 1D7D8 1D7E2 1D7EC 1D7F6 1E140 1E2F0 1E4F0 1E5F1
1E950 1FBF0"""
_DIGIT: Final = chars((int(zero, 16), int(zero, 16) + 9) for zero in _ZEROS.split())
_CLASSES: Final = {"s": _SPACE, "S": invert(_SPACE), "d": _DIGIT, "D": invert(_DIGIT)}
_SIMPLE: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}
_COUNTS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def literal(text: str, *, fold: bool = False) -> Node:
    """Return what matches exactly this text, in any case of its letters if `fold`."""
    parts = [chars([(ord(char), ord(char))]) for char in text]
    return Cat(tuple(_fold(part) if fold else part for part in parts))


def parse_pattern(pattern: str, flags: str = "") -> Node:
    """Return the tree of a pattern that must match the whole text.

    Raises `Unsayable` for what cannot be expressed exactly, and for what is not a pattern.
    """
    return _Reader(pattern, flags).read()


def _fold(these: Chars) -> Chars:
    """Add the other case of every character. Beyond ASCII this needs a table we do not have."""
    if these.ranges and these.ranges[-1][1] > 127:
        raise Unsayable("letters beyond ASCII in any case")
    out = list(these.ranges)
    for low, high in these.ranges:
        for code in range(low, high + 1):
            char = chr(code)
            if char.isalpha():
                out.append((ord(char.swapcase()),) * 2)
                out += [(0x212A, 0x212A)] * (char in "kK") + [(0x17F, 0x17F)] * (char in "sS")
    return chars(out)


class _Reader:
    """Reads one pattern from left to right."""

    def __init__(self, pattern: str, flags: str) -> None:
        self._text = pattern
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        self._set_flags(flags)

    def read(self) -> Node:
        # An anchor changes nothing where the text begins or ends anyway.
        if self._peek("^") and "m" not in self._flags:
            self._at = 1
        anchored = self._at == 1
        node = self._alternatives(0, is_top=True)
        if self._at < len(self._text):
            raise Unsayable("a bracket that was never opened")
        if isinstance(node, Alt) and (anchored or self._text.endswith("$")):
            raise Unsayable("an anchor of one alternative")
        return node

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        if self._peek(text):
            self._at += len(text)
            return True
        return False

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise Unsayable("a pattern that breaks off")
        self._at += 1
        return self._text[self._at - 1]

    def _set_flags(self, flags: str) -> None:
        """Turn flags on, those behind a minus sign off."""
        plus, _, minus = flags.partition("-")
        if not set(plus + minus) <= set("imsu") or "u" in minus:
            raise Unsayable("a flag other than i, m, s")
        self._flags = (self._flags | set(plus)) - set(minus)

    def _alternatives(self, depth: int, *, is_top: bool = False) -> Node:
        if depth > _MAX_DEPTH:
            raise Unsayable("groups in groups in groups")
        before = self._flags
        options: list[Node] = [self._sequence(depth, is_top)]
        while self._take("|"):
            options.append(self._sequence(depth, is_top))
        self._flags = before
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def _sequence(self, depth: int, is_top: bool) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._peek("$") and self._at == len(self._text) - 1 and is_top:
                if "m" in self._flags:
                    raise Unsayable("an anchor of lines")
                self._at += 1
                break
            node = self._atom(depth)
            if node is not None:
                parts.append(self._repeated(node))
        return parts[0] if len(parts) == 1 else Cat(tuple(parts))

    def _atom(self, depth: int) -> Node | None:
        """Return the next thing, or None where it only sets flags."""
        char = self._next()
        if char == "(":
            return self._group(depth)
        if char == "[":
            return self._class()
        if char == ".":
            return ANY if "s" in self._flags else _NOT_NEWLINE
        if char == "\\":
            these = self._escape()
            # Neither blanks nor digits have a case.
            return these if these in _CLASSES.values() else self._folded(these)
        if char in "^$*+?{":
            raise Unsayable(f"'{char}' at this place")
        return self._folded(chars([(ord(char), ord(char))]))

    def _folded(self, these: Chars) -> Chars:
        return _fold(these) if "i" in self._flags else these

    def _group(self, depth: int) -> Node | None:
        before = self._flags
        if self._take("?P<") or (self._peek("?<") and not self._peek("?<=") and self._take("?<")):
            name = self._until(">")
            if not name.isidentifier():
                raise Unsayable("look-behind")
        elif self._take("?"):
            flags = ""
            while not self._peek(":") and not self._peek(")"):
                flags += self._next()
            self._set_flags(flags)
            if self._next() == ")":
                return None
        node = self._alternatives(depth + 1)
        if not self._take(")"):
            raise Unsayable("a bracket that is never closed")
        self._flags = before
        return node

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise Unsayable("a pattern that breaks off")
        text, self._at = self._text[self._at : stop], stop + 1
        return text

    def _repeated(self, node: Node) -> Node:
        while self._at < len(self._text) and self._text[self._at] in "*+?{":
            sign = self._next()
            low, high = self._bounds() if sign == "{" else _COUNTS[sign]
            if self._take("?"):
                raise Unsayable("lazy repetition")
            node = Repeat(node, low, high)
        return node

    def _bounds(self) -> tuple[int, int | None]:
        first, comma, last = self._until("}").partition(",")
        try:
            low = int(first)
            high = None if comma and not last else int(last or first)
        except ValueError:
            raise Unsayable("a repetition without a count") from None
        if low < 0 or (high is not None and high < low) or max(low, high or 0) > _MAX_COUNT:
            raise Unsayable("such a count of repetitions")
        return low, high

    def _escape(self) -> Chars:
        char = self._next()
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _SIMPLE:
            code = ord(_SIMPLE[char])
        elif char in _HEX_DIGITS:
            code = self._hex(_HEX_DIGITS[char])
        elif char.isascii() and not char.isalnum() and char not in "<>":
            code = ord(char)
        else:
            raise Unsayable(f"'\\{char}'")
        return chars([(code, code)])

    def _hex(self, digits: int) -> int:
        text = self._until("}") if self._take("{") else ""
        if not text:
            text = self._text[self._at : self._at + digits]
            self._at += digits
        try:
            code = int(text, 16)
        except ValueError:
            raise Unsayable("an escape that is no number") from None
        if code > _LAST or 0xD800 <= code <= 0xDFFF:
            raise Unsayable("an escape that is no character")
        return code

    def _class(self) -> Chars:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self._peek("]"):
            if self._peek("[") or any(self._peek(two) for two in ("&&", "--", "~~")):
                raise Unsayable("operations on classes")
            low = self._member()
            if self._peek("-") and not self._peek("-]") and not self._peek("--"):
                self._at += 1
                ranges.append((self._single(low), self._single(self._member())))
                if ranges[-1][0] > ranges[-1][1]:
                    raise Unsayable("a range that runs backwards")
            else:
                ranges += low.ranges
            first = False
        self._at += 1
        these = self._folded(chars(ranges))
        these = invert(these) if negated else these
        if not these.ranges:
            raise Unsayable("a class without characters")
        return these

    def _member(self) -> Chars:
        char = self._next()
        return self._escape() if char == "\\" else chars([(ord(char), ord(char))])

    def _single(self, these: Chars) -> int:
        if len(these.ranges) != 1 or these.ranges[0][0] != these.ranges[0][1]:
            raise Unsayable("a range between classes")
        return these.ranges[0][0]
