"""What does a Lark grammar mean as rules over characters alone?

Every terminal becomes its pattern, and what the grammar ignores is written out after each
terminal. The library that checks grammars allows ignored text only where the parser could go
on: not before the first terminal, and not after the last unless more could follow it. So each
rule has two forms, one for where more may follow and one for where nothing can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from antiphon.wires.chat.grammars.lark import Lark, Name, Regex, Span, Text
from antiphon.wires.chat.grammars.maximal_munch import Leaf, Link, Tree, Work, is_nullable
from antiphon.wires.chat.grammars.patterns import (
    Alt,
    Cat,
    Chars,
    Node,
    Ranges,
    Repeat,
    Unsayable,
    chars,
    literal,
    parse_pattern,
)

__all__ = ["START", "lower_lark", "nonempty", "options_of", "row_of"]

START: Final = "root"
_MAX_SIZE: Final = 1000
_MAX_DEPTH: Final = 100
_EMPTY: Final = Cat(())


def lower_lark(grammar: Lark, work: Work) -> dict[str, Tree]:
    """Return the rules of the grammar over leaves; the first is `START`.

    Raises `Unsayable` where a terminal cannot be written as a pattern.
    """
    return _Lowering(grammar, work).run()


def nonempty(tree: object, names: frozenset[str] = frozenset()) -> object:
    """Return what it matches besides the empty text; `names` are the rules that may be empty."""
    if not is_nullable(tree, names):
        return tree
    match tree:
        case Alt(parts):
            return _either([nonempty(part, names) for part in parts])
        case Cat(parts):
            # Whichever part is the first that is not empty; those before it are.
            return _either(
                [Cat((nonempty(part, names), *parts[at + 1 :])) for at, part in enumerate(parts)]
            )
        case Repeat(inner, low, high):
            some = nonempty(inner, names)
            if high == 0 or _is_nothing(some):
                return Alt(())
            return Repeat(some, 1 if is_nullable(inner, names) else max(low, 1), high)
        case _:
            raise Unsayable("a repetition of a rule that may be empty")


def options_of(tree: object) -> list[object]:
    """Return what it is one of, without alternatives in alternatives."""
    while isinstance(tree, Cat) and len(tree.parts) == 1:
        tree = tree.parts[0]
    if isinstance(tree, Alt):
        return [option for part in tree.parts for option in options_of(part)]
    return [tree]


def row_of(tree: object) -> list[object]:
    """Return what stands in it one after the other, without rows in rows."""
    if isinstance(tree, Cat):
        return [part for inner in tree.parts for part in row_of(inner)]
    return [tree]


def _unrolled(name: str, node: object) -> object:
    """Turn `a: a x | y` into `a: y x*`, which is the same without a rule that begins with itself.

    It comes first, because the long form hides that `x` may always follow.
    """
    rows = [row_of(option) for option in options_of(node)]
    again = [row[1:] for row in rows if row[:1] == [Name(name)]]
    if not again:
        return node
    heads = Alt(tuple(Cat(tuple(row)) for row in rows if row[:1] != [Name(name)]))
    tails = Alt(tuple(Cat(tuple(row)) for row in again if row))
    return Cat((heads, Repeat(tails, 0, None))) if tails.parts else heads


def _either(parts: list[object]) -> object:
    left = tuple(part for part in parts if not _is_nothing(part))
    return left[0] if len(left) == 1 else Alt(left)


def _is_nothing(tree: object) -> bool:
    """Return whether not even the empty text belongs to it."""
    match tree:
        case Alt(parts):
            return all(_is_nothing(part) for part in parts)
        case Cat(parts):
            return any(_is_nothing(part) for part in parts)
        case _:
            return False


class _Patterns:
    """The terminals of a grammar as patterns; equal ones are the same object."""

    def __init__(self, grammar: Lark) -> None:
        self._grammar = grammar
        self._named: dict[str, tuple[Node, int]] = {}
        self._open: set[str] = set()
        self._same: dict[Node, Node] = {}
        # By identity, which the grammar keeps alive: to hash a node means to walk over it.
        self._read_before: dict[int, Node] = {}

    def of(self, node: object) -> Node:
        """Return the pattern of a node that is no rule."""
        if id(node) not in self._read_before:
            self._read_before[id(node)] = self.same(self._read(node, 0)[0])
        return self._read_before[id(node)]

    def same(self, pattern: Node) -> Node:
        return self._same.setdefault(pattern, pattern)

    def _read(self, node: object, depth: int) -> tuple[Node, int]:
        """Return the pattern and its size, written out in full."""
        if depth > _MAX_DEPTH:
            raise Unsayable("terminals that deep")
        pattern, size = self._read_one(node, depth)
        if size > _MAX_SIZE:
            raise Unsayable("a terminal of that size")
        return pattern, size

    def _read_one(self, node: object, depth: int) -> tuple[Node, int]:
        match node:
            case Name(name):
                return self._by_name(name, depth)
            case Text(text, fold):
                return literal(text, fold=fold), len(text) + 1
            case Span(first, last):
                return chars([(ord(first), ord(last))]), 1
            case Regex(source, flags):
                return parse_pattern(source, flags), len(source)
            case Repeat(inner, low, high):
                pattern, size = self._read(inner, depth + 1)
                return Repeat(pattern, low, high), size + 1
            case Cat(parts) | Alt(parts):
                read = [self._read(part, depth + 1) for part in parts]
                kind = Cat if isinstance(node, Cat) else Alt
                return kind(tuple(part for part, _ in read)), sum(size for _, size in read) + 1
            case _:
                raise TypeError(f"not part of a terminal: {node!r}")

    def _by_name(self, name: str, depth: int) -> tuple[Node, int]:
        if name not in self._named:
            if name in self._open or name not in self._grammar.terminals:
                raise Unsayable(f"the terminal '{name}'")
            self._open.add(name)
            self._named[name] = self._read(self._grammar.terminals[name], depth + 1)
        return self._named[name]


class _Lowering:
    """Writes out one grammar, rule by rule from the first."""

    def __init__(self, grammar: Lark, work: Work) -> None:
        self._grammar = grammar
        self._work = work
        self._patterns = _Patterns(grammar)
        self._source = {name: _unrolled(name, node) for name, node in grammar.rules.items()}
        self._spaces, self._others = self._ignored()
        self._skips = bool(self._spaces or self._others)
        self._rules: dict[str, Tree] = {}
        self._names: dict[tuple[str, bool], str] = {}
        self._todo: list[tuple[str, bool]] = []
        self._leaves = 0
        self._empty = self._grow(self._can_be_empty)
        self._starting = self._grow(self._can_start)

    def run(self) -> dict[str, Tree]:
        self._rules[START] = self._lower(Name("start"), not self._skips)
        while self._todo:
            name, more = self._todo.pop()
            self._rules[self._names[name, more]] = self._lower(self._source[name], more)
        return self._rules

    def _link(self, name: str, more: bool) -> Link:
        if (name, more) not in self._names:
            self._names[name, more] = f"{name.replace('_', '-')}-{len(self._names)}"
            self._todo.append((name, more))
        return Link(self._names[name, more])

    def _ignored(self) -> tuple[Chars | None, list[Node]]:
        """Return the characters that are ignored alone or in rows, and the other patterns."""
        ranges: list[tuple[int, int]] = []
        others: list[Node] = []
        for node in self._grammar.ignored:
            pattern = self._patterns.of(node)
            if (found := _row_of_chars(pattern)) is not None:
                ranges += found
            elif is_nullable(pattern):
                raise Unsayable("ignoring what may be empty")
            else:
                others.append(pattern)
        return chars(ranges) if ranges else None, others

    def _grow(self, test: Callable[[object, frozenset[str]], bool]) -> frozenset[str]:
        """Return the rules that pass a test which asks about other rules; the fewest that do."""
        names: frozenset[str] = frozenset()
        while True:
            more = frozenset(name for name, node in self._source.items() if test(node, names))
            if more == names:
                return names
            names = more

    def _can_be_empty(self, node: object, names: frozenset[str]) -> bool:
        self._work.spend()
        match node:
            case Name(name) if name in self._source:
                return name in names
            case Cat(parts):
                return all(self._can_be_empty(part, names) for part in parts)
            case Alt(parts):
                return any(self._can_be_empty(part, names) for part in parts)
            case Repeat(inner, low):
                return low == 0 or self._can_be_empty(inner, names)
            case _:
                return is_nullable(self._patterns.of(node))

    def _can_start(self, node: object, names: frozenset[str]) -> bool:
        """Return whether a terminal may be awaited at its beginning."""
        self._work.spend()
        match node:
            case Name(name) if name in self._source:
                return name in names
            case Alt(parts):
                return any(self._can_start(part, names) for part in parts)
            case Repeat(inner, _, high):
                return high != 0 and self._can_start(inner, names)
            case Cat(parts):
                for part in parts:
                    if self._can_start(part, names):
                        return True
                    if not self._can_be_empty(part, self._empty):
                        return False
                return False
            case _:
                return not _is_nothing(nonempty(self._patterns.of(node)))

    def _lower(self, node: object, more: bool) -> Tree:
        """Return the tree of a node; `more` means that something may follow it."""
        self._work.spend()
        match node:
            case Name(name) if name in self._source:
                return self._link(name, more)
            case Alt(parts):
                return Alt(tuple(self._lower(part, more) for part in parts))
            case Cat(parts):
                return self._lower_row(parts, more)
            case Repeat(inner, low, high):
                return self._lower_repeat(inner, low, high, more)
            case Text(""):
                return _EMPTY
            case _:
                return self._terminal(self._patterns.of(node), more)

    def _lower_row(self, parts: tuple[object, ...], more: bool) -> Tree:
        out: list[Tree] = []
        for part in reversed(parts):
            out.append(self._lower(part, more))
            more = more or self._can_start(part, self._starting)
        return Cat(tuple(reversed(out)))

    def _lower_repeat(self, inner: object, low: int, high: int | None, more: bool) -> Tree:
        if high == 0:
            return _EMPTY
        if more or high is None:
            return Repeat(self._lower(inner, True), low, high)
        if high == 1:
            return Repeat(self._lower(inner, False), low, high)
        full = Cat(
            (Repeat(self._lower(inner, True), high - 1, high - 1), self._lower(inner, False))
        )
        if low == high:
            return full
        return Alt((Repeat(self._lower(inner, True), low, high - 1), full))

    def _terminal(self, pattern: Node, more: bool) -> Tree:
        if not is_nullable(pattern):
            return self._leaf(pattern, more)
        if self._skips:
            # Where one is awaited, even at the beginning, ignored text may stand as well.
            raise Unsayable("a terminal that may be empty beside ignored text")
        some = nonempty(pattern)
        if _is_nothing(some):
            return _EMPTY
        assert isinstance(some, Chars | Cat | Alt | Repeat)
        return Repeat(self._leaf(some, more), 0, 1)

    def _leaf(self, pattern: Node, more: bool) -> Tree:
        leaf = self._new_leaf(pattern, is_last=not more)
        if not self._skips or not more:
            return leaf
        row: list[object] = [leaf, *self._maybe_spaces()]
        if self._others:
            other = Alt(tuple(self._new_leaf(one) for one in self._others))
            row.append(Repeat(Cat((other, *self._maybe_spaces())), 0, None))
        return Cat(tuple(row))

    def _maybe_spaces(self) -> list[Tree]:
        if self._spaces is None:
            return []
        return [Repeat(self._new_leaf(Repeat(self._spaces, 1, None)), 0, 1)]

    def _new_leaf(self, pattern: Node, *, is_last: bool = False) -> Leaf:
        self._leaves += 1
        return Leaf(self._leaves, self._patterns.same(pattern), is_last)


def _row_of_chars(pattern: object) -> Ranges | None:
    """Return the characters of a pattern that is one of them, or a row of them."""
    while isinstance(pattern, Cat) and len(pattern.parts) == 1:
        pattern = pattern.parts[0]
    match pattern:
        case Chars(ranges):
            return ranges
        case Repeat(inner, 1, None):
            return _row_of_chars(inner)
        case _:
            return None
