"""Lark as rules over characters: what is written out, and where nothing is left."""

from __future__ import annotations

import pytest

from antiphon.wires.chat.grammars.lark import parse_lark
from antiphon.wires.chat.grammars.lower_lark import START, lower_lark, nonempty, options_of, row_of
from antiphon.wires.chat.grammars.maximal_munch import Leaf, Link, Work
from antiphon.wires.chat.grammars.patterns import Alt, Cat, Repeat, Unsayable, parse_pattern


def test_a_rule_has_one_form_where_more_may_follow_and_one_where_nothing_can() -> None:
    rules = lower_lark(parse_lark('start: a "," a\na: "x"\n%ignore " "'), Work())
    first, comma, last = row_of(rules["start-0"])[0], row_of(rules["start-0"])[1], rules["a-1"]
    assert first == Link("a-2")
    assert isinstance(comma, Leaf)
    assert isinstance(last, Leaf)
    assert last.is_last
    assert len(row_of(rules["a-2"])) == 2  # the terminal, and blanks behind it
    assert next(iter(rules)) == START


def test_without_ignored_text_there_is_one_form() -> None:
    assert set(lower_lark(parse_lark('start: a "," a\na: "x"'), Work())) == {
        START,
        "start-0",
        "a-1",
    }


def test_equal_terminals_share_one_pattern() -> None:
    rules = lower_lark(parse_lark("start: A /b/ A\nA: /a+/"), Work())
    one, _, other = row_of(rules["start-0"])
    assert isinstance(one, Leaf)
    assert isinstance(other, Leaf)
    assert one.index != other.index
    assert one.pattern is other.pattern


@pytest.mark.parametrize(
    ("pattern", "rest"),
    [
        ("a", "a"),
        ("a*", "a+"),
        ("a?", "a{1}"),
        ("(a|)", "a"),
        ("(a*)*", "(a+)+"),
        ("a?b*c?", "a{1}b*c?|b+c?|(?:c{1})"),
        ("(){2,5}", None),
        ("", None),
    ],
)
def test_the_empty_text_can_be_taken_away(pattern: str, rest: str | None) -> None:
    wanted = Alt(()) if rest is None else parse_pattern(rest)
    found = nonempty(parse_pattern(pattern))
    assert [row_of(option) for option in options_of(found)] == [
        row_of(option) for option in options_of(wanted)
    ]


def test_the_empty_text_of_a_rule_cannot_be_taken_away() -> None:
    with pytest.raises(Unsayable):
        nonempty(Repeat(Link("x"), 0, None), frozenset("x"))


def test_rows_and_options_are_flattened() -> None:
    a, b, c = (Link(name) for name in "abc")
    assert options_of(Cat((Alt((a, Alt((b, Cat((c,)))))),))) == [a, b, c]
    assert row_of(Cat((a, Cat((b, Cat(()))), c))) == [a, b, c]


def test_terminals_that_double_at_every_step_are_not_written_out() -> None:
    chain = "\n".join(f"T{at}: T{at + 1} T{at + 1}" for at in range(30))
    with pytest.raises(Unsayable, match="size"):
        lower_lark(parse_lark(f'start: T0\n{chain}\nT30: "z"'), Work())


def test_terminals_in_terminals_have_an_end() -> None:
    chain = "\n".join(f"T{at}: T{at + 1}" for at in range(300))
    with pytest.raises(Unsayable, match="deep"):
        lower_lark(parse_lark(f'start: T0\n{chain}\nT300: "z"'), Work())
