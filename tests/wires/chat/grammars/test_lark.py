"""Lark's notation: what is read, and what is refused at which place."""

from __future__ import annotations

import pytest

from antiphon.wires.chat.grammars.lark import (
    LarkError,
    Name,
    Regex,
    Span,
    Text,
    parse_lark,
)
from antiphon.wires.chat.grammars.patterns import Alt, Cat, Repeat


def test_rules_terminals_and_statements_are_told_apart() -> None:
    grammar = parse_lark(
        "?start: a B // a comment\n"
        '  | "c"i -> alias\n'
        "\n"
        "!a: [B] # another\n"
        'B: "b".."d" | /e\\/f/i\n'
        "%ignore / +/\n"
        "%import common.INT -> NUM\n"
        "%import common (WS, LF)\n"
    )
    assert grammar.rules == {
        "start": Alt((Cat((Name("a"), Name("B"))), Text("c", fold=True))),
        "a": Repeat(Name("B"), 0, 1),
    }
    assert grammar.terminals["B"] == Alt((Span("b", "d"), Regex(r"e\/f", "i")))
    assert grammar.terminals["NUM"] == Regex("[0-9]+", "")
    assert {"WS", "LF"} <= set(grammar.terminals)
    assert grammar.ignored == [Regex(" +", "")]


@pytest.mark.parametrize(
    ("written", "low", "high"),
    [
        ("*", 0, None),
        ("+", 1, None),
        ("?", 0, 1),
        ("~3", 3, 3),
        ("~1..4", 1, 4),
        ("{2}", 2, 2),
        ("{2,}", 2, None),
        ("{,5}", 0, 5),
        ("{1,2}", 1, 2),
    ],
)
def test_counts_are_written_in_many_ways(written: str, low: int, high: int | None) -> None:
    assert parse_lark(f"start: x{written}").rules["start"] == Repeat(Name("x"), low, high)


def test_texts_have_the_escapes_of_json_and_two_hex_digits() -> None:
    grammar = parse_lark(r'start: "a\n\"\\x\x41é\/"')
    assert grammar.rules["start"] == Text('a\n"\\xAé/', fold=False)


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ("", "no rule named 'start'"),
        ('start: "a\n', "line 1, column 8"),
        ("start: (a", "line 1, column 10: ')'"),
        ("start: a)", "cannot begin with ')'"),
        # These exist elsewhere, but three of them are enough to keep a compiler busy for hours.
        ("start: A\nA: /a/ & /b/", "line 2, column 8: '&' cannot stand here"),
        ("start: A\nA: ~/b/", "line 2, column 4: '~' cannot stand here"),
        ("start: a\nstart: b", "line 2, column 1: 'start' is defined twice"),
        ("start: A\n%import common.WS\n%import common.WS", "defined twice"),
        ("start: a\n%import common.NOTHING", "no 'NOTHING'"),
        ("start: a\n%import other.X", "only '%import common"),
        ("start: a\n%override a: b", "'%override' is not supported"),
        ("start.2: a", "priority"),
        ("start: t{a}\nt{x}: x", "templates"),
        ("start: a::b", "templates"),
        ("start: a~5..2", "backwards"),
        ("start: a~b", "a count"),
        ("start: a~99999999999", "a count"),
        ('start: "a".."bc"', "a range"),
        ('start: "a"..b', "a range"),
        ("start: :", "cannot stand here"),
        ("start a", "':' should stand here"),
        ("start: " + "(" * 40 + "a" + ")" * 40, "nested too deep"),
    ],
)
def test_what_is_refused_says_why(definition: str, why: str) -> None:
    with pytest.raises(LarkError) as caught:
        parse_lark(definition)
    assert why in str(caught.value)
