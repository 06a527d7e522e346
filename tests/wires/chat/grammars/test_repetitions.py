"""Repetitions in a pattern: how many, and how deep their counts nest."""

from __future__ import annotations

import pytest

from antiphon.wires.chat.grammars.repetitions import repetitions


@pytest.mark.parametrize(
    ("pattern", "total", "is_lazy", "nest"),
    [
        ("abc", 0, False, (0, 1)),
        ("a*b+c?", 3, False, (0, 1)),
        ("a{2,3}b{4}", 2, False, (1, 4)),
        (r"\*[*+?]\[+", 1, False, (0, 1)),
        ("(?:a)(?P<x>b)", 0, False, (0, 1)),
        ("a*?", 1, True, (0, 1)),
        ("a{2}?", 1, True, (1, 2)),
        ("a??", 1, True, (0, 1)),
        ("a{", 1, False, (0, 1)),
        # Escapes have braces too.
        (r"\p{L}\x{10FFFF}{2}", 1, False, (1, 2)),
        ("((a{2}b){3,}c){1,4}a{5}", 4, False, (3, 24)),
        ("(a{2}[)*]+b){3})a{4}{5}", 5, False, (2, 20)),
        ("(a{2}|b{9})(c|(d{3}))*", 4, False, (1, 9)),
        # What looks like the beginning of a class hides nothing.
        ("[{]a{2}", 1, False, (1, 2)),
        ("[{1,]a{2}", 1, False, (1, 2)),
        (r"\x{5B}\[(?P<a[>b)(?<c[>d)a{2}", 1, False, (1, 2)),
    ],
)
def test_repetitions_are_counted_without_reading_the_rest(
    pattern: str, total: int, is_lazy: bool, nest: tuple[int, int]
) -> None:
    assert repetitions(pattern) == (total, is_lazy, False, nest)


@pytest.mark.parametrize(
    ("pattern", "is_verbose"),
    [("(?x)a", True), ("a(?ix:b)", True), (r"\(?x", False), ("(?P<x>a)", False), ("[(?x]", False)],
)
def test_comments_in_a_pattern_are_noticed(pattern: str, is_verbose: bool) -> None:
    assert repetitions(pattern).is_verbose is is_verbose
