"""Patterns: what they match, as a tree of characters."""

from __future__ import annotations

import pytest

from antiphon.wires.chat.grammars.patterns import (
    ANY,
    Alt,
    Cat,
    Chars,
    Repeat,
    Unsayable,
    chars,
    invert,
    literal,
    parse_pattern,
)

A, B = literal("a"), literal("b")
ONE_A, ONE_B = chars([(97, 97)]), chars([(98, 98)])


def test_ranges_are_sorted_and_merged() -> None:
    assert chars([(5, 9), (1, 2), (3, 4), (8, 12)]) == Chars(((1, 12),))
    assert invert(invert(Chars(((3, 5), (9, 9))))) == Chars(((3, 5), (9, 9)))
    assert invert(ANY) == Chars(())


@pytest.mark.parametrize(
    ("pattern", "tree"),
    [
        ("ab", Cat((ONE_A, ONE_B))),
        ("a|b", Alt((ONE_A, ONE_B))),
        ("(?:a)*", Repeat(ONE_A, 0, None)),
        ("(?P<x>a){2,}", Repeat(ONE_A, 2, None)),
        ("(?<x>a){2}", Repeat(ONE_A, 2, 2)),
        ("a{2,3}", Repeat(ONE_A, 2, 3)),
        (r"\x61\x{61}", Cat((ONE_A, ONE_A))),
        (r"\u0061\U00000061", Cat((ONE_A, ONE_A))),
        (r"\.", chars([(46, 46)])),
        ("[ab-]", chars([(97, 98), (45, 45)])),
        ("[]a]", chars([(93, 93), (97, 97)])),
        (r"[\]a]", chars([(93, 93), (97, 97)])),
        ("(?i:a)b", Cat((chars([(65, 65), (97, 97)]), ONE_B))),
        ("(?i)a(?-i)b", Cat((chars([(65, 65), (97, 97)]), ONE_B))),
        ("(?s:.)", ANY),
        (".", invert(chars([(10, 10)]))),
        (r"\S", invert(parse_pattern(r"\s"))),  # type: ignore[arg-type]  # a class
    ],
)
def test_a_pattern_becomes_a_tree(pattern: str, tree: object) -> None:
    assert parse_pattern(pattern) == tree


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"\w", r"\b", r"\p{L}", "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "a*?", "a{2}?", "(?x)a"),
        *("a^b", "a$b", "^a|b", "a|b$", "(^a)", "(?m)^a", "(?m)a$"),
        *("[a&&b]", "[[:alpha:]]", "[b-a]", r"[a-\s]", "(?i)é", r"\ud800"),
        *("(", ")", "[a", "a{x}", "a{3,2}", "a{9999999}", "*a", "a\\", r"\xzz", r"\x{110000}"),
        *("(?P<a", "(" * 99 + ")" * 99, "(?u-u)a"),
    ],
)
def test_what_cannot_be_said_exactly_is_not_said(pattern: str) -> None:
    with pytest.raises(Unsayable):
        parse_pattern(pattern)
