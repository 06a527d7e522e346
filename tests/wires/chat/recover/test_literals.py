"""Literals of JSON and Python, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.wires.chat.recover.literals import read_keywords, read_literal


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, -2.5, 1e3, true, null]}', {"a": [1, -2.5, 1000.0, True, None]}),
        ("{'a': (1, +2,), 'b': {}, 'c': [],}", {"a": [1, 2], "b": {}, "c": []}),
        ("[True, False, None]", [True, False, None]),
        ('"two\nlines"', "two\nlines"),
        (r'"a\"b\\c\/d\n\t"', 'a"b\\c/d\n\t'),
        (r"'it\'s'", "it's"),
        (r'"\d+\."', r"\d+\."),
        (r'"\x41\u0042\U00000043"', "ABC"),
        (r'"\U00110000"', r"\U00110000"),
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"\ud83d!"', "�!"),
        ('"""a "quoted" word"""', 'a "quoted" word'),
        ("'''a'''", "a"),
        ("''", ""),
        (".5", 0.5),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert read_literal(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "1 2", "1x", "{1: 2}", '{"a" 1}', '{"a": 1', "[1", "(1]", '"open', "f(1)"),
        *("1 + 1", "a.b", "__import__('os')", "1e999", "@", "[1,,2]", "=", "9" * 5000),
        "[" * 200 + "]" * 200,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_literal(text)


def test_keywords() -> None:
    assert read_keywords("") == {}
    assert read_keywords(" a = 1, b='x', ") == {"a": 1, "b": "x"}


@pytest.mark.parametrize("text", ["1", "a", "a=", "a=1 b=2", "a=f(1)", "**a", "a=1)"])
def test_other_arguments_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_keywords(text)
