"""Grammars for llama.cpp: the same language, or none."""

from __future__ import annotations

import pytest

from antiphon.wires.chat.grammars.gbnf import MAX_DEFINITION, lark_to_gbnf, regex_to_gbnf
from tests.gbnf_reader import Gbnf


def test_a_small_grammar_reads_as_one_would_write_it() -> None:
    assert lark_to_gbnf('start: pair+\npair: KEY "=" /[0-9]+/ "\\n"\nKEY: /[a-z]+/') == (
        "root ::= start-0\n"
        "start-0 ::= pair-1+\n"
        "t0 ::= [a-z]+\n"
        "t1 ::= [0-9]+\n"
        'pair-1 ::= t0 "=" t1 "\\n"\n'
    )


@pytest.mark.parametrize(
    ("definition", "good", "bad"),
    [
        ('start: "a"~2..3', ["aa", "aaa"], ["a", "aaaa"]),
        ('start: ["a"] "b"{2}', ["bb", "abb"], ["ab"]),
        ('start: "a".."c" "x"i', ["bX", "cx"], ["dx"]),
        ('start: x\nx: x "+" y | y\ny: "1" | "(" x ")"', ["1+1", "(1+(1))"], ["", "+1", "1+"]),
        ('start: x\nx: x "a" | x | "b"', ["b", "baa"], ["a"]),
        ('start: ("a" | "b"?)*', ["", "abba"], ["c"]),
        ('start: x~2 "z"\nx: "a" |', ["z", "az", "aaz"], ["aaaz"]),
        ('start: "a" x\nx:', ["a"], ["", "aa"]),
        ('start: "" "a"', ["a"], [""]),
        ("start: A A\nA: /[a-z]/", ["ab"], ["a", "abc"]),
        ('start: a-b a_b\na-b: "1"\na_b: "2"', ["12"], ["11"]),
        ('start: "\\"\\\\[^-]é\\n\\t\\r\\u0001"', ['"\\[^-]é\n\t\r\x01'], ["é"]),
        ('start: /[\\]^\\-\\\\"\\[]+/', ['^-]\\"['], ["a"]),
        ("start: /[^é-ü]/ /😀/", ["e😀"], ["é😀"]),
    ],
)
def test_lark_means_the_same(definition: str, good: list[str], bad: list[str]) -> None:
    written = lark_to_gbnf(definition)
    assert written is not None
    gbnf = Gbnf(written)
    assert [text for text in good if not gbnf.accepts(text)] == []
    assert [text for text in bad if gbnf.accepts(text)] == []


@pytest.mark.parametrize(
    ("definition", "good", "bad"),
    [
        ('start: "x" "y"?', ["x", "x ", "x  y"], [" x", "xy "]),
        ('start: "x" e\ne:', ["x"], ["x "]),
        ('start: "x"*', ["", "x", "x x "], [" ", " x"]),
        ('start: "x"~2', ["xx", "x  x"], ["xx ", "x"]),
        ('start: "x"~1..2', ["x", "x ", "x x"], ["x x "]),
        ('start: a | "(" a ")"\na: "n"', ["n", "( n )"], ["n ", "(n) "]),
    ],
)
def test_ignored_text_stands_only_where_more_may_follow(
    definition: str, good: list[str], bad: list[str]
) -> None:
    written = lark_to_gbnf(f'{definition}\n%ignore " "')
    assert written is not None
    gbnf = Gbnf(written)
    assert [text for text in good if not gbnf.accepts(text)] == []
    assert [text for text in bad if gbnf.accepts(text)] == []


def test_blanks_and_comments_may_both_be_ignored() -> None:
    written = lark_to_gbnf(
        'start: "x" "y"\n%import common (WS, C_COMMENT)\n%ignore WS\n%ignore C_COMMENT'
    )
    assert written is not None
    assert Gbnf(written).accepts("x /* a * b */ /**/\n y")
    assert not Gbnf(written).accepts("x /* y")


@pytest.mark.parametrize(
    "definition",
    [
        # The longest match wins, which rules over characters do not know.
        "start: A B\nA: /a+/\nB: /ab/",
        'start: (A | B) "bc"\nA: "a"\nB: "ab"',
        "start: /é/ /é?è/ | /é+/ /è/",
        'start: "x" /#[^\\n]*/ "y"\n%ignore " "',
        # Whether ignored text may stand at the end depends on what else was possible.
        'start: "x" | "x" "y"\n%ignore " "',
        'start: /a*/ "b"\n%ignore " "',
        'start: "a" "b"\n%ignore / */',
        # A loop around a rule that may be empty.
        'start: (x)*\nx: "a" | "b"?',
        # Rules that begin with themselves by a detour, or behind nothing.
        'start: x\nx: y "a" | "b"\ny: x "c" | "d"',
        'start: x\nx: z x "a" | "b"\nz: "c"?',
        'start: (x)*\nx: (y)*\ny: "a"?',
        # Not patterns, not grammars, or too large.
        "start: /\\w+/",
        "start: A\nA: /[a-z]+/ & ~/if/",
        "start: A\nA: B\nB: A",
        "start: A",
        "start: %json {}",
        "start: x\nx: x",
        'start: "a"~5000',
        "start: A\nA: /a{700}/",
        "start: A\nA: " + "B " * 50 + '\nB: "' + "b" * 100 + '"',
        "start: " + " ".join(f'"{n}"' for n in range(900)),
        'start: "' + "a" * MAX_DEFINITION + '"',
        # Small to write, and hours of work to find out.
        "start: " + "(" * 20 + '"a"' + "{1,100})" * 20 + '\n%ignore " "',
        "start: " + "e " * 1000 + '\ne: "a" | ',
        "start: A\nA: /a" + "(){600}{600}{600}{600}" + "b/",
        "start: (" + '"a"? ' * 700 + ")*",
    ],
)
def test_what_gbnf_cannot_say_is_not_said(definition: str) -> None:
    assert lark_to_gbnf(definition) is None


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("a+b?", ["a", "aab"], ["b", ""]),
        ("(a*)*b", ["b", "aab"], ["a"]),
        ("(a?b?)*", ["", "baab"], ["c"]),
        ("(|a|(b|)*){2,}c", ["c", "abc"], ["ca"]),
        ("(a|)(){3}", ["", "a"], ["aa"]),
        ("((ab){2}){1,2}", ["abab", "abababab"], ["ab"]),
        ("^x$", ["x"], ["x\n"]),
        ("a.b", ["a\rb", "aéb"], ["a\nb"]),
        ("(?s).", ["\n"], [""]),
        ("(?i)k[s-t]", ["Ks", "\u212aſ"], ["kr"]),
        (r"(?i)\d{2}\Da", ["12-A", "٣4xa"], ["1x2a"]),
        (r"[\d\s]", ["٣", " "], ["a"]),
        ("", [""], ["a"]),
        ("[^a]{2}", ["bb", "\nc"], ["ab"]),
    ],
)
def test_a_pattern_means_the_same(pattern: str, good: list[str], bad: list[str]) -> None:
    written = regex_to_gbnf(pattern)
    assert written is not None
    gbnf = Gbnf(written)
    assert [text for text in good if not gbnf.accepts(text)] == []
    assert [text for text in bad if gbnf.accepts(text)] == []


@pytest.mark.parametrize(
    "pattern", [r"\w", r"\p{L}", "a*?", "(?=a)", "a{3000}", "[^\\x00-\\U0010FFFF]", "a" * 40_000]
)
def test_a_pattern_that_gbnf_cannot_say_is_not_said(pattern: str) -> None:
    assert regex_to_gbnf(pattern) is None
