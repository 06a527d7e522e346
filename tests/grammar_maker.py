"""Grammars by the number: each with texts that belong to it and texts that do not.

A grammar is made from a seed, so a number always names the same one. Texts that belong to it are
written along its own tree. Texts that do not are those, damaged, and kept only if a judge that
has nothing to do with us refuses them: Python's `re` for patterns, the `lark` package for Lark.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import lark

__all__ = ["MadeGrammar", "make_grammar"]

_GOOD, _BAD, _TRIES, _LONGEST = 6, 6, 60, 160
_WORDS = ("alpha", "beta", "gamma", "delta", "omega", "sigma", "kappa", "theta")


@dataclass(frozen=True)
class MadeGrammar:
    """One grammar; `name` says how to make it again."""

    name: str
    syntax: Literal["lark", "regex"]
    definition: str
    good: tuple[str, ...]
    bad: tuple[str, ...]


@dataclass(frozen=True)
class _Node:
    """A piece of a grammar that can write itself and texts that belong to it."""

    kind: Literal["text", "set", "name", "row", "one", "times"]
    text: str = ""
    parts: tuple[_Node, ...] = ()
    low: int = 0
    high: int | None = None


@dataclass
class _Grammar:
    rules: dict[str, _Node] = field(default_factory=dict)
    terminals: dict[str, _Node] = field(default_factory=dict)
    ignored: str = ""


def make_grammar(number: int) -> MadeGrammar:
    """Return the grammar of this number; even ones are Lark, odd ones patterns."""
    dice = random.Random(number)
    return _made_pattern(number, dice) if number % 2 else _made_lark(number, dice)


def _made_pattern(number: int, dice: random.Random) -> MadeGrammar:
    tree = _pattern(dice, depth=3)
    definition = _written_pattern(tree)
    judge = re.compile(definition)
    good = _goods(dice, lambda: _sample(dice, tree, {}, 4))
    bad = _bads(dice, good, lambda text: judge.fullmatch(text) is not None)
    return MadeGrammar(f"pattern {number}", "regex", definition, good, bad)


def _made_lark(number: int, dice: random.Random) -> MadeGrammar:
    family = dice.choice([_patch, _sums, _pairs, _table, _query, _random_rules, _random_rules])
    grammar = family(dice)
    definition = _written_lark(grammar)
    names = {**grammar.rules, **grammar.terminals}
    judge = lark.Lark(_written_lark(_for_judge(grammar)), parser="earley", lexer="dynamic_complete")
    good = _goods(dice, lambda: _sample(dice, names["start"], names, 6))

    def accepts(text: str) -> bool:
        try:
            judge.parse(text)
        except lark.exceptions.UnexpectedInput:
            return False
        return True

    assert all(accepts(text) for text in good)
    return MadeGrammar(
        f"{family.__name__.strip('_')} {number}",
        "lark",
        definition,
        good,
        _bads(dice, good, accepts),
    )


def _goods(dice: random.Random, sample: Callable[[], str]) -> tuple[str, ...]:
    texts = [sample() for _ in range(_TRIES)]
    short = sorted({text for text in texts if len(text) <= _LONGEST})
    dice.shuffle(short)
    return tuple(short[:_GOOD]) or (min(texts, key=len),)


def _bads(
    dice: random.Random, good: tuple[str, ...], accepts: Callable[[str], bool]
) -> tuple[str, ...]:
    out: dict[str, None] = {}
    for _ in range(_TRIES):
        if len(out) == _BAD:
            break
        text = _damaged(dice, dice.choice(good))
        if not accepts(text):
            out[text] = None
    return tuple(out)


def _damaged(dice: random.Random, text: str) -> str:
    at = dice.randrange(len(text) + 1)
    to = min(len(text), at + dice.choice([1, 1, 1, 4]))
    strange = dice.choice(["?", "Z", "\n", "é", " ", "0", "*** ", "```"])
    return dice.choice(
        [
            text[:at] + text[to:],
            text[:at] + strange + text[at:],
            text[:at] + strange + text[to:],
            text[:to] + text[at:],
            text[:at],
            text + strange,
        ]
    )


# Patterns


def _text(text: str) -> _Node:
    return _Node("text", text)


def _row(*parts: _Node) -> _Node:
    return _Node("row", parts=parts)


def _one(*parts: _Node) -> _Node:
    return _Node("one", parts=parts)


def _times(part: _Node, low: int, high: int | None) -> _Node:
    return _Node("times", parts=(part,), low=low, high=high)


def _pattern(dice: random.Random, depth: int) -> _Node:
    kinds = ["text", "set", "set"] if depth == 0 else ["row", "row", "one", "times", "text", "set"]
    match dice.choice(kinds):
        case "text":
            return _text("".join(dice.choices("abcxyz019-_.:/ é", k=dice.randint(1, 4))))
        case "set":
            sets = ["a-f", "0-9", "A-Z", "^\\n", "^a-z", "xyz", "a-z0-9_", "é-ü", " \\t"]
            return _Node("set", dice.choice(sets))
        case "times":
            low, high = dice.choice([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None)])
            return _times(_pattern(dice, depth - 1), low, high)
        case "one":
            return _one(*(_pattern(dice, depth - 1) for _ in range(dice.randint(2, 3))))
        case _:
            return _row(*(_pattern(dice, depth - 1) for _ in range(dice.randint(2, 4))))


def _written_pattern(node: _Node) -> str:
    match node.kind:
        case "text":
            return "".join("\\" + char if char in ".-/" else char for char in node.text)
        case "set":
            return f"[{node.text}]"
        case "times":
            return f"(?:{_written_pattern(node.parts[0])}){_counts(node)}"
        case "one":
            return "(" + "|".join(_written_pattern(part) for part in node.parts) + ")"
        case _:
            return "".join(_written_pattern(part) for part in node.parts)


def _counts(node: _Node) -> str:
    signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    high = "" if node.high is None else str(node.high)
    return signs.get((node.low, node.high), f"{{{node.low},{high}}}")


def _sample(dice: random.Random, node: _Node, names: dict[str, _Node], budget: int) -> str:
    """Write a text along the tree; the deeper in rules, the shorter."""
    match node.kind:
        case "text":
            return node.text
        case "set":
            return _member(dice, node.text)
        case "name":
            return _sample(dice, names[node.text], names, budget - 1)
        case "row":
            return "".join(_sample(dice, part, names, budget) for part in node.parts)
        case "one":
            # The first option never leads back to its own rule.
            part = node.parts[0] if budget <= 0 else dice.choice(node.parts)
            return _sample(dice, part, names, budget)
        case _:
            most = node.low if budget <= 0 else node.low + dice.choice([0, 1, 1, 2, 4])
            count = most if node.high is None else min(most, node.high)
            return "".join(_sample(dice, node.parts[0], names, budget) for _ in range(count))


def _member(dice: random.Random, text: str) -> str:
    matches = re.compile(f"[{text}]").fullmatch
    return dice.choice([char for char in string.printable[:95] + "\téñü" if matches(char)])


# Lark


def _name(name: str) -> _Node:
    return _Node("name", name)


def _set(text: str, low: int = 1, high: int | None = None) -> _Node:
    return _times(_Node("set", text), low, high)


def _patch(dice: random.Random) -> _Grammar:
    """A patch language: a first line, changes to files, a last line."""
    mark = dice.choice(["*** ", "=== ", "%% "])
    verbs = dice.sample(_WORDS, 3)
    sides = dice.sample("+-!~ ", 3)
    lines = _times(
        _row(_one(*(_text(side) for side in sides)), _name("LINE"), _text("\n")), 1, None
    )
    return _Grammar(
        {
            "start": _row(_name("begin"), _times(_name("change"), 1, None), _name("end")),
            "begin": _text(f"{mark}{verbs[0]} begin\n"),
            "end": _row(_text(f"{mark}end"), _times(_text("\n"), 0, 1)),
            "change": _one(_name("drop"), _name("edit")),
            "drop": _row(_text(f"{mark}{verbs[1]} file: "), _name("PATH"), _text("\n")),
            "edit": _row(
                _text(f"{mark}{verbs[2]} file: "),
                _name("PATH"),
                _text("\n"),
                _times(_row(_text("@@\n"), lines), 1, dice.choice([None, 3])),
            ),
        },
        {"PATH": _set("a-z/."), "LINE": _set("^\\n", 0)},
    )


def _sums(dice: random.Random) -> _Grammar:
    """Arithmetic, by rules that begin with themselves, with blanks between."""
    low, high = dice.sample([["+", "-"], ["*", "/"], ["%", "^"]], 2)
    return _Grammar(
        {
            "start": _name("sum"),
            "sum": _one(_name("term"), _row(_name("sum"), _signs(low), _name("term"))),
            "term": _one(_name("atom"), _row(_name("term"), _signs(high), _name("atom"))),
            "atom": _one(_name("NUM"), _row(_text("("), _name("sum"), _text(")"))),
        },
        {"NUM": _row(_set("0-9"), _times(_row(_text("."), _set("0-9")), 0, 1))},
        ignored=dice.choice(["", " ", "[ \\t]+"]),
    )


def _signs(signs: list[str]) -> _Node:
    return _one(*(_text(sign) for sign in signs))


def _pairs(dice: random.Random) -> _Grammar:
    sign = dice.choice(["=", ": ", " -> "])
    pair = _row(_name("KEY"), _text(sign), _name("VALUE"), _text("\n"))
    return _Grammar(
        {"start": _times(_name("pair"), 1, dice.choice([None, 4])), "pair": pair},
        {"KEY": _row(_set("a-z", 1, 1), _set("a-z0-9_", 0)), "VALUE": _set("^\\n", 0)},
    )


def _table(dice: random.Random) -> _Grammar:
    cut = dice.choice([",", ";", "|"])
    return _Grammar(
        {
            "start": _row(_name("line"), _times(_row(_text("\n"), _name("line")), 0, None)),
            "line": _row(_name("CELL"), _times(_row(_text(cut), _name("CELL")), 0, None)),
        },
        {"CELL": _one(_set("a-z0-9 "), _row(_text('"'), _set('^"\\n', 0), _text('"')))},
    )


def _query(dice: random.Random) -> _Grammar:
    verb, place, test = (word.upper() for word in dice.sample(_WORDS, 3))
    names = _row(_name("NAME"), _times(_row(_text(", "), _name("NAME")), 0, None))
    condition = _row(_name("NAME"), _one(_text(" = "), _text(" < ")), _name("value"))
    return _Grammar(
        {
            "start": _row(
                _text(f"{verb} "),
                names,
                _text(f" {place} "),
                _name("NAME"),
                _times(_row(_text(f" {test} "), condition), 0, 1),
                _text(";"),
            ),
            "value": _one(_name("NUM"), _row(_text("'"), _name("QUOTED"), _text("'"))),
        },
        {"NAME": _set("a-z_"), "NUM": _set("0-9"), "QUOTED": _set("^'\\n", 0)},
    )


def _random_rules(dice: random.Random) -> _Grammar:
    """Rules at random. Texts have one length and one look, so no cut between them is unclear."""
    count = dice.randint(2, 5)
    pairs = ["".join(dice.sample(string.ascii_uppercase, 2)) for _ in range(40)]
    texts = iter(dict.fromkeys(f"<{pair}>" for pair in pairs))
    rules = {
        ("start" if at == 0 else f"r{at}"): _random_row(dice, texts, at, count, depth=2)
        for at in range(count)
    }
    sets = dice.sample(["a-z", "0-9", "a-f0-9", "^<>\\n", "é-ü"], 3)
    return _Grammar(
        rules,
        {f"T{at}": _set(text, dice.randint(0, 1)) for at, text in enumerate(sets)},
        ignored=dice.choice(["", "", "#"]) if "^<>\\n" not in sets else "",
    )


def _random_row(dice: random.Random, texts: object, at: int, count: int, *, depth: int) -> _Node:
    """Return a row in which a text stands before and after everything else."""
    assert hasattr(texts, "__next__")
    parts = [_text(next(texts, "<>"))]
    for _ in range(dice.randint(1, 2)):
        choices = ["terminal", "terminal", "rule", "one", "times"] if depth else ["terminal"]
        match dice.choice(choices):
            case "rule" if at + 1 < count:
                parts.append(_name(f"r{dice.randint(at + 1, count - 1)}"))
            case "one":
                parts.append(
                    _one(*(_random_row(dice, texts, at, count, depth=depth - 1) for _ in range(2)))
                )
            case "times":
                low, high = dice.choice([(0, None), (1, None), (0, 1), (2, 3), (1, 2), (2, 2)])
                inner = _random_row(dice, texts, at, count, depth=depth - 1)
                parts.append(_times(inner, low, high))
            case _:
                parts.append(_name(f"T{dice.randrange(3)}"))
        parts.append(_text(next(texts, "<>")))
    return _row(*parts)


def _written_lark(grammar: _Grammar) -> str:
    lines = [f"{name}: {_written_rule(node)}" for name, node in grammar.rules.items()]
    for name, node in grammar.terminals.items():
        pattern = _written_pattern(node).replace("/", "\\/").replace("\\\\/", "\\/")
        lines.append(f"{name}: /{pattern}/")
    if grammar.ignored:
        lines.append(f"%ignore /{grammar.ignored}/")
    return "\n".join(lines) + "\n"


def _for_judge(grammar: _Grammar) -> _Grammar:
    """Say the same without terminals that may be empty, which the judge does not take."""
    empty = {name for name, node in grammar.terminals.items() if _may_be_empty(node)}

    def rewritten(node: _Node) -> _Node:
        if node.kind == "name" and node.text in empty:
            return _times(node, 0, 1)
        return replace(node, parts=tuple(rewritten(part) for part in node.parts))

    return _Grammar(
        {name: rewritten(node) for name, node in grammar.rules.items()},
        {
            name: replace(node, low=1) if name in empty else node
            for name, node in grammar.terminals.items()
        },
        grammar.ignored,
    )


def _may_be_empty(node: _Node) -> bool:
    return node.kind == "times" and node.low == 0


def _written_rule(node: _Node) -> str:
    match node.kind:
        case "text":
            quoted = node.text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{quoted}"'
        case "name":
            return node.text
        case "one":
            return "(" + " | ".join(_written_rule(part) for part in node.parts) + ")"
        case "times":
            inner = _written_rule(node.parts[0])
            if (node.low, node.high) == (0, 1):
                return f"[{inner}]"
            sign = f"~{node.low}..{node.high}" if node.high else _counts(node)
            return f"({inner}){sign}"
        case _:
            return " ".join(_written_rule(part) for part in node.parts)
