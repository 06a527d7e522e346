"""Does it matter that terminals are cut from the text greedily?

A Lark grammar reads its text in two steps: a lexer always takes the longest piece that any
terminal allowed at that place can match, then the rules look at the pieces. GBNF knows rules
over characters alone. Both mean the same language if, wherever one terminal ends and another
begins, no terminal that is allowed at that place could have gone on with that next byte. This
module proves that for a grammar, or raises `Unsayable`.

What may stand side by side is taken from the occurrences of terminals in the rules, without
the stack of the parser: that allows for too much, so the proof errs only to the safe side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from antiphon.wires.chat.grammars.patterns import Alt, Cat, Chars, Node, Repeat, Unsayable

__all__ = ["Leaf", "Link", "Tree", "Work", "is_nullable", "nullable_rules", "prove_cuts"]

_MAX_STEPS: Final = 20_000
_MAX_PLACES: Final = 600
_SET_STEP: Final = 16  # so many members of a set are copied in a step


class Work:
    """How much may still be done for one grammar: the event loop waits for it.

    Those of real tools take a few hundred steps, and a step about a microsecond.
    """

    def __init__(self, steps: int = _MAX_STEPS) -> None:
        self._left = steps

    def spend(self, steps: int = 1) -> None:
        """Raise `Unsayable` when it was too much."""
        self._left -= steps
        if self._left < 0:
            raise Unsayable("a grammar of that size")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One occurrence of a terminal in the rules. Its pattern never matches the empty text.

    `is_last` is one that may end the text and that nothing can follow then, not even what the
    grammar ignores.
    """

    index: int
    pattern: Node
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A rule, by its name."""

    name: str


Tree: TypeAlias = Leaf | Link | Chars | Cat | Alt | Repeat


def is_nullable(node: object, names: frozenset[str] = frozenset()) -> bool:
    """Return whether the empty text belongs to it; `names` are the rules that have it."""
    match node:
        case Cat(parts):
            return all(is_nullable(part, names) for part in parts)
        case Alt(parts):
            return any(is_nullable(part, names) for part in parts)
        case Repeat(inner, low, high):
            return low == 0 or high == 0 or is_nullable(inner, names)
        case Link(name):
            return name in names
        case _:
            return False


def nullable_rules(rules: Mapping[str, Tree], work: Work) -> frozenset[str]:
    """Return the names of the rules that the empty text belongs to."""
    names: frozenset[str] = frozenset()
    size = sum(_size(tree) for tree in rules.values())
    while True:
        work.spend(size)
        more = frozenset(name for name, tree in rules.items() if is_nullable(tree, names))
        if more == names:
            return names
        names = more


def _size(tree: object) -> int:
    match tree:
        case Cat(parts) | Alt(parts):
            return 1 + sum(_size(part) for part in parts)
        case Repeat(inner):
            return 1 + _size(inner)
        case _:
            return 1


def prove_cuts(rules: Mapping[str, Tree], start: str, work: Work) -> None:
    """Raise `Unsayable` unless cutting terminals greedily changes nothing."""
    sides = _Sides(rules, work)
    _Proof(sides, rules[start], work).run()


class _Sides:
    """Which leaves begin and end each rule, and which may follow which."""

    def __init__(self, rules: Mapping[str, Tree], work: Work) -> None:
        self._rules = rules
        self._work = work
        self._nullable = nullable_rules(rules, work)
        self.leaves: dict[int, Leaf] = {}
        self.follow: dict[int, set[int]] = {}
        self._firsts = self._fixpoint(forward=True)
        self._lasts = self._fixpoint(forward=False)
        for tree in rules.values():
            self._connect(tree)

    def _fixpoint(self, *, forward: bool) -> dict[str, frozenset[int]]:
        found: dict[str, frozenset[int]] = dict.fromkeys(self._rules, frozenset())
        while True:
            more = {
                name: self._edge(tree, found, forward=forward) for name, tree in self._rules.items()
            }
            if more == found:
                return found
            found = more

    def _edge(
        self, tree: object, found: Mapping[str, frozenset[int]], *, forward: bool
    ) -> frozenset[int]:
        self._work.spend()
        match tree:
            case Leaf(index):
                return frozenset([index])
            case Link(name):
                return found[name]
            case Repeat(inner):
                return self._edge(inner, found, forward=forward)
            case Alt(parts):
                edges = [self._edge(part, found, forward=forward) for part in parts]
                return frozenset().union(*edges)
            case Cat(parts):
                out: frozenset[int] = frozenset()
                for part in parts if forward else reversed(parts):
                    out |= self._edge(part, found, forward=forward)
                    self._work.spend(len(out) // _SET_STEP)
                    if not is_nullable(part, self._nullable):
                        break
                return out
            case _:
                return frozenset()

    def first(self, tree: object) -> frozenset[int]:
        return self._edge(tree, self._firsts, forward=True)

    def _connect(self, tree: object) -> None:
        """Note for every leaf below what may follow it."""
        match tree:
            case Leaf(index):
                self.leaves[index] = tree
                self.follow.setdefault(index, set())
            case Repeat(inner, _, high):
                self._connect(inner)
                if high is None or high > 1:
                    self._join(inner, [inner])
            case Alt(parts):
                for part in parts:
                    self._connect(part)
            case Cat(parts):
                for at, part in enumerate(parts):
                    self._connect(part)
                    self._join(part, parts[at + 1 :])
            case _:
                pass

    def _join(self, left: object, rest: Iterable[object]) -> None:
        firsts: set[int] = set()
        for part in rest:
            firsts |= self.first(part)
            if not is_nullable(part, self._nullable):
                break
        for index in self._edge(left, self._lasts, forward=False):
            self._work.spend(1 + len(firsts) // _SET_STEP)
            self.follow.setdefault(index, set()).update(firsts)


class _Proof:
    """Walks over all pairs of leaves that may be allowed at the same place."""

    def __init__(self, sides: _Sides, start: Tree, work: Work) -> None:
        self._sides = sides
        self._work = work
        self._start = sides.first(start)
        # By the identity of the pattern: to hash one means to walk over it.
        self._automata: dict[int, _Automaton] = {}
        self._meetings: dict[tuple[int, int], tuple[bool, int]] = {}

    def run(self) -> None:
        open_pairs = [(one, other) for one in self._start for other in self._start]
        seen = set(open_pairs)
        while open_pairs:
            one, other = open_pairs.pop()
            if not self._look(one, other):
                continue
            follow = self._sides.follow
            new = {(a, b) for a in follow[one] for b in follow[other]} - seen
            self._work.spend(len(new) + 1)
            seen |= new
            open_pairs += new

    def _look(self, one: int, other: int) -> bool:
        """Return whether both may end at the same place, or raise if `other` may go on."""
        leaves, follow = self._sides.leaves, self._sides.follow
        meets, beyond = self._meeting(leaves[one].pattern, leaves[other].pattern)
        after = 0
        self._work.spend(len(follow[one]))
        for index in follow[one]:
            after |= self._automaton(leaves[index].pattern).first_bytes
        if beyond & after:
            raise Unsayable("terminals that depend on the longest match")
        if meets and leaves[one].is_last and one != other and follow[other]:
            raise Unsayable("an end that may be followed by ignored text or not")
        return meets

    def _automaton(self, pattern: Node) -> _Automaton:
        if id(pattern) not in self._automata:
            self._automata[id(pattern)] = _Automaton(pattern, self._work)
        return self._automata[id(pattern)]

    def _meeting(self, one: Node, other: Node) -> tuple[bool, int]:
        """Return whether some text matches both, and the bytes `other` may go on with after one.

        The bytes are a set of bits.
        """
        key = id(one), id(other)
        if key not in self._meetings:
            self._meetings[key] = self._meet(self._automaton(one), self._automaton(other))
        return self._meetings[key]

    def _meet(self, one: _Automaton, other: _Automaton) -> tuple[bool, int]:
        meets, beyond = False, 0
        todo = {(a, b) for a in one.firsts for b in other.firsts}
        seen = set(todo)
        while todo:
            a, b = todo.pop()
            self._work.spend()
            if not _overlap(one.chars[a], other.chars[b]):
                continue
            if a in one.lasts:
                meets = meets or b in other.lasts
                self._work.spend(len(other.follow[b]) // _SET_STEP)
                beyond |= other.bytes_after(b)
            self._work.spend(len(one.follow[a]) * len(other.follow[b]) // _SET_STEP)
            new = {(x, y) for x in one.follow[a] for y in other.follow[b]} - seen
            seen |= new
            todo |= new
        return meets, beyond


@dataclass(slots=True)
class _Part:
    """What a piece of a pattern looks like from outside."""

    firsts: set[int] = field(default_factory=set)
    lasts: set[int] = field(default_factory=set)
    nullable: bool = True


class _Automaton:
    """The places of a pattern (its occurrences of characters) and which may follow which."""

    def __init__(self, pattern: Node, work: Work) -> None:
        self._work = work
        self.chars: list[Chars] = []
        self.follow: list[set[int]] = []
        part = self._build(pattern)
        self.firsts, self.lasts = part.firsts, part.lasts
        self.first_bytes = self._bytes(part.firsts)

    def bytes_after(self, place: int) -> int:
        return self._bytes(self.follow[place])

    def _bytes(self, places: Iterable[int]) -> int:
        bits = 0
        for place in places:
            bits |= _lead_bytes(self.chars[place])
        return bits

    def _build(self, node: object) -> _Part:
        self._work.spend()
        match node:
            case Chars():
                if len(self.chars) >= _MAX_PLACES:
                    raise Unsayable("a terminal of that size")
                self.chars.append(node)
                self.follow.append(set())
                place = len(self.chars) - 1
                return _Part({place}, {place}, False)
            case Alt(parts):
                built = [self._build(part) for part in parts]
                return _Part(
                    set().union(*(part.firsts for part in built)),
                    set().union(*(part.lasts for part in built)),
                    any(part.nullable for part in built),
                )
            case Cat(parts):
                whole = _Part()
                for part in parts:
                    whole = self._after(whole, self._build(part))
                return whole
            case Repeat(inner, low, high):
                return self._repeat(inner, low, high)
            case _:
                raise TypeError(f"not part of a pattern: {node!r}")

    def _after(self, left: _Part, right: _Part) -> _Part:
        self._work.spend(len(left.lasts) * (1 + len(right.firsts) // _SET_STEP))
        for place in left.lasts:
            self.follow[place] |= right.firsts
        return _Part(
            left.firsts | right.firsts if left.nullable else left.firsts,
            left.lasts | right.lasts if right.nullable else right.lasts,
            left.nullable and right.nullable,
        )

    def _repeat(self, inner: object, low: int, high: int | None) -> _Part:
        if max(low, high or 0) > _MAX_PLACES:
            raise Unsayable("a repetition of that size")
        whole = _Part()
        for _ in range(low):
            whole = self._after(whole, self._build(inner))
        if high is None:
            loop = self._build(inner)
            loop.nullable = True
            self._after(loop, loop)
            return self._after(whole, loop)
        optional = [self._build(inner) for _ in range(high - low)]
        for part in optional:
            part.nullable = True
            whole = self._after(whole, part)
        return whole


def _overlap(one: Chars, other: Chars) -> bool:
    return any(a <= d and c <= b for a, b in one.ranges for c, d in other.ranges)


def _lead_bytes(these: Chars) -> int:
    """Return the first bytes of these characters in UTF-8, as a set of bits."""
    bits = 0
    for low, high in these.ranges:
        bits |= (2 << _lead_byte(high)) - (1 << _lead_byte(low))
    return bits


def _lead_byte(code: int) -> int:
    if code < 0x80:
        return code
    if code < 0x800:
        return 0xC0 | code >> 6
    return 0xE0 | code >> 12 if code < 0x10000 else 0xF0 | code >> 18
