"""Cutting terminals greedily: when it changes the language, and when not."""

from __future__ import annotations

import pytest

from antiphon.wires.chat.grammars.maximal_munch import (
    Leaf,
    Link,
    Tree,
    Work,
    nullable_rules,
    prove_cuts,
)
from antiphon.wires.chat.grammars.patterns import Alt, Cat, Node, Repeat, Unsayable, parse_pattern


def leaves(*patterns: str) -> list[Leaf]:
    return [Leaf(at, parse_pattern(pattern)) for at, pattern in enumerate(patterns)]


def row(*patterns: str) -> Tree:
    return Cat(tuple(leaves(*patterns)))


@pytest.mark.parametrize(
    "tree",
    [
        row("a+", "b+"),
        row("a+", "b?c"),
        row('"[^"]*"', ",", '"[^"]*"'),
        Repeat(row("[a-z]+", "="), 1, None),
        Alt(tuple(leaves("if", "[a-z]+"))),
    ],
)
def test_terminals_that_end_where_they_must_are_proven(tree: Tree) -> None:
    prove_cuts({"root": tree}, "root", Work())


@pytest.mark.parametrize(
    "tree",
    [
        row("a+", "ab"),
        row("[a-z]+", "[a-c]x"),
        Repeat(row("a+"), 1, None),
        Repeat(row("a+"), 0, 2),
        # Another terminal at the same place goes on.
        Cat((Alt(tuple(leaves("a", "ab"))), Leaf(9, parse_pattern("bc")))),
        # One byte of another character keeps the terminal open.
        row("é+", "è"),
    ],
)
def test_terminals_that_could_go_on_are_not_proven(tree: Tree) -> None:
    with pytest.raises(Unsayable):
        prove_cuts({"root": tree}, "root", Work())


def test_what_follows_a_rule_is_found_through_its_callers() -> None:
    number, sign, more = leaves("[0-9]+", "x", "[0-9]")
    rules: dict[str, Tree] = {
        "root": Cat((Link("a"), Link("empty"), more)),
        "a": Cat((sign, number)),
        "empty": Repeat(Link("a"), 0, 1),
    }
    assert nullable_rules(rules, Work()) == {"empty"}
    with pytest.raises(Unsayable):
        prove_cuts(rules, "root", Work())


@pytest.mark.parametrize("pattern", ["a{601}", "a{0,601}", "(ab){301}"])
def test_terminals_too_large_to_look_at_are_not_proven(pattern: str) -> None:
    with pytest.raises(Unsayable):
        prove_cuts({"root": row(pattern, "b")}, "root", Work())


def test_there_is_an_end_to_the_work() -> None:
    many: list[Node] = [parse_pattern(f"[a-z]{{1,{n}}}x") for n in range(200, 260)]
    tree = Alt(tuple(Leaf(at, pattern) for at, pattern in enumerate(many)))
    with pytest.raises(Unsayable, match="size"):
        prove_cuts({"root": tree}, "root", Work())
