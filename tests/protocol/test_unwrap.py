"""What a model meant, whatever it wrapped it in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from antiphon.protocol.unwrap import unwrap_arguments, unwrap_input
from tests.strategies import texts


@pytest.mark.parametrize(
    ("came", "meant"),
    [
        ('{"input":"ls"}', "ls"),
        ('{"input":""}', ""),
        ('{"input":"a","reason":"b"}', "a"),
        ('{"patch":"ls"}', "ls"),
        ('"ls"', "ls"),
        (json.dumps('{"input":"ls"}'), "ls"),
        (json.dumps("3"), "3"),
        (json.dumps(json.dumps("ls")), '"ls"'),
        ("ls -l", "ls -l"),
        ("", ""),
        ("{}", "{}"),
        ("3", "3"),
        ('["ls"]', '["ls"]'),
        ('{"a":"b","c":"d"}', '{"a":"b","c":"d"}'),
        ('{"input":{"a":1}}', '{"input":{"a":1}}'),
        ('{"cmd":"a","n":1}', '{"cmd":"a","n":1}'),
        ('{"input":"cut', '{"input":"cut'),
        ("[" * 100_000, "[" * 100_000),
        ("\ud800", "\ud800"),
    ],
)
def test_the_input_is_taken_out_of_what_it_came_in(came: str, meant: str) -> None:
    assert unwrap_input(came) == meant


@given(texts())
def test_any_text_comes_back_from_the_form_in_which_models_are_shown_it(text: str) -> None:
    assert unwrap_input(json.dumps({"input": text})) == text


def test_an_input_that_looks_wrapped_is_unwrapped_once() -> None:
    inner = json.dumps({"input": "x"})
    assert unwrap_input(json.dumps({"input": inner})) == inner


@pytest.mark.parametrize(
    ("came", "meant"),
    [
        ('{"a":1}', '{"a":1}'),
        (json.dumps('{"a":1}'), '{"a":1}'),
        ("  " + json.dumps("{}"), "{}"),
        ('"plain"', '"plain"'),
        (json.dumps("[1]"), json.dumps("[1]")),
        ('"{', '"{'),
        ("", ""),
        ('"\ud800"', '"\ud800"'),
    ],
)
def test_arguments_are_taken_out_of_a_string_that_holds_an_object(came: str, meant: str) -> None:
    assert unwrap_arguments(came) == meant
