"""How is a grammar written for llama.cpp, which constrains decoding by GBNF?

The result describes exactly the same language as the definition, or is None: GBNF has no
lexer, no look-around, no left recursion beyond what can be unrolled, and it counts only so
far. Where a grammar needs more, or is so large that the analysis would take long, the text is
checked afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Final

from antiphon.wires.chat.grammars.lark import LarkError, parse_lark
from antiphon.wires.chat.grammars.lower_lark import START, lower_lark, nonempty, options_of, row_of
from antiphon.wires.chat.grammars.maximal_munch import (
    Leaf,
    Link,
    Tree,
    Work,
    is_nullable,
    nullable_rules,
    prove_cuts,
)
from antiphon.wires.chat.grammars.patterns import (
    Alt,
    Cat,
    Chars,
    Repeat,
    Unsayable,
    invert,
    parse_pattern,
)

__all__ = ["lark_to_gbnf", "regex_to_gbnf"]

MAX_DEFINITION: Final = 4 * 1024
_MAX_GBNF: Final = 64 * 1024
# llama.cpp writes repetitions out and refuses 2,000 rules of it.
_MAX_UNROLLED: Final = 1000
_LAST: Final = 0x10FFFF
_MAX_CACHED: Final = 16
_ESCAPES: Final = {
    10: r"\n",
    13: r"\r",
    9: r"\t",
    ord("\\"): r"\\",
    ord('"'): r"\"",
    ord("["): r"\[",
    ord("]"): r"\]",
    ord("^"): r"\x5E",
    ord("-"): r"\x2D",
}


@lru_cache(maxsize=_MAX_CACHED)
def lark_to_gbnf(definition: str) -> str | None:
    """Return a Lark grammar as GBNF, or None if GBNF cannot express it."""
    if len(definition) > MAX_DEFINITION:
        return None
    work = Work()
    try:
        rules = lower_lark(parse_lark(definition), work)
        prove_cuts(rules, START, work)
        _refuse_left_recursion(rules, work)
        return _Writer(rules, work).write()
    except (LarkError, Unsayable):
        return None


@lru_cache(maxsize=_MAX_CACHED)
def regex_to_gbnf(pattern: str) -> str | None:
    """Return a pattern, which must match the whole text, as GBNF, or None if GBNF cannot."""
    if len(pattern) > MAX_DEFINITION:
        return None
    try:
        return _Writer({START: parse_pattern(pattern)}, Work()).write()
    except Unsayable:
        return None


def _refuse_left_recursion(rules: Mapping[str, Tree], work: Work) -> None:
    """Raise if a rule may begin with itself, which llama.cpp refuses."""
    nullable = nullable_rules(rules, work)
    begins = {name: set(_corners(tree, nullable)) for name, tree in rules.items()}
    try:
        TopologicalSorter(begins).prepare()
    except CycleError:
        raise Unsayable("rules that begin with themselves") from None


def _corners(tree: object, nullable: frozenset[str]) -> Iterable[str]:
    """Return the rules that it may begin with."""
    match tree:
        case Link(name):
            yield name
        case Repeat(inner):
            yield from _corners(inner, nullable)
        case Alt(parts):
            for part in parts:
                yield from _corners(part, nullable)
        case Cat(parts):
            for part in parts:
                yield from _corners(part, nullable)
                if not is_nullable(part, nullable):
                    break
        case _:
            pass


class _Writer:
    """Writes rules, and each terminal once as a rule of its own."""

    def __init__(self, rules: Mapping[str, Tree], work: Work) -> None:
        self._rules = rules
        self._work = work
        self._nullable = nullable_rules(rules, work)
        self._terminals: dict[object, str] = {}
        self._lines: list[str] = []
        self._size = 0

    def write(self) -> str:
        for name, tree in self._rules.items():
            self._define(name, tree)
        return "\n".join(self._lines) + "\n"

    def _define(self, name: str, tree: object) -> None:
        line = f"{name} ::= {self._options(tree)}"
        self._size += len(line)
        if self._size > _MAX_GBNF:
            raise Unsayable("a grammar of that size")
        self._lines.append(line)

    def _options(self, tree: object) -> str:
        options = options_of(tree)
        if not options:
            raise Unsayable("a rule that nothing belongs to")
        return " | ".join(self._sequence(option) for option in options)

    def _sequence(self, tree: object) -> str:
        """Write a row; characters that stand alone are joined to one text."""
        out: list[str] = []
        text = ""
        for part in row_of(tree):
            self._work.spend()
            if (char := _single(part)) is not None:
                text += _escaped(char)
                continue
            if text:
                out.append(f'"{text}"')
                text = ""
            out.append(self._item(part))
        if text or not out:
            out.append(f'"{text}"')
        return " ".join(out)

    def _item(self, tree: object) -> str:
        match tree:
            case Link(name):
                return name
            case Leaf(_, pattern):
                return self._terminal(pattern)
            case Chars(ranges):
                return _class(ranges)
            case Repeat(inner, low, high):
                return self._repeat(inner, low, high)
            case _:
                return f"({self._options(tree)})"

    def _terminal(self, pattern: object) -> str:
        row = row_of(pattern)
        is_text = all(_single(part) is not None for part in row)
        if is_text or (len(row) == 1 and isinstance(row[0], Chars)):
            return self._sequence(pattern)
        if pattern not in self._terminals:
            self._terminals[pattern] = name = f"t{len(self._terminals)}"
            self._define(name, pattern)
        return self._terminals[pattern]

    def _repeat(self, inner: object, low: int, high: int | None) -> str:
        if high is None and is_nullable(inner, self._nullable):
            # A loop around nothing is left recursion to llama.cpp.
            low, inner = 0, nonempty(inner, self._nullable)
        if high == 0 or inner == Alt(()):
            return '""'
        if _unrolled_size(inner) * max(low, high or 1) > _MAX_UNROLLED:
            raise Unsayable("a repetition of that size")
        item = self._item(inner)
        if isinstance(inner, Repeat):
            item = f"({item})"
        return item + _counts(low, high)


def _counts(low: int, high: int | None) -> str:
    match low, high:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case 1, 1:
            return ""
        case _:
            return f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"


def _unrolled_size(tree: object) -> int:
    """Return how many elements llama.cpp makes of it, at least."""
    match tree:
        case Cat(parts) | Alt(parts):
            return 1 + sum(_unrolled_size(part) for part in parts)
        case Repeat(inner, low, high):
            return 1 + _unrolled_size(inner) * max(low, high or 1, 1)
        case Leaf(_, pattern):
            return _unrolled_size(pattern)
        case _:
            return 1


def _single(tree: object) -> int | None:
    """Return the one character that it is, if it is one."""
    match tree:
        case Chars(((low, high),)) if low == high:
            return low
        case Leaf(_, Cat((inner,))) | Leaf(_, Chars() as inner):
            return _single(inner)
        case _:
            return None


def _class(ranges: tuple[tuple[int, int], ...]) -> str:
    if ranges == ((0, _LAST),):
        return "."
    sign = ""
    if ranges[-1][1] == _LAST:
        sign, ranges = "^", invert(Chars(ranges)).ranges
    members = (
        _escaped(low) if low == high else f"{_escaped(low)}-{_escaped(high)}"
        for low, high in ranges
    )
    return f"[{sign}{''.join(members)}]"


def _escaped(code: int) -> str:
    if code in _ESCAPES:
        return _ESCAPES[code]
    if 0x20 <= code < 0x7F:
        return chr(code)
    if code <= 0xFF:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"
