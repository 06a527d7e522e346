"""JSON with comments: what it says, and where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from antiphon.cli.connect.jsonc import NotJson, read_jsonc
from tests.cli.connect.settings_texts import JSON_VALUES, commented


@given(JSON_VALUES.flatmap(lambda value: commented(value)))
def test_comments_and_spare_commas_change_nothing(given_: tuple[Any, str]) -> None:
    value, text = given_
    node = read_jsonc(text)
    assert node is not None and node.value == value
    assert read_jsonc(text[node.start : node.end]) is not None


@given(JSON_VALUES)
def test_plain_json_is_understood(value: Any) -> None:
    node = read_jsonc(json.dumps(value, indent=2))
    assert node is not None and node.value == value


def test_children_are_where_they_say() -> None:
    text = '{ // c\n "a": [1, "x\\"y",], "b": {} }'
    node = read_jsonc(text)
    assert node is not None
    assert [(key, text[at : child.end]) for key, at, child in node.children] == [
        ("a", '"a": [1, "x\\"y",]'),
        ("b", '"b": {}'),
    ]
    assert node.child("c") is None


@pytest.mark.parametrize("text", ["", " \n", "// c", "/* c */\n//"])
def test_nothing_is_nothing(text: str) -> None:
    assert read_jsonc(text) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "line 1: a value is missing"),
        ('{"a" 1}', "line 1: a colon is missing"),
        ('{"a":\n}', "line 2: a value is missing"),
        ('{"a": 1\n "b": 2}', "line 2: a comma or } is missing"),
        ("[1 2]", "a comma or ] is missing"),
        ("{a: 1}", "a value is missing or broken"),
        ('{"a": 1, "a": 2}', "the key 'a' is there twice"),
        ("[] []", "text after the end"),
        ("[,]", "a value is missing"),
        ('"\n"', "a value is missing or broken"),
        ("[tru]", "a value is missing or broken"),
        ("/* open", "a value is missing"),
        ("[" * 200, "nested too deeply"),
    ],
)
def test_what_cannot_be_understood_is_told_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(NotJson, match=complaint.replace("]", r"\]")):
        read_jsonc(text)
